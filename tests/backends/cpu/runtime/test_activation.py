"""What launchers ask of a GPU: answered by knobs while the backend is active, and left alone otherwise."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from triton.backends import backends
from triton.compiler.compiler import CompiledKernel
from triton.runtime.driver import driver as drivers
from triton.runtime.errors import OutOfResources

from fuzz.backends import cpu, started_threads
from fuzz.backends.cpu.runtime import compiled_kernel
from fuzz.backends.cpu.runtime.activation import activations
from fuzz.backends.triton_host import autotune, cheap_compilation, fake_cuda
from fuzz.backends.triton_host.patching import Patch


def state():
    """Everything that activation may touch."""
    patches = (
        *fake_cuda.PATCHES,
        *autotune.PATCHES,
        *cheap_compilation.PATCHES,
        *started_threads.PATCHES,
        *compiled_kernel.PATCHES,
    )
    patched = [vars(patch.owner).get(patch.name, "absent") for patch in patches]
    return [*patched, backends.get("cpu"), drivers._active]


@pytest.fixture
def inactive():
    """Undoes also what other tests of this process, which prepared a backend for good, have activated."""
    activated = len(activations)
    for _ in range(activated):
        cpu.deactivate()
    try:
        yield
    finally:
        for _ in range(activated):
            cpu.activate()


def test_everything_is_restored_also_after_errors_and_nesting(inactive):
    before = state()
    with pytest.raises(ZeroDivisionError), cpu.active():
        inside = state()
        with pytest.raises(KeyError), cpu.active():
            raise KeyError
        assert state() == inside
        assert all(here is not there for here, there in zip(before, inside, strict=True))
        1 / 0  # noqa: B018
    assert state() == before
    assert not torch.zeros(1).is_cuda


def test_an_activation_that_fails_leaves_nothing_behind(inactive, monkeypatch):
    before = state()
    monkeypatch.setattr(autotune, "PATCHES", [Patch(torch.cuda, "is_available", None), Patch(1, "real", 2)])
    with pytest.raises(TypeError):
        cpu.activate()
    monkeypatch.undo()
    assert state() == before


def test_the_device_is_what_the_knobs_say():
    sizes = dict(multiprocessor_count=7, max_shared_mem=1024, capability=(8, 6), device_name="small", total_memory=5)
    with cpu.knobs.set(**sizes):
        found = torch.cuda.get_device_properties(torch.device("cpu"))
        assert (found.multi_processor_count, found.shared_memory_per_block_optin) == (7, 1024)
        assert (found.major, found.minor, found.name, found.total_memory) == (8, 6, "small", 5)
        assert torch.cuda.get_device_capability() == drivers.active.get_device_capability() == (8, 6)
        assert torch.cuda.get_device_name(0) == "small"
        assert drivers.active.utils.get_device_properties(0)["multiprocessor_count"] == 7
    assert drivers.active.utils.get_device_properties(0)["multiprocessor_count"] == 4
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    with cpu.knobs.set(available=False):
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 and not torch.zeros(1).is_cuda


def test_streams_events_and_contexts():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.device(torch.device("cpu")), torch.get_device_module("cuda").stream(torch.cuda.Stream()) as stream:
        assert stream is None
        start.record()
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        torch.cuda.synchronize()
        end.record()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.current_stream() == torch.cuda.Stream()
    assert triton.testing.do_bench(lambda: torch.zeros(9), warmup=1, rep=1) > 0


@triton.jit
def cube(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value * value * value, mask=i < n)


class Cube(torch.autograd.Function):
    """Written for a GPU."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(context, x):
        if not x.is_cuda:
            raise ValueError("a CUDA tensor is needed")
        context.save_for_backward(x)
        out = torch.empty_like(x.cuda())
        with torch.cuda.device(x.device):
            blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
            cube[(blocks,)](x, out, x.numel(), B=16)
        return out

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(context, grad):
        (x,) = context.saved_tensors
        return 3 * x * x * grad


def test_an_autograd_function_that_insists_on_a_gpu():
    x = torch.arange(1.0, 50.0, requires_grad=True)
    out = Cube.apply(x)
    out.sum().backward()
    assert torch.equal(out, x**3) and torch.equal(x.grad, 3 * x * x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.equal(Cube.apply(x), x**3)


def test_kernels_that_end_leave_the_unloading_to_no_other_driver(inactive, monkeypatch):
    """Triton 3.9 lets the driver that is active at that moment unload a kernel."""
    unloaded = []

    class Gpu:
        class utils:
            unload_module = unloaded.append

    monkeypatch.setattr(drivers, "_default", Gpu)
    monkeypatch.setattr(drivers, "_active", Gpu)
    with cpu.active():
        compiled = triton.jit(cube.fn)[(1,)](torch.ones(8), torch.zeros(8), 8, B=8)
        drivers.active.utils.unload_module(7)
    assert unloaded == [7]
    assert compiled.module is not None and compiled._module_pid is None


def configs(*sizes, **keywords):
    return [triton.Config({"B": size}, **keywords) for size in sizes]


def tune(kernel=cube, **keywords):
    return triton.autotune(**({"configs": configs(4, 8, 16), "key": ["n"]} | keywords))(kernel)


def launch(tuner, x, out):
    """The block size that ran."""
    tuner[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel())
    return tuner.best_config.kwargs["B"]


def test_autotuners_take_the_drawn_configuration_and_run_nothing_else():
    tuner, x, out = tune(), torch.full((20,), 2.0), torch.zeros(20)
    with cpu.observe() as log:
        assert launch(tuner, x, out) == 4
    assert log.launches == ["cube"] and torch.equal(out, x**3)
    for config, size in ((1, 8), (2, 16), (3, 4), (0, 4)):
        with cpu.knobs.set(config=config):
            assert launch(tuner, x, out) == size
    drawn = set()
    for seed in range(20):
        with cpu.knobs.set(config_seed=seed):
            drawn.add(launch(tuner, x, out))
            assert launch(tuner, x, out) == tuner.best_config.kwargs["B"]
    assert drawn == {4, 8, 16}


def prune_by_device(configs, arguments, **_):
    properties = drivers.active.utils.get_device_properties(0)
    most = min(properties["max_shared_mem"], properties["multiprocessor_count"], torch.cuda.get_device_capability()[0])
    return [config for config in configs if config.kwargs["B"] <= most]


def test_an_autotuner_that_prunes_by_the_device_chooses_anew_for_another_one():
    tuner = tune(prune_configs_by={"early_config_prune": prune_by_device}, configs=configs(16, 8, 4))
    x, out, large = torch.ones(20), torch.zeros(20), (99, 0)
    with cpu.knobs.set(capability=large, multiprocessor_count=99, max_shared_mem=99):
        assert launch(tuner, x, out) == 16
        for device in ({"capability": (9, 0)}, {"multiprocessor_count": 9}, {"max_shared_mem": 9}):
            with cpu.knobs.set(**device):
                assert launch(tuner, x, out) == 8
            assert launch(tuner, x, out) == 16


def test_a_configuration_that_does_not_compile_is_passed_over():
    @triton.jit
    def picky(x, out, n, B: tl.constexpr):
        tl.static_assert(B >= 8)
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

    assert launch(tune(picky), torch.ones(20), torch.zeros(20)) == 8


def test_a_configuration_that_asks_for_too_much_is_passed_over(monkeypatch):
    load = CompiledKernel._init_handles

    def limited(kernel):
        if 4 in kernel.src.constants.values():
            raise OutOfResources(2, 1, "shared memory")
        load(kernel)

    monkeypatch.setattr(CompiledKernel, "_init_handles", limited)
    x, out = torch.full((20,), 2.0), torch.zeros(20)
    assert launch(tune(), x, out) == 8 and torch.equal(out, x**3)


def test_pruning_keeps_its_meaning():
    big = {"early_config_prune": lambda configs, named, **_: [one for one in configs if one.kwargs["B"] > named["n"]]}
    assert launch(tune(prune_configs_by=big), torch.ones(5), torch.zeros(5)) == 8
    model = {"perf_model": lambda B, **_: -B, "top_k": 2}
    assert launch(tune(prune_configs_by=model), torch.ones(5), torch.zeros(5)) == 16
    with cpu.knobs.set(config=1):
        assert launch(tune(prune_configs_by=model), torch.ones(6), torch.zeros(6)) == 8


@triton.jit
def accumulate(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_what_is_restored_reset_and_hooked():
    seen = []
    hooked = configs(4, 8, pre_hook=lambda arguments: seen.append(arguments["B"]))
    restored, reset = tune(accumulate, configs=hooked, restore_value=["out"]), tune(accumulate, reset_to_zero=["out"])
    x, out = torch.ones(20), torch.full((20,), 5.0)
    launch(restored, x, out)
    assert out.tolist() == [6.0] * 20
    # Before compiling, where it may set what is compiled, and before the launch.
    assert seen == [4, 4]
    launch(reset, x, out)
    assert out.tolist() == [1.0] * 20
    # As on a GPU: only tuning resets, a later launch with the same key does not.
    launch(reset, x, out)
    assert out.tolist() == [2.0] * 20


def test_benchmarks_write_the_memory_of_the_launch_where_they_are_asked_for():
    accumulating = tune(accumulate)
    restored, reset = tune(accumulate, restore_value=["out"]), tune(accumulate, reset_to_zero=["out"])
    x = torch.ones(20)
    launch(accumulating, x, torch.zeros(20))
    for tuner, after_first, after_second in ((accumulating, 4.0, 5.0), (restored, 1.0, 2.0), (reset, 1.0, 2.0)):
        for _ in range(2):
            out = torch.zeros(20)
            with autotune.launch_benchmarks(), cpu.observe() as log:
                assert launch(tuner, x, out) == 4
                assert out.tolist() == [after_first] * 20 and len(log.launches) == 4
                launch(tuner, x, out)
                assert out.tolist() == [after_second] * 20
    launch(accumulating, x, out := torch.zeros(20))
    assert out.tolist() == [1.0] * 20


def test_what_a_gpu_tuned_is_kept_apart(inactive):
    tuner = tune()
    tuner.cache = gpu = {(20, "torch.float32", "torch.float32"): tuner.configs[2]}
    with cpu.active():
        assert launch(tuner, torch.ones(20), torch.zeros(20)) == 4
        made_inside = tune()
        launch(made_inside, torch.ones(20), torch.zeros(20))
    assert tuner.cache is gpu and len(gpu) == 1 and "do_bench" not in vars(tuner)
    assert made_inside.cache == {}


DYNAMO = """
    import sys, torch
    from fuzz.backends import cpu
    real, finders = torch.cuda.set_device, list(sys.meta_path)
    with cpu.active(), cpu.active():
        from torch._dynamo.trace_rules import get_torch_obj_rule_map
        assert torch.cuda.set_device is not real
    assert real in get_torch_obj_rule_map() and sys.meta_path == finders
"""


def test_dynamo_keeps_the_real_functions():
    subprocess.run([sys.executable, "-c", textwrap.dedent(DYNAMO)], check=True, timeout=300)


KERNEL = """
    import torch, triton, triton.language as tl

    @triton.jit
    def twice(x, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

    def double(x):
        assert x.is_cuda
        twice[(triton.cdiv(x.numel(), 8),)](x, x.numel(), B=8)
        return x
"""
THREE_LINES = """
    import torch
    from kernels import double
    from fuzz.backends import cpu
    with cpu.active():
        print(double(torch.ones(9)).sum().item())
"""
WHOLE_PROCESS = """
    import sys, torch
    from triton.runtime.cache import triton_key
    from kernels import double
    print(double(torch.ones(9)).sum().item(), *sys.argv[1:], __name__, triton_key.__module__)
"""


def run(folder, *arguments):
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.split()


def test_a_kernel_file_elsewhere_runs_with_three_lines_and_as_a_whole_process(tmp_path):
    for name, text in (("kernels", KERNEL), ("three", THREE_LINES), ("whole", WHOLE_PROCESS)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    assert run(tmp_path, "three.py") == ["18.0"]
    ends = ["__main__", "fuzz.backends.triton_host.triton_key"]
    assert run(tmp_path, "-m", "fuzz.backends.cpu", "whole.py", "a") == ["18.0", "a", *ends]
    assert run(tmp_path, "-m", "fuzz.backends.cpu", "-m", "whole", "b") == ["18.0", "b", *ends]


SPAWNING = """
    import multiprocessing, torch
    from kernels import double

    def child():
        print(double(torch.ones(9)).sum().item(), flush=True)
        if multiprocessing.parent_process().name == "MainProcess":
            start()

    def start():
        process = multiprocessing.get_context("spawn").Process(target=child, name="other")
        process.start()
        process.join()

    if __name__ == "__main__":
        start()
"""


def test_processes_that_a_program_spawns_have_the_backend_as_well(tmp_path):
    for name, text in (("kernels", KERNEL), ("spawning", SPAWNING)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    assert run(tmp_path, "-m", "fuzz.backends.cpu", "spawning.py") == ["18.0", "18.0"]


def test_the_identity_holds_for_one_activation(inactive):
    x = torch.ones(1)
    with cpu.knobs.set(identity="cuda"), cpu.active(), cpu.active():
        assert x.device.type == "cuda"
    with cpu.active():
        assert (x.device.type, drivers.active.get_current_target().backend) == ("cpu", "cpu")
