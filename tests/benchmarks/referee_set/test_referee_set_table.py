"""The tables of the set of solutions."""

from __future__ import annotations

from benchmarks.referee_set.table import OURS, Outcome, page

OUTCOMES = [
    Outcome("loose", "wrong", "softmax__zeros", True, 1.0),
    Outcome("loose", "right", "softmax__online", True, 3.0),
    Outcome(OURS, "wrong", "softmax__zeros", False, 5.0, "WRONG: out is 0"),
    Outcome(OURS, "wrong", "mean__zeros", True, 5.0),
    Outcome(OURS, "right", "softmax__online", False, 9.0, "WRONG: out is 1"),
]


def test_rules_and_kinds_are_counted_and_what_is_false_is_named() -> None:
    text = page(OUTCOMES)
    assert "| loose | 0 of 1 | 0 of 1 | 2.0 | 4 |" in text
    assert "| fuzz judge | 1 of 2 | 1 of 1 | 5.0 | 19 |" in text
    assert "| zeros | 0 | 1 |" in text
    assert "- `wrong/mean__zeros.py`: RIGHT" in text
    assert "- `right/softmax__online.py`: `WRONG: out is 1`" in text and "wrong/softmax__zeros" not in text
