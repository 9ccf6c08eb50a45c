"""The score of a judgement, which no half-truth reaches, and the stable words beside it."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.judge.result.judgement import (
    CHEAT,
    MACHINE,
    NOT_COMPARABLE,
    ODD_VALUES,
    PROBLEM,
    PROGRAM_INPUTS,
    RIGHT,
    SOLUTION,
    UNDECIDED,
    UNSUPPORTED,
    WRONG,
    Evidence,
    Judgement,
)
from fuzz.judge.result.report import judgement_json
from fuzz.judge.result.score import reason_codes, score

LOW, HIGH = (Evidence("accuracy", ("y",), "value", "wrong", severity) for severity in ("low", "high"))
OPEN = Evidence("accuracy", ("y",), "value", "wrong", "medium", reason="no rule", is_open=True)
STALE = Evidence("history", ("y",), "stale", "kept", "high")


@pytest.mark.parametrize(
    ("verdict", "known", "expected", "codes"),
    [
        (RIGHT, {"kinds": [ODD_VALUES]}, 1.0, []),
        (RIGHT, {"kinds": [ODD_VALUES], "evidence": [LOW]}, 1.0, ["low/accuracy/value"]),
        (RIGHT, {"kinds": [ODD_VALUES], "refused": 3}, 0.0, ["refuses-inputs"]),
        (RIGHT, {"kinds": [ODD_VALUES], "is_slow": True}, None, ["incomplete/own-dims"]),
        (RIGHT, {"kinds": [ODD_VALUES], "cut_off": ["gradients after 9 s"]}, None, ["incomplete/cut-off"]),
        (RIGHT, {"kinds": ["other dims"]}, None, ["incomplete/odd-values"]),
        (RIGHT, {"kinds": [PROGRAM_INPUTS]}, None, ["incomplete/no-reference"]),
        (WRONG, {"evidence": [LOW, HIGH, HIGH]}, 0.0, ["accuracy/value"]),
        (UNDECIDED, {"kinds": [ODD_VALUES], "undecided": [OPEN, OPEN]}, None, ["undecided/accuracy/value"]),
        (UNDECIDED, {"kinds": [ODD_VALUES], "undecided": [OPEN], "refused": 1}, 0.0,
         ["undecided/accuracy/value", "refuses-inputs"]),
        (CHEAT, {"evidence": [STALE]}, 0.0, ["history/stale"]),
        (UNSUPPORTED, {"cause": SOLUTION}, 0.0, ["solution/unsupported"]),
        (UNSUPPORTED, {"cause": MACHINE}, None, ["machine/unsupported"]),
        (NOT_COMPARABLE, {"cause": PROBLEM}, None, ["problem/not-comparable"]),
    ],
)  # fmt: skip
def test_only_what_is_right_in_everything_has_a_score_of_1(
    verdict: str, known: dict[str, Any], expected: float | None, codes: list[str]
) -> None:
    judgement = Judgement(verdict, "", "p.py", "s.py", "cpu", **known)
    assert (score(judgement), reason_codes(judgement)) == (expected, codes)
    document = judgement_json(judgement)
    assert (document["score"], document["codes"]) == (expected, codes)
