"""What the patterns of a diagnosis look at: the outputs of one call, what is expected, and where they disagree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import DType
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.elements import compare_elements, error_bounds
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, evaluate_reference, reference_inputs
from fuzz.oracles.execution.examination import Examination

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class DiagnosisContext:
    """Outputs of the last call as float64: got, wanted, how far apart they may be, and which elements are wrong.

    `wrong` holds only outputs with a wrong element. `inputs` are the floating arguments, `earlier` the expected
    outputs of earlier calls. `unshrunk` is, for the least case, what a pattern says of the unshrunk one: what was found
    there needs less to be found again.
    """

    dims: Mapping[str, int]
    inputs: Tensors
    raw: Tensors
    got: Tensors
    want: Tensors
    bound: Tensors
    wrong: Tensors
    earlier: tuple[Tensors, ...] = ()
    unshrunk: str = ""

    def kind(self, output: str) -> DType:
        return named_dtype(DTYPE_NAMES[self.raw[output].dtype])

    def name(self, sentence: str) -> str:
        """A sentence that is of the unshrunk case, with that case's dims."""
        return name_unshrunk(self.dims, sentence)

    def fits(self, output: str, due: torch.Tensor, bound: torch.Tensor) -> bool:
        """Whether an output is `due` everywhere, and `due` differs from what is expected in some wrong element."""
        got, wrong = self.got[output], self.wrong[output]
        if got.shape != due.shape or not bool(torch.isfinite(got).all()):
            return False
        apart = (due - self.want[output]).abs() > bound
        return bool(((got - due).abs() <= bound).all()) and bool((apart & wrong).any())


Pattern = Callable[[DiagnosisContext, str], str]
"""(context, output) -> what is wrong with the output, as a sentence; empty where the pattern does not fit."""


def name_unshrunk(dims: Mapping[str, int], sentence: str) -> str:
    """A sentence on the unshrunk case that the case which is shown does not bear out."""
    text = " ".join(f"{name}={size}" for name, size in dims.items())
    return f"in the unshrunk case{text and f' ({text})'}: {sentence}"


def make_context(exam: Examination) -> DiagnosisContext:
    """The context of a case that returned. Raises TargetError where the reference fails."""
    call = len(exam.case.calls) - 1
    outputs = {name: tensor.cpu() for name, tensor in exam.returned.calls[call].outputs.items()}
    stage = STAGES.index(THOROUGH)
    expected = {
        name: one for name, one in evaluate_reference(exam, call, stage).items() if outputs[name].is_floating_point()
    }
    want = {name: one.value.cpu() for name, one in expected.items()}
    bound, wrong = {}, {}
    for name, one in expected.items():
        kind = named_dtype(DTYPE_NAMES[outputs[name].dtype])
        bound[name] = error_bounds(one, kind, exam.precision, exam.target.contract)[2].cpu()
        symptom = compare_elements(outputs[name], one, exam.precision, exam.target.contract).symptom.cpu() > 0
        if bool(symptom.any()):
            wrong[name] = symptom
    earlier = [
        {name: one.value.cpu() for name, one in evaluate_reference(exam, index, 0).items()} for index in range(call)
    ]
    inputs = reference_inputs(exam, call)[0]
    floats = {name: x.double() for name, x in inputs.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    got = {name: outputs[name].double() for name in want}
    return DiagnosisContext(exam.case.calls[call].dims, floats, outputs, got, want, bound, wrong, tuple(earlier))
