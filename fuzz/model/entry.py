"""Defines an entry, one corpus file as data: a case, what was seen there, and what became of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from fuzz.escaping import clean_text
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.model.provenance import Provenance

STATUSES = ("open", "fixed", "accepted")
MAX_OUTPUTS_IN_NAME = 80
"""Characters that the outputs' names take in a file's name."""


@dataclass(frozen=True)
class Entry:
    """A corpus entry. `also` holds summaries of other findings in the same case (`Finding.summary`).

    `grade` is the finding's severity, None where it is not graded.
    """

    case: Case
    finding: Finding | None = None
    status: str = "open"
    why: str = ""
    planted: str = ""
    also: tuple[str, ...] = ()
    provenance: Provenance = Provenance()
    grade: Grade | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", clean_text(self.why))
        object.__setattr__(self, "also", tuple(map(clean_text, self.also)))

    @property
    def digest(self) -> str:
        return digest(self.case)

    @property
    def severity(self) -> str | None:
        """The finding's severity; None where it is not graded. A wrong reference is low without a grade as well."""
        blames_reference = self.finding is not None and self.finding.blames_reference(self.provenance.adjudication)
        return self.grade.severity if self.grade else "low" if blames_reference else None

    @property
    def typical_entry(self) -> Entry | None:
        """The same entry of its typical case; None without one."""
        typical = self.grade.typical if self.grade else None
        if typical is None:
            return None
        provenance = replace(self.provenance, rate=None, verdict=None, diagnosis=(), cross_checks={})
        return replace(self, case=typical.case, finding=typical.finding, also=(), provenance=provenance, grade=None)

    @property
    def name(self) -> str:
        """The file's name, from what is wrong and the digest."""
        if self.finding is None:
            return f"seed-{self.digest[:8]}.yaml"
        outputs = re.sub(r"[^A-Za-z0-9_+]+", "_", self.finding.output)[:MAX_OUTPUTS_IN_NAME]
        return f"{outputs}-{self.finding.symptom}-{self.digest[:8]}.yaml"


def is_one_input(case: Case, other: Case) -> bool:
    """Whether two cases have one digest, as values may be written out in one and made by a recipe in the other."""
    if case.key == other.key:
        return True
    return [call.dims for call in case.calls] == [call.dims for call in other.calls] and digest(case) == digest(other)


def digest(case: Case) -> str:
    """Sixteen hex digits over the case's dims, options, layouts and materialised bytes: a recipe's drift changes it."""
    hashed = hashlib.sha256(case.target.encode())
    for call in case.calls:
        hashed.update(repr((tuple(call.dims.items()), tuple(call.options.items()))).encode())
        if call.launch is not None:
            hashed.update(repr(call.launch).encode())
        for name, value in call.tensors.items():
            hashed.update(repr((name, value.shape, value.dtype, value.layout)).encode())
            hashed.update(value.bits(call.dims).tobytes())
    hashed.update(repr(case.split).encode())
    return hashed.hexdigest()[:16]
