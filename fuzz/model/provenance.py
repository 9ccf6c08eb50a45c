"""Records where and how a corpus entry was seen, and reads and writes that record as text by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.escaping import clean_text
from fuzz.model.finding import VERDICTS, Verdict
from fuzz.model.rate import Rate

FIELD_OF_KEY = {"witnesses": "cross_checks"}
"""The fields whose name in an entry's file is another one."""
VERDICT_DETAILS = ("reason", "digits", "proof")
"""Keys that belong to the verdict."""
WHOLE_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
UNADJUDICATED = Verdict("unadjudicated")


@dataclass(frozen=True)
class Provenance:
    """Where and how an entry was seen. What is not known is empty or None.

    `versions` holds versions of packages and the name of the device, and whatever else a file says, as text by name.
    `first_case` is the index of the first case of the run that showed it. `cross_checks` maps other backends to what
    they say of the case. `cut_off` is the step of triage, such as shrinking, in which the run's time ended. `key_order`
    is the order of the keys in the file, so that it can be written again as it was.
    """

    backend: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    rate: Rate | None = None
    seed: int | None = None
    first_case: int | None = None
    verdict: Verdict | None = None
    diagnosis: tuple[str, ...] = ()
    cross_checks: Mapping[str, str] = field(default_factory=dict)
    cut_off: str = ""
    key_order: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.verdict is not None and self.verdict.finding is not None:
            object.__setattr__(self, "verdict", replace(self.verdict, finding=None))
        object.__setattr__(self, "backend", clean_text(self.backend))
        object.__setattr__(self, "diagnosis", tuple(map(clean_text, self.diagnosis)))
        for name in ("versions", "cross_checks"):
            cleaned = {clean_text(key): clean_text(text) for key, text in getattr(self, name).items()}
            object.__setattr__(self, name, cleaned)

    @property
    def adjudication(self) -> Verdict:
        """The verdict, `unadjudicated` where none is recorded."""
        return self.verdict or UNADJUDICATED

    def fields(self) -> dict[str, str]:
        """The record as text by name, as an entry's file holds it; what is not known is left out."""
        verdict = self.adjudication
        texts = {
            "backend": self.backend,
            **self.versions,
            "rate": str(self.rate or ""),
            "seed": _optional(self.seed),
            "first_case": _optional(self.first_case),
            "verdict": self.verdict.name if self.verdict else "",
            "reason": verdict.reason,
            "digits": _optional(verdict.digits or None),
            "proof": verdict.proof,
            "diagnosis": _joined(self.diagnosis),
            "witnesses": _joined(f"{name} {answer}" for name, answer in self.cross_checks.items()),
            "cut_off": self.cut_off,
        }
        known = {key: text for key, text in (texts | dict(self.versions)).items() if text or key in self.versions}
        return {key: known[key] for key in (*self.key_order, *known) if key in known}

    @staticmethod
    def parse(fields: Mapping[str, str]) -> Provenance:
        """The record that `fields` wrote. A text that this version does not understand is kept among `versions`."""
        record, fields = Provenance(), {key: clean_text(text) for key, text in fields.items()}
        for key, text in fields.items():
            if key not in VERDICT_DETAILS:
                record = _with_field(record, key, fields if key == "verdict" else {key: text})
        for key in VERDICT_DETAILS:
            if key in fields and record.fields().get(key) != fields[key]:
                record = replace(record, versions={**record.versions, key: fields[key]})
        return replace(record, key_order=tuple(fields))


def _joined(parts: Iterable[str]) -> str:
    """Parts as one text, which `_parse_field` takes apart again where they were joined."""
    return "; ".join(part.replace("; ", ", ") for part in parts)


def _with_field(record: Provenance, key: str, fields: Mapping[str, str]) -> Provenance:
    """The record with what the text of one key says, where this version would write the same text."""
    parsed: Any = _parse_field(key, fields)
    if parsed is not None:
        changed = replace(record, **{FIELD_OF_KEY.get(key, key): parsed})
        if changed.fields().get(key) == fields[key]:
            return changed
    return replace(record, versions={**record.versions, key: fields[key]})


def _parse_field(key: str, fields: Mapping[str, str]) -> object:
    """The value of a known key, or None where the key is not known or its text makes no sense."""
    text = fields[key]
    if key in ("backend", "cut_off"):
        return text
    if key == "rate" and re.fullmatch("[0-9]{1,9}/[1-9][0-9]{0,8}", text):
        rate = Rate.parse(text)
        return rate if rate.disagreements <= rate.runs else None
    if key in ("seed", "first_case"):
        return int(text) if WHOLE_NUMBER.fullmatch(text) else None
    if key == "diagnosis":
        return tuple(text.split("; "))
    if key == "witnesses":
        return {name: answer for name, _, answer in (part.partition(" ") for part in text.split("; "))}
    if key == "verdict" and text in VERDICTS:
        digits = fields.get("digits", "")
        count = int(digits) if re.fullmatch("[1-9][0-9]{0,8}", digits) else 0
        return Verdict(text, fields.get("reason", ""), count, proof=fields.get("proof", ""))
    return None


def _optional(number: int | None) -> str:
    return "" if number is None else str(number)
