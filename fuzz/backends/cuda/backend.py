"""The `cuda` backend: kernels as Triton compiles them for an NVIDIA GPU, with guards and poison around every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType

from fuzz.backends.base import Backend, ReplicaLimits, Session
from fuzz.backends.shortage import requested_bytes
from fuzz.errors import message_of

OUT_OF_MEMORY = ("out of memory", "STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "cusolverDnCreate")
"""What CUDA, Triton and the libraries say that torch calls; the last two where these get no room to begin."""
FATAL = (
    "CUDA error", "device-side assert", "illegal memory access", "misaligned address", "illegal instruction",
    "invalid program counter", "operation not supported on global/shared address space", "hardware stack error",
    "launch timed out", "unspecified launch failure",
)  # fmt: skip
"""What torch and the driver say of errors after which "the process must be terminated and relaunched" (CUDA Driver API,
CUresult)."""
UNUSABLE = (
    "busy or unavailable", "No CUDA GPUs are available", "no CUDA-capable device is detected",
    "system not yet initialized", "MPS client", "support device connections have been exhausted",
    "uncorrectable ECC error", "uncorrectable NVLink error",
)  # fmt: skip
"""What they say where the GPU is in another process's exclusive use, has failed, or where the Multi-Process Service
takes no client or has ended one. To torch a GPU that was missing once is missing until the process ends."""
OWN_CONTEXT = 1 << 30
"""Bytes of a GPU that a process may hold beside what torch has reserved: its context, modules, printf's buffer."""
MOST_UNUSED = 2 << 30
"""Bytes of a GPU that torch may keep for the next tensors of a process: one layout of huge strides takes four times as
many for each tensor, and 15 runs that had met one held all of an H200's 140 GiB."""
NO_GPU = "backend cuda finds no usable NVIDIA GPU (torch.cuda.is_available() is False)"


class CudaBackend(Backend):
    """Runs kernels on an NVIDIA GPU."""

    name = "cuda"
    device = "cuda"
    is_accelerator = True
    needs_durable_journal = True
    compiles_without_device = True
    arithmetic = "libdevice"
    # With it torch.cuda.is_available() asks NVML: a process forked from one that has initialised CUDA cannot use it.
    import_environment = MappingProxyType({"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})

    @staticmethod
    def replica_limits(*, guided: bool) -> ReplicaLimits:
        """Compiling a plan costs more than on a processor, and elements less: more replicas, of the first plans too."""
        return ReplicaLimits(512, 1 << 22, doublings=1) if guided else ReplicaLimits(1024, 1 << 23, 32, doublings=1)

    def unavailable_reason(self) -> str:
        import torch

        if torch.version.hip or getattr(torch.version, "xpu", None):
            return "backend cuda runs on NVIDIA GPUs only; this torch is built for ROCm or XPU"
        if torch.version.cuda is None:
            return "backend cuda needs a CUDA build of torch; this one is a CPU build"
        if not torch.cuda.is_available():
            return NO_GPU
        return ""

    def fork_reason(self) -> str:
        import torch

        is_in_bad_fork = getattr(torch._C, "_cuda_isInBadFork", lambda: False)
        return "the process that this one is forked from has initialised CUDA" if is_in_bad_fork() else ""

    def compile_only(self) -> Backend:
        from fuzz.backends.cuda.compile_only import CompileOnlyBackend

        return CompileOnlyBackend()

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        import torch

        from fuzz.backends.cuda.launch_recorder import record_launches

        with self.uninstrumented(), record_launches(torch.cuda.current_stream().cuda_stream) as launches:
            yield Session(launches=launches)

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        from fuzz.backends.cuda import shared_memory
        from fuzz.backends.triton_host import autotune
        from fuzz.backends.triton_host.patching import patched

        with patched([*autotune.PATCHES, *shared_memory.PATCHES]):
            yield

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def release_memory(self) -> None:
        import torch

        # The flat form of these numbers takes three times as long to make. There are none before the first tensor.
        held = torch.cuda.memory_stats_as_nested_dict()
        used, kept = (held[name]["all"]["current"] if held else 0 for name in ("allocated_bytes", "reserved_bytes"))
        if kept - used > MOST_UNUSED:
            torch.cuda.empty_cache()

    def is_fatal(self, error: BaseException) -> bool:
        """Some errors of the device leave a context that no launch survives."""
        text = message_of(error)
        return self.is_unusable(error) or any(one in text for one in FATAL)

    def is_unusable(self, error: BaseException) -> bool:
        text = message_of(error)
        return any(one in text for one in UNUSABLE)

    def external_oom_reason(self, error: BaseException) -> str:
        """A reason where what this process holds and requested would fit on the GPU, were it alone there."""
        import torch

        if not any(text in message_of(error) for text in OUT_OF_MEMORY):
            return super().external_oom_reason(error)
        try:
            free, total = torch.cuda.mem_get_info()
        except RuntimeError:
            # Not even what this process needs to ask has room.
            return "others hold the GPU's memory"
        return external_shortage(message_of(error), torch.cuda.memory_reserved(), free, total)


def external_shortage(message: str, held: int, free: int, total: int) -> str:
    """How much of a GPU's memory other processes hold; empty where the request would not fit without them either.

    Others are to blame only if they hold more than this process's context may. `message` is the error's, in which the
    request may be unknown; `held` by this process, `free` and `total` on the GPU are in bytes.
    """
    requested, others = requested_bytes(message), total - free - held
    if held + requested > total or others <= OWN_CONTEXT:
        return ""
    return f"of the GPU's {total >> 20} MiB others hold {others >> 20}"
