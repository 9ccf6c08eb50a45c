"""Processes of this package import it, wherever they are started and whatever is installed."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fuzz
from fuzz.worker.python_process import PipeProcess, module_command, program_command, start_isolated

SHOWS_ORIGIN = "print(find_spec('fuzz').origin, *sys.argv[1:])"


def other_package(folder: Path) -> Path:
    """A package of another person that is named like this one."""
    (folder / "fuzz").mkdir(parents=True)
    (folder / "fuzz" / "__init__.py").write_text("")
    return folder


def output(command: tuple[str, ...], folder: Path, path: str = "") -> str:
    """What a command prints that is started in a folder, with the folders of `path` before all others."""
    variables = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout.strip()


def test_neither_the_folder_nor_the_path_gives_another_package(tmp_path: Path) -> None:
    other = other_package(tmp_path / "other")
    command = (*program_command(SHOWS_ORIGIN), "a", "b")
    assert output(command, other) == f"{fuzz.__file__} a b"
    assert output(command, tmp_path, path=str(other)) == f"{fuzz.__file__} a b"


def test_a_checkout_that_is_not_installed_is_found(tmp_path: Path) -> None:
    python, *options = program_command(SHOWS_ORIGIN)
    assert output((python, "-S", *options), tmp_path) == fuzz.__file__  # -S: nothing that is installed is on the path


def test_a_module_runs_as_the_main_one(tmp_path: Path) -> None:
    assert output((*module_command("fuzz"), "--version"), tmp_path).startswith("fuzz ")


@pytest.mark.parametrize("start", [PipeProcess.start, start_isolated])
def test_a_start_that_fails_leaves_no_folder_and_no_descriptor(
    start: Callable[[tuple[str, ...]], PipeProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        start(("no such program",))
    assert list(tmp_path.iterdir()) == [] and set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(("start", "prefix"), [(PipeProcess.start, "fuzz-host-"), (start_isolated, "fuzz-isolated-")])
def test_a_process_removes_the_folders_of_killed_ones(
    start: Callable[[tuple[str, ...]], PipeProcess], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = Path(tempfile.mkdtemp(prefix=prefix))
    os.utime(left, (0, 0))
    process = start((sys.executable, "-S", "-c", "import sys; sys.stdin.read()"))
    try:
        assert [str(path) for path in tmp_path.iterdir()] == [process.folder]
    finally:
        process.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("ends", "how"), [("sys.exit(3)", "exit status 3"), ("os.kill(os.getpid(), 40)", "signal 40")])
def test_a_process_that_ends_says_how(ends: str, how: str) -> None:
    process = PipeProcess.start((sys.executable, "-S", "-c", f"import os, sys; {ends}"))
    try:
        assert process.receive(60)[2] == how
    finally:
        process.close()


def test_the_server_of_workers_imports_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text("import sys\ndef imported(): print('fuzz.errors' in sys.modules)\n")
    program = tmp_path / "program.py"
    paths = [str(Path(fuzz.__file__).parents[1]), *site.getsitepackages()]
    program.write_text(
        "if __name__ == '__main__':\n"
        f"    import sys; sys.path += {paths!r}\n"
        "    import shows; from fuzz.worker.worker_server import CONTEXT, preload; preload('fuzz.errors')\n"
        "    process = CONTEXT.Process(target=shows.imported); process.start(); process.join()"
    )
    # -S holds for the server too, whose path nothing is added to.
    assert output((sys.executable, "-S", str(program)), tmp_path) == "True"
