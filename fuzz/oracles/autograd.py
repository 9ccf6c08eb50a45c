"""autograd: a differentiable kernel has the same gradients in company as alone, and spoils nothing for its company.

The graphs of `autograd_graphs.py`: some inputs or none require a gradient; operations before, beside and after the
kernel keep their inputs and outputs; the backward runs again; the function is called again; what it may have saved is
overwritten. The kernel's results must have the bits that they have without these operations, or lie inside the bounds
of the accuracy oracle. The results of the other operations must have the bits that follow from the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from fuzz.backends.autodiff import Computation
from fuzz.backends.execute import run
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.outcome import Raised, Rejected, Returned
from fuzz.oracles import autograd_graphs
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.comparison.bits import SHOWN, differing, element
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, ExpectedOutputs, evaluate_reference, plain_tensor
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target

Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Company:
    """A computation with the symptom of what goes wrong in it, and when that is, in words.

    `wanted` are inputs whose gradients there must be; `beside` names the operation that a gradient may belong to.
    """

    symptom: str
    told: str
    computation: Computation
    wanted: tuple[str, ...] = ()
    beside: str = ""


@dataclass
class Alone:
    """A case's outputs and gradients without company, and what is due, evaluated where bits differ."""

    exam: Examination
    expected: ExpectedOutputs = field(default_factory=dict)

    @property
    def found(self) -> Mapping[str, torch.Tensor]:
        return self.exam.returned.calls[-1].outputs

    def unlike(self, got: Mapping[str, torch.Tensor]) -> Pairs:
        """(what came, what came alone) of those that have other bits and cannot be right."""
        pairs = {name: (got[name], value) for name, value in self.found.items() if name in got}
        return {name: pair for name, pair in pairs.items() if len(unequal(*pair)) and self._wrong(name, pair[0])}

    def _wrong(self, name: str, value: torch.Tensor) -> bool:
        target = self.exam.target
        if target.reference is None or target.contract.kind == "bitwise":
            return target.deterministic
        self.expected = self.expected or evaluate_reference(self.exam, 0, STAGES.index(THOROUGH))
        known = self.expected.get(name)
        return known is not None and compare_elements(value, known, self.exam.precision, target.contract).wrong


class Autograd(CaseOracle):
    name = "autograd"

    def applies(self, target: Target, case: Case) -> bool:
        return target.differentiable and len(case.calls) == 1

    def check_case(self, exam: Examination) -> Finding | None:
        alone = Alone(exam)
        found = missing(alone)
        for one in () if found else companies(exam.case):
            found = examined(alone, one)
            if found:
                break
        return found


def companies(case: Case) -> Iterator[Company]:
    """What the kernel is put among, one after the other."""
    floats = [name for name, value in case.last.arguments.items() if value.is_float]
    for names in autograd_graphs.subsets(floats):
        yield Company(
            "subset", f"where only {', '.join(names)} requires a gradient", autograd_graphs.only(names), names
        )
    yield Company("no-grad", "under no_grad", autograd_graphs.no_grad)
    for name, derivative in (("exp", autograd_graphs.exp_backward), ("softmax", autograd_graphs.softmax_backward)):
        computation = autograd_graphs.after_producers(derivative)
        yield Company("before", f"with {name} before each input", computation, beside=f"{name} before {{}}")
    beside = "square of {} beside it"
    yield Company("beside", "with the square of each input beside it", autograd_graphs.beside_consumers, beside=beside)
    yield Company("after", "with a sum after each output", autograd_graphs.before_sums, beside="other term added to {}")
    yield Company("twice", "when the backward runs again", autograd_graphs.twice)
    yield Company("saved", "when inputs and outputs are written over before the backward", autograd_graphs.written_over)
    yield Company("between", "when it is called again before the backward", autograd_graphs.between_calls)


def missing(alone: Alone) -> Finding | None:
    """A gradient that autograd does not get, where that of the reference is not 0 everywhere."""
    exam = alone.exam
    if exam.target.reference is None:
        return None
    everything = replace(exam, outcome=Rejected("whatever the kernel returns"))
    expected = evaluate_reference(everything, 0, 0)
    names = [name for name, one in expected.items() if name not in alone.found and bool(one.value.any())]
    if not names:
        return None
    told = f"{'+'.join(names)}: None, where the reference has a gradient"
    return Finding("autograd", tuple(names), "missing", told)


def examined(alone: Alone, one: Company) -> Finding | None:
    """What is wrong in one company."""
    exam = alone.exam
    outcome = run(exam.target, exam.launcher, exam.case.calls, exam.backend, computation=one.computation)
    if isinstance(outcome, Raised):
        return Finding("autograd", ("launcher",), "raised", f"raised {outcome.message} {one.told}")
    if not isinstance(outcome, Returned) or outcome.calls[-1].accesses:
        return None
    got = outcome.calls[-1].outputs
    return (neighbour(exam, one, got) or itself(alone, one, got)) if got else None


def neighbour(exam: Examination, one: Company, got: Mapping[str, torch.Tensor]) -> Finding | None:
    """What an operation beside the kernel computes wrongly."""
    pairs = {name: pair for name, pair in autograd_graphs.pairs_due(got).items() if len(unequal(*pair))}
    if not pairs:
        return None
    place, _, name = next(iter(pairs)).partition("_")
    if place == "first":
        told = f"the first backward's d{name} changes {one.told}"
        return disagreement(pairs, one.symptom, told, "the backward gave memory away that it uses again")
    if place == "both":
        return disagreement(pairs, one.symptom, f"the gradient of {name} is not the sum of its consumers'")
    told = f"the gradient of the {one.beside.format(name)} is wrong"
    if place == "after":
        return disagreement(pairs, one.symptom, told, f"the backward wrote over the gradient of {name}")
    return disagreement(pairs, one.symptom, told, overwritten(exam, got, name))


def overwritten(exam: Examination, got: Mapping[str, torch.Tensor], name: str) -> str:
    """Who wrote over an input, with the first element that changed."""
    pristine = plain_tensor(exam.case.last.arguments[name], exam.case.last.dims)
    for stage in ("forward", "backward"):
        after = got.get(f"{stage}_{name}", pristine).cpu()
        places = differing(pristine, after)
        if len(places):
            index = tuple(int(i) for i in places[0])
            was, now = (element(name, index, value, "").got for value in (pristine, after))
            return f"the {stage} wrote over its input: {name}{list(index)} was {was} and became {now}"
    return f"the call wrote over its input {name}"


def itself(alone: Alone, one: Company, got: Mapping[str, torch.Tensor]) -> Finding | None:
    """What the kernel computes wrongly in this company."""
    lost = tuple(f"d{name}" for name in one.wanted if f"d{name}" in alone.found and f"d{name}" not in got)
    if lost:
        return Finding("autograd", lost, one.symptom, f"{'+'.join(lost)}: None {one.told}")
    pairs = alone.unlike(got)
    return disagreement(pairs, one.symptom, f"{'+'.join(pairs)} is wrong {one.told}") if pairs else None


def unequal(got: torch.Tensor, due: torch.Tensor) -> torch.Tensor:
    """Indices (n, rank) of the elements of other values: a gradient of -0 is as good as one of 0."""
    return (~((got == due) | (got.isnan() & due.isnan()))).nonzero()


def disagreement(pairs: Pairs, symptom: str, told: str, why: str = "") -> Finding:
    """The finding, with the elements that differ most visibly first in their tensors."""
    elements, wrong, total = [], 0, 0
    for name, (got, due) in pairs.items():
        places = unequal(got, due)
        wrong, total = wrong + len(places), total + got.numel()
        for place in places[:SHOWN]:
            index = tuple(int(i) for i in place)
            elements.append(element(name, index, got, element(name, index, due, "").got))
    first = elements[0]
    message = f"{told} in {wrong} of {total} elements: {first.output}{list(first.index)} is {first.got}, "
    message += f"should be {first.want}" + (f", because {why}" if why else "")
    shown = tuple(elements[:SHOWN])
    return Finding("autograd", tuple(pairs), symptom, message, shown, disagreeing=wrong, compared=total)
