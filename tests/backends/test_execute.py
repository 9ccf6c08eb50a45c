"""One case on one backend: what comes back, and which outcome every way to fail becomes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from fuzz.backends import BACKENDS, backend, execute
from fuzz.backends.autodiff import backward, differentiate, gradients, make_writable
from fuzz.backends.cuda.backend import external_shortage
from fuzz.backends.execute import FatalError, run
from fuzz.errors import BackendError, TargetError
from fuzz.model.case import Argument, Call
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.outcome import CompileError, NotRun, Outcome, OutOfMemory, Raised, Rejected, Returned
from fuzz.model.recipes import recipe
from fuzz.target.arguments import option, size, tensor
from fuzz.target.spec import Launcher, Target, declare

N = size("N", 1, 64)
USABLE = [name for name, one in BACKENDS.items() if not one.unavailable_reason()]


def target(launcher: Launcher, **more: Any) -> Target:
    return declare(launcher, x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x), **more)


def call(layout: Layout = CONTIGUOUS) -> Call:
    return Call({"N": 4}, {"x": Argument(("N",), "float32", recipe("normal", 1), layout)})


def executed(launcher: Launcher, *, on: str = "cpu", calls: int = 1, **more: Any) -> Outcome:
    return run(target(launcher, **more), launcher, (call(),) * calls, BACKENDS[on])


@pytest.mark.parametrize("name", USABLE)
def test_every_backend_runs_a_launcher_and_observes_it(name: str) -> None:
    def double(x: torch.Tensor) -> dict[str, torch.Tensor]:
        assert x.device.type == BACKENDS[name].device
        return {"y": x * 2}

    outcome = executed(double, on=name)
    assert isinstance(outcome, Returned)
    result = outcome.calls[0]
    assert list(result.outputs) == ["y"] and (result.accesses, result.writes, result.unwritten, result.aliases) == (
        (),
        (),
        {},
        (),
    )


@pytest.mark.parametrize("name", USABLE)
def test_every_backend_gives_the_same_bits_again(name: str, gelu: Target) -> None:
    case_call = Call({"N": 300}, {key: Argument(("N",), "float32", recipe("normal", 3)) for key in ("dy", "x")})
    first, again = (run(gelu, gelu.launcher, (case_call,), BACKENDS[name]) for _ in range(2))
    assert isinstance(first, Returned) and isinstance(again, Returned)
    assert torch.equal(first.calls[0].outputs["dx"], again.calls[0].outputs["dx"])


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_backend_says_in_one_line_why_it_cannot_run(name: str) -> None:
    reason = BACKENDS[name].unavailable_reason()
    assert BACKENDS[name].name == name and "\n" not in reason
    if reason:
        with pytest.raises(BackendError, match=r"backend"):
            backend(name)
    else:
        assert backend(name) is BACKENDS[name]


def test_auto_is_a_backend_that_runs_here() -> None:
    assert backend("auto").name in USABLE


def raising(error: BaseException) -> Launcher:
    def launcher(x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise error

    return launcher


class CompilationError(Exception):
    """Named as Triton's own."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), Rejected), (TypeError("no"), Rejected), (NotImplementedError("no"), Rejected),
        (AssertionError("no"), Rejected), (RuntimeError("no"), Raised), (IndexError("no"), Raised),
        (KeyboardInterrupt("no"), Raised), (GeneratorExit("no"), Raised),
        (MemoryError("no"), OutOfMemory), (torch.OutOfMemoryError("no"), OutOfMemory),
        (CompilationError("no"), CompileError),
    ],
)  # fmt: skip
def test_what_a_launcher_raises_becomes_an_outcome(error: BaseException, kind: type) -> None:
    outcome = executed(raising(error))
    assert isinstance(outcome, kind) and "no" in outcome.message  # type: ignore[union-attr]


@pytest.mark.parametrize(("function", "kind"), [("compile", CompileError), ("_init_handles", Raised)])
def test_what_tritons_compiler_ends_in_is_a_compile_error(function: str, kind: type) -> None:
    """Not so what is raised where a kernel that compiled is loaded."""
    compiler: dict[str, Any] = {"__name__": "triton.compiler.compiler"}
    exec(f"def {function}(): raise RuntimeError('PassManager::run failed')", compiler)
    outcome = executed(lambda x: compiler[function]())
    assert isinstance(outcome, kind)


def test_an_error_after_which_no_kernel_can_run_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(BACKENDS["cpu"]), "is_fatal", lambda self, error: True)
    with pytest.raises(FatalError) as caught:
        executed(raising(RuntimeError("CUDA error: an illegal memory access")))
    assert isinstance(caught.value.outcome, Raised)


def test_what_a_device_says_late_of_a_call_that_raised_is_what_the_call_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch before the error may have harmed the device, which no later call is to answer for."""
    kind, late = type(BACKENDS["cpu"]), "CUDA error: an illegal memory access"

    def synchronize(self: object) -> None:
        raise RuntimeError(late)

    monkeypatch.setattr(kind, "synchronize", synchronize)
    monkeypatch.setattr(kind, "is_fatal", lambda self, error: late in str(error))
    with pytest.raises(FatalError) as caught:
        executed(raising(ValueError("no")))
    assert isinstance(caught.value.outcome, Raised) and late in caught.value.outcome.message


def test_memory_that_others_hold_is_not_the_kernels_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        type(BACKENDS["cpu"]),
        "external_oom_reason",
        lambda self, error: "others hold it" if "full" in str(error) else "",
    )
    assert executed(raising(torch.OutOfMemoryError("full"))) == NotRun("no memory is left here: others hold it")
    assert isinstance(executed(raising(torch.OutOfMemoryError("too much"))), OutOfMemory)


def test_inputs_that_do_not_fit_beside_others_are_no_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = iter(["others hold it", ""])
    monkeypatch.setattr(type(BACKENDS["cpu"]), "external_oom_reason", lambda self, error: next(reasons))

    def allocate(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(execute, "allocate_buffer", allocate)
    assert executed(raising(ValueError())) == NotRun("no memory is left here: others hold it")
    assert executed(raising(ValueError())) == Rejected("the inputs do not fit into memory here: OutOfMemoryError: full")


@pytest.mark.parametrize("is_fatal", [False, True])
def test_what_fails_before_the_launcher_is_called_is_not_the_kernels_fault(
    monkeypatch: pytest.MonkeyPatch, is_fatal: bool
) -> None:
    def allocate(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(execute, "allocate_buffer", allocate)
    monkeypatch.setattr(type(BACKENDS["cpu"]), "is_fatal", lambda self, error: is_fatal)
    monkeypatch.setattr(type(BACKENDS["cpu"]), "is_accelerator", True)
    due = NotRun("the inputs cannot be put into memory: RuntimeError: CUDA error: an illegal memory access")
    if not is_fatal:
        assert executed(raising(ValueError())) == due
        return
    with pytest.raises(FatalError) as caught:
        executed(raising(ValueError()))
    assert caught.value.outcome == due


@pytest.mark.parametrize("error", [KeyError("stride"), RuntimeError("stride"), ValueError("stride")])
def test_an_error_of_our_own_before_the_launcher_is_called_is_nobodys_outcome(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(execute, "allocate_buffer", Mock(side_effect=error))
    with pytest.raises(type(error), match="stride"):
        executed(raising(ValueError()))


def test_inputs_beyond_all_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "allocate_buffer", lambda *_: np.empty(2**62))
    outcome = executed(raising(ValueError()))
    assert isinstance(outcome, Rejected) and "do not fit into memory" in outcome.message


def test_what_would_fit_on_a_gpu_of_ones_own_is_told_with_what_others_hold() -> None:
    gib = 2**30
    message = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"
    assert external_shortage(message, 10 * gib, 5 * gib, 40 * gib) == "of the GPU's 40960 MiB others hold 25600"
    assert external_shortage(message, 30 * gib, 5 * gib, 40 * gib) == ""
    # What is free there beside its own context is all that a process can have.
    nearly = "CUDA out of memory. Tried to allocate 39.80 GiB. GPU 0 has"
    assert external_shortage(nearly, 0, 79 * gib // 2, 40 * gib) == ""
    unsized = "Triton Error [CUDA]: out of memory"
    assert external_shortage(unsized, 1 * gib, 0, 40 * gib) == "of the GPU's 40960 MiB others hold 39936"
    # On a GPU of one's own a kernel that asks for too much fails by itself.
    assert external_shortage(unsized, 0, 40 * gib, 40 * gib) == ""
    assert external_shortage(unsized, 38 * gib, 3 * gib // 2, 40 * gib) == ""


RETURNS: list[tuple[Callable[[torch.Tensor], Any], str]] = [
    (lambda x: x, "returns Tensor, not a dict"),
    (lambda x: {}, "returns an empty dict, not a dict of tensors"),
    (lambda x: {1: x, None: x}, "an output's name is int, not str"),
    (lambda x: {"y": 1.0}, "output 'y' is float"),
    (lambda x: {"y": x + 1j}, "output 'y' is torch.complex64"),
]


@pytest.mark.parametrize(("launcher", "message"), RETURNS)
def test_what_is_no_dict_of_tensors_is_the_targets_error(launcher: Launcher, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        run(target(raising(ValueError())), launcher, (call(),), BACKENDS["cpu"])


def test_what_a_launcher_does_to_memory_is_told() -> None:
    def messy(x: torch.Tensor) -> dict[str, torch.Tensor]:
        x[1] = 5.0
        y = torch.empty(4)
        y[:3] = 1.0
        ctypes.c_float.from_address(y.data_ptr() + 16).value = 2.0
        return {"y": y, "z": x[:2]}

    outcome = executed(messy)
    assert isinstance(outcome, Returned)
    result = outcome.calls[0]
    assert [(write.argument, write.first) for write in result.writes] == [("x", (1,))]
    assert result.unwritten == {"y": (3,)}
    assert result.aliases == (("z", "x"),)
    assert [(access.buffer, access.kind) for access in result.accesses] == [("y", "store")]


def test_writes_that_a_target_promises_are_none() -> None:
    def in_place(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x.mul_(2)}

    outcome = executed(in_place, in_place=("x",))
    assert isinstance(outcome, Returned)
    assert outcome.calls[0].writes == () and outcome.calls[0].aliases == ()


def test_outputs_are_copies_that_a_later_call_cannot_change() -> None:
    kept = torch.zeros(4)

    def same_buffer(x: torch.Tensor) -> dict[str, torch.Tensor]:
        kept.add_(1)
        return {"y": kept}

    outcome = executed(same_buffer, calls=3)
    assert isinstance(outcome, Returned)
    assert [float(result.outputs["y"][0]) for result in outcome.calls] == [1.0, 2.0, 3.0]


def test_an_output_that_repeats_its_elements_takes_no_memory_for_each() -> None:
    outcome = executed(lambda x: {"y": x[:, None, None].expand(-1, 1 << 20, 1 << 20)})
    assert isinstance(outcome, Returned)
    output = outcome.calls[0].outputs["y"]
    assert output.shape[1:] == (1 << 20, 1 << 20) and output.untyped_storage().nbytes() == 4 * len(output)


def test_a_subclass_of_tensors_does_not_hide_what_is_in_memory() -> None:
    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return torch.ones(4)

    class Name(str):
        def __reduce__(self) -> Any:
            return print, ()

    outcome = executed(lambda x: {Name("y"): torch.zeros_like(x).as_subclass(Liar)})
    assert isinstance(outcome, Returned)
    ((name, output),) = outcome.calls[0].outputs.items()
    assert type(name) is str and type(output) is torch.Tensor and not output.any()


def test_torchs_defaults_are_after_a_call_what_they_were_before() -> None:
    def defaults() -> object:
        return torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()

    def change_defaults(x: torch.Tensor) -> dict[str, torch.Tensor]:
        torch.set_default_dtype(torch.float16)
        torch.set_grad_enabled(False)
        torch.set_default_device("meta")
        return {"y": x * 2}

    before = defaults()
    assert isinstance(executed(change_defaults), Returned)
    assert defaults() == before


def test_options_and_sizes_are_passed_by_name() -> None:
    def launcher(x: torch.Tensor, eps: float, N: int) -> dict[str, torch.Tensor]:
        return {"y": x * 0 + eps * N}

    declared = declare(launcher, x=tensor(N), eps=option(0.5, 2.0), N=N, dtypes=("float32",))
    case_call = Call({"N": 4}, call().arguments, {"eps": 2.0})
    outcome = run(declared, launcher, (case_call,), BACKENDS["cpu"])
    assert isinstance(outcome, Returned) and outcome.calls[0].outputs["y"].tolist() == [8.0] * 4


def test_a_kernels_stray_read_is_told_with_kernel_line_and_argument(gelu: Target) -> None:
    from fuzz.target.loader import load, load_planted

    layernorm = load("layernorm_bw")
    launcher = load_planted(layernorm, "tail_unmasked")[1]
    value = {key: Argument(("M", "N"), "float32", recipe("normal", 3)) for key in ("dy", "x")}
    case_call = Call({"M": 1, "N": 3}, {**value, "weight": Argument(("N",), "float32", recipe("ones"))}, {"eps": 1e-5})
    outcome = run(layernorm, launcher, (case_call,), BACKENDS["cpu"])
    assert isinstance(outcome, Returned) and outcome.calls[0].accesses
    access = outcome.calls[0].accesses[0]
    assert (access.buffer, access.kind) == ("x", "load")
    assert "rows_kernel" in access.where and "layernorm_bw.py" in access.source_line


def test_a_launcher_runs_the_kernels_it_says(gelu: Target) -> None:
    case_call = Call({"N": 5}, {key: Argument(("N",), "float32", recipe("normal", 3)) for key in ("dy", "x")})
    outcome = run(gelu, gelu.launcher, (case_call,), BACKENDS["cpu"])
    assert isinstance(outcome, Returned)
    assert outcome.calls[0].kernels == ("gelu_bw_kernel",)


class ScaledInPlace(torch.autograd.Function):
    """x * weight in the memory of x, which autograd is told."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone(), weight)
        x.mul_(weight)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient * weight, (gradient * x).sum(0)


@pytest.mark.parametrize("launcher", [ScaledInPlace.apply, lambda x, weight: x.mul_(weight).exp().log()])
def test_a_differentiated_argument_may_be_written(launcher: Any) -> None:
    tensors = {"x": torch.full((2, 3), 2.0), "weight": torch.full((3,), 5.0)}
    cotangents = {"y": torch.ones(2, 3)}
    results = gradients(lambda given: {"y": launcher(*make_writable(given, ("x",)).values())}, tensors, cotangents)
    assert [results[name].unique().tolist() for name in ("dx", "dweight")] == [[5.0], [4.0]]
    assert tensors["x"].unique().tolist() == [10.0] and tensors["x"]._version


DIFFERENTIATED = """
import sys
import torch
from fuzz.backends.autodiff import differentiate
from fuzz.reference.envelope.evaluate import evaluate_backward
from fuzz.reference.envelope.precision import make_precision

x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
dx, nothing = differentiate([x * x], [x, y], [torch.ones(3)])
assert dx.tolist() == [2.0] * 3 and nothing is None
given = dict(x=torch.ones(3, dtype=torch.float64)), dict(y=torch.ones(3, dtype=torch.float64))
expected = evaluate_backward(lambda x: dict(y=x * x), *given, ("x",), make_precision("libm"))
assert expected["dx"].value.tolist() == [2.0] * 3
assert "torch.fx.experimental.symbolic_shapes" not in sys.modules
"""


def test_gradients_need_no_import_of_symbolic_shapes_which_takes_long() -> None:
    subprocess.run([sys.executable, "-c", DIFFERENTIATED], check=True, timeout=300)


def test_heads_whose_gradients_have_another_shape_are_refused() -> None:
    """The engine alone would add up what they have more."""
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        differentiate([x * 2], [x], [torch.ones(4, 2, 3)])


class Allocates(torch.autograd.Function):
    """The identity, whose backward notes where torch allocates."""

    devices: ClassVar[list[torch.device]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Allocates.devices.append(torch.empty(1).device)
        return gradient


@pytest.mark.parametrize("grad", [differentiate, torch.autograd.grad])
def test_no_mode_is_on_in_a_backward(grad: Callable[..., Any]) -> None:
    x = torch.ones(3, requires_grad=True)
    y = Allocates.apply(x)
    with torch.device("meta"):
        (dx,) = grad([y], [x], [torch.ones(3, device="cpu")])
    assert dx.tolist() == [1.0] * 3 and Allocates.devices.pop() == torch.device("cpu")


class Unexaminable(Exception):
    __class__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


def test_an_error_that_cannot_be_examined_is_the_launchers() -> None:
    outcome = executed(raising(Unexaminable()))
    assert isinstance(outcome, Raised)
    assert outcome.message == "Unexaminable, which cannot be examined: ZeroDivisionError"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_raised_all_the_same() -> None:
    outcome = executed(raising(Unprintable()))
    assert isinstance(outcome, Raised) and outcome.message == "Unprintable: its message cannot be made: RuntimeError"
    assert outcome.source_line.startswith("tests/backends/test_execute.py:")


def test_a_gradient_of_another_shape_than_its_output_is_named() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    cotangents = {name: torch.ones(2, 3) for name in ("y", "z")}
    with pytest.raises(RuntimeError, match=r"output 'z' has shape \(3, 2\), and its gradient \(2, 3\)"):
        backward({"y": x * 2, "z": (x * 3).T}, {"x": x}, cotangents)
