from collections import Counter

import pytest
import torch

from benchmarks.scoreboard.acceptance import Compared, twice_eager
from benchmarks.scoreboard.board import OURS, Board, read, save
from benchmarks.scoreboard.page import page

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


def test_the_page_has_the_honest_set_beside_the_planted_bugs():
    planted = Board(honest=Counter(plain=2), wrong={"softmax no_max": False}, honest_needs=[1.0], honest_ratios=[0.5])
    planted.caught[OURS].append("softmax no_max")
    planted.planted_needs = planted.planted_ratios = {"softmax no_max": 9.0}
    text = page(planted, measured())
    assert "| ours | 1 | 0 | 1 |" in text and "| rule | liger (3) |" in text
    assert "1 in which the kernel is wrong" in text and "- one case" in text
