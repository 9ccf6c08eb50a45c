"""The server that workers are forked from leaves the devices of all backends alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITH_A_GPU = """
import os, torch
from fuzz.worker_server import importing

asked = []
# What a CUDA build of torch has; NVML sees one GPU, and the CUDA runtime must not be asked.
torch._C._cuda_getDeviceCount = lambda: asked.append(1) or 1
torch._C._cuda_getCurrentRawStream = torch._C._cuda_getDefaultStream = None
torch.cuda._device_count_nvml = lambda: 1
variables = dict(os.environ)
"""


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITH_A_GPU + program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("imports", ["torch.cuda.is_available()", "import fuzz.judge.worker_server"])
def test_it_does_not_initialise_cuda(imports: str) -> None:
    ended = run_program(f"with importing():\n    {imports}\nassert not asked and dict(os.environ) == variables")
    assert ended.returncode == 0, ended.stderr


def test_torch_initialises_cuda_elsewhere() -> None:
    assert "AssertionError: [1]" in run_program("assert torch.cuda.is_available() and not asked, asked").stderr
