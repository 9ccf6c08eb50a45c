"""Which suspects a slice takes, by how often something ended beside them."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.suspects import ALONE_DEATHS, MOST_DEATHS, Suspects

TAG = "0123456789"


def select(folder: Path, *deaths: int) -> list[int]:
    """Of suspects beside which something ended so many times, those that the next slice takes, by that number."""
    for number, count in enumerate(deaths):
        (folder / f"{TAG}-{number:016x}.{count}").touch()
    suspects = Suspects(folder, say=lambda text: None)
    assert suspects.tags() == ({TAG} if min(deaths) < MOST_DEATHS else set())
    return [int(Path(text).suffix[1:]) for text in suspects.select(TAG)]


def test_suspects_run_together_before_one_that_survived_many_deaths_runs_alone(tmp_path: Path) -> None:
    few = [*range(ALONE_DEATHS)]
    assert select(tmp_path, *few, ALONE_DEATHS, ALONE_DEATHS + 3) == few


def test_what_two_ended_beside_runs_alone(tmp_path: Path) -> None:
    assert select(tmp_path, ALONE_DEATHS, ALONE_DEATHS + 3) == [ALONE_DEATHS]


def test_one_beside_which_too_many_ended_is_kept_and_does_not_run(tmp_path: Path) -> None:
    assert select(tmp_path, MOST_DEATHS) == []
    assert [path.suffix for path in tmp_path.iterdir()] == [f".{MOST_DEATHS + 1}"]
