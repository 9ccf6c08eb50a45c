"""Every way to reach memory goes through the same checks: descriptors, calls, integers, 8-bit floats."""

import pytest
import torch
import triton
import triton.language as tl
from source_lines import line_of
from triton.tools.tensor_descriptor import TensorDescriptor

from fuzz.backends import cpu
from fuzz.backends.cpu.translate import translate


@triton.jit
def described_load(x, out, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[n, 8], strides=[8, 1], block_shape=[2, 8])
    tl.store(out + tl.arange(0, B), tl.sum(source.load([tl.program_id(0), 0]), 0))  # reads


@triton.jit
def host_load(x, out, n, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), tl.sum(x.load([tl.program_id(0), 0]), 0))  # reads


@triton.jit
def gathered(x, out, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[n, 8], strides=[8, 1], block_shape=[1, 8])
    tl.store(out + tl.arange(0, B), tl.sum(source.gather(1 - tl.arange(0, 8) % 2, 0), 0))  # reads


@triton.jit
def through_an_integer(x, out, n, B: tl.constexpr):
    pointer = (x.to(tl.int64) + 32).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, B), tl.load(pointer + tl.arange(0, B)))  # reads


@triton.jit(noinline=True)
def fetch(x, at, B: tl.constexpr):
    return tl.load(x + at + tl.arange(0, B))  # reads


@triton.jit
def called_load(x, out, n, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), fetch(x, 8, B))


@triton.jit
def described_atomic(x, out, n, B: tl.constexpr):
    target = tl.make_tensor_descriptor(x, shape=[n, 8], strides=[8, 1], block_shape=[2, 8])
    target.atomic_add([0, 0], tl.zeros((2, 8), tl.float32))  # reads


READERS = [described_load, host_load, gathered, through_an_integer, called_load, described_atomic]


@pytest.mark.parametrize("kernel", READERS, ids=lambda kernel: kernel.__name__)
def test_what_nobody_wrote_is_seen_by_every_reader(kernel):
    found = []
    for written in (1, 2):
        with cpu.observe(unwritten=True) as log:
            x = torch.empty(2, 8)
            x[:written] = 1
            given = TensorDescriptor.from_tensor(x, [2, 8]) if kernel is host_load else x
            kernel[(1,)](given, torch.zeros(8), 2, B=8)
        found.append({(v.problem, v.line, v.offset) for v in log.violations})
    line = line_of(fetch if kernel is called_load else kernel, "# reads")
    assert found == [{("unwritten", line, at) for at in range(8, 16)}, set()]


@triton.jit
def described_store(out, B: tl.constexpr):
    target = tl.make_tensor_descriptor(out, shape=[2, B], strides=[B, 1], block_shape=[1, B])
    target.store([0, 0], tl.full((1, B), tl.program_id(0), tl.float32))  # writes


@triton.jit
def host_store(out, B: tl.constexpr):
    out.store([0, 0], tl.full((1, B), tl.program_id(0), tl.float32))  # writes


@triton.jit
def scattered(out, B: tl.constexpr):
    target = tl.make_tensor_descriptor(out, shape=[2, B], strides=[B, 1], block_shape=[1, B])
    target.scatter(tl.full((8, B), tl.program_id(0), tl.float32), tl.arange(0, 8) * 2, 0)  # writes


@triton.jit
def integer_store(out, B: tl.constexpr):
    pointer = out.to(tl.int64).to(tl.pointer_type(tl.float32))
    tl.store(pointer + tl.arange(0, B), tl.program_id(0).to(tl.float32))  # writes


@triton.jit(noinline=True)
def put(out, value, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), value)  # writes


@triton.jit
def called_store(out, B: tl.constexpr):
    put(out, tl.program_id(0).to(tl.float32), B)


@triton.jit
def eight_bits(out, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), tl.full((B,), tl.program_id(0), tl.float32).to(out.dtype.element_ty))  # writes


WRITERS = [described_store, host_store, scattered, integer_store, called_store, eight_bits]


@pytest.mark.parametrize("kernel", WRITERS, ids=lambda kernel: kernel.__name__)
def test_conflicts_are_seen_by_every_writer(kernel):
    out = torch.zeros(2, 8).to(torch.float8_e4m3fn if kernel is eight_bits else torch.float32)
    with cpu.observe(conflicts=True, reports=100) as log:
        kernel[(2,)](TensorDescriptor.from_tensor(out, [1, 8]) if kernel is host_store else out, B=8)
    line = line_of(put if kernel is called_store else kernel, "# writes")
    seen = [(v.problem, v.program, v.other, v.line, v.offset) for v in log.violations]
    assert seen == [("conflict", (1, 0, 0), (0, 0, 0), line, at) for at in range(8)]
    assert out.float()[0].tolist() == [1] * 8


@triton.jit
def product_offset(x, out, row, stride):
    at = row * stride
    tl.store(out + tl.arange(0, 2), fetch(x, at, 2))


def test_an_offset_that_wraps_around_before_a_call():
    with cpu.observe(overflow=True) as log:
        product_offset[(1,)](torch.zeros(8), torch.zeros(2), 4, 2**30)
    cause = f"{__file__}:{line_of(product_offset, 'at =')}"
    want = [("overflow", line_of(fetch, "# reads"), cause)] * 2
    assert [(v.problem, v.line, v.cause) for v in log.violations] == want


@triton.jit
def guarded(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out, 1.0 * tl.program_id(0))
    tl.device_assert(tl.load(x + i, mask=i < n, other=0) < 5, "too large")


def test_an_assertion_beside_all_instruments():
    x, out = torch.zeros(64), torch.zeros(1)
    every = {"unwritten": True, "races": True, "overflow": True, "counters": True}
    with cpu.observe(reports=1, **every) as log:
        guarded[(8,)](x, out, 64, B=8, debug=True)
        assert log.count > 1 and {v.problem for v in log.violations} == {"conflict"}
        with pytest.raises(cpu.DeviceAssertion, match="too large"):
            guarded[(8,)](x + 9, out, 64, B=8, debug=True)
    assert len(log.violations) == 1


@triton.jit
def noisy(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_print("", tl.load(x + i))
    tl.store(out + i, tl.load(x + i))


def test_a_block_that_is_checked_again_prints_once(capfd):
    with cpu.observe(unwritten=True) as log:
        noisy[(1,)](torch.empty(4), torch.zeros(4), B=4)
    assert len(log.violations) == 8 and len(capfd.readouterr().err.splitlines()) == 4


TABLE = """module {
  tt.func public @kernel(%out: !tt.ptr<f32>, %n: i32) {
    %zero = arith.constant 0 : i32 loc(#loc)
    %one = arith.constant 1 : i32 loc(#loc)
    %cst = arith.constant dense<VALUES> : tensor<4xi32> loc(#loc)
    %x = arith.constant dense<0.0> : tensor<4xf32> loc(#loc)
    %p = tt.splat %out : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>> loc(#loc)
    %q = scf.for %i = %zero to %n step %one iter_args(%r = %p) -> (tensor<4x!tt.ptr<f32>>)  : i32 {
      tt.store %r, %x : tensor<4x!tt.ptr<f32>> loc(#loc)
      %s = tt.addptr %r, %cst : tensor<4x!tt.ptr<f32>>, tensor<4xi32> loc(#loc)
      scf.yield %s : tensor<4x!tt.ptr<f32>> loc(#loc)
    } loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc("kernel.py":7:1)
"""


BYTES = '"0x' + "01000000" * 4 + '"'


@pytest.mark.parametrize(("values", "proved"), [("3", True), ("[1, -2, 3, 4]", False), (BYTES, False)])
def test_a_constant_of_several_values_is_no_uniform_step(values, proved):
    """A proof takes a pointer that a loop carries to move all lanes alike."""
    assert ("INSIDE(first" in translate(TABLE.replace("VALUES", values)).c) == proved
