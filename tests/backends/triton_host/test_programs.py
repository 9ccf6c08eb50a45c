"""Programs by which libraries ask for a GPU, in the pretence of one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.identity import pretence


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_pretended_gpu_is_listed() -> None:
    with pretence(DRIVER):
        assert subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout.startswith("GPU 0: ")
        refused = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "knows no '-q'" in refused.stderr


def test_the_program_is_gone_afterwards() -> None:
    before = os.environ["PATH"]
    with pretence(DRIVER):
        os.environ["PATH"] += ":/added"
    assert os.environ["PATH"] == f"{before}:/added" and shutil.which("nvidia-smi") is None


def test_the_program_of_the_machine_comes_first(tmp_path: Path) -> None:
    real = tmp_path / "nvidia-smi"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    with pretence(DRIVER):
        assert shutil.which("nvidia-smi") == str(real)
