"""Suspects: which of them a slice takes, by how often something ended beside them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz.campaign.state import TOGETHER, TRIES, Ledger, tag
from fuzz.campaign.store import Job

LANE = Job(1, "gelu_bw", "", "cpu", "random", 0)


def held(folder: Path, *tries: int) -> list[int]:
    """Of suspects beside which something ended so many times, those that the next slice takes, by that number."""
    place = folder / "suspects"
    place.mkdir(exist_ok=True)
    for number, count in enumerate(tries):
        (place / f"{tag(LANE)}-{number:016x}.{count}").touch()
    nothing: Any = None
    campaign: Any = SimpleNamespace(folder=str(folder))
    ledger = Ledger(nothing, nothing, nothing, campaign, [LANE], told=lambda text: None)
    assert ledger.urgent() == {0} if min(tries) < TRIES else ledger.urgent() == set()
    return [int(Path(text).suffix[1:]) for text in ledger.held(LANE)]


def test_suspects_run_together_before_one_that_survived_many_deaths_runs_alone(tmp_path: Path) -> None:
    few = [*range(TOGETHER)]
    assert held(tmp_path, *few, TOGETHER, TOGETHER + 3) == few


def test_what_two_ended_beside_runs_alone(tmp_path: Path) -> None:
    assert held(tmp_path, TOGETHER, TOGETHER + 3) == [TOGETHER]


def test_one_beside_which_too_many_ended_is_kept_and_does_not_run(tmp_path: Path) -> None:
    assert held(tmp_path, TRIES) == []
    assert [path.suffix for path in (tmp_path / "suspects").iterdir()] == [f".{TRIES + 1}"]
