"""Says by stable words why a judgement is what it is, and gives the number that a trainer may use as a reward.

The score is 1 only where a solution is RIGHT and everything was tried, none where the problem or the machine is why
that could not be done or where nothing decides a disagreement, and 0 everywhere else: a solution gains nothing by
refusing inputs or by being such that it cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.judge.result.judgement import MACHINE, ODD_VALUES, PROGRAM_INPUTS, RIGHT, SOLUTION, UNDECIDED, Judgement

REFUSES = "refuses-inputs"
OUT_OF_TIME, CRASHED, UNREADABLE = f"{MACHINE}/out-of-time", f"{MACHINE}/crashed", "files/unreadable"
"""What ends a judgement from outside: its limit, the end of its process, or files that are none of their format."""


def score(judgement: Judgement) -> float | None:
    """1, 0, or None where it could not be judged."""
    if judgement.cause:
        return 0.0 if judgement.cause == SOLUTION else None
    if judgement.verdict not in (RIGHT, UNDECIDED) or judgement.refused:
        return 0.0
    return None if judgement.verdict == UNDECIDED or any(incomplete_codes(judgement)) else 1.0


def reason_codes(judgement: Judgement) -> list[str]:
    """Why the verdict and the score are what they are; docs/judge.md lists all of them."""
    if judgement.cause:
        return [f"{judgement.cause}/{judgement.verdict.lower().replace(' ', '-')}"]
    if judgement.verdict not in (RIGHT, UNDECIDED):
        return list(dict.fromkeys(f"{one.oracle}/{one.symptom}" for one in judgement.evidence if one.counts))
    undecided = dict.fromkeys(f"undecided/{one.oracle}/{one.symptom}" for one in judgement.undecided)
    low = dict.fromkeys(f"low/{one.oracle}/{one.symptom}" for one in judgement.evidence)
    return [*undecided, *([REFUSES] if judgement.refused else []), *incomplete_codes(judgement), *low]


def incomplete_codes(judgement: Judgement) -> Iterator[str]:
    """What was not tried."""
    if PROGRAM_INPUTS in judgement.kinds:
        yield "incomplete/no-reference"
    elif ODD_VALUES not in judgement.kinds:
        yield "incomplete/odd-values"
    if judgement.is_slow:
        yield "incomplete/own-dims"
    if judgement.cut_off:
        yield "incomplete/cut-off"
