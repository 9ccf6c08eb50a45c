"""Lets processes compute on one GPU at the same time, by NVIDIA's Multi-Process Service, where the machine has it.

Without it kernels of several processes take turns: 16 targets at once made a third of the cases a second on an H200.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
"""Variables by which the service and its clients find each other, and their folders."""


@contextmanager
def shared_gpu() -> Iterator[None]:
    """Inside, processes that this one starts share the GPU; nothing changes where the service does not start."""
    control = shutil.which(CONTROL)
    if control is None or FOLDERS.keys() & os.environ.keys():
        yield
        return
    with TemporaryDirectory() as folder:
        variables = {variable: f"{folder}/{name}" for variable, name in FOLDERS.items()}
        for path in variables.values():
            Path(path).mkdir()
        start = subprocess.run([control, "-d"], env=os.environ | variables, capture_output=True, check=False)
        if start.returncode:
            yield
            return
        os.environ.update(variables)
        try:
            # The server starts with its first client, and other clients find no GPU meanwhile.
            first_client = "import torch; torch.zeros(1, device='cuda')"
            subprocess.run([sys.executable, "-c", first_client], capture_output=True, check=False)
            yield
        finally:
            subprocess.run([control], input=b"quit\n", capture_output=True, check=False)
            for variable in FOLDERS:
                del os.environ[variable]
