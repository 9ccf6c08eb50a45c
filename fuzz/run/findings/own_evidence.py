"""Says of drawn cases whether a bug itself shows in them, where other bugs of the run may show the same finding."""

from __future__ import annotations

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.run.findings.deduplicate import Attribution
from fuzz.triage.bug import Bug
from fuzz.triage.triggers import all_hold


def shows_itself(attribution: Attribution, bug: Bug, case: Case, finding: Finding) -> bool:
    """Whether a finding like a bug's is the bug's own in a case: always where no other bug of the run is like it.

    Where all of the bug's triggers hold, the finding must vanish without each of them. A case without one of them may
    still show the bug, as triggers are those of its own cases, but only where none of the others may be its cause. What
    needs nothing shows wherever none of them explains the finding.
    """
    part = finding.restricted_to(bug.subjects)
    others = [other for other in attribution.bugs if other is not bug and _is_rival(other, bug)]
    if not others or part is None or bug.needs_clean_workers or bug.is_beyond_another:
        return True
    own = attribution.triage.find_triggers(bug)
    if own and all_hold(own, case):
        return bool(attribution.vanishing(bug, case, part, own))
    if own:
        return not any(_may_show(attribution, other, case) for other in others)
    return not any(_explains(attribution, other, case, part) for other in others)


def _is_rival(other: Bug, bug: Bug) -> bool:
    """Whether a case of another bug of the run may be taken for one of a bug."""
    return bool(other.hits and other.subjects & bug.subjects) and not other.needs_clean_workers


def _may_show(attribution: Attribution, other: Bug, case: Case) -> bool:
    """Whether another bug may show in a case: one that needs nothing does everywhere."""
    triggers = attribution.triage.find_triggers(other)
    return not triggers or all_hold(triggers, case)


def _explains(attribution: Attribution, other: Bug, case: Case, finding: Finding) -> bool:
    """Whether another bug explains all of a finding in a case by what it needs."""
    triggers = attribution.triage.find_triggers(other)
    explained = attribution.vanishing(other, case, finding, triggers) if triggers else frozenset()
    return bool(explained) and explained >= finding.subjects
