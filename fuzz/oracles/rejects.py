"""rejects: an input that the target says must be refused raises, instead of computing."""

from __future__ import annotations

import torch

from fuzz.backends.memory import place
from fuzz.case import Case
from fuzz.errors import TargetError, one_line
from fuzz.finding import Finding
from fuzz.oracles.base import Examination
from fuzz.target import Target


class Rejects:
    name = "rejects"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        return bool(target.rejects) and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        for name, spoil in exam.target.rejects.items():
            if self._accepted(exam, name, spoil):
                message = f"an input that must be refused ({name.replace('_', ' ')}) was computed"
                return Finding("rejects", (name,), "accepted", message)
        return None

    def _accepted(self, exam: Examination, name: str, spoil: object) -> bool:
        """Whether the launcher computes the spoilt input; False where the spoiling leaves it as it is."""
        assert callable(spoil)
        call = exam.case.last
        device = exam.backend.device
        buffers = {key: place(key, value, call.dims, device, exam.words(key)) for key, value in call.tensors.items()}
        inputs = {key: buffers[key].tensor for key in call.arguments} | dict(call.options)
        inputs |= {key: call.dims[dim] for key, dim in exam.target.passed_sizes.items()}
        try:
            changed = spoil(**inputs)
        except Exception as error:
            where = f"target {exam.target.name!r}: rejects[{name!r}]"
            raise TargetError(f"{where} itself fails: {one_line(error)}") from None
        if not changed or 0 in [value.numel() for value in inputs.values() if isinstance(value, torch.Tensor)]:
            return False
        with exam.backend.session(None) as session:
            try:
                exam.launcher(**{**inputs, **changed})
                exam.backend.finish()
            except Exception as error:
                return exam.backend.fatal(error) or bool(session.kernels())
        return True
