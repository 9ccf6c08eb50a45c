"""What ran when a process ended is known after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.campaign import journal
from fuzz.campaign.journal import Journal, suspects
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.worker.protocol import ReplicaGroup


def group(case: Case, first: int, replicas: int = 1) -> ReplicaGroup:
    return ReplicaGroup(case, ((),) * replicas, first)


def test_what_was_asked_and_not_judged_are_the_suspects(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lane.journal"
    made = Journal(path, durable=True)
    groups = [group(case, 0), group(case, 1, replicas=3), group(case, 4)]
    for one in groups:
        made.asked(one)
    made.judged(groups[0])
    made.judged(groups[2])
    assert [found.key for found in suspects(path)] == [case.replica(number).key for number in range(3)]
    made.close()
    assert suspects(path) == [] and not path.exists()


def test_a_line_that_was_not_written_whole_never_ran(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "lane.journal"
    made = Journal(path)
    made.asked(group(case, 0))
    made.asked(group(case, 1))
    whole = path.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole), 97):
        path.write_bytes(whole[:cut])
        assert len(suspects(path)) == 1
    made.close()
    path.write_bytes(b"+ 0 {}\n+ 1 nonsense\n* what\n+ x y\n\xff\n")
    assert suspects(path) == []


def test_a_journal_stays_short_and_keeps_what_runs(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST", 4000)
    path = tmp_path / "lane.journal"
    made = Journal(path)
    made.asked(group(case, 0))
    for number in range(1, 100):
        made.asked(group(case, number))
        made.judged(group(case, number))
        assert path.stat().st_size < 6000
    assert len(suspects(path)) == 1
    made.close()


def test_a_journal_that_cannot_be_written_is_one_line(case: Case) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        made = Journal(Path("/dev/full"), _file=full)
        with pytest.raises(CorpusError, match=r"^cannot write the journal /dev/full: No space left on device$"):
            made.asked(group(case, 0))
