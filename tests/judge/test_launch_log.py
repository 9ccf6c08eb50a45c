"""Launches that write nothing but copies of what they are given are told from those that compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.judge.processes.launch_log import LaunchLog, Memory, words_in_order

Write = Callable[[torch.Tensor, torch.Tensor], object]


@pytest.mark.parametrize(
    ("write", "copying", "computing"),
    [
        (lambda x, out: out.copy_(x), 1, 0),
        (lambda x, out: out.view(-1).copy_(x.view(-1)), 1, 0),
        (lambda x, out: out.copy_(x * 2), 0, 1),
        (lambda x, out: out.copy_(x.flip(0)), 0, 1),
        (lambda x, out: out[:2].copy_(x[:2]), 0, 1),
        (lambda x, out: out.copy_(x.clamp(-100, 100)), 0, 1),
        (lambda x, out: out.copy_(x.abs() if (x > -1).all() else x), 0, 1),
        (lambda x, out: x.mul_(2), 0, 1),
        (lambda x, out: x.fill_(0.5) * out.fill_(0.5), 0, 1),
        (lambda x, out: None, 0, 0),
    ],
)
def test_a_launch_copies_where_all_that_it_writes_is_what_another_argument_holds(
    write: Write, copying: int, computing: int
) -> None:
    log = LaunchLog(leave_out=False, copies=True)
    x, out = torch.rand(4, 3), torch.full((4, 3), -7.0)
    plain = x.clone(), out.clone()
    write(*plain)
    log.launch(write, x, out)
    assert (log.copying, log.computing) == (copying, computing)
    assert all(map(torch.equal, (x, out), plain))


def test_memory_is_restored_through_views() -> None:
    base = torch.arange(6.0)
    views = [base[:4].view(2, 2), base[2:], base[:1].expand(5)]
    memory = Memory(views)
    memory.restore(-1.0)
    assert base.tolist() == [0, -1, -2, -3, -4, -5]
    memory.restore()
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_transposition_is_no_copy_in_the_order_of_memory() -> None:
    x = torch.randn(3, 4)
    assert words_in_order(x).tolist() == words_in_order(x.t()).tolist()
    assert words_in_order(x).tolist() != words_in_order(x.t().contiguous()).tolist()


@triton.jit
def add_one(out):
    tl.store(out, tl.load(out) + 1)


def test_a_launch_of_what_has_been_compiled_before_is_one_too() -> None:
    out = torch.zeros(1)
    with cpu.active():
        for leave_out, launches in ((False, 1), (True, 0)):
            log = LaunchLog(leave_out)
            with log.patch():
                add_one.warmup(out, grid=(1,))[(1, 1, 1)](out)
            assert log.count == launches and out.item() == 1
