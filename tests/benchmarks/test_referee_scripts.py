"""The summary of what `fuzz judge script` says of a collection of programs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.referee_scripts import list_programs, missing_module, summary_lines


def judgement(name: str, verdict: str, reason: str = "", **finding: str) -> dict[str, object]:
    message = f"here at folder/{name}.py:3"
    findings = [{"oracle": "bounds", "symptom": "race", "message": message, **finding}] if finding else []
    return {"solution": f"folder/{name}.py", "verdict": verdict, "reason": reason, "seconds": 2.0, "findings": findings}


def test_the_summary_names_what_is_missed_and_what_is_flagged_beside() -> None:
    missing = "the program raises ModuleNotFoundError: No module named 'triton.ops'"
    text = "\n".join(
        summary_lines(
            [
                judgement("decay_cumsum", "WRONG", severity="high"),
                judgement("apply_penalty", "RIGHT"),
                judgement("other", "WRONG", severity="medium"),
                judgement("old", "UNSUPPORTED", missing),
                judgement("hangs", "UNSUPPORTED", "the program did not return within 300 s"),
            ]
        )
    )
    assert "5 programs: 1 RIGHT, 2 UNSUPPORTED, 2 WRONG; 2.0 s in the median, 2.0 s at most." in text
    assert "Issue 12: 1 of 2 flagged, not apply_penalty." in text
    assert "UNSUPPORTED: 2, of which 1 import what is not there." in text
    assert "- old: triton.ops" in text and "- hangs: the program did not return" in text
    assert "Flagged beside issue 12: 1.\n- other: medium bounds/race: here at other.py:3" in text


def test_a_name_that_a_module_no_longer_has_is_missing() -> None:
    assert missing_module("ImportError: cannot import name 'matmul' from 'triton.ops' (unknown)") == "triton.ops.matmul"
    assert missing_module("AssertionError: no") == ""


def test_a_sample_is_drawn_by_its_seed(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"program_{number}.py").touch()
    whole = list_programs(tmp_path, "program", None, 0)
    drawn = [list_programs(tmp_path, "", 3, seed) for seed in (0, 0, 1)]
    assert len(whole) == 9 and drawn[0] == drawn[1] != drawn[2] and set(drawn[0]) < set(whole)
    assert len(list_programs(tmp_path, "", 99, 0)) == 9 and not list_programs(tmp_path, "other", 2, 0)
