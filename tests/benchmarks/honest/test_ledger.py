"""The ledger of the honest set: what machines judged of each kernel, joined line by line."""

from pathlib import Path

from benchmarks.honest.ledger import Line, elsewhere, joined, read, table, write
from benchmarks.honest.shares import Shares

OTHER = Line("other", "cuda", "fla", "a.py:scan", 3, 9_000, 8_000)
RUNS = {("cuda", "fla"): [{"target": "a.py:scan", "cases": 3_000, "rejected": 500}, {"target": "a.py:mm", "cases": 7}]}


def test_a_machine_replaces_its_own_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    for _ in range(2):
        write(path, joined([*read(path), OTHER] if not path.exists() else read(path), "own", RUNS))
    own = [Line("own", "cuda", "fla", "a.py:mm", 1, 7, 7), Line("own", "cuda", "fla", "a.py:scan", 1, 3_000, 2_500)]
    assert read(path) == [OTHER, *own]
    assert read(tmp_path / "missing.csv") == []


def test_cases_of_all_machines_are_added_up():
    lines = joined([OTHER], "own", RUNS)
    assert "| fla | cuda | 2 | 10,507 | 1 | 7 |" in table(lines)
    assert table([]) == ""


def test_what_other_machines_judged_is_not_asked_for_again():
    lines = joined([OTHER], "own", RUNS)
    counted = elsewhere(lines, "own", "cuda", "fla")
    assert counted == {"a.py:scan": 8_000} and not elsewhere(lines, "own", "cpu", "fla")
    shares = Shares(10_000, 10.0, float("inf"))
    shares.add("fla", ["a.py:scan", "a.py:mm"], RUNS["cuda", "fla"], counted)
    share = shares.take()
    assert share is not None and share.target == "a.py:mm" and shares.request(share)["cases"] == 9_993
    assert shares.take() is None
