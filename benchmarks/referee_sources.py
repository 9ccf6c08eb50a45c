"""The public repositories that `fuzz judge` is measured on, at fixed commits. Nothing of them is kept here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

STORE = Path(__file__).parents[1] / ".referee"


@dataclass(frozen=True)
class Repository:
    """Where public material comes from."""

    name: str
    url: str
    commit: str


KERNELBENCH = Repository(
    "KernelBench", "https://github.com/ScalingIntelligence/KernelBench", "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
)
TRITONBENCH = Repository(
    "TritonBench", "https://github.com/thunlp/TritonBench", "603e28a5050e8c268f6883a69709d477a272d49a"
)
AI_BENCH = Repository("AI-bench", "https://github.com/libxsmm/AI-bench", "830acfe7f3dc75b87dc3e0472df769c6a6d4d2f2")
GPU_MODE = Repository(
    "reference-kernels", "https://github.com/gpu-mode/reference-kernels", "f83cb92a534cc67fa98d7e9813e7f8238abdb4e0"
)
FLASHINFER = Repository(
    "flashinfer-bench", "https://github.com/flashinfer-ai/flashinfer-bench", "ecafa9c2c62007667838226068b21ca9ff1c9183"
)


def fetch(repository: Repository, source: Path | None) -> Path:
    """The folder of a repository at its commit: below `source`, or cloned once."""
    folder = (source or STORE) / repository.name
    if not folder.is_dir():
        if source is not None:
            sys.exit(f"there is no {folder}")
        subprocess.run(["git", "clone", "--quiet", repository.url, folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "--quiet", repository.commit], check=True)
    return folder
