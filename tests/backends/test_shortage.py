"""What the machine lacks is no finding: memory that others hold or a limit denies, a full disk, too many open files."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from fuzz.backends import BACKENDS, shortage
from fuzz.backends.execute import run
from fuzz.backends.shortage import describe_shortage, is_out_of_memory, requested_bytes
from fuzz.model.case import Case
from fuzz.model.outcome import NotRun, Outcome, OutOfMemory, Raised
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.rejects import RejectsOracle
from fuzz.search.engines import RandomEngine
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import Target, declare

GIB = 1 << 30
TORCH = "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you {} bytes. Error"
HUGE = RuntimeError(TORCH.format(f"tried to allocate {1 << 60}"))
LARGE = RuntimeError(TORCH.format(f"tried to allocate {2 * GIB}"))
LIMITED = "a process may have 8192 MiB of addresses (ulimit -v)"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine of 16 GiB, of which one is free."""
    monkeypatch.setattr(shortage, "total_memory", lambda: 16 * GIB)
    monkeypatch.setattr(shortage, "available_memory", lambda: GIB)
    return monkeypatch


def limit_addresses(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (size, size))


def outcome_of(error: Exception, target: Target, case: Case) -> Outcome:
    def launcher(**_: object) -> dict[str, torch.Tensor]:
        raise error

    return run(target, launcher, case.calls, BACKENDS["cpu"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENFILE, errno.EFBIG])
def test_a_machine_without_room_for_files_is_no_finding(number: int, gelu: Target, case: Case) -> None:
    outcome = outcome_of(OSError(number, os.strerror(number)), gelu, case)
    assert isinstance(outcome, NotRun) and os.strerror(number) in outcome.message


def test_what_a_kernel_does_wrong_with_files_is_raised(gelu: Target, case: Case) -> None:
    assert isinstance(outcome_of(FileNotFoundError(errno.ENOENT, "no such file"), gelu, case), Raised)


def test_a_cache_of_kernels_that_others_empty_is_no_finding(
    gelu: Target, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    gone = tmp_path / "cache" / "KEY" / "kernel.json"

    def outcome_in(module: str, path: Path) -> Outcome:
        """Where a module looks for a file through the standard library."""
        looks: dict[str, object] = {"__name__": module}
        exec("def look(fail):\n    fail()", looks)
        fails: dict[str, object] = {
            "__name__": "pathlib",
            "error": FileNotFoundError(errno.ENOENT, "no such file", str(path)),
        }
        exec("def fail():\n    raise error", fails)
        return run(gelu, lambda **_: looks["look"](fails["fail"]), case.calls, BACKENDS["cpu"])  # type: ignore[operator]

    outcome = outcome_in("triton.runtime.cache", gone)
    assert isinstance(outcome, NotRun) and outcome.message.startswith("Triton's cache cannot be used: FileNotFound")
    assert isinstance(outcome_in("triton.runtime.cache", tmp_path / "cache-of-launcher"), Raised)
    assert isinstance(outcome_in("fuzz_target_mine", gone), Raised)


@pytest.mark.parametrize("error", [MemoryError(), LARGE, OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_memory_that_a_limit_of_addresses_denies_is_no_finding(
    machine: pytest.MonkeyPatch, error: Exception, gelu: Target, case: Case
) -> None:
    limit_addresses(machine, 8 * GIB)
    assert outcome_of(error, gelu, case) == NotRun(f"no memory is left here: {LIMITED}")


def test_memory_that_others_hold_is_no_finding_and_what_never_fits_is_one(
    machine: pytest.MonkeyPatch, gelu: Target, case: Case
) -> None:
    limit_addresses(machine, resource.RLIM_INFINITY)
    full = "no memory is left here: of the machine's 16384 MiB only 1024 are free"
    assert outcome_of(LARGE, gelu, case) == NotRun(full)
    assert isinstance(outcome_of(HUGE, gelu, case), OutOfMemory)
    machine.setattr(shortage, "available_memory", lambda: 8 * GIB)
    assert isinstance(outcome_of(LARGE, gelu, case), OutOfMemory)


def test_the_size_of_a_refused_allocation_is_read_from_what_refused_it() -> None:
    with pytest.raises(RuntimeError) as torchs:
        torch.empty(1 << 58)
    with pytest.raises(MemoryError) as numpys:
        np.empty(1 << 45)
    assert is_out_of_memory(torchs.value) and requested_bytes(str(torchs.value)) == 1 << 60
    assert requested_bytes(str(numpys.value)) == 1 << 48
    assert not describe_shortage(torchs.value, BACKENDS["cpu"])


def test_a_neighbour_that_fills_the_gpu_is_not_the_kernels_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = BACKENDS["cuda"]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 80 * GIB))
    small = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    large = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 160.00 GiB. GPU 0 has")
    triton = RuntimeError("Triton Error [CUDA]: out of memory")
    cublas = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    begin = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
    solver = RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`.")
    held = "no memory is left here: of the GPU's 81920 MiB others hold 79872"
    assert [describe_shortage(error, cuda) for error in (small, large, triton)] == [held, "", held]
    assert [describe_shortage(error, cuda) for error in (cublas, begin, solver)] == [held] * 3

    def refuse() -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    assert describe_shortage(triton, cuda) == "no memory is left here: others hold the GPU's memory"


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be",
        "No CUDA GPUs are available",
        "Triton Error [CUDA]: the remote procedural call between the MPS server and the MPS client failed",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: system not yet initialized",
    ],
)
def test_a_gpu_that_nobody_can_use_is_not_the_kernels_fault(said: str) -> None:
    """The process ends, as torch does not look again for what it has not found once."""
    cuda, error = BACKENDS["cuda"], RuntimeError(said)
    assert describe_shortage(error, cuda) == f"the device cannot be used: RuntimeError: {' '.join(said.split())}"
    assert cuda.is_fatal(error)
    assert not describe_shortage(error, BACKENDS["cpu"])


def test_what_a_kernel_does_to_a_gpu_is_its_own() -> None:
    for said in ("an illegal memory access was encountered", "misaligned address", "device-side assert triggered"):
        assert not describe_shortage(RuntimeError(f"CUDA error: {said}"), BACKENDS["cuda"])


def test_a_refusal_is_not_what_is_seen_where_the_machine_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a launch an error is none; of a device that others hold nothing is known."""

    def launcher(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(x) == 3:
            raise RuntimeError("busy")
        return dict(y=x * 2)

    short = dict(short=lambda x: dict(x=x[:3]))
    one = declare(launcher, x=tensor(size("N", 4, 8)), reference=lambda x: dict(y=x * 2), rejects=short)
    case = RandomEngine(one, 0).case(0)
    cpu = BACKENDS["cpu"]
    exam = Examination(one, launcher, case, cpu, run(one, launcher, case.calls, cpu))
    monkeypatch.setattr(cpu, "is_fatal", lambda error: "busy" in str(error))
    assert RejectsOracle().check([exam])[0] is not None
    monkeypatch.setattr(cpu, "is_unusable", lambda error: "busy" in str(error))
    with pytest.raises(RuntimeError, match="busy"):
        RejectsOracle().check([exam])
