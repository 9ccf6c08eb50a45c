"""Describes one cause of disagreements: its least case, how it was first seen, and what else it explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.model.case import Case
from fuzz.model.entry import Entry, is_one_input
from fuzz.model.finding import Finding, Subject, Verdict, filing_order
from fuzz.model.grade import SEVERITIES, UNGRADED, Grade, is_at_least
from fuzz.model.oracle_specs import ACCURACY, FAULT, find_oracle_spec
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.triage.triggers import Trigger

SHRINKING = "shrinking"
"""The first step of triage that may be cut off, or wait, once a bug is confirmed."""

NONFINITE = "nonfinite"
"""The symptom of NaN and infinities."""
VALUE = "value"
"""The symptom, and class of symptom, of wrong numbers."""


@dataclass(frozen=True)
class Example:
    """A case that shows a bug, and what was observed there.

    `also` are the findings of other oracles. `cross_checks` maps another backend to whether it agrees. With
    `only_on_cpu` one of them does not.
    """

    case: Case
    finding: Finding
    also: tuple[Finding, ...] = ()
    verdict: Verdict = Verdict("unadjudicated", "the check itself is the evidence")
    diagnosis: tuple[str, ...] = ()
    cross_checks: Mapping[str, str] = field(default_factory=dict)
    only_on_cpu: bool = False

    @property
    def reported_finding(self) -> Finding:
        """The finding as reports and entries name it."""
        return self.finding.as_parity if self.only_on_cpu else self.finding

    @property
    def provenance(self) -> Provenance:
        """Verdict, diagnosis and cross-checks, as an entry holds them."""
        return Provenance(verdict=self.verdict, diagnosis=self.diagnosis, cross_checks=self.cross_checks)


@dataclass(frozen=True)
class Origin:
    """The unshrunk case that first showed a bug, its symptom, its index in the run, and seconds since the start."""

    case: Case
    symptom: str
    index: int = 0
    seconds: float = 0.0


@dataclass
class Bug:
    """One cause: the least example of it, how it was first seen, and how often since.

    `sought` is the part of a finding that stays while its case shrinks: the oracle, the class of the symptom, and at
    least one of these outputs. `subjects` are what the bug is known to explain, and grow with what is merged into it.
    `path` is the file of its entry, `known` says that the entry was there before the run, `accepted` that somebody
    accepted it. `cut_off` is the step of triage in which its time ended, `waits_for` one that is still to come. `grade`
    is its severity, None until it has one, and `grade_in_doubt` whether it is to be graded again: more ordinary inputs
    show it now, or few were tried. `last_hit` is the index of the last case that it was counted for. `stateful` bugs
    need the calls before the last one; where these equal it, `single_call` has what one call shows, and in how many of
    them. `triggers` are what it needs, and `departures` what of its case's departures from defaults a postponed one
    needs; None until somebody asked. `others` are the needs of known bugs, each of which the case must not come to
    have while it shrinks. `shown_by_usual` is whether inputs that are not extreme have shown it: cases of the run, or
    its own case with such values. `first_case` is (seed, index) of the case that was first seen to show it.
    """

    least: Example
    origin: Origin
    rate: Rate = Rate()
    hits: int = 1
    last_hit: int = -1
    executions: int = 0
    stateful: bool = False
    single_call: tuple[Finding, Rate] | None = None
    first_case: tuple[int | None, int | None] = (None, None)
    path: str = ""
    known: bool = False
    accepted: bool = False
    cut_off: str = ""
    waits_for: str = ""
    grade: Grade | None = None
    grade_in_doubt: bool = False
    triggers: tuple[Trigger, ...] | None = None
    departures: tuple[Trigger, ...] | None = None
    others: tuple[tuple[Trigger, ...], ...] = ()
    overflows: bool = False
    shown_by_usual: bool = False
    sought: Finding = field(init=False)
    subjects: frozenset[Subject] = field(init=False)

    def __post_init__(self) -> None:
        self.sought, self.subjects = self.least.finding, self.least.finding.subjects

    @property
    def case(self) -> Case:
        """The least case that shows it."""
        return self.least.case

    @property
    def finding(self) -> Finding:
        """What the oracle, or the verdict, says of the least case."""
        return self.least.finding

    @property
    def needs_clean_workers(self) -> bool:
        """Whether what ran before in a process may decide whether a case shows it."""
        return self.stateful or len(self.case.calls) > 1

    @property
    def is_postponed(self) -> bool:
        """Whether it is to be shrunk further in this run."""
        return self.waits_for == SHRINKING

    def is_postponed_with(self, finding: Finding, *, usual: bool) -> bool:
        """Whether it may explain a finding of `usual` inputs or others, of which more is known once it is shrunk."""
        return self.is_postponed and self.is_known_of(usual=usual) and bool(self.subjects & finding.subjects)

    def is_known_of(self, *, usual: bool) -> bool:
        """Whether it may be what inputs show that are `usual`, or others.

        Any may be what extreme inputs show. Wrong values of usual inputs are taken for another bug's until usual inputs
        have shown this one.
        """
        return not usual or self.shown_by_usual or self.sought.oracle != ACCURACY.name

    @property
    def is_unshrunk(self) -> bool:
        """Whether this run had no time to shrink it, so that nothing is known of what it needs."""
        return self.cut_off == SHRINKING and self.triggers is None and not self.known

    @property
    def counts_calls(self) -> bool:
        """Whether the number of the call in a process decides whether it shows, whatever the calls before it were."""
        return len(self.case.calls) > 1 and all(call == self.case.last for call in self.case.calls)

    def has_first_case_of(self, other: Bug) -> bool:
        """Whether one case of one seed first showed both, in an output with one class of symptom."""
        return None not in self.first_case == other.first_case and bool(self.subjects & other.subjects)

    @property
    def is_undecided(self) -> bool:
        """Whether kernel and reference differ by no more than either may, so that this is no finding."""
        return self.least.verdict.name == "undecided"

    @property
    def blames_reference(self) -> bool:
        """Whether exact values say that the reference is wrong where it disagrees, and the kernel right."""
        return self.finding.blames_reference(self.least.verdict)

    @property
    def severity(self) -> str | None:
        """The severity, as its entry has it; None where it is not graded."""
        return self.to_entry().severity

    def to_entry(self, *, planted: str = "", **run: Any) -> Entry:
        """The corpus entry of the least case; `run` are fields of Provenance, such as where it was seen."""
        provenance = replace(self.least.provenance, **{"rate": self.rate, "cut_off": self.unfinished, **run})
        also = tuple(other.summary for other in (*self.finding.joined, *self.least.also))
        return Entry(self.case, self.least.reported_finding, "open", "", planted, also, provenance, self.grade)

    @property
    def unfinished(self) -> str:
        """The step of triage with which a later run has to go on if this one ends now."""
        return self.cut_off or self.waits_for

    def counts(self, threshold: str) -> bool:
        """Whether it is a finding of this severity or above that nobody has accepted."""
        return not self.accepted and is_at_least(self.severity, threshold)

    @property
    def diagnosis_cases(self) -> tuple[Case, ...]:
        """Cases whose outputs show what is wrong, clearest first: the unshrunk one only if both or none show NaN."""
        same_kind = (self.origin.symptom == NONFINITE) == (self.finding.symptom == NONFINITE)
        return (self.origin.case, self.case) if same_kind else (self.case,)

    def keep_shown_subjects(self) -> None:
        """Leaves out what the least case no longer shows, which may have another cause."""
        self.leave_out(self.subjects - self.finding.subjects)

    def leave_out(self, subjects: frozenset[Subject]) -> None:
        """Leaves out what has another cause, unless nothing would be left."""
        self.subjects = self.subjects - subjects or self.subjects
        self.sought = self.sought.restricted_to(self.subjects) or self.sought

    @property
    def needs(self) -> tuple[Trigger, ...]:
        """What it is known to need. Of a postponed bug that rules out cases and proves nothing of others."""
        return self.triggers or (self.departures if self.is_postponed else None) or ()

    def keep_departures(self) -> None:
        """Leaves out departures that its case no longer has."""
        if self.departures is not None:
            self.departures = tuple(one for one in self.departures if one.changes(self.case))

    @property
    def needs_values_only(self) -> bool:
        """Whether all that it is known to need is values of tensors."""
        return all(trigger.is_of_values for trigger in self.triggers or ())

    @property
    def own_outputs(self) -> set[str]:
        """The outputs that it is known to explain, without others that are wrong in its least case as well."""
        return {subject[-1] for subject in self.subjects if len(subject) > 2} or set(self.finding.outputs)

    @property
    def wrong_outputs(self) -> set[str]:
        """The outputs of which it is known to explain wrong values."""
        return {subject[-1] for subject in self.subjects if subject[:-1] == (ACCURACY.name, VALUE)}

    @property
    def spoilt_outputs(self) -> set[str]:
        """Its own outputs, and those of which other oracles say something in its least case."""
        return self.own_outputs.union(*(finding.outputs for finding in self.least.also))

    def may_share_cause(self, other: Bug) -> bool:
        """Whether nothing tells if another bug of the same outputs has the same cause, so that both are kept.

        Of one of them nothing is known that it needs, or both need certain values only: how large these must be differs
        between the symptoms of one cause. What makes a far larger error by a size or an option is another cause, and so
        is what the number of the call decides: the first call of a process never shows it.
        """
        if self.counts_calls != other.counts_calls:
            return False
        if FAULT.name in (self.finding.oracle, other.finding.oracle):
            return False
        if not (self.spoilt_outputs & other.own_outputs or other.spoilt_outputs & self.own_outputs):
            return False
        if any(bug.is_beyond_another and not bug.needs_values_only for bug in (self, other)):
            return False
        is_unknown = not (self.triggers and other.triggers)
        return is_unknown or self.needs_values_only and other.needs_values_only

    @property
    def is_beyond_another(self) -> bool:
        """Whether the size or the pattern of its errors distinguishes it from a bug that shows in every case."""
        return bool(self.sought.least_error or self.sought.other_than)

    @property
    def filing_order(self) -> tuple[int, int]:
        """Key that sorts examples of one bug: by oracle, as findings of a case are filed, and joined symptoms.

        The overflow of a wrong value comes after the value.
        """
        oracle, symptom = filing_order(self.finding)
        return oracle, symptom if find_oracle_spec(self.finding.oracle).joins_classes else int(self.overflows)

    @property
    def lasting_subjects(self) -> frozenset[Subject]:
        """What it explains when it is merged with the bug that has its cause: of an overflow not all that is NaN."""
        return frozenset(one for one in self.subjects if not self.overflows or one[1:2] != (NONFINITE,))

    def is_equal_to(self, other: Bug) -> bool:
        """Whether both are at one place, shrank to one case with one class of symptom in an output, or are stateful.

        What earlier calls leave behind shows anywhere.
        """
        if self.finding.shares_place(other.finding):
            return True
        if self.stateful and other.stateful and self.finding.oracle == other.finding.oracle:
            return True
        shown = self.subjects | self.finding.subjects
        shared = shown & other.sought.subjects and not self.finding.is_other_fault(other.finding)
        return bool(shared) and is_one_input(self.case, other.case)

    def was_seen_with(self, other: Bug) -> bool:
        """Whether one case showed both, with no two classes of symptom in an output that its oracle does not join."""
        shown = (self.sought, self.least.finding, *self.least.also)
        together = any(finding.subjects & other.subjects for finding in shown)
        if self.finding.oracle == other.finding.oracle and find_oracle_spec(self.finding.oracle).joins_classes:
            return together
        mixed = {(subject[0], *subject[2:]) for subject in self.subjects - other.subjects} & {
            (subject[0], *subject[2:]) for subject in other.subjects - self.subjects
        }
        return together and not mixed


def group_for_report(bugs: Sequence[Bug]) -> list[tuple[Bug, list[Bug]]]:
    """(a bug, others that possibly have its cause) of all bugs, the most severe and then the earliest first."""
    groups: list[tuple[Bug, list[Bug]]] = []
    for bug in sorted(bugs, key=_importance):
        group = next((others for first, others in groups if first.may_share_cause(bug)), None)
        if group is None:
            groups.append((bug, []))
        else:
            group.append(bug)
    return groups


def _importance(bug: Bug) -> tuple[int, int]:
    return -SEVERITIES.index(bug.severity or UNGRADED), bug.origin.index
