"""C++ and CUDA that a solution holds as text and compiles when it is loaded: where it is built, and what that needs."""

from __future__ import annotations

import os
from pathlib import Path
from traceback import walk_tb
from types import FrameType

COMPILER_MODULE = "torch.utils.cpp_extension"


def build_extensions_in(folder: Path) -> None:
    """Has PyTorch build extensions in a folder.

    By itself it takes one folder for all of a name. Solutions with an extension of the same name, as many samples for
    one problem have, would then load what another one has built, or wait for a lock that an ended process left.
    """
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)


def describe_missing_tool(error: Exception, *, has_gpu: bool) -> str:
    """What this machine lacks to build the extension that failed with an error; empty where it lacks nothing."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if is_of_compiler(frame)]
    if not frames:
        return ""
    from torch.utils import cpp_extension

    if not cpp_extension.is_ninja_available():
        return "ninja, which PyTorch builds extensions with, is not installed"
    if not any(frame.f_locals.get("with_cuda") or frame.f_locals.get("cuda_sources") for frame in frames):
        return ""
    if not has_gpu:
        return "CUDA needs a GPU (--backend cuda)"
    home = cpp_extension.CUDA_HOME
    return "" if home and Path(home, "bin", "nvcc").exists() else "nvcc is not installed, or CUDA_HOME does not name it"


def is_of_compiler(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == COMPILER_MODULE
