"""Defines a judgement: RIGHT, WRONG, CHEAT, UNDECIDED, NOT COMPARABLE or UNSUPPORTED, with what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.grade import Grade
from fuzz.model.rate import Rate

RIGHT, WRONG, CHEAT, UNDECIDED = "RIGHT", "WRONG", "CHEAT", "UNDECIDED"
NOT_COMPARABLE, UNSUPPORTED = "NOT COMPARABLE", "UNSUPPORTED"
EXIT_CODES = {RIGHT: 0, WRONG: 1, CHEAT: 1, UNDECIDED: 2, NOT_COMPARABLE: 2, UNSUPPORTED: 2}
PROBLEM, SOLUTION, MACHINE = "problem", "solution", "machine"
"""Why a solution cannot be judged: because of the problem, of the solution itself, or of the machine that judges."""
ODD_VALUES, PROGRAM_INPUTS = "odd values and layouts", "the program's own inputs"
"""Kinds of cases: the last stage of a judgement, and what a program is judged by that has no reference."""
HISTORY, LAUNCHES, CONDUCT = "history", "launches", "conduct"
"""What a solution's behaviour between calls, its launches, and its conduct beside computing are filed under."""

KEEPING = ("stale", "counted", "kept")
"""Symptoms of a solution that returns what it has kept instead of computing."""


@dataclass(frozen=True)
class Evidence:
    """One thing that is wrong, as a judgement shows it. `least` is the least case that shows it.

    `grade` is its severity by triage's rule, with the typical case, where inputs decide it. `is_open` says that results
    differ from the reference, and that nothing decides whether they are wrong: `reason` says why. `cut_off` is the step
    of triage, such as shrinking, for which the time ended.
    """

    oracle: str
    outputs: tuple[str, ...]
    symptom: str
    message: str
    severity: str
    input_class: str = ""
    least: Case | None = None
    grade: Grade | None = None
    rate: Rate = Rate()
    verdict: str = ""
    reason: str = ""
    details: tuple[str, ...] = ()
    is_open: bool = False
    cut_off: str = ""

    @property
    def counts(self) -> bool:
        """Whether it makes a solution wrong, or would do so if it were decided."""
        return self.severity in ("medium", "high")


@dataclass
class Judgement:
    """The result of judging one solution of one problem. `own_rule` is what the format's own rule says, if asked.

    `cause` says why it could not be judged, empty where it was. `refused` counts the inputs that the problem's own code
    takes, contiguous and in its own dtype, and the solution refuses. `is_slow` says that it did not return in time at
    the dims of the first case, `cut_off` what did not end in time. `undecided` holds what would count against it, and
    could not be decided.
    """

    verdict: str
    reason: str
    problem: str
    solution: str
    backend: str
    seconds: float = 0.0
    cases: int = 0
    calls: int = 0
    launches: int = 0
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    own_rule: bool | None = None
    evidence: list[Evidence] = field(default_factory=list)
    undecided: list[Evidence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    command: str = ""
    cause: str = ""
    refused: int = 0
    is_slow: bool = False
    cut_off: list[str] = field(default_factory=list)

    def decide(self) -> None:
        """Sets the verdict, and the reason for it, by the evidence."""
        counting = [one for one in self.evidence if one.counts]
        if not counting and self.undecided:
            first = self.undecided[0]
            self.verdict, self.reason = UNDECIDED, f"{first.message}; not decided: {first.reason}"
            return
        if not counting:
            self.verdict, self.reason = RIGHT, f"nothing is wrong in {self.cases} cases"
            return
        worst = counting[-1]
        cheats = worst.oracle in (LAUNCHES, CONDUCT) or worst.symptom in KEEPING
        self.verdict, self.reason = CHEAT if cheats else WRONG, worst.message

    @property
    def severity(self) -> str | None:
        """The highest severity of what counts against it; None where nothing does."""
        found = [one.severity for one in self.evidence]
        return next((name for name in ("high", "medium", "low") if name in found), None)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]
