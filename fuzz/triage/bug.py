"""Records: one cause each, what it covers, and which of them are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.model.case import Case, sort_key
from fuzz.model.finding import Finding, Verdict
from fuzz.model.oracles import ACCURACY, BOUNDS, MUTATION, PARITY, find_oracle
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.target.spec import Target
from fuzz.triage.conditions import non_defaults

REFERENCE = "reference"
"""The symptom of a reference that is wrong: another cause than a kernel that is."""
NONFINITE, FINITE = "nonfinite", ("sign", "value")
"""Symptoms of NaN and infinities, and of wrong numbers: on one output they may well have different causes."""


@dataclass
class Bug:
    """One cause: the least case that shows it, how it was first seen, and how often since.

    `oracle_symptom` is the symptom that the oracle saw, where the verdict changed it. `needs` is what must be off its
    default for this cause to show; a case that lacks some of it has another cause. `value_needs` is the same for wrong
    numbers that a cause of NaN makes as well; None until such numbers turned out to have this cause. `has_nan_cause`
    says that NaN in these outputs has another cause, so that the case must not shrink into that one. `aliases` are
    findings, each with its case, that turned out to be this cause when they were shrunk. `initial_symptom` is the
    symptom of the unshrunk case. With `only_on_cpu` another backend does not see it.
    """

    finding: Finding
    case: Case
    original: Case
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
    oracle_symptom: str = ""
    needs: frozenset[str] = frozenset()
    value_needs: frozenset[str] | None = None
    has_nan_cause: bool = False
    diagnosis: tuple[str, ...] = ()
    cross_checks: Mapping[str, str] = field(default_factory=dict)
    only_on_cpu: bool = False
    aliases: list[tuple[Finding, Case]] = field(default_factory=list)
    initial_symptom: str = ""

    @property
    def provenance(self) -> Provenance:
        """Verdict, diagnosis and cross-checks as an entry bugs them."""
        return Provenance(verdict=self.verdict, diagnosis=self.diagnosis, cross_checks=self.cross_checks)

    def move_to(self, other: Bug) -> None:
        """Moves to another bug's case, with what was seen of it."""
        self.case, self.finding, self.also = other.case, other.finding, other.also
        self.verdict, self.oracle_symptom = other.verdict, other.oracle_symptom
        self.diagnosis, self.cross_checks, self.only_on_cpu = other.diagnosis, other.cross_checks, other.only_on_cpu

    def is_smaller_than(self, other: Bug, defaults: Mapping[str, object]) -> bool:
        """Whether this bug's case is less than another's."""
        return sort_key(self.case, defaults) < sort_key(other.case, defaults)

    @property
    def reported_finding(self) -> Finding:
        """The finding as it is told and saved."""
        return self.finding.as_parity if self.only_on_cpu else self.finding

    @property
    def diagnosis_cases(self) -> tuple[Case, ...]:
        """Cases whose outputs show what is wrong, clearest first: the unshrunk one only if both or none show NaN."""
        alike = (self.initial_symptom == NONFINITE) == (self.finding.symptom == NONFINITE)
        return (self.original, self.case) if alike else (self.case,)

    @property
    def blames_reference(self) -> bool:
        """Whether the oracle itself saw that the reference is wrong, and no output of the kernel."""
        return (self.oracle_symptom or self.finding.symptom) == REFERENCE

    @property
    def widened_finding(self) -> Finding:
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
        if case is not None and self._is_alias(finding, case):
            return True
        if find_oracle(finding.oracle).compares_runs:
            wrong = [found for found in (self.widened_finding, *self.also) if found.oracle == ACCURACY.name]
            if any(set(found.outputs) & set(finding.outputs) for found in wrong):
                return True
        own = self._is_stray_access or self.value_needs is not None and self.value_needs <= has
        also = () if finding.oracle == MUTATION.name or not self.is_nowhere_smaller(case) else self.also
        alike = (one for one in (self.widened_finding, *also) if one.same_bug(finding))
        return any(own or not is_number_beside_nan(one, finding) for one in alike)

    def _is_alias(self, finding: Finding, case: Case) -> bool:
        """Whether one that looked the same, in a case nowhere larger, turned out to be this cause."""
        return any(looks_alike(one, finding) and nowhere_smaller(case, first) for one, first in self.aliases)

    @property
    def _is_stray_access(self) -> bool:
        """Whether it is an access that is wrong: what it reads is NaN where that is poison, else it is some number."""
        return self.finding.oracle == BOUNDS.name

    def is_nowhere_smaller(self, case: Case | None) -> bool:
        """Whether a case is nowhere smaller than the least one of this cause."""
        return case is None or nowhere_smaller(case, self.case)

    def may_hide(self, finding: Finding) -> bool:
        """Whether this is a cause of NaN where the finding is a wrong number, of which it need not be the cause."""
        alike = (one for one in (self.widened_finding, *self.also) if one.same_bug(finding))
        return not self._is_stray_access and any(is_number_beside_nan(one, finding) for one in alike)


def nowhere_smaller(case: Case, least: Case) -> bool:
    """Whether no dim of a case's last call is smaller than that of another case."""
    sizes = least.last.dims
    return all(size >= sizes.get(name, size) for name, size in case.last.dims.items())


def looks_alike(known: Finding, finding: Finding) -> bool:
    """Whether both may be one bug, and show as the same."""
    return known.same_bug(finding) and known.symptom == finding.symptom


def is_number_beside_nan(known: Finding, finding: Finding) -> bool:
    """Whether a finding is of numbers that are wrong, and a known one of what is no number."""
    return known.symptom == NONFINITE and finding.symptom in FINITE


def merge_bug(bugs: list[Bug], new: Bug, defaults: dict[str, object]) -> Bug | None:
    """The bug that turned out to be the same cause as the new one, moved to the lesser of both cases; or None.

    Its path stays that of its old entry, which the lesser one replaces, unless that was there before the run.
    """
    for old in bugs:
        numbers = old.may_hide(new.finding) and new.needs <= old.needs
        if numbers or same_cause(old, new):
            old.value_needs = new.needs if numbers else old.value_needs
            old.needs &= new.needs
            if new.is_smaller_than(old, defaults):
                old.move_to(new)
                old.path = "" if old.known else old.path
            old.hits += new.hits
            old.outputs |= new.outputs
            return old
    return None


def same_cause(old: Bug, new: Bug) -> bool:
    """Whether two bugs are of one cause: both ended in one case, or either one's case triggers the other."""
    alike = old.stateful and new.stateful and old.finding.oracle == new.finding.oracle
    covered = old.covers(new.finding, new.needs, new.case) or new.covers(old.finding, old.needs, old.case)
    return alike or old.case.key == new.case.key or covered


def known_bugs(folder: Path, target: Target, planted: str | None) -> list[Bug]:
    """Records of the causes that the corpus holds for a target and do not count as fixed, none of them hit yet."""
    found = []
    place = folder / target.name
    for path in corpus.entry_files([place]) if place.is_dir() else ():
        entry = corpus.read(path)
        if entry.finding is None or entry.status == "fixed" or entry.planted != (planted or ""):
            continue
        finding = entry.finding.as_accuracy
        bug = Bug(finding, entry.case, entry.case, 0, 0.0, hits=0, path=str(path), known=True)
        bug.only_on_cpu = entry.finding.oracle == PARITY.name
        bug.stateful = len(entry.case.calls) > 1
        bug.needs = non_defaults(entry.case, target)
        bug.outputs = set(entry.finding.outputs)
        bug.accepted = entry.status == "accepted"
        bug.verdict = entry.provenance.adjudication
        bug.also = tuple(filter(None, map(Finding.parse_summary, entry.also)))
        found.append(bug)
    return found
