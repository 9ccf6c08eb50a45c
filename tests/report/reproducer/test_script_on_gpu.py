"""What scripts do on a GPU, in the pretence of one: its tensors are in the host's memory, its kernels run there."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program, run_programs

from fuzz.backends import BACKENDS
from fuzz.model.case import Argument, Call, Case, LaunchOptions
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import recipe
from fuzz.report.reproducer.script import script
from fuzz.target.loader import load

ACCELERATOR = next(name for name, one in BACKENDS.items() if one.is_accelerator)
PRETEND = """
import runpy, sys
from fuzz.backends import cpu
cpu.knobs.identity = "cuda"
cpu.activate()
exec(sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
STRAY = """import ctypes

import torch

from fuzz import size, target, tensor

M, N = size("M", 1, 8), size("N", 1, 8)


def overwrite(value, offset):
    # As a kernel of a GPU would, which knows no bounds.
    ctypes.memset(value.data_ptr() + value.element_size() * offset, 0, value.element_size())


@target(x=tensor(M, N), reference=lambda x: dict(y=2 * x))
def stray(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.mul(x, 2, out=y)
    # HERE
    return dict(y=y)
"""


def written_script(
    folder: Path, text: str, finding: Finding, backend: str, argument: Argument, launch: LaunchOptions | None = None
) -> str:
    """The script of a finding of the target that a text declares, in a case with 2 rows of 3 elements."""
    path = folder / "declared.py"
    path.write_text(text)
    target = load(str(path))
    case = Case(target.name, (Call({"M": 2, "N": 3}, {"x": argument}, {}, launch=launch),))
    return script(Entry(case, finding, provenance=Provenance(backend=backend)), target, None, "fuzz replay x")


def code_on_gpu(folder: Path, text: str, before: str = "") -> int:
    """What a script ends with where there is a GPU, after other statements."""
    path = folder / "alone.py"
    path.write_text(text)
    done = run_program("-c", PRETEND, before, str(path), cwd=folder)
    assert not done.stderr, done.stderr
    return done.returncode


def stray_script(folder: Path, statement: str, symptom: str, backend: str) -> str:
    """The script of a launcher that runs a statement after its kernel; the rows of its input are padded."""
    argument = Argument(("M", "N"), "float32", recipe("normal", 1), Layout(pad=3))
    found = Finding("bounds", ("y",), symptom, "m")
    return written_script(folder, STRAY.replace("# HERE", statement), found, backend, argument)


@pytest.mark.parametrize("place", ["y, 6", "y, -1", "x, -2", "x, 3", "x, 10"])
def test_a_stray_write_that_a_gpu_has_shown_shows_there(place: str, tmp_path: Path) -> None:
    assert code_on_gpu(tmp_path, stray_script(tmp_path, f"overwrite({place})", "stray-write", ACCELERATOR)) == 1


@pytest.mark.parametrize("statement", ["pass", "y.fill_(float('nan'))", "overwrite(y, 5)"])
def test_a_kernel_without_stray_writes_is_right_on_a_gpu(statement: str, tmp_path: Path) -> None:
    assert code_on_gpu(tmp_path, stray_script(tmp_path, statement, "stray-write", ACCELERATOR)) == 0


@pytest.mark.parametrize(
    "symptom", ["stray-write", "stray-read", "offset-overflow", "write-conflict", "unwritten-read"]
)
def test_what_the_cpu_has_shown_is_looked_for_there(symptom: str, tmp_path: Path) -> None:
    text = stray_script(tmp_path, "pass", symptom, "cpu")
    assert 'DEVICE = "cpu"\n' in text and "cpu.observe(" in text


AUTOTUNED = """import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N = size("M", 1, 8), size("N", 1, 8)


@triton.autotune([triton.Config({"ADDED": added}) for added in (1, 0, 2)], key=["n"])
@triton.jit
def add_kernel(y, n, ADDED: tl.constexpr):
    places = tl.arange(0, 16)
    tl.store(y + places, tl.load(y + places, mask=places < n) + ADDED, mask=places < n)


@target(x=tensor(M, N), reference=lambda x: dict(y=x + 1))
def add(x):
    y = x.contiguous().clone()
    add_kernel[(1,)](y, y.numel())
    return dict(y=y)
"""
TIMED = """
import itertools
from fuzz.backends.triton_host import autotune
times = itertools.count(0, -1)

def measure(call, **_):
    call()
    return [float(next(times))] * 3

autotune.Autotuner.prune_configs = autotune.real_prune_configs
autotune.Autotuner._bench = autotune.real_bench
autotune.Autotuner.do_bench = property(lambda tuner: measure)
"""
"""As on a GPU a benchmark launches each configuration; here the last one is always the fastest."""


def autotuned_script(folder: Path, config: int | None) -> str:
    """The script of a case with this configuration: the one of index 0 alone is right, and only where it runs once."""
    launch = None if config is None else LaunchOptions(config=config)
    argument = Argument(("M", "N"), "float32", recipe("integers", 1))
    return written_script(folder, AUTOTUNED, Finding("accuracy", ("y",), "value", "m"), "cpu", argument, launch)


@pytest.mark.parametrize(("config", "code"), [(None, 0), (1, 1), (2, 1), (3, 0)])
def test_a_script_takes_the_configuration_of_the_case_on_a_gpu(config: int | None, code: int, tmp_path: Path) -> None:
    """Without a benchmark, which adds to the output as well."""
    assert code_on_gpu(tmp_path, autotuned_script(tmp_path, config), TIMED) == code


def test_a_script_without_an_autotuner_has_nothing_to_pin(tmp_path: Path) -> None:
    untuned = AUTOTUNED.replace("@triton.autotune", "# ").replace("y.numel())", "y.numel(), ADDED=1)")
    argument = Argument(("M", "N"), "float32", recipe("integers", 1))
    text = written_script(tmp_path, untuned, Finding("accuracy", ("y",), "value", "m"), "cpu", argument)
    assert "pin_autotuners" not in text and code_on_gpu(tmp_path, text) == 0


LIMITED = """
from triton.compiler import CompiledKernel
from triton.runtime.errors import OutOfResources
load = CompiledKernel._init_handles

def load_if_it_fits(kernel):
    if 2 in kernel.src.constants.values():
        raise OutOfResources(2, 1, "shared memory")
    load(kernel)

CompiledKernel._init_handles = load_if_it_fits
"""


def test_a_configuration_that_does_not_fit_a_gpu_is_passed_over(tmp_path: Path) -> None:
    """As the fuzzer does: the last one does not fit, and the first follows."""
    assert code_on_gpu(tmp_path, autotuned_script(tmp_path, 2), TIMED + LIMITED) == 0


def test_a_script_takes_the_configuration_on_the_cpu(tmp_path: Path) -> None:
    ended = run_programs(tmp_path, (autotuned_script(tmp_path, config) for config in (None, 1)))
    assert [one.code for one in ended] == [0, 1]
