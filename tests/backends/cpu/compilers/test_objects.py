"""Shared objects that are kept: which of them a failing load removes."""

import resource
from contextlib import contextmanager

import pytest

from fuzz.backends.cpu.compilers import objects
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import ELF_HEAD, DamagedObject, build_object, load_shared


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A new object, which no process has loaded yet."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return build_object(KernelText.of("int number(void) { return 7; }"), "number")


@contextmanager
def no_descriptors():
    """Inside, no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("is_opened", [False, True])
def test_an_object_stays_that_is_loaded_without_descriptors(path, monkeypatch, is_opened):
    if is_opened:
        # Only the loader then lacks one.
        monkeypatch.setattr(objects, "check_length", lambda _: None)
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        load_shared(path)
    load_shared(path)


def test_an_object_stays_that_needs_an_absent_symbol(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    lacking = build_object(KernelText.of("int absent(void); int number(void) { return absent(); }"), "number")
    with pytest.raises(OSError, match="undefined symbol"):
        load_shared(lacking)
    assert lacking.exists()


HEAD = {
    "cut": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "identification": lambda data: data[:5] + b"\xff" * 11 + data[16:],
    "type": lambda data: data[:16] + b"\xff\xff" + data[18:],
    "tables": lambda data: data[:32] + bytes(ELF_HEAD.size - 32) + data[ELF_HEAD.size :],
}


@pytest.mark.parametrize("change", HEAD.values(), ids=HEAD)
def test_an_object_that_no_loader_takes_is_removed(path, change):
    data = change(path.read_bytes())
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(DamagedObject):
        load_shared(path)
    assert not path.exists()
