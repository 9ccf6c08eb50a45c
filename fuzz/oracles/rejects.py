"""Checks that an input that the target must refuse raises, instead of computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuzz.backends.guarded_memory import allocate_buffer
from fuzz.backends.launcher_allocations import LauncherAllocations
from fuzz.errors import TargetError, UsageError, one_line
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import Oracle
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import SavedFinding, ScriptCheck
from fuzz.target.promises import describe_promise
from fuzz.target.spec import Target

LAUNCH_SPOILT = '''
def check():
    """Calls the launcher with an input that it must refuse."""
    make, _, options = CALLS[SHOWN_CALL]
    inputs = {**make(), **options}
    inputs.update(SPOIL(**inputs))
    try:
        LAUNCHER(**inputs)
        yield "an input that must be refused was computed"
    except Exception as error:
        print(f"refused: {error}")
'''


class RejectsOracle(Oracle):
    spec = oracle_specs.REJECTS

    def applies(self, target: Target, case: Case) -> bool:
        return bool(target.rejects) and len(case.calls) == 1

    def check(self, exams: Sequence[Examination]) -> list[Finding | None]:
        """Looks at the first replica only where it finds nothing, and values did not matter to what was done."""
        findings: list[Finding | None] = []
        for exam in exams:
            finding, used_values = self._check_case(exam)
            findings.append(finding)
            if finding is None and not used_values:
                break
        return findings + [None] * (len(exams) - len(findings))

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        name, rejects = saved.finding.output, saved.target.rejects
        if name not in rejects:
            raise UsageError(f"no script can be made: {saved.target.name} rejects {', '.join(rejects)}, not {name!r}")
        return ScriptCheck(LAUNCH_SPOILT, functions={"SPOIL": rejects[name]})

    def _check_case(self, exam: Examination) -> tuple[Finding | None, bool]:
        """The finding, and whether anything that was done may have depended on values."""
        used_values = False
        for name, spoil in exam.target.rejects.items():
            accepted, computed = self._spoil_and_launch(exam, name, spoil)
            used_values |= computed
            if accepted:
                message = f"an input that must be refused ({name.replace('_', ' ')}) was computed; "
                message += describe_promise(exam.target, self.name)
                return Finding(self.name, (name,), "accepted", message), used_values
        return None, used_values

    def _spoil_and_launch(self, exam: Examination, name: str, spoil: Callable[..., Any]) -> tuple[bool, bool]:
        """(accepted, computed): whether the launcher computes the spoilt input, and whether anything was done but to
        allocate memory and to view it in other shapes. An input that `spoil` leaves as it is counts as refused."""
        call = exam.case.last
        device = exam.backend.device
        buffers = {
            key: allocate_buffer(key, value, call.dims, device, exam.words(key)) for key, value in call.tensors.items()
        }
        inputs = {key: buffers[key].tensor for key in call.arguments} | exam.target.scalars(call)
        with exam.backend.session(None) as session, LauncherAllocations(session.on_operation) as allocations:
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
                if exam.backend.is_unusable(error):
                    raise
                launched = exam.backend.is_fatal(error) or bool(session.kernels())
                return launched, allocations.has_computed or launched
        return True, allocations.has_computed
