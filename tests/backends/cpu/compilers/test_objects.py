"""Shared objects that are kept: which of them a failing load removes."""

import os
import resource
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import has_ended

from fuzz.backends.cpu.compilers import compiler, objects
from fuzz.backends.cpu.compilers.compiler import end_compiler
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import ELF_HEAD, BackgroundBuild, DamagedObject, build_object, load_shared
from fuzz.backends.cpu.errors import CompilerTimeout


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


@pytest.fixture
def at_work(tmp_path, monkeypatch):
    """The numbers of the processes that a compiler has started, which writes its temporary files and does not end."""
    numbers = tmp_path / "numbers"
    program = f'touch "$TMPDIR/begun"; sleep 600 & echo $! > {numbers}.new; mv {numbers}.new {numbers}; wait'
    for module in (compiler, objects):
        monkeypatch.setattr(module, "command_line", lambda *_: ["sh", "-c", program])
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return numbers


def test_a_build_that_is_stopped_ends_what_the_compiler_has_started(at_work):
    build = BackgroundBuild.start(KernelText.of("int stopped(void) { return 0; }"))
    assert build is not None
    while not at_work.exists():
        time.sleep(0.01)
    build.stop()
    assert has_ended(int(at_work.read_text()))
    assert [path for path in at_work.parent.rglob("*") if not path.is_dir()] == [at_work]


@pytest.mark.parametrize("error", [KeyboardInterrupt, CompilerTimeout])
def test_a_build_that_is_left_ends_what_the_compiler_has_started(at_work, monkeypatch, error):
    def heartbeat():
        while not at_work.exists():
            time.sleep(0.01)
        if error is KeyboardInterrupt:
            raise error

    monkeypatch.setattr(compiler, "heartbeat", heartbeat)
    monkeypatch.setattr(compiler, "TIMEOUT", 0.0)
    with pytest.raises(error):
        build_object(KernelText.of("int left(void) { return 0; }"), "left")
    assert has_ended(int(at_work.read_text()))
    assert [path for path in at_work.parent.rglob("*") if not path.is_dir()] == [at_work]


def test_a_build_removes_what_killed_processes_have_left_of_theirs(at_work):
    killed = os.fork()
    if killed == 0:
        build = BackgroundBuild.start(KernelText.of("int killed(void) { return 0; }"))
        end_compiler(build._process)
        os._exit(0)
    os.waitpid(killed, 0)
    builds = [BackgroundBuild.start(KernelText.of(f"int {name}(void);")) for name in ("held", "next")]
    try:
        names = {path.name for build in builds for path in (build._folder, Path(build._lock.name))}
        assert {path.name for path in builds[0]._folder.parent.iterdir()} == names
    finally:
        for build in builds:
            build.stop()
    assert list(builds[0]._folder.parent.iterdir()) == []
