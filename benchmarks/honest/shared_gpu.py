"""Lets processes compute on one GPU at the same time, by NVIDIA's Multi-Process Service, where the machine has it.

Without it kernels of several processes take turns: 16 targets at once made a third of the cases a second on an H200.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
"""Variables by which the service and its clients find each other, and their folders."""
MOST_WAITS = 5
"""Clients, one after the other, that wait for the server to start."""
PATIENCE = 120.0
"""Seconds that a client may take to find a GPU, and the service to answer: either may wait for ever."""
CLIENT = "import torch; torch.zeros(1, device='cuda')"


class SharedGpu:
    """The service while it runs. After a kernel's fault it takes no client until all it had have ended, of which some
    may be compiling for minutes: then its server is replaced, which ends the work of all of them on the GPU.

    `replaced` counts how often it was.
    """

    def __init__(self) -> None:
        self.replaced = 0
        self._lock = Lock()

    def replace_faulty(self, before: int) -> None:
        """Replaces the server where a new client finds no GPU, unless it was replaced since `replaced` was `before`:
        others who ask for the same fault need not wait for one client after the other.

        Raises RuntimeError where a client of the new server finds none either.
        """
        with self._lock:
            if self.replaced > before or has_gpu():
                return
            for server in control("get_server_list").split():
                control(f"shutdown_server {server} -f")
            self.replaced += 1
            if not has_gpu():
                raise RuntimeError(f"no process can use the GPU, not even by a new server of {CONTROL}")


@contextmanager
def shared_gpu() -> Iterator[SharedGpu | None]:
    """Inside, processes that this one starts share the GPU; None, and nothing changes, where the service does not
    start."""
    program = shutil.which(CONTROL)
    if program is None or FOLDERS.keys() & os.environ.keys():
        yield None
        return
    with TemporaryDirectory() as folder:
        variables = {variable: f"{folder}/{name}" for variable, name in FOLDERS.items()}
        for path in variables.values():
            Path(path).mkdir()
        start = subprocess.run([program, "-d"], env=os.environ | variables, capture_output=True, check=False)
        if start.returncode:
            yield None
            return
        os.environ.update(variables)
        try:
            # The server starts with its first client, and clients find no GPU meanwhile.
            any(has_gpu() for _ in range(MOST_WAITS))
            yield SharedGpu()
        finally:
            control("quit")
            for variable in FOLDERS:
                del os.environ[variable]


def without_service(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that computes on the GPU by itself, whose kernels' faults take it from nobody else."""
    return {name: value for name, value in variables.items() if name not in FOLDERS}


def has_gpu() -> bool:
    """Whether a process that starts now can use the GPU."""
    return said_by([sys.executable, "-c", CLIENT]) is not None


def control(command: str) -> str:
    """What the service answers to a command; nothing where it fails."""
    return said_by([CONTROL], f"{command}\n") or ""


def said_by(command: list[str], given: str = "") -> str | None:
    """What a program that is given these lines says; None where it fails, or has not ended in time."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=PATIENCE)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return done.stdout
