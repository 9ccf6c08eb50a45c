"""The `cuda` backend: kernels as Triton compiles them for an NVIDIA GPU, with guards and poison around every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fuzz.backends.base import Session


class Cuda:
    name = "cuda"
    device = "cuda"

    def unusable(self) -> str:
        import torch

        if torch.version.hip or getattr(torch.version, "xpu", None):
            return "backend cuda runs on NVIDIA GPUs only; this torch is built for ROCm or XPU"
        if torch.version.cuda is None:
            return "backend cuda needs a CUDA build of torch; this one is a CPU build"
        if not torch.cuda.is_available():
            return "backend cuda finds no usable NVIDIA GPU (torch.cuda.is_available() is False)"
        return ""

    def prepare(self) -> None:
        """Nothing: sessions need nothing."""

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from fuzz.backends.launched import recording

        with recording() as launched:
            yield Session(launched=launched)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        yield

    def finish(self) -> None:
        import torch

        torch.cuda.synchronize()

    def fatal(self, error: BaseException) -> bool:
        """An illegal access or a failed assertion on the device leaves a context that no launch survives."""
        text = str(error)
        return "CUDA error" in text or "device-side assert" in text or "illegal memory access" in text
