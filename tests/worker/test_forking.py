"""The server that workers are forked from leaves the devices of all backends alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITH_A_GPU = """
import torch

asked = []
# What a CUDA build of torch has; NVML sees one GPU, and the CUDA runtime must not be asked.
torch._C._cuda_getDeviceCount = lambda: asked.append(1) or 1
torch._C._cuda_getCurrentRawStream = torch._C._cuda_getDefaultStream = None
torch.cuda._device_count_nvml = lambda: 1
"""
SEEN = "\nassert torch.cuda.is_available() and not asked, asked"


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("modules", ["fuzz.worker_server", "fuzz.worker_server, fuzz.judge.worker_server"])
def test_it_does_not_initialise_cuda(modules: str) -> None:
    ended = run_program(f"{WITH_A_GPU}\nimport {modules}\n{SEEN}")
    assert ended.returncode == 0, ended.stderr


def test_torch_initialises_cuda_without_it() -> None:
    assert "AssertionError: [1]" in run_program(WITH_A_GPU + SEEN).stderr
