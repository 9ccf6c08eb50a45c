"""What was drawn is kept; what failed runs again after pauses that grow, and is never kept for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.errors import UsageError
from fuzz.model.entry import Entry
from fuzz.web.corpus_index import CorpusIndex, IndexedEntry
from fuzz.web.entry_plots import client
from fuzz.web.entry_plots.client import FIRST_PAUSE, LONGEST_PAUSE, PlotCache, PlotConfig, PlotRequest, PlotResult

FAILED, DRAWN = PlotResult(why="nothing to draw: hung", failed=True), PlotResult(script="pass")


@pytest.fixture
def indexed(tmp_path: Path, entry: Entry) -> IndexedEntry:
    path = corpus.save_entry(tmp_path, entry)
    return CorpusIndex(lambda: [tmp_path]).entries()[path.stem]


def test_what_failed_runs_again_after_growing_pauses(indexed: IndexedEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs, results = [1000.0], [0], [FAILED] * 10 + [DRAWN]

    def run_plots(requests: Iterable[PlotRequest], config: PlotConfig) -> Iterator[PlotResult]:
        runs[0] += 1
        if runs[0] == 2:
            raise UsageError("no memory")
        yield results[runs[0] - 1]

    monkeypatch.setattr(client, "run_plots", run_plots)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cache, pauses = PlotCache(PlotConfig("cpu")), []
    for count in range(1, 11):
        result, pause = cache.plot(indexed)
        assert result.failed and runs == [count]
        now[0] += pause / 2
        assert cache.plot(indexed) == (result, pause / 2) and runs == [count]
        now[0] += pause / 2
        pauses.append(pause)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] and pauses[-1] == LONGEST_PAUSE
    assert [cache.plot(indexed) for _ in range(3)] == [(DRAWN, 0.0)] * 3 and runs == [11]
    assert [failures for _, failures, _ in cache.results.values()] == [0]


def test_a_command_names_the_target_that_a_configured_folder_has(entry: Entry, tmp_path: Path) -> None:
    """As plots and scripts of the page take it from there; a target that is found needs no more."""
    folder, path = tmp_path / "targets", tmp_path / "corpus" / "mine" / "x.yaml"
    folder.mkdir()
    (folder / "fuzz_mine.py").write_text("@target()\ndef mine(x): ...\n")
    config, mine = PlotConfig("cpu", target_folders=(folder,)), replace(entry, case=replace(entry.case, target="mine"))
    given = config.target_argument(mine, path)
    assert given == f"{folder}/fuzz_mine.py:mine"
    assert PlotRequest(path, mine, given).command == f"fuzz replay {path} --target {given}"
    assert config.target_argument(entry, path) == ""
    assert PlotConfig("cpu", "given.py").target_argument(mine, path) == "given.py"


def test_who_waits_too_long_for_others_is_asked_to_come_again(
    indexed: IndexedEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BUSY", 0.01)
    monkeypatch.setattr(client, "run_plots", lambda requests, config: iter([DRAWN]))
    cache = PlotCache(PlotConfig("cpu"))
    with cache.lock:
        result, pause = cache.plot(indexed)
    assert result.failed and pause > 0 and "other entries" in result.why
    assert cache.plot(indexed) == (DRAWN, 0.0)
