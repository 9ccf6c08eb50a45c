"""Describes one cause of disagreements: its least case, how it was first seen, and what else it explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.model.case import Case, sort_key
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding, Verdict
from fuzz.model.oracle_specs import ACCURACY, BOUNDS, MUTATION, find_oracle_spec
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate

REFERENCE = "reference"
"""The symptom of a reference that is wrong: another cause than a kernel that is."""
NONFINITE, FINITE = "nonfinite", ("sign", "value")
"""Symptoms of NaN and infinities, and of wrong numbers: on one output they may well have different causes."""


@dataclass(frozen=True)
class Example:
    """A case that shows a bug, and what was observed there.

    `also` are the findings of other oracles. `oracle_symptom` is the symptom that the oracle saw, where the verdict
    changed it. `cross_checks` maps another backend to whether it agrees. With `only_on_cpu` one of them does not.
    """

    case: Case
    finding: Finding
    also: tuple[Finding, ...] = ()
    verdict: Verdict = Verdict("unadjudicated", "accuracy alone is adjudicated")
    oracle_symptom: str = ""
    diagnosis: tuple[str, ...] = ()
    cross_checks: Mapping[str, str] = field(default_factory=dict)
    only_on_cpu: bool = False

    @property
    def reported_finding(self) -> Finding:
        """The finding as reports and entries name it."""
        return self.finding.as_parity if self.only_on_cpu else self.finding

    @property
    def blames_reference(self) -> bool:
        """Whether the oracle itself saw that the reference is wrong, and no output of the kernel."""
        return (self.oracle_symptom or self.finding.symptom) == REFERENCE

    @property
    def provenance(self) -> Provenance:
        """Verdict, diagnosis and cross-checks, as an entry holds them."""
        return Provenance(verdict=self.verdict, diagnosis=self.diagnosis, cross_checks=self.cross_checks)


@dataclass(frozen=True)
class Sighting:
    """The unshrunk case that first showed a bug, its symptom, its index in the run, and seconds since the start."""

    case: Case
    symptom: str
    index: int = 0
    seconds: float = 0.0


@dataclass
class Bug:
    """One cause: the least example of it, how it was first seen, and how often since.

    `outputs` are all that ever disagreed together. `path` is the file of its entry, `known` says that the entry was
    there before the run, `accepted` that somebody accepted it. `cut_off` is the step of triage in which its time ended.
    `stateful` bugs need the calls before the last one. `needs` is what must be off its default for this cause to show;
    a case that lacks some of it has another cause. `value_needs` is the same for wrong numbers that a cause of NaN
    makes as well; None until such numbers turned out to have this cause. `has_nan_cause` says that NaN in these outputs
    has another cause, so that the case must not shrink into that one. `aliases` are findings, each with its case, that
    turned out to be this cause when they were shrunk.
    """

    least: Example
    origin: Sighting
    rate: Rate = Rate()
    hits: int = 1
    executions: int = 0
    stateful: bool = False
    outputs: set[str] = field(default_factory=set)
    path: str = ""
    known: bool = False
    accepted: bool = False
    cut_off: str = ""
    needs: frozenset[str] = frozenset()
    value_needs: frozenset[str] | None = None
    has_nan_cause: bool = False
    aliases: list[tuple[Finding, Case]] = field(default_factory=list)

    @property
    def case(self) -> Case:
        """The least case that shows it."""
        return self.least.case

    @property
    def finding(self) -> Finding:
        """What the oracle, or the verdict, says of the least case."""
        return self.least.finding

    @property
    def is_undecided(self) -> bool:
        """Whether kernel and reference differ by no more than either may, so that this is no finding."""
        return self.least.verdict.name == "undecided"

    def to_entry(self, *, planted: str = "", **run: Any) -> Entry:
        """The corpus entry of the least case; `run` are the fields of Provenance that say where it was seen."""
        provenance = replace(self.least.provenance, rate=self.rate, cut_off=self.cut_off, **run)
        also = tuple(other.summary for other in self.least.also)
        return Entry(self.case, self.least.reported_finding, planted=planted, also=also, provenance=provenance)

    def is_smaller_than(self, other: Bug, defaults: Mapping[str, object]) -> bool:
        """Whether this bug's least case is smaller than another's."""
        return sort_key(self.case, defaults) < sort_key(other.case, defaults)

    @property
    def diagnosis_cases(self) -> tuple[Case, ...]:
        """Cases whose outputs show what is wrong, clearest first: the unshrunk one only if both or none show NaN."""
        alike = (self.origin.symptom == NONFINITE) == (self.finding.symptom == NONFINITE)
        return (self.origin.case, self.case) if alike else (self.case,)

    @property
    def widened_finding(self) -> Finding:
        """The finding with every output that ever disagreed together with one of its own."""
        return replace(self.finding, outputs=tuple(sorted(self.outputs | set(self.finding.outputs))))

    def covers(self, finding: Finding, departures: frozenset[str], case: Case | None = None) -> bool:
        """Whether a finding has this cause: the same oracle files it, or it is one that the least case also triggers.

        `departures` is what is off its default in the finding's case. What the least case triggers beside its own
        finding does not explain a case with a smaller dim, which shows it without this cause. An output that is known
        to be wrong may be wrong in another way in another batch or layout.
        """
        if not self.needs <= departures:
            return False
        if (finding.symptom == REFERENCE) != self.least.blames_reference:
            return False
        if case is not None and self._is_alias(finding, case):
            return True
        if find_oracle_spec(finding.oracle).compares_runs:
            wrong = [known for known in (self.widened_finding, *self.least.also) if known.oracle == ACCURACY.name]
            if any(set(known.outputs) & set(finding.outputs) for known in wrong):
                return True
        explains_values = self._is_stray_access or self.value_needs is not None and self.value_needs <= departures
        larger = case is None or has_no_smaller_dim(case, self.case)
        also = self.least.also if larger and finding.oracle != MUTATION.name else ()
        alike = (known for known in (self.widened_finding, *also) if known.same_bug(finding))
        return any(explains_values or not is_number_beside_nan(known, finding) for known in alike)

    def _is_alias(self, finding: Finding, case: Case) -> bool:
        """Whether a finding that looked the same, in a case nowhere larger, turned out to have this cause."""
        return any(looks_alike(known, finding) and has_no_smaller_dim(case, first) for known, first in self.aliases)

    @property
    def _is_stray_access(self) -> bool:
        """Whether an access is wrong: what it reads may be poison, which is NaN, or some number."""
        return self.finding.oracle == BOUNDS.name

    def may_hide(self, finding: Finding) -> bool:
        """Whether this is a cause of NaN where the finding is a wrong number, of which it need not be the cause."""
        alike = (known for known in (self.widened_finding, *self.least.also) if known.same_bug(finding))
        return not self._is_stray_access and any(is_number_beside_nan(known, finding) for known in alike)


def has_no_smaller_dim(case: Case, least: Case) -> bool:
    """Whether no dim of a case's last call is smaller than that of another case."""
    sizes = least.last.dims
    return all(size >= sizes.get(name, size) for name, size in case.last.dims.items())


def looks_alike(known: Finding, finding: Finding) -> bool:
    """Whether both may be one bug and have the same symptom."""
    return known.same_bug(finding) and known.symptom == finding.symptom


def is_number_beside_nan(known: Finding, finding: Finding) -> bool:
    """Whether a finding is a wrong number where the known one is NaN or infinite."""
    return known.symptom == NONFINITE and finding.symptom in FINITE
