"""Replicas: those of a plan run together where that is possible, and oracles asked about several of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from fuzz.backends.base import Backend
from fuzz.backends.execute import Ran, run
from fuzz.backends.together import Played, Recording, alike, recorded
from fuzz.case import Call, Case, replica_words
from fuzz.finding import Finding
from fuzz.oracles.base import Asking, Examination, Outputs, Rerun, Stack
from fuzz.outcome import CallResult, Returned
from fuzz.target import Launcher, Target

LARGEST = 1 << 26
"""Bytes that the arguments of replicas may have together."""
Words = Mapping[str, np.ndarray]
Asked = tuple[Examination, Rerun]


@runtime_checkable
class Rerunning(Protocol):
    """An oracle that compares a case with reruns of it."""

    def asks(self, exam: Examination) -> Asking: ...


@dataclass
class Replicas:
    """Runs replicas of one plan. Recordings go by what a launcher can tell calls apart by, beside values."""

    target: Target
    launcher: Launcher
    backend: Backend
    recordings: dict[object, Recording | None] = field(default_factory=dict)

    def run(self, cases: Sequence[Case]) -> list[Examination]:
        """The first replicas of a plan: together, those apart of which something is wrong with memory.

        Only the first one where they cannot run together, which its run tells.
        """
        kept: list[Ran] = []
        plan, call = cases[0], cases[0].last
        first = run(self.target, self.launcher, plan.calls, self.backend, kept=kept)
        alone = [Examination(self.target, self.launcher, plan, self.backend, first)]
        if len(cases) == 1 or len(plan.calls) > 1 or not isinstance(first, Returned):
            return alone
        words = {name: replica_words(value, call.dims, len(cases)) for name, value in call.tensors.items()}
        played = self._recorded(call, kept[0], words, first.calls[0].outputs)
        if played is None:
            return alone
        stack = Stack(words, played.outputs)
        # What all of them did is told of the first: nobody counted which of them did it.
        first = Returned((replace(first.calls[0], counted=kept[0].session.counted()),))
        return [self._exam(case, row, stack, bool(played.intact[row]), first) for row, case in enumerate(cases)]

    def _recorded(
        self, call: Call, ran: Ran, words: Words, outputs: Outputs, order: int | None = None
    ) -> Played | None:
        """What the replicas give by the recording of the first of them, which has to give what it gave alone."""
        recording = None if sum(part.nbytes for part in words.values()) > LARGEST else recorded(ran)
        played = recording.play(words, order) if recording else None
        if played is not None and not alike(played, 0, outputs):
            recording = played = None
        self.recordings[structure(call)] = recording
        return played

    def _exam(self, case: Case, row: int, stack: Stack, intact: bool, first: Returned) -> Examination:
        made = self.target, self.launcher, case, self.backend
        if not intact:
            return Examination(*made, run(self.target, self.launcher, case.calls, self.backend))
        outputs = {name: tensor[row] for name, tensor in stack.outputs.items()}
        counted = b"" if row else first.calls[0].counted
        result = CallResult(outputs, kernels=first.calls[0].kernels, counted=counted)
        return Examination(*made, Returned((result,)), stack=stack, row=row)

    def ask(self, oracle: Rerunning, exams: Sequence[Examination]) -> list[Finding | None]:
        """What an oracle finds in each; the reruns that it asks for run together."""
        asking = [oracle.asks(exam) for exam in exams]
        found: list[Finding | None] = [None] * len(exams)
        answers: dict[int, Outputs | None] = dict.fromkeys(range(len(exams)))
        while answers:
            asked: dict[int, Rerun] = {}
            for place, answer in answers.items():
                try:
                    asked[place] = asking[place].send(answer)
                except StopIteration as end:
                    found[place] = end.value
            told = self.rerun([(exams[place], request) for place, request in asked.items()])
            answers = dict(zip(asked, told, strict=True))
        return found

    def rerun(self, asked: Sequence[Asked]) -> list[Outputs | None]:
        """The outputs of each rerun, together those whose calls have one structure."""
        groups: dict[object, list[int]] = {}
        for place, (exam, request) in enumerate(asked):
            groups.setdefault((structure(request.call or exam.case.last), request.order), []).append(place)
        found: list[Outputs | None] = [None] * len(asked)
        for places in groups.values():
            for place, outputs in zip(places, self._alike([asked[place] for place in places]), strict=True):
                found[place] = outputs
        return found

    def _alike(self, asked: Sequence[Asked]) -> list[Outputs | None]:
        """Reruns of one structure, in one order of programs."""
        (exam, request), *others = asked
        call, order = request.call or exam.case.last, request.order
        key = structure(call)
        recording = self.recordings.get(key)
        if recording is not None:
            return outputs_of(recording.play(stacked(asked), order), asked)
        if len(asked) == 1 or key in self.recordings:
            return [exam.rerun(request) for exam, request in asked]
        kept: list[Ran] = []
        outputs = exam.rerun(request, kept)
        played = self._recorded(call, kept[0], stacked(asked), outputs, order) if outputs is not None else None
        if played is None:
            return [outputs, *(exam.rerun(request) for exam, request in others)]
        return outputs_of(played, asked)


def outputs_of(played: Played, asked: Sequence[Asked]) -> list[Outputs | None]:
    """Each rerun's outputs; alone those of which something is wrong with memory."""
    return [
        {name: tensor[row] for name, tensor in played.outputs.items()} if played.intact[row] else exam.rerun(request)
        for row, (exam, request) in enumerate(asked)
    ]


def stacked(asked: Sequence[Asked]) -> dict[str, np.ndarray]:
    """The words of each rerun's tensors, one above the other."""
    names = asked[0][0].case.last.tensors
    return {name: np.stack([words_of(*one, name) for one in asked]) for name in names}


def words_of(exam: Examination, request: Rerun, name: str) -> np.ndarray:
    if request.words is not None and name in request.words:
        return request.words[name]
    return exam.words(name) if request.call is None else request.call.tensors[name].words(request.call.dims)


def structure(call: Call) -> object:
    """What is alike in replicas of a call: everything but values."""
    tensors = tuple((name, value.dtype, value.layout) for name, value in call.tensors.items())
    return tuple(call.dims.items()), tensors, tuple(call.options.items())
