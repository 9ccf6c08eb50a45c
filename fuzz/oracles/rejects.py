"""rejects: an input that the target says must be refused raises, instead of computing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fuzz.backends.allocations import GuardedAllocations
from fuzz.backends.memory import allocate_buffer
from fuzz.errors import TargetError, one_line
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target


class Rejects:
    name = "rejects"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        return bool(target.rejects) and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        return self._asked(exam)[0]

    def examine_replicas(self, exams: Sequence[Examination]) -> list[Finding | None]:
        """The same of each replica of a plan; only of the first where values did not matter to what it did."""
        found: list[Finding | None] = []
        for exam in exams:
            finding, alike = self._asked(exam)
            found.append(finding)
            if alike and finding is None:
                return [*found, *[None] * (len(exams) - len(found))]
        return found

    def _asked(self, exam: Examination) -> tuple[Finding | None, bool]:
        """What is accepted, and whether nothing that was done depended on values."""
        alike = True
        for name, spoil in exam.target.rejects.items():
            accepted, computed = self._accepted(exam, name, spoil)
            alike &= not computed
            if accepted:
                message = f"an input that must be refused ({name.replace('_', ' ')}) was computed"
                return Finding("rejects", (name,), "accepted", message), alike
        return None, alike

    def _accepted(self, exam: Examination, name: str, spoil: object) -> tuple[bool, bool]:
        """Whether the launcher computes the spoilt input, not where the spoiling leaves it as it is; and whether
        anything was done but to allocate memory and to look at it in other shapes."""
        assert callable(spoil)
        call = exam.case.last
        device = exam.backend.device
        buffers = {
            key: allocate_buffer(key, value, call.dims, device, exam.words(key)) for key, value in call.tensors.items()
        }
        inputs = {key: buffers[key].tensor for key in call.arguments} | dict(call.options)
        inputs |= {key: call.dims[dim] for key, dim in exam.target.passed_sizes.items()}
        with exam.backend.session(None) as session, GuardedAllocations(session.on_operation) as allocations:
            try:
                changed = spoil(**inputs)
            except Exception as error:
                where = f"target {exam.target.name!r}: rejects[{name!r}]"
                raise TargetError(f"{where} itself fails: {one_line(error)}") from None
            if not changed or 0 in [value.numel() for value in inputs.values() if isinstance(value, torch.Tensor)]:
                return False, allocations.has_computed
            try:
                exam.launcher(**{**inputs, **changed})
                exam.backend.synchronize()
            except Exception as error:
                launched = exam.backend.is_fatal(error) or bool(session.kernels())
                return launched, allocations.has_computed or launched
        return True, allocations.has_computed
