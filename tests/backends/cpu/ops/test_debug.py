"""`device_print`, `device_assert`, `tl.assume`, and debug mode's checks of integer overflow."""

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu


@triton.jit
def prints(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.device_print('100% "of"\\n: ', a)
    tl.device_print("both", tl.load(y + i), tl.program_id(1), hex=True)
    tl.device_print("here")
    tl.device_print("bits", a > 0, tl.load(y + i).to(tl.uint32, bitcast=True))


def test_prints_are_those_of_a_gpu_with_program_and_lane(capfd):
    prints[(1, 2)](torch.tensor([0.1, -2.0]), torch.tensor([-1, 7], dtype=torch.int32), B=2)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 20 and lines[0] == r'pid (0, 0, 0) idx (0) 100% "of"\n: 0.100000'
    assert lines[1] == r'pid (0, 0, 0) idx (1) 100% "of"\n: -2.000000'
    assert lines[2] == "pid (0, 0, 0) idx (0) both: (operand 0) 0xffffffff"
    assert lines[4] == "pid (0, 0, 0) idx () both: (operand 1) 0x00000000" and lines[5] == "pid (0, 0, 0) idx () here"
    assert lines[6:8] == [f"pid (0, 0, 0) idx ({i}) bits: (operand 0) {1 - i}" for i in (0, 1)]
    assert lines[8] == "pid (0, 0, 0) idx (0) bits: (operand 1) 4294967295"
    assert lines[10].startswith("pid (0, 1, 0)")


@triton.jit
def prints_matrix(B: tl.constexpr):
    tl.device_print("m ", tl.full((2, B), 3, tl.int32))


def test_indexes_are_as_wide_as_the_last_one_and_observed_prints_go_to_standard_error(capfd):
    prints_matrix[(1,)](B=16)
    assert capfd.readouterr().out.splitlines()[9:11] == [f"pid (0, 0, 0) idx (0, {i:2}) m: 3" for i in (9, 10)]
    with cpu.observe():
        prints_matrix[(1,)](B=16)
    seen = capfd.readouterr()
    assert seen.out == "" and len(seen.err.splitlines()) == 32


@triton.jit
def checked(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.device_assert(a < 5, 'too "large"', mask=i < 3)
    tl.store(out + tl.program_id(0), 1.0)


def test_assertions_name_kernel_line_program_lane_and_message():
    out = torch.zeros(2)
    x = torch.tensor([0.0, 1.0, 7.0, 9.0])
    checked[(2,)](x, out, B=4)
    assert out.tolist() == [1, 1], "without debug there is no assertion"
    out.zero_()
    with pytest.raises(cpu.DeviceAssertion, match=r'checked at .*py:\d+, program \(0, 0, 0\).*too "large"') as caught:
        checked[(2,)](x, out, B=4, debug=True)
    assert caught.value.failure.lane == (2,) and caught.value.failure.kind == "assert" and out.tolist() == [0, 0]
    with cpu.observe(order=-1) as log, pytest.raises(cpu.DeviceAssertion) as caught:
        checked[(2,)](x, out, B=4, debug=True)
    assert caught.value.failure.program == (1, 0, 0) and not log.violations
    checked[(2,)](x.clamp(max=4), out, B=4, debug=True)
    assert out.tolist() == [1, 1]


@triton.jit
def strays_then_fails(x, out, n):
    tl.store(out + n, tl.load(x))
    tl.device_assert(n < 3)


def test_violations_before_an_assertion_are_kept():
    with cpu.observe(reports=1) as log, pytest.raises(cpu.DeviceAssertion):
        strays_then_fails[(4,)](torch.zeros(1), torch.zeros(2), 5, debug=True)
    assert len(log.violations) == log.count == 1


@triton.jit
def assumes(x, out, n):
    tl.assume(n > 3)
    tl.store(out, tl.load(x) + n)


def test_a_false_assumption_is_reported():
    out = torch.zeros(1)
    assumes[(1,)](torch.ones(1), out, 4)
    assert out[0] == 5
    with pytest.raises(cpu.DeviceAssertion, match=r"tl\.assume of a false condition in kernel assumes"):
        assumes[(1,)](torch.ones(1), out, 3)


@triton.jit
def adds(x, y, out):
    tl.store(out, tl.load(x) + tl.load(y))


def test_debug_mode_sees_integers_overflow():
    x, y, out = (torch.tensor([value], dtype=torch.int32) for value in (2**31 - 1, 1, 0))
    adds[(1,)](x, y, out)
    assert out[0] == -(2**31)
    with pytest.raises(cpu.DeviceAssertion, match="int32 overflow detected for operation add"):
        adds[(1,)](x, y, out, debug=True)
