"""One cause is one record and one entry, in whatever order its outputs are seen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import corpus
from fuzz.campaign import Campaign
from fuzz.case import Case
from fuzz.config import Run
from fuzz.engines import RandomEngine
from fuzz.finding import Finding
from fuzz.target import Target
from fuzz.triage import Record, merge


def wrong(*outputs: str) -> Finding:
    return Finding("accuracy", outputs, "value", "wrong")


@pytest.fixture
def two(layernorm: Target) -> tuple[Case, Case]:
    """A smaller case and a larger one."""
    drawn = [RandomEngine(layernorm, 0).case(number) for number in range(40)]
    small = sorted((case for case in drawn if len(case.calls) == 1), key=Case.elements)
    return small[0], small[5]


def record(case: Case, *outputs: str, path: str = "", known: bool = False) -> Record:
    made = Record(wrong(*outputs), case, case, 0, 0.0, path=path, known=known)
    made.outputs = set(outputs)
    return made


def test_a_lesser_case_takes_the_place_of_the_entry_that_the_run_wrote(two: tuple[Case, Case]) -> None:
    small, large = two
    old = record(large, "dx", path="larger.yaml")
    assert merge([old], record(small, "dx"), {}) is old
    assert (old.case, old.path, old.hits) == (small, "larger.yaml", 2)


def test_an_entry_that_was_there_before_stays(two: tuple[Case, Case]) -> None:
    small, large = two
    old = record(large, "dx", path="theirs.yaml", known=True)
    assert merge([old], record(small, "dx"), {}) is old and old.path == ""


def test_a_larger_case_changes_nothing_but_the_count(two: tuple[Case, Case]) -> None:
    small, large = two
    old = record(small, "dx", path="least.yaml")
    assert merge([old], record(large, "dx", "dweight"), {}) is old
    assert (old.case, old.path, old.outputs) == (small, "least.yaml", {"dx", "dweight"})


def test_other_outputs_are_another_cause_until_they_are_seen_together(
    two: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two
    run = Run("layernorm_bw", corpus=tmp_path)
    watcher: Any = SimpleNamespace(shrunk=lambda record: None)
    campaign = Campaign(run, layernorm, "cpu", tmp_path, watcher, {})
    triage: Any = SimpleNamespace(shrink=lambda record, budget: None)
    one, other = record(small, "dbias"), record(large, "dweight")
    for made in (one, other):
        campaign._settle(triage, made, 0, 0.0, made.finding)
    assert campaign.records == [one, other] and len(list(corpus.files([tmp_path]))) == 2
    campaign._hit(triage, one, 7, 1.0, wrong("dbias", "dweight"))
    assert campaign.records == [one] and one.hits == 3 and one.outputs == {"dbias", "dweight"}
    assert [str(path) for path in corpus.files([tmp_path])] == [one.path]
