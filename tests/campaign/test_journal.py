"""What ran when a process ended is known after it, and which of it a slice takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from processes import room_for

from fuzz.campaign.journal import ALONE_DEATHS, MOST_DEATHS, Journal, Suspects, note_saved, read_saved, read_suspects
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.protocol import ReplicaGroup

TAG = "0123456789"


def group_of(case: Case, first: int, replicas: int = 1) -> ReplicaGroup:
    return ReplicaGroup(case, ((),) * replicas, first)


def test_what_was_started_and_not_finished_are_the_suspects(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "job.journal"
    journal = Journal(path, durable=True)
    groups = [group_of(case, 0), group_of(case, 1, replicas=3), group_of(case, 4)]
    for group in groups:
        journal.start_group(group)
    journal.finish_group(groups[0])
    journal.finish_group(groups[2])
    assert [suspect.key for suspect in read_suspects(path)] == [case.replica(number).key for number in range(3)]
    journal.close()
    assert read_suspects(path) == [] and not path.exists()


def test_suspects_share_integers_as_they_did(tmp_path: Path) -> None:
    plan = replace(RandomEngine(load("cross_entropy"), 0).case(0), shares_integers=True)
    journal = Journal(tmp_path / "job.journal")
    journal.start_group(group_of(plan, 0, replicas=3))
    assert [one.key for one in read_suspects(journal.path)] == [plan.replica(number).key for number in range(3)]
    journal.close()


def test_a_line_that_was_not_written_whole_never_ran(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "job.journal"
    journal = Journal(path)
    journal.start_group(group_of(case, 0))
    journal.start_group(group_of(case, 1))
    whole = path.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole), 97):
        path.write_bytes(whole[:cut])
        assert len(read_suspects(path)) == 1
    journal.close()
    path.write_bytes(b"+ 0 {}\n+ 1 nonsense\n* what\n+ x y\n\xff\n")
    assert read_suspects(path) == []


def test_a_journal_stays_short_and_keeps_what_runs(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.campaign.journal.LONGEST_JOURNAL", 4000)
    path = tmp_path / "job.journal"
    journal = Journal(path)
    journal.start_group(group_of(case, 0))
    for number in range(1, 100):
        journal.start_group(group_of(case, number))
        journal.finish_group(group_of(case, number))
        assert path.stat().st_size < 6000
    assert len(read_suspects(path)) == 1
    journal.close()


def test_a_journal_that_cannot_be_written_is_one_line(case: Case) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        journal = Journal(Path("/dev/full"), file=full)
        with pytest.raises(CorpusError, match=r"^cannot write the journal /dev/full: No space left on device$"):
            journal.start_group(group_of(case, 0))


def test_a_line_of_which_the_disk_takes_a_part_is_said_and_is_no_part_of_the_next_one(
    case: Case, tmp_path: Path
) -> None:
    journal, names = Journal(tmp_path / "job.journal"), tmp_path / "saved" / TAG
    journal.start_group(group_of(case, 0))
    note_saved(names, "a.yaml")
    with room_for(journal.path.stat().st_size + 10), pytest.raises(CorpusError, match="^cannot write the journal"):
        journal.start_group(group_of(case, 1))
    with room_for(names.stat().st_size + 3), pytest.raises(CorpusError, match="^cannot write"):
        note_saved(names, "b.yaml")
    journal.finish_group(group_of(case, 0))
    note_saved(names, "c.yaml")
    assert read_suspects(journal.path) == [] and read_saved(names) == [("a", ""), ("c", "")]
    journal.close()


def test_the_folders_of_a_new_file_of_names_are_on_disk_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("fuzz.campaign.journal.sync_folder", synced.append)
    path = tmp_path / "saved" / TAG
    note_saved(path, "a.yaml")
    note_saved(path, "b.yaml")
    assert read_saved(path) == [("a", ""), ("b", "")]
    assert synced == [path.parent, tmp_path]


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
