"""What scripts do on a GPU, in the pretence of one: its tensors are in the host's memory, its kernels run there."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program

from fuzz.backends import BACKENDS
from fuzz.model.case import Argument, Call, Case
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
del sys.argv[0]
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


def written_script(folder: Path, text: str, finding: Finding, backend: str, argument: Argument) -> str:
    """The script of a finding of the target that a text declares, in a case with 2 rows of 3 elements."""
    path = folder / "declared.py"
    path.write_text(text)
    target = load(str(path))
    case = Case(target.name, (Call({"M": 2, "N": 3}, {"x": argument}, {}),))
    return script(Entry(case, finding, provenance=Provenance(backend=backend)), target, None, "fuzz replay x")


def code_on_gpu(folder: Path, text: str) -> int:
    """What a script ends with where there is a GPU."""
    path = folder / "alone.py"
    path.write_text(text)
    done = run_program("-c", PRETEND, str(path), cwd=folder)
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
