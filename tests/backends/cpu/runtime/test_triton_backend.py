"""How the backend plugs into Triton: activation, the compiler, caching, options, what is refused."""

import itertools
import os
import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from triton.backends import backends
from triton.runtime.driver import driver as drivers

from fuzz.backends import cpu
from fuzz.backends.cpu.frontend.parser import parse
from fuzz.backends.cpu.ops.table import OPERATIONS


@triton.jit
def double(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def deactivate_wholly() -> int:
    """Undoes what the modules and tests of this process have activated; how often that was."""
    for depth in itertools.count():
        try:
            cpu.deactivate()
        except RuntimeError:
            return depth
    raise AssertionError


def test_activation_is_undone():
    depth = deactivate_wholly()
    try:
        registered, driver = backends.get("cpu"), drivers._active
        with cpu.active():
            assert drivers.active.get_current_target().backend == "cpu"
            assert drivers.active.get_current_device() == "cpu"
            with cpu.active():
                pass
            assert drivers.active.get_current_target().backend == "cpu"
        assert backends.get("cpu") is registered and drivers._active is driver
        with pytest.raises(RuntimeError, match="not active"):
            cpu.deactivate()
    finally:
        for _ in range(depth):
            cpu.activate()


def test_importing_changes_nothing():
    code = """
    import triton.backends
    from triton.runtime.driver import driver
    before = dict(triton.backends.backends)
    import fuzz.backends.cpu
    assert triton.backends.backends == before and driver._active is None
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(cpu.NoCompiler, match="gcc or clang"):
        cpu.compiler()


def test_the_compiler_that_cc_names(monkeypatch, tmp_path):
    wrapper = tmp_path / "mycc"
    wrapper.write_text('#!/bin/sh\nexec cc "$@"\n')
    wrapper.chmod(0o755)
    before = cpu.version()
    monkeypatch.setenv("CC", f"{wrapper} -DEXTRA")
    assert cpu.compiler() == [str(wrapper), "-DEXTRA"]
    assert cpu.version() != before


def test_the_stages_are_kept():
    x = torch.arange(10.0)
    out = torch.zeros(10)
    compiled = double[(2,)](x, out, 10, B=8)
    assert torch.equal(out, 2 * x)
    source = cpu.c_source(compiled)
    assert source == compiled.asm["c"]
    assert "test_triton_backend.py" in source and "tl.load(x + i, mask=i < n) * 2" in source
    assert "tt.func" in compiled.asm["ttir"]


def test_a_cached_kernel_is_not_compiled_again(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(textwrap.dedent(FRESH))
    results = []
    for _ in range(2):
        environment = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
        environment |= {"PATH": os.environ["PATH"], "FUZZ_CPU_COMPILER": "optimising"}
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        results.append(done.stdout.split())
    assert results[0] == ["translate", "build", "2.0"]
    assert results[1] == ["2.0"]


FRESH = """
    import torch, triton, triton.language as tl
    from fuzz.backends import cpu
    from fuzz.backends.cpu.compilers import objects
    from fuzz.backends.cpu.runtime import triton_backend
    def announced(module, name):
        function = getattr(module, name)
        def announce(*args):
            print(name)
            return function(*args)
        setattr(module, name, announce)
    announced(triton_backend, "translate")
    announced(objects, "build")
    @triton.jit
    def one_more(x):
        tl.store(x, tl.load(x) + 1)
    x = torch.ones(1)
    with cpu.active():
        one_more[(1,)](x)
    print(x.item())
"""


def test_alignment_makes_no_specialisations_but_one_does():
    x = torch.zeros(64)
    out = torch.zeros(64)
    seen = {double[(1,)](x[shift:], out[shift:], n, B=8).hash for shift in (0, 1) for n in (5, 6, 16)}
    assert len(seen) == 1
    assert double[(1,)](x, out, 1, B=8).hash not in seen


def test_every_launch_keyword_is_accepted():
    x, out = torch.ones(8), torch.zeros(8)
    keywords = {"num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 64}
    double[(1,)](x, out, 8, B=8, **keywords, waves_per_eu=2, matrix_instr_nonkdim=16, enable_fp_fusion=False)
    assert out.sum() == 16


@triton.autotune(configs=[triton.Config({"B": 4}), triton.Config({"B": 8}, num_warps=2)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def tuned(x, out, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + (1 if EVEN else 2), mask=i < n)


def test_autotuners_heuristics_and_grids_that_are_functions():
    x, out = torch.zeros(10), torch.zeros(10)
    tuned[lambda meta: (triton.cdiv(10, meta["B"]),)](x, out, 10)
    assert out.tolist() == [1.0] * 10


def test_device_properties_are_knobs():
    properties = drivers.active.utils.get_device_properties("cpu")
    assert (properties["multiprocessor_count"], properties["max_shared_mem"]) == (4, 232448)
    with pytest.raises(AttributeError):
        cpu.knobs.shared = 1


@triton.jit
def assembly(x, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.inline_asm_elementwise("bfi.b32 $0, $1, $1, 0, 8;", "=r,r", [a], tl.float32, True, 1)
    tl.store(x + i, b)


def test_gluon_is_refused_by_name():
    gluon = pytest.importorskip("triton.experimental.gluon")
    gl = gluon.language

    @gluon.jit
    def add_one(x, B: gl.constexpr):
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        i = gl.arange(0, B, layout=layout)
        gl.store(x + i, gl.load(x + i) + 1)

    with pytest.raises(cpu.UnsupportedOperation, match="the language Gluon"):
        add_one[(1,)](torch.zeros(128), 128)


def test_what_is_not_supported_is_named():
    with pytest.raises(cpu.UnsupportedOperation) as caught:
        assembly[(1,)](torch.zeros(8), B=8)
    assert isinstance(caught.value, NotImplementedError)
    message = str(caught.value)
    assert "tt.elementwise_inline_asm" in message and "kernel assembly" in message
    assert f"{__file__}:{assembly.starting_line_number + 4}" in message


TTIR = """
#loc = loc("k.py":3:0)
#loc2 = loc("k.py":5:4)
module {
  tt.func public @k(%x: i32 loc("x"(#loc))) attributes {noinline = false} {
    OP loc(#loc2)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


@pytest.mark.parametrize(
    "op",
    [
        "%0 = arith.addi %x, %x : i32",
        "%0 = arith.addi %x, %x overflow<nsw> : i32",
        "%0 = tt.get_program_id x : i32",
        "%0 = arith.cmpi slt, %x, %x : i32",
    ],
)
def test_known_text_is_parsed(op):
    (function,) = parse(TTIR.replace("OP", op), OPERATIONS)
    assert [inner.name for inner in function.blocks[0].ops] == [op.split()[2], "tt.return"]
    assert str(function.blocks[0].ops[0].location) == "k.py:5"


@pytest.mark.parametrize(
    "op",
    [
        "%0 = arith.newop %x : i32",
        "%0 = arith.addi %x, %x newword : i32",
        "%0 = arith.addi %x, %x {newattribute = 1 : i32} : i32",
        "%0 = arith.addi %x : i32",
        "%0 = arith.addi %x, %missing : i32",
        "%0 = arith.addi %x, %x : vector<4xi32>",
        "%0 = arith.addi %x, %x : f4E2M1FN",
        "%0 = tt.get_program_id w : i32",
        "%0 = arith.cmpi almost, %x, %x : i32",
        "%0, %1 = arith.addi %x, %x : i32",
        "%0 = tt.dot %x, %x, %x, inputPrecision = quick : i32 * i32 -> i32",
        "%0 = arith.addi %x ; %x : i32",
    ],
)
def test_unknown_text_is_refused(op):
    with pytest.raises((cpu.UnsupportedOperation, cpu.MalformedIR)):
        parse(TTIR.replace("OP", op), OPERATIONS)


@triton.jit
def tuples(pair, out):
    first, second = pair
    tl.store(out, tl.load(first) + second)


def test_tuples_none_and_kinds_of_scalars():
    out = torch.zeros(1)
    tuples[(1,)]((torch.ones(1), 41), out)
    assert out.item() == 42


class Elsewhere:
    """Stands for a tensor on a GPU."""

    dtype = torch.float32
    device = "cuda:0"
    is_cpu = False

    def data_ptr(self):
        return 4096


def test_tensors_of_a_gpu_are_refused():
    with pytest.raises(ValueError, match="cuda:0"):
        double[(1,)](Elsewhere(), torch.zeros(8), 8, B=8)


def test_hooks_run():
    seen = []
    triton.knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        double[(1,)](torch.zeros(8), torch.zeros(8), 8, B=8)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(seen.append)
    assert seen and seen[0].get()["name"] == "double"


def test_warmup_and_handles():
    compiled = double.warmup(torch.float32, torch.float32, 8, B=16, grid=(1,))
    x, out = torch.ones(16), torch.zeros(16)
    compiled[(1, 1, 1)](x, out, 9, 16)
    assert out.sum() == 18


def test_a_compiler_that_fails_is_quoted():
    from fuzz.backends.cpu.compilers.compiler import build

    with pytest.raises(RuntimeError, match="failed on kernel k"):
        build("int main(", "k")
