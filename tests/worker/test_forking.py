"""The server that workers are forked from, and what it leaves alone."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from processes import has_ended

from fuzz.backends import BACKENDS
from fuzz.oracles.examine import load_launcher
from fuzz.worker.protocol import WorkerConfig
from fuzz.worker.system import HUGE_PAGES_ALLOWED

WITH_A_GPU = """
import os, torch
from fuzz.server_preload import importing

asked = []
# What a CUDA build of torch has; NVML sees one GPU, and the CUDA runtime must not be asked.
torch._C._cuda_getDeviceCount = lambda: asked.append(1) or 1
torch._C._cuda_getCurrentRawStream = torch._C._cuda_getDefaultStream = None
torch.cuda._device_count_nvml = lambda: 1
variables = dict(os.environ)
"""


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    """A program on a machine with a GPU, which tests that loaded a target here have hidden from this process."""
    hidden = BACKENDS["cpu"].load_environment
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-c", WITH_A_GPU + program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("imports", ["torch.cuda.is_available()", "import fuzz.judge.server_preload"])
def test_it_does_not_initialise_cuda(imports: str) -> None:
    ended = run_program(f"with importing():\n    {imports}\nassert not asked and dict(os.environ) == variables")
    assert ended.returncode == 0, ended.stderr


def test_torch_initialises_cuda_elsewhere() -> None:
    assert "AssertionError: [1]" in run_program("assert torch.cuda.is_available() and not asked, asked").stderr


def test_a_library_that_a_target_imports_starts_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    load_launcher(WorkerConfig("gelu_bw", None, "cpu"))
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


PROGRAM = """
import os
from multiprocessing import forkserver
from fuzz.worker.worker import Worker
from fuzz.worker.worker_server import fork_server

fork_server("shared")
with Worker("shared:make_handler", None, memory=8 << 30, timeout=120.0) as worker:
    assert worker.call("imported by") == os.getpid() != worker.pid
print(forkserver._forkserver._forkserver_pid)
"""


def test_a_forked_server_shares_imports_and_ends_with_its_program(tmp_path: Path) -> None:
    shared = "import os\nIMPORTED_BY = os.getpid()\ndef make_handler(config):\n    return lambda request: IMPORTED_BY\n"
    (tmp_path / "shared.py").write_text(shared)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    program = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert has_ended(int(ended.stdout))


HUGE_PAGES = """
import os
from multiprocessing import forkserver
from pathlib import Path
from fuzz.worker.system import HUGE_PAGES_ALLOWED
from fuzz.worker.worker import Worker
from fuzz.worker.worker_server import {start}

def huge_pages():
    path = Path(f"/proc/{{forkserver._forkserver._forkserver_pid}}/smaps_rollup")
    return "AnonHugePages:         0 kB" not in path.read_text()

{start}("large")
with Worker("large:make_handler", None, memory=8 << 30, timeout=120.0) as worker:
    used = huge_pages()
    for _ in range(16):
        worker.stop()
        worker.start()
    assert worker.call("sum") == 16 << 20
    print(used, huge_pages() or "[never]" in HUGE_PAGES_ALLOWED.read_text())
"""


LARGE = """
LARGE = b"1" * (16 << 20)
def make_handler(config):
    return lambda request: LARGE.count(b"1")
"""
LINUX = tuple(int(part) for part in platform.release().split(".")[:2])


@pytest.mark.skipif(LINUX < (6, 1) or not HUGE_PAGES_ALLOWED.is_file(), reason="this Linux has no such advice")
@pytest.mark.parametrize("start", ["preload", "fork_server"])
def test_a_server_that_has_forked_often_uses_huge_pages(start: str, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    program = [sys.executable, "-c", HUGE_PAGES.format(start=start)]
    ended = subprocess.run(program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "False True\n"


FAILING = """
import os
from multiprocessing import forkserver
from fuzz.worker.worker_server import fork_server

def fail(*arguments, **more):
    raise RuntimeError("the server cannot start")

forkserver.main = fail
fork_server("json")
assert os.waitpid(forkserver._forkserver._forkserver_pid, 0)[1]
"""


def test_a_forked_server_that_fails_says_why() -> None:
    ended = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, check=False)
    assert "RuntimeError: the server cannot start" in ended.stderr


@pytest.mark.parametrize("become", ["pass", "open(folder, 'w').close()"], ids=["nothing", "a file"])
def test_a_folder_of_the_server_that_a_kernel_removed_prints_nothing_at_the_end(tmp_path: Path, become: str) -> None:
    program = (
        "import os\nfrom multiprocessing.util import get_temp_dir\n"
        "from fuzz.worker.system import remove_server_folder\n"
        f"folder = get_temp_dir()\nos.rmdir(folder)\n{become}\nremove_server_folder()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=True
    )
    assert done.stderr == b""
