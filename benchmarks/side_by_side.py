"""The CPU and the CUDA version of one kernel in one process, on a machine with a GPU.

    python benchmarks/side_by_side.py

Inside `cpu.active()` kernels run on CPU tensors, outside on the GPU, in turns and nested; tensors of the other device
are refused. Checked for a plain kernel, an autotuned one and an autograd function: results agree, neither side compiles
again what it has, each autotuner keeps its own choice, and `torch.cuda` answers for the GPU outside. Prints a line for
each; the exit status is 1 where one fails. A first argument `torch.compile` adds a check that it still works outside.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver as drivers

from fuzz.backends import cpu


@triton.jit
def scaled(x, out, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


CONFIGS = [triton.Config({"B": size}, num_warps=warps) for size, warps in ((64, 1), (256, 4), (1024, 8))]
tuned = triton.autotune(CONFIGS, key=["n"])(scaled)


def plain(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scaled[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), 3.0, B=128)
    return out


def autotuned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel(), 3.0)
    return out


class Function(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(context: object, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda and torch.cuda.is_available()
        with torch.cuda.device(x.device):
            return plain(x)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(context: object, grad: torch.Tensor) -> torch.Tensor:
        return plain(grad.contiguous())


def differentiated(x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    Function.apply(leaf).backward(x)
    assert leaf.grad is not None
    return leaf.grad


def on_cpu(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with cpu.active():
        return run(x)


def compiled() -> dict[object, int]:
    """How many versions of the kernel each device has."""
    return {device: len(caches[0]) for device, caches in scaled.device_caches.items()}


def turns() -> None:
    """Both sides in turns; the second round compiles nothing."""
    x = torch.randn(1000)
    for run in (plain, autotuned, differentiated):
        rounds = []
        for _ in range(2):
            found = on_cpu(run, x)
            assert found.device.type == "cpu" and torch.equal(found, 3 * x)
            assert torch.equal(run(x.cuda()).cpu(), 3 * x)
            rounds.append(compiled())
        assert rounds[0] == rounds[1], f"{run.__name__} compiled again: {rounds}"
        assert set(rounds[0]) == {"cpu", torch.cuda.current_device()}, rounds[0]


def choices() -> None:
    """What was measured on the GPU stays the GPU's; the CPU takes what the knob says."""
    x = torch.randn(4321)
    autotuned(x.cuda())
    measured = dict(tuned.cache)
    for config in range(3):
        with cpu.knobs.set(config=config):
            on_cpu(autotuned, x)
        assert tuned.best_config is CONFIGS[config]
    assert tuned.cache == measured
    autotuned(x.cuda())
    assert tuned.best_config is measured[next(key for key in measured if key[0] == 4321)]


def nesting() -> None:
    """An exception inside does not leave the CPU active."""
    target = drivers.active.get_current_target()
    try:
        with cpu.active(), cpu.active():
            assert drivers.active.get_current_target().backend == "cpu"
            raise KeyError
    except KeyError:
        pass
    assert drivers.active.get_current_target() == target and target.backend == "cuda"


def answers() -> None:
    """The knobs inside, the GPU outside."""
    real = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).multi_processor_count
    with cpu.active(), cpu.knobs.set(multiprocessor_count=3, capability=(8, 0), device_name="pretended"):
        assert torch.cuda.get_device_properties(0).multi_processor_count == 3
        assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.get_device_name() == "pretended"
        assert torch.zeros(1).is_cuda
        torch.cuda.synchronize()
    assert (torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).multi_processor_count) == real
    assert not torch.zeros(1).is_cuda and torch.zeros(1).cuda().device.type == "cuda"


def refusals() -> None:
    """A tensor of the other device is refused on both sides."""
    for run in (lambda: on_cpu(plain, torch.zeros(8, device="cuda")), lambda: plain(torch.zeros(8))):
        try:
            run()
        except ValueError:
            continue
        raise AssertionError("a tensor of the other device was taken")


def compiling() -> None:
    """`torch.compile` outside, imported inside: it sees the real torch.cuda."""
    x = torch.randn(100, device="cuda")
    assert torch.allclose(torch.compile(lambda x: x.sin() * 2)(x), x.sin() * 2)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("a GPU is needed")
    print(f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name()}")
    checks = [turns, choices, nesting, answers, refusals]
    if "torch.compile" in sys.argv[1:]:
        with cpu.active():
            importlib.import_module("torch._dynamo")
        checks.append(compiling)
    failed = 0
    for check in checks:
        try:
            check()
            print(f"{check.__name__}: ok")
        except Exception as error:  # noqa: BLE001
            failed += 1
            print(f"{check.__name__}: FAILED: {type(error).__name__}: {error}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
