from collections import Counter

import pytest
import torch

from benchmarks.scoreboard import __main__ as scoreboard
from benchmarks.scoreboard import measure as measuring
from benchmarks.scoreboard.acceptance import Compared, twice_eager
from benchmarks.scoreboard.board import OURS, Board, read, save
from benchmarks.scoreboard.page import TITLE, page
from fuzz.backends.execute import FatalError
from fuzz.target.loader import load

DUE = torch.tensor([1.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("error", "eager", "passes"),
    [(2e-6, 1e-6, True), (3e-6, 1e-6, False), (0.0, 0.0, True), (float("inf"), 1e-6, False)],
)
def test_an_error_may_be_twice_that_of_eager(error, eager, passes):
    out, other = ((DUE + shift).float() for shift in (error, eager))
    assert twice_eager(Compared(out, DUE, other, 1)) is passes


def test_the_output_of_a_right_kernel_may_be_rounded_where_eager_is_exact():
    due = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    assert twice_eager(Compared(due.float(), due, due, 1))


def measured():
    board = Board(honest=Counter(liger=3), left_out=Counter({"the kernel is wrong": 1}), rejected=["one case"])
    board.alarms[OURS]["liger"] += 1
    board.others["softmax late"] = "bounds", True
    return board


def test_boards_are_kept_and_added_up(tmp_path):
    save(measured(), tmp_path / "kept" / "one.json")
    board = read(tmp_path / "kept" / "one.json")
    assert board == measured()
    board.add(measured())
    assert (board.honest["liger"], board.alarms[OURS]["liger"], board.left_out["the kernel is wrong"]) == (6, 2, 2)


def planted():
    board = Board(honest=Counter(plain=2), wrong={"softmax no_max": False}, honest_needs=[1.0], honest_ratios=[0.5])
    board.caught[OURS].append("softmax no_max")
    board.planted_needs = board.planted_ratios = {"softmax no_max": 9.0}
    return board


def test_the_page_has_the_honest_set_beside_the_planted_bugs():
    text = page(planted(), measured(), "Measured today.", "")
    assert "| ours | 1 | 0 | 1 |" in text and "| rule | liger (3) |" in text
    assert "1 in which the kernel is wrong" in text and "- one case" in text


def test_a_kernel_that_ends_its_process_is_left_out(monkeypatch):
    def ends(*_):
        raise FatalError(None)

    monkeypatch.setattr(measuring, "run", ends)
    board = Board()
    measuring.measure(board, load("softmax"), 3, 0, {}, "")
    assert sum(board.left_out.values()) == 3 and not board.honest


def run_scoreboard(monkeypatch, tmp_path, failing):
    """The command where every target but some gives a board at once; into a page with a last section."""
    out = tmp_path / "docs"
    out.mkdir()
    (out / "scoreboard.md").write_text(f"# Scoreboard\n\nearlier\n\n{TITLE}\n\nby hand\n\n## After it\n")

    def measure(task):
        if task.target not in failing:
            save(planted() if not task.title else measured(), task.place)
        return "ok"

    monkeypatch.setattr(scoreboard, "STORE", tmp_path / "kept")
    monkeypatch.setattr(scoreboard, "targets_of", lambda title: [f"{title}_one", f"{title}_two"])
    monkeypatch.setattr(scoreboard, "measure", measure)
    monkeypatch.setattr("benchmarks.scoreboard.page.plot", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["scoreboard", "--out", str(out)])
    # The thread that measures takes processors of its own.
    monkeypatch.setattr(scoreboard.os, "sched_setaffinity", lambda *_: None)
    scoreboard.main()
    return (out / "scoreboard.md").read_text()


def test_the_last_section_of_the_page_stays(monkeypatch, tmp_path):
    text = run_scoreboard(monkeypatch, tmp_path, ())
    assert text.endswith(f"{TITLE}\n\nby hand\n\n## After it\n") and "earlier" not in text
    assert "Measured on 20" in text and "26 targets (`--cases 300 --honest-cases 40 " in text


def test_targets_that_were_not_measured_are_told(monkeypatch, tmp_path):
    text = run_scoreboard(monkeypatch, tmp_path, ("liger_two", "fla_one"))
    assert "Of 3,150 planned cases 28 are judged or left out. Targets that were not measured, 0: none." in text
    assert "Of 480 planned cases 40 are judged or left out." in text
    assert "Targets that were not measured, 2: liger_two, fla_one." in text


def test_nothing_is_written_without_a_target_with_planted_bugs(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="planted bugs are missing"):
        run_scoreboard(monkeypatch, tmp_path, ("softmax",))
    assert "earlier" in (tmp_path / "docs" / "scoreboard.md").read_text()
