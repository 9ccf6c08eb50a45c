"""Checks that a differentiable kernel has the same gradients in a larger graph and corrupts no other operation.

The graphs of `autograd_graphs.py`: some inputs or none require a gradient; one of several outputs is used; operations
before, beside and after the kernel keep their inputs and outputs; the backward runs again; the function is called
again; what it may have saved is overwritten. The kernel's results must have the bits that they have without these
operations, or lie inside the bounds of the accuracy oracle. The results of the other operations must have the bits that
follow from the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import compress
from typing import Any, TypeGuard

import torch

from fuzz.backends.autodiff import Computation
from fuzz.backends.execute import run
from fuzz.backends.guarded_memory import read_flags
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.outcome import Outcome, Raised, Rejected, Returned
from fuzz.model.recipes import recipe
from fuzz.oracles.autograd_script import FIND_MISSING, RUN_IN_GRAPHS, USE_ONE_OUTPUT
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.comparison.bits import MAX_ELEMENTS, Outputs, Pairs, differing_indices, make_element
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, ExpectedOutputs, evaluate_reference, plain_tensor
from fuzz.oracles.execution import autograd_graphs
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import FAILURE, SavedFinding, ScriptCheck
from fuzz.target.spec import Target


@dataclass(frozen=True)
class GraphContext:
    """A graph in which the kernel runs, with the symptom and the circumstance of what goes wrong in it, in words.

    `function` of autograd_graphs.py is the computation, or makes it of `argument`. There must be gradients of the
    inputs `wanted`. `adjacent_op` names the operation that a gradient may belong to. With `refuses_nothing` an error
    that would refuse an input counts, too.
    """

    symptom: str
    circumstance: str
    function: Callable[..., Any]
    argument: Callable[..., Any] | tuple[str, ...] | None = None
    wanted: tuple[str, ...] = ()
    adjacent_op: str = ""
    refuses_nothing: bool = False

    @property
    def computation(self) -> Computation:
        computation: Computation = self.function if self.argument is None else self.function(self.argument)
        return computation


@dataclass
class Baseline:
    """A case's outputs and gradients without other operations, and what is expected, evaluated where bits differ."""

    exam: Examination
    expected: ExpectedOutputs = field(default_factory=dict)

    @property
    def outputs(self) -> Outputs:
        return self.exam.outputs

    def wrong_pairs(self, got: Outputs) -> Pairs:
        """(result in a graph, result without) of those that have other bits and cannot be right."""
        pairs = {name: (got[name], value) for name, value in self.outputs.items() if name in got}
        return {name: pair for name, pair in unequal_pairs(pairs).items() if self._is_wrong(name, pair[0])}

    def _is_wrong(self, name: str, value: torch.Tensor) -> bool:
        target = self.exam.target
        if target.reference is None or target.contract.kind == "bitwise":
            return target.deterministic
        self.expected = self.expected or evaluate_reference(self.exam, 0, STAGES.index(THOROUGH))
        expected = self.expected.get(name)
        return expected is not None and compare_elements(value, expected, self.exam.precision, target.contract).wrong


@dataclass
class OneOutputBaseline(Baseline):
    """The baseline of one output that is used alone: the case has cotangents of 0 for the others.

    Where another output overflows or has a pole, 0 times infinity is NaN; autograd without that cotangent, or a kernel
    that is given None, has a number. Both are right: an element is wrong where neither reference allows it.
    """

    used: str = ""

    @cached_property
    def references(self) -> list[tuple[Examination, ExpectedOutputs]]:
        """What is due with cotangents of 0, and without any."""
        alone = replace(self.exam, target=differentiated_by(self.exam.target, self.used))
        return [(exam, evaluate_reference(exam, 0, STAGES.index(THOROUGH))) for exam in (self.exam, alone)]

    def wrong_pairs(self, got: Outputs) -> Pairs:
        """The pairs, whose elements differ only where they are wrong."""
        pairs = {name: (got[name], value) for name, value in self.outputs.items() if name in got}
        judged = {name: self._where_wrong(name, *pair) for name, pair in unequal_pairs(pairs).items()}
        return unequal_pairs(
            {name: (got[name], torch.where(judged[name], pairs[name][1], got[name])) for name in judged}
        )

    def _where_wrong(self, name: str, value: torch.Tensor, with_zeros: torch.Tensor) -> torch.Tensor:
        wrong, contract = unequal(value, with_zeros), self.exam.target.contract
        for exam, due in self.references:
            if name not in due:
                return torch.zeros_like(wrong)
            wrong &= compare_elements(value, due[name], exam.precision, contract).symptom.to(wrong.device) > 0
        return wrong


class AutogradOracle(CaseOracle):
    spec = oracle_specs.AUTOGRAD

    def applies(self, target: Target, case: Case) -> bool:
        return target.differentiable and len(case.calls) == 1

    def check_case(self, exam: Examination) -> Finding | None:
        baseline = Baseline(exam)
        finding = check_missing_gradients(baseline)
        for context in () if finding else graph_contexts(exam.target, exam.case):
            finding = check_context(baseline, context)
            if finding:
                break
        return finding or check_outputs_alone(exam)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        finding = saved.finding
        if finding.symptom == "missing":
            return ScriptCheck(FIND_MISSING, {"OUTPUTS": list(finding.outputs)})
        if finding.change:
            used = finding.change[0]
            graph, case = one_output(used), with_one_cotangent(saved.entry.case, used)
            only = ((graph.function, graph.argument, graph.wanted),)
            alone = {"EXPECTED_ALONE": differentiated_by(saved.target, used)}
            constants: dict[str, object] = {"USED": used}
            return ScriptCheck(USE_ONE_OUTPUT, constants, graphs=only, values=True, values_of=case, values_by=alone)
        contexts = [
            context
            for context in graph_contexts(saved.target, saved.entry.case)
            if finding.symptom in (context.symptom, "raised")
        ]
        graphs = [(context.function, context.argument, context.wanted) for context in contexts]
        requested = saved.target.requested_writes(saved.entry.case.last)
        constants = {"OUTPUTS": list(finding.outputs), "REQUESTED": list(requested)}
        return ScriptCheck(FAILURE + RUN_IN_GRAPHS, constants, graphs=tuple(graphs), values=True)


def graph_contexts(target: Target, case: Case) -> Iterator[GraphContext]:
    """The graphs in which the kernel runs, one after the other. A backward that an option asks to write runs once."""
    graphs = autograd_graphs
    floats = [name for name, value in case.last.arguments.items() if value.is_float]
    for names in graphs.list_subsets(floats):
        yield GraphContext(
            "subset", f"where only {', '.join(names)} requires a gradient", graphs.differentiate_by, names, names
        )
    yield GraphContext("no-grad", "under no_grad", graphs.run_without_autograd)
    yield GraphContext("no-grad", "where no input requires a gradient", graphs.differentiate_by, ())
    for name, derivative in (("exp", graphs.exp_backward), ("softmax", graphs.softmax_backward)):
        circumstance, adjacent_op = f"with {name} before each input", f"{name} before {{}}"
        yield GraphContext("before", circumstance, graphs.run_after_producers, derivative, adjacent_op=adjacent_op)
    adjacent_op = "square of {} beside it"
    circumstance = "with the square of each input beside it"
    yield GraphContext("beside", circumstance, graphs.run_beside_consumers, adjacent_op=adjacent_op)
    adjacent_op = "other term added to {}"
    yield GraphContext("after", "with a sum after each output", graphs.run_before_sums, adjacent_op=adjacent_op)
    if not target.requested_writes(case.last):
        yield GraphContext("twice", "when the backward runs again", graphs.run_backward_twice)
    yield GraphContext(
        "saved", "when inputs and outputs are written over before the backward", graphs.overwrite_before_backward
    )
    yield GraphContext("between", "when it is called again before the backward", graphs.run_between_calls)


def one_output(name: str) -> GraphContext:
    """The graph in which one output is used, and no other."""
    computation = autograd_graphs.differentiate_outputs
    return GraphContext("output", f"where only output {name} is used", computation, (name,), refuses_nothing=True)


def with_one_cotangent(case: Case, name: str) -> Case:
    """The case with a cotangent of 0 for all outputs but one."""
    call = case.last
    for other in call.cotangents:
        if other != name:
            zeros = replace(call.cotangents[other], values=recipe("zeros", 0))
            call = call.with_argument(f"grad {other}", zeros)
    return replace(case, calls=(*case.calls[:-1], call))


def differentiated_by(target: Target, name: str) -> Target:
    """The target with a reference of which only one output is differentiated: the others need no gradient.

    The case stays as it is, because dtypes of cotangents decide what precision a kernel has.
    """
    reference = target.reference
    if reference is None:
        return target

    @wraps(reference)
    def differentiated(**arguments: Any) -> dict[str, torch.Tensor]:
        outputs = reference(**arguments)
        return {output: value if output == name else value.detach() for output, value in outputs.items()}

    return replace(target, reference=differentiated)


def graphs_by_code(target: Target, case: Case) -> list[GraphContext]:
    """The graphs that decide which code of the launcher runs, no gradient and a second backward first.

    The others put operations around it, of which it knows nothing.
    """
    order = ("no-grad", "twice", "subset")
    chosen = [context for context in graph_contexts(target, case) if context.symptom in order]
    return sorted(chosen, key=lambda context: order.index(context.symptom))


def check_missing_gradients(baseline: Baseline) -> Finding | None:
    """A gradient that autograd does not get, where that of the reference is not 0 everywhere."""
    exam = baseline.exam
    floats = (name for name, value in exam.case.last.arguments.items() if value.is_float)
    if exam.target.reference is None or all(f"d{name}" in baseline.outputs for name in floats):
        return None
    # The reference's gradients, whichever of them the kernel returns.
    expected = evaluate_reference(replace(exam, outcome=Rejected("not run")), 0, 0)
    names = [name for name, one in expected.items() if name not in baseline.outputs and bool(one.value.any())]
    if not names:
        return None
    message = f"{'+'.join(names)}: None, where the reference has a gradient"
    return Finding(oracle_specs.AUTOGRAD.name, tuple(names), "missing", message)


def check_outputs_alone(exam: Examination) -> Finding | None:
    """What is wrong where one of several outputs is used, as in a model that leaves an auxiliary one.

    Another way through the backward may have other bits, so that only a reference can say that it is wrong.
    """
    names = [name for name in exam.case.last.cotangents if name in exam.outputs]
    if len(names) < 2 or exam.target.reference is None or exam.target.contract.kind == "bitwise":
        return None
    for name in names:
        case = with_one_cotangent(exam.case, name)
        outcome = run(exam.target, exam.launcher, case.calls, exam.backend)
        if isinstance(outcome, Returned):
            with_zeros = replace(exam, plan=case, outcome=outcome, stack=None, row=0)
            finding = check_context(OneOutputBaseline(with_zeros, used=name), one_output(name))
            if finding:
                return replace(finding, change=(name, 1.0))
    return None


def check_context(baseline: Baseline, context: GraphContext) -> Finding | None:
    """What is wrong in one graph."""
    exam = baseline.exam
    outcome = run(exam.target, exam.launcher, exam.case.calls, exam.backend, computation=context.computation)
    if isinstance(outcome, Raised) or context.refuses_nothing and is_error(outcome):
        message = f"raised {outcome.message} {context.circumstance}"
        return Finding(oracle_specs.AUTOGRAD.name, ("launcher",), "raised", message)
    if not isinstance(outcome, Returned) or outcome.calls[-1].accesses:
        return None
    got = outcome.calls[-1].outputs
    return (check_adjacent_op(exam, context, got) or check_kernel(baseline, context, got)) if got else None


def is_error(outcome: Outcome) -> TypeGuard[Rejected]:
    """Whether a backward raised what would refuse an input, of a call that it differentiates with all outputs.

    NotImplementedError says that this is meant.
    """
    return isinstance(outcome, Rejected) and outcome.message.startswith(("TypeError", "ValueError", "AssertionError"))


def check_adjacent_op(exam: Examination, context: GraphContext, got: Outputs) -> Finding | None:
    """What an operation beside the kernel computes wrongly; not of tensors that an option asks it to write."""
    requested = exam.target.requested_writes(exam.case.last)
    expected = autograd_graphs.pair_expected_gradients(got)
    pairs = unequal_pairs({name: pair for name, pair in expected.items() if kept_tensor(name) not in requested})
    if not pairs:
        return None
    place, _, name = next(iter(pairs)).partition("_")
    if place == "first":
        problem = f"the first backward's d{name} changes {context.circumstance}"
        return disagreement(pairs, context.symptom, problem, "the backward gave memory away that it uses again")
    if place == "both":
        return disagreement(pairs, context.symptom, f"the gradient of {name} is not the sum of its consumers'")
    problem = f"the gradient of the {context.adjacent_op.format(name)} is wrong"
    if place == "after":
        return disagreement(pairs, context.symptom, problem, f"the backward wrote over the gradient of {name}")
    return disagreement(pairs, context.symptom, problem, explain_overwritten(exam, got, name))


def kept_tensor(gradient: str) -> str:
    """The tensor that the operation keeps or shares whose gradient this is: `before_x`, `after_y`, .."""
    return gradient.replace("after_", "after_grad ").partition("_")[2]


def explain_overwritten(exam: Examination, got: Outputs, name: str) -> str:
    """Whether the forward or the backward wrote over an input, with the first element that changed."""
    pristine = plain_tensor(exam.case.last.arguments[name], exam.case.last.dims)
    for stage in ("forward", "backward"):
        after = got.get(f"{stage}_{name}", pristine).cpu()
        places = differing_indices(pristine, after)
        if len(places):
            index = tuple(int(i) for i in places[0])
            was, now = (make_element(name, index, value, "").got for value in (pristine, after))
            return f"the {stage} wrote over its input: {name}{list(index)} was {was} and became {now}"
    return f"the call wrote over its input {name}"


def check_kernel(baseline: Baseline, context: GraphContext, got: Outputs) -> Finding | None:
    """What the kernel itself computes wrongly in this graph."""
    lost = tuple(f"d{name}" for name in context.wanted if f"d{name}" in baseline.outputs and f"d{name}" not in got)
    if lost:
        message = f"{'+'.join(lost)}: None {context.circumstance}"
        return Finding(oracle_specs.AUTOGRAD.name, lost, context.symptom, message)
    pairs = baseline.wrong_pairs(got)
    problem = f"{'+'.join(pairs)} is wrong {context.circumstance}"
    return disagreement(pairs, context.symptom, problem) if pairs else None


def unequal_pairs(pairs: Pairs) -> Pairs:
    """The pairs of which an element has another value."""
    differ = read_flags([unequal(*pair).any() for pair in pairs.values()])
    return dict(compress(pairs.items(), differ))


def unequal(got: torch.Tensor, due: torch.Tensor) -> torch.Tensor:
    """Element by element whether the values differ: a gradient of -0 is as good as one of 0."""
    return ~((got == due) | (got.isnan() & due.isnan()))


def disagreement(pairs: Pairs, symptom: str, problem: str, reason: str = "") -> Finding:
    """The finding of a problem, with the first elements of each tensor that differ."""
    elements, wrong, total = [], 0, 0
    for name, (got, due) in pairs.items():
        places = unequal(got, due).nonzero()
        wrong, total = wrong + len(places), total + got.numel()
        for place in places[:MAX_ELEMENTS]:
            index = tuple(int(i) for i in place)
            elements.append(make_element(name, index, got, make_element(name, index, due, "").got))
    first = elements[0]
    message = f"{problem} in {wrong} of {total} elements: {first.output}{list(first.index)} is {first.got}, "
    message += f"should be {first.want}" + (f", because {reason}" if reason else "")
    return Finding(
        oracle_specs.AUTOGRAD.name,
        tuple(pairs),
        symptom,
        message,
        tuple(elements[:MAX_ELEMENTS]),
        disagreeing=wrong,
        compared=total,
    )
