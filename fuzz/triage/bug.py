"""Records: one cause each, what it covers, and which of them are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.model.case import Case, sort_key
from fuzz.model.finding import Finding, Verdict
from fuzz.model.rate import Rate
from fuzz.target.spec import Target
from fuzz.triage.conditions import needs

REFERENCE = "reference"
"""The symptom of a reference that is wrong: another cause than a kernel that is."""
MUTATION = "mutation"
"""The oracle that tells of writes over inputs, which nothing else that is wrong with a case explains."""
NONFINITE, FINITE = "nonfinite", ("sign", "value")
"""Symptoms of NaN and infinities, and of wrong numbers: on one output they may well have different causes."""
BITWISE = ("invariance", "layout", "scaling")
"""Oracles that compare two runs of which both may be wrong."""


@dataclass
class Record:
    """One cause: the least case that shows it, how it was first seen, and how often since.

    `filed` is the symptom that the oracle saw, where the verdict made another one of it. `needs` is what must be off
    its default for this cause to show itself; a case that lacks some of it has another cause. `finite` is the same of
    the wrong numbers that a cause of NaN makes as well, None until some turned out to be its own. `numbers` says that
    there is such a cause already, so that the case must not shrink into its NaN. `taken` are findings, each with its
    case, that turned out to be this cause when they were shrunk. `appeared` is the symptom of the unshrunk case. With
    `parity` another backend does not see it.
    """

    finding: Finding
    case: Case
    first: Case
    first_index: int
    first_seconds: float
    rate: Rate = Rate()
    hits: int = 1
    stateful: bool = False
    also: tuple[Finding, ...] = ()
    outputs: set[str] = field(default_factory=set)
    executions: int = 0
    path: str = ""
    known: bool = False
    accepted: bool = False
    verdict: Verdict = Verdict("unadjudicated", "accuracy alone is adjudicated")
    filed: str = ""
    needs: frozenset[str] = frozenset()
    finite: frozenset[str] | None = None
    numbers: bool = False
    diagnosis: tuple[str, ...] = ()
    witnesses: Mapping[str, str] = field(default_factory=dict)
    parity: bool = False
    taken: list[tuple[Finding, Case]] = field(default_factory=list)
    appeared: str = ""

    @property
    def told(self) -> dict[str, str]:
        """Verdict, diagnosis and witnesses as an entry tells them."""
        said = "; ".join(f"{name} {said}" for name, said in self.witnesses.items())
        words = {"diagnosis": "; ".join(self.diagnosis), "witnesses": said}
        return {**self.verdict.told, **{key: text for key, text in words.items() if text}}

    def take(self, other: Record) -> None:
        """Moves to another record's case, with what was seen of it."""
        self.case, self.finding, self.also = other.case, other.finding, other.also
        self.verdict, self.filed = other.verdict, other.filed
        self.diagnosis, self.witnesses, self.parity = other.diagnosis, other.witnesses, other.parity

    def less(self, other: Record, defaults: Mapping[str, object]) -> bool:
        """Whether this record's case is less than another's."""
        return sort_key(self.case, defaults) < sort_key(other.case, defaults)

    @property
    def filing(self) -> Finding:
        """The finding as it is told and saved."""
        return self.finding.as_parity if self.parity else self.finding

    @property
    def pictured(self) -> tuple[Case, ...]:
        """Cases whose outputs show what is wrong, clearest first: the unshrunk one only if both or none show NaN."""
        alike = (self.appeared == NONFINITE) == (self.finding.symptom == NONFINITE)
        return (self.first, self.case) if alike else (self.case,)

    @property
    def blames_reference(self) -> bool:
        """Whether the oracle itself saw that the reference is wrong, and no output of the kernel."""
        return (self.filed or self.finding.symptom) == REFERENCE

    @property
    def widened(self) -> Finding:
        """The finding with every output that ever disagreed together with one of its own."""
        return replace(self.finding, outputs=tuple(sorted(self.outputs | set(self.finding.outputs))))

    def covers(self, finding: Finding, has: frozenset[str], case: Case | None = None) -> bool:
        """Whether a finding is this cause: filed alike, or one of the others that this case triggers.

        `has` is what is off its default in the finding's case. What this case triggers beside its own finding, it does
        not explain in a case with a smaller dim, which shows that without this cause. An output that is known to be
        wrong is not asked whether it is wrong alike in another batch or layout.
        """
        if not self.needs <= has:
            return False
        if (finding.symptom == REFERENCE) != self.blames_reference:
            return False
        if case is not None and self._took(finding, case):
            return True
        if finding.oracle in BITWISE:
            wrong = [found for found in (self.widened, *self.also) if found.oracle == "accuracy"]
            if any(set(found.outputs) & set(finding.outputs) for found in wrong):
                return True
        own = self._of_memory or self.finite is not None and self.finite <= has
        also = () if finding.oracle == MUTATION or not self.fits(case) else self.also
        alike = (one for one in (self.widened, *also) if one.same_bug(finding))
        return any(own or not apart(one, finding) for one in alike)

    def _took(self, finding: Finding, case: Case) -> bool:
        """Whether one that looked the same, in a case nowhere larger, turned out to be this cause."""
        return any(looks_alike(one, finding) and nowhere_smaller(case, first) for one, first in self.taken)

    @property
    def _of_memory(self) -> bool:
        """Whether it is an access that is wrong: what it reads is NaN where that is poison, else it is some number."""
        return self.finding.oracle == "bounds"

    def fits(self, case: Case | None) -> bool:
        """Whether a case is nowhere smaller than the least one of this cause."""
        return case is None or nowhere_smaller(case, self.case)

    def leaves_open(self, finding: Finding) -> bool:
        """Whether this is a cause of NaN where the finding is a wrong number, of which it need not be the cause."""
        alike = (one for one in (self.widened, *self.also) if one.same_bug(finding))
        return not self._of_memory and any(apart(one, finding) for one in alike)


def nowhere_smaller(case: Case, least: Case) -> bool:
    """Whether no dim of a case's last call is smaller than that of another case."""
    sizes = least.last.dims
    return all(size >= sizes.get(name, size) for name, size in case.last.dims.items())


def looks_alike(known: Finding, finding: Finding) -> bool:
    """Whether both may be one bug, and show as the same."""
    return known.same_bug(finding) and known.symptom == finding.symptom


def apart(known: Finding, finding: Finding) -> bool:
    """Whether a finding is of numbers that are wrong, and a known one of what is no number."""
    return known.symptom == NONFINITE and finding.symptom in FINITE


def merge(records: list[Record], new: Record, defaults: dict[str, object]) -> Record | None:
    """The record that turned out to be the same cause as the new one, moved to the lesser of both cases; or None.

    Its path stays that of its old entry, which the lesser one replaces, unless that was there before the run.
    """
    for old in records:
        numbers = old.leaves_open(new.finding) and new.needs <= old.needs
        if numbers or same_cause(old, new):
            old.finite = new.needs if numbers else old.finite
            old.needs &= new.needs
            if new.less(old, defaults):
                old.take(new)
                old.path = "" if old.known else old.path
            old.hits += new.hits
            old.outputs |= new.outputs
            return old
    return None


def same_cause(old: Record, new: Record) -> bool:
    """Whether two records are of one cause: both ended in one case, or either one's case triggers the other."""
    alike = old.stateful and new.stateful and old.finding.oracle == new.finding.oracle
    covered = old.covers(new.finding, new.needs, new.case) or new.covers(old.finding, old.needs, old.case)
    return alike or old.case.key == new.case.key or covered


def known_records(folder: Path, target: Target, planted: str | None) -> list[Record]:
    """Records of the causes that the corpus holds for a target and do not count as fixed, none of them hit yet."""
    found = []
    place = folder / target.name
    for path in corpus.entry_files([place]) if place.is_dir() else ():
        entry = corpus.read(path)
        if entry.finding is None or entry.status == "fixed" or entry.planted != (planted or ""):
            continue
        finding = entry.finding.as_accuracy
        record = Record(finding, entry.case, entry.case, 0, 0.0, hits=0, path=str(path), known=True)
        record.parity = entry.finding.oracle == "parity"
        record.stateful = len(entry.case.calls) > 1
        record.needs = needs(entry.case, target)
        record.outputs = set(entry.finding.outputs)
        record.accepted = entry.status == "accepted"
        record.verdict = Verdict.recalled(entry.seen)
        record.also = tuple(_recalled(text) for text in entry.also)
        found.append(record)
    return found


def _recalled(text: str) -> Finding:
    oracle, outputs, symptom = text.split(" ")
    return Finding(oracle, tuple(outputs.split("+")), symptom, text)
