"""Replicas: those of a plan run together where that is possible, and oracles asked about several of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from fuzz.backends.base import Backend
from fuzz.backends.execute import CompletedCall, run
from fuzz.backends.replay.trace import LaunchTrace, ReplayResult, matches_single_run, record_trace
from fuzz.model.case import REPLICA, Argument, Call, Case
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.outcome import CallResult, Returned
from fuzz.model.recipes import Recipe
from fuzz.model.recipes.torch_values import from_bits, tensors, to_bits
from fuzz.oracles.base import Asking, Rerun, Several, chosen
from fuzz.oracles.comparison.bits import Outputs, Pairs, same_bits
from fuzz.oracles.comparison.expected import common
from fuzz.oracles.examination import Examination, Row, Stack
from fuzz.target.spec import Launcher, Target

LARGEST = 1 << 26
"""Bytes that the arguments of replicas may have together."""
Values = Mapping[str, torch.Tensor]
Asked = tuple[Examination, Rerun]
Compared = Callable[[Outputs, Outputs], Pairs]
Key = tuple[str, int | None, bool]
Known = dict[tuple[int, Key], Outputs | None]


class Unattributed(Exception):
    """The device failed while several replicas ran; which of them did it shows where each runs in a process anew."""


@runtime_checkable
class Rerunning(Protocol):
    """An oracle that compares a case with reruns of it."""

    def asks(self, exam: Examination) -> Asking: ...

    def asks_together(self, exams: Sequence[Examination]) -> Iterator[Several]:
        """What `asks` would ask for of each of some replicas that ran together, as far as that is the same."""


@dataclass
class ReplicaRunner:
    """Runs replicas of one plan. Recordings go by what a launcher can tell calls apart by, beside values."""

    target: Target
    launcher: Launcher
    backend: Backend
    traces: dict[object, LaunchTrace | None] = field(default_factory=dict)

    def run(self, plan: Case, count: int) -> list[Examination]:
        """The first replicas of a plan: together, those apart of which something is wrong with memory.

        Only the first one where they cannot run together, which its run tells.
        """
        kept: list[CompletedCall] = []
        call = plan.last
        first = run(self.target, self.launcher, plan.calls, self.backend, completed=kept)
        alone = [Examination(self.target, self.launcher, plan, self.backend, first)]
        if count == 1 or len(plan.calls) > 1 or not isinstance(first, Returned):
            return alone
        device = self.backend.device
        values = {name: replica_values(value, call.dims, count, device) for name, value in call.tensors.items()}
        result = self._recorded(call, kept[0], values, first.calls[0].outputs)
        if result is None:
            return alone
        stack = Stack(values, result.outputs)
        # What all of them did is told of the first: nobody counted which of them did it.
        all_of_them = CallResult(Row(stack, 0), kernels=first.calls[0].kernels, counted=kept[0].session.read_counters())
        first = Returned((all_of_them,))
        return [self._exam(plan, row, stack, intact, first) for row, intact in enumerate(result.intact.tolist())]

    def _recorded(
        self, call: Call, ran: CompletedCall, values: Values, outputs: Outputs, order: int | None = None
    ) -> ReplayResult | None:
        """What the replicas give by the recording of the first of them, which has to give what it gave alone."""
        trace = None if sum(part.nbytes for part in values.values()) > LARGEST else record_trace(ran)
        result = self._replay(trace, values, order) if trace else None
        if result is not None and not matches_single_run(result, 0, outputs):
            trace = result = None
        self.traces[structure(call)] = trace
        return result

    def _replay(self, trace: LaunchTrace, values: Values, order: int | None) -> ReplayResult:
        try:
            return trace.replay(values, order)
        except Exception as error:
            if self.backend.is_fatal(error):
                raise Unattributed from error
            raise

    def _exam(self, plan: Case, row: int, stack: Stack, intact: bool, first: Returned) -> Examination:
        if not intact:
            case = plan.replica(row)
            outcome = run(self.target, self.launcher, case.calls, self.backend)
            return Examination(self.target, self.launcher, case, self.backend, outcome)
        return Examination(self.target, self.launcher, plan, self.backend, first, stack=stack, row=row)

    def ask(self, oracle: Rerunning, exams: Sequence[Examination]) -> list[Finding | None]:
        """What an oracle finds in each; the reruns that it asks for run together.

        Those of replicas that ran together are asked for and compared all at once. Only where something is not as it
        should be, or could not run so, is a replica asked about by itself, and is told what was seen already.
        """
        found: list[Finding | None] = [None] * len(exams)
        known, open_ = self._several(oracle, exams)
        asking = {place: oracle.asks(exams[place]) for place in open_}
        answers: dict[int, Outputs | None] = dict.fromkeys(asking)
        while answers:
            asked: dict[int, Rerun] = {}
            for place, answer in answers.items():
                try:
                    asked[place] = asking[place].send(answer)
                except StopIteration as end:
                    found[place] = end.value
            answers = {place: known[place, key(one)] for place, one in asked.items() if (place, key(one)) in known}
            others = [place for place in asked if place not in answers]
            told = self.rerun([(exams[place], asked[place]) for place in others])
            answers |= zip(others, told, strict=True)
        return found

    def _several(self, oracle: Rerunning, exams: Sequence[Examination]) -> tuple[Known, Sequence[int]]:
        """What is known of the reruns of each replica, and which replicas are still to be asked about."""
        known: Known = {}
        if common(exams) is None:
            return known, range(len(exams))
        open_: set[int] = set()
        for several in oracle.asks_together(exams):
            mine = [exams[place] for place in several.places]
            result = self._replay_several(several, mine)
            if result is None:
                open_.update(several.places)
                continue
            agreed = agreeing(result, mine, several.rerun.pairs)
            for row, (place, intact) in enumerate(zip(several.places, result.intact.tolist(), strict=True)):
                if intact:
                    one = None if agreed[row] else {name: part[row] for name, part in result.outputs.items()}
                    known[place, key(several.rerun)] = one
                if not (intact and agreed[row]):
                    open_.add(place)
        return known, sorted(open_)

    def _replay_several(self, several: Several, exams: Sequence[Examination]) -> ReplayResult | None:
        """The reruns together; None where they cannot run so."""
        exam, request = exams[0], several.rerun
        call = request.call or exam.plan.last
        trace = self.traces.get(structure(call))
        if trace is not None:
            return self._replay(trace, several.values, request.order)
        if len(exams) == 1 or structure(call) in self.traces:
            return None
        kept: list[CompletedCall] = []
        words = {name: to_bits(part[0]) for name, part in several.values.items()}
        outputs = exam.rerun(replace(request, words=words), kept)
        return None if outputs is None else self._recorded(call, kept[0], several.values, outputs, request.order)

    def rerun(self, asked: Sequence[Asked]) -> list[Outputs | None]:
        """The outputs of each rerun, together those whose calls have one structure."""
        groups: dict[object, list[int]] = {}
        plain = structure(asked[0][0].plan.last) if asked else None
        for place, (_, request) in enumerate(asked):
            alike = structure(request.call) if request.call else plain
            groups.setdefault((alike, request.order, request.step), []).append(place)
        found: list[Outputs | None] = [None] * len(asked)
        for places in groups.values():
            for place, outputs in zip(places, self._alike([asked[place] for place in places]), strict=True):
                found[place] = outputs
        return found

    def _alike(self, asked: Sequence[Asked]) -> list[Outputs | None]:
        """Reruns of one structure, in one order of programs."""
        (exam, request), *others = asked
        call, order = request.call or exam.plan.last, request.order
        key = structure(call)
        trace = self.traces.get(key)
        if trace is not None:
            return answers(self._replay(trace, stacked(asked, self.backend.device), order), asked)
        if len(asked) == 1 or key in self.traces:
            return [exam.rerun(request) for exam, request in asked]
        kept: list[CompletedCall] = []
        outputs = exam.rerun(request, kept)
        result = None
        if outputs is not None:
            result = self._recorded(call, kept[0], stacked(asked, self.backend.device), outputs, order)
        if result is None:
            return [outputs, *(exam.rerun(request) for exam, request in others)]
        return answers(result, asked)


def answers(result: ReplayResult, asked: Sequence[Asked]) -> list[Outputs | None]:
    """Each rerun's outputs, None where they are the same bits as the first; alone those that harm memory."""
    agreed = agreeing(result, [exam for exam, _ in asked], asked[0][1].pairs)
    found: list[Outputs | None] = []
    for row, (exam, request) in enumerate(asked):
        if not result.intact[row]:
            found.append(exam.rerun(request))
        else:
            found.append(None if agreed[row] else {name: tensor[row] for name, tensor in result.outputs.items()})
    return found


def agreeing(result: ReplayResult, exams: Sequence[Examination], pairs: Compared | None) -> list[bool]:
    """Of which replicas everything that has to be the same bits is."""
    stack = common(exams)
    if pairs is None or stack is None:
        return [False] * len(exams)
    first = chosen(stack.outputs, [exam.row for exam in exams])
    agreed = torch.ones(len(exams), dtype=torch.bool, device=next(iter(first.values())).device)
    for got, other in pairs(first, result.outputs).values():
        agreed &= same_bits(got, other).reshape(len(exams), -1).all(1)
    found: list[bool] = agreed.tolist()
    return found


def key(request: Rerun) -> Key:
    """What tells the reruns apart that an oracle asks for of one replica."""
    return request.step, request.order, request.call is None


def replica_values(value: Argument, dims: Mapping[str, int], count: int, device: str) -> torch.Tensor:
    """The values of an argument in the first replicas, (count, *stored shape)."""
    shape = value.layout.stored(resolve(value.shape, dims))
    if isinstance(value.values, Recipe):
        seeds = [value.values.seed + number * REPLICA for number in range(count)]
        return tensors(value.values, seeds, shape, value.dtype, device)
    one = from_bits(value.bits(dims), named_dtype(value.dtype), device)
    return one.expand(count, *shape).contiguous()


def stacked(asked: Sequence[Asked], device: str) -> dict[str, torch.Tensor]:
    """The values of each rerun's tensors, one above the other."""
    call = asked[0][1].call or asked[0][0].plan.last
    return {name: stacked_values(asked, name, value.dtype, device) for name, value in call.tensors.items()}


def stacked_values(asked: Sequence[Asked], name: str, dtype: str, device: str) -> torch.Tensor:
    stack = common([exam for exam, _ in asked])
    if stack and all(request.call is None and name not in (request.words or ()) for _, request in asked):
        return stack.values[name][[exam.row for exam, _ in asked]]
    return from_bits(np.stack([words_of(*one, name) for one in asked]), named_dtype(dtype), device)


def words_of(exam: Examination, request: Rerun, name: str) -> np.ndarray:
    if request.words is not None and name in request.words:
        return request.words[name]
    return exam.words(name) if request.call is None else request.call.tensors[name].bits(request.call.dims)


def structure(call: Call) -> object:
    """What is alike in replicas of a call: everything but values."""
    tensors = tuple((name, value.dtype, value.layout) for name, value in call.tensors.items())
    return tuple(call.dims.items()), tensors, tuple(call.options.items())
