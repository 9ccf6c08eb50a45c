"""The same seed gives the same run."""

from __future__ import annotations

from pathlib import Path

from runs import run


def test_same_seed_gives_the_same_cases_and_findings(tmp_path: Path) -> None:
    more = ("--cases", "30", "--planted", "pdf_without_x", "--seed", "5")
    values = [run("gelu_bw", tmp_path / str(attempt), *more)[1] for attempt in range(2)]
    stable = [
        (value["distribution"], value["oracles"], [(found["id"], found["first_case"]) for found in value["findings"]])
        for value in values
    ]
    assert stable[0] == stable[1]
