"""Processes that import a release, forked from a server that has imported torch, Triton and this project.

To import these takes seconds, far more where many processes begin at once, and replaying a finding milliseconds.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from threading import Lock

from benchmarks.archaeology.stand_ins import VARIABLE
from benchmarks.releases import ROOT, import_path
from fuzz.run.setup import start_worker_server
from fuzz.worker.system import without_main
from fuzz.worker.worker_server import CONTEXT

MODULES = (
    "fuzz.cli.app", "fuzz.run.fuzzer", "fuzz.run.replay", "fuzz.search.engines", "fuzz.coverage_report.scope",
    "torch.distributed.tensor", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.kernel.flex",
)  # fmt: skip
"""What the server imports besides what every worker needs; those of torch are what newer releases import of it."""
STAND_INS = "benchmarks.archaeology.stand_ins"
LATE = 124
"""The exit code of a process that is ended because its time is over."""
STARTS = Lock()
"""Held while a process starts: the list of this process's children is for one thread."""


def start_server(stand_ins: Sequence[str] = ()) -> None:
    """Starts the server, which sees no GPU; `stand_ins` are packages that are not to be imported themselves."""
    os.environ |= import_path(ROOT) | {VARIABLE: ",".join(stand_ins)}
    start_worker_server(STAND_INS, *MODULES)


def run_forked(
    release: Path, module: str, *arguments: str, timeout: float | None = None, cpus: Sequence[int] = ()
) -> tuple[int, str, str]:
    """Does what `run_module` of `benchmarks.releases` does, in a process that the server forks."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = CONTEXT.Process(target=command, args=(release, module, arguments, cpus, output, errors))
        with STARTS, without_main():
            process.start()
        process.join(timeout)
        late = process.exitcode is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        told, failed = (path.read_text("utf-8") if path.exists() else "" for path in (output, errors))
        if late:
            return LATE, told, f"{failed}\nit did not end within {timeout:g} s"
        return process.exitcode, told, failed


def command(release: Path, module: str, arguments: Sequence[str], cpus: Sequence[int], *files: Path) -> None:
    """The program of a process: runs a module with arguments, its output and errors in two files."""
    os.setsid()
    assert STAND_INS in sys.modules, "the server has not imported the stand-ins"
    if cpus:
        os.sched_setaffinity(0, cpus)
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(ROOT)
    os.environ.update(import_path(release))
    sys.path[:0] = [str(release), str(ROOT)]
    # Its workers are forked from the same server, which has imported what they need.
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
