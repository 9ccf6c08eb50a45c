"""The C compiler's flags and limits; what goes wrong in it is no finding against a kernel."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import BACKENDS, cpu
from fuzz.backends.cpu.compilers import compiler as compiler_module
from fuzz.backends.cpu.compilers.compiler import LEVELS, build, compiler, flags
from fuzz.backends.execute import run
from fuzz.errors import BackendError
from fuzz.model.case import Argument, Call
from fuzz.model.outcome import NotRun, Outcome
from fuzz.model.recipes import recipe
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import declare

ARITHMETIC = """
float steps(float x, float y) { float s = 0; for (int i = 1; i < 40; i++) s = s * x + y / i - x * y; return s; }
"""


LENGTHS = [0, *(most for most, _ in LEVELS[:-1])]
"""Characters of C from which each level is taken."""


def test_long_c_is_optimised_less() -> None:
    command = tuple(compiler())
    for length, level in zip(LENGTHS, ("-O2", "-O1", "-Og"), strict=True):
        assert level in flags(command, length) and level in flags(command, length + 1)
        assert sum(flag.startswith("-O") for flag in flags(command, length)) == 1
    exact = [flag for flag in flags(command, 0) if flag.startswith("-f") and "vect" not in flag]
    assert all(set(exact) <= set(flags(command, length)) for length in LENGTHS)


@pytest.mark.parametrize("padding", LENGTHS)
def test_at_each_level_each_step_is_rounded_by_itself(padding: int, tmp_path: Path) -> None:
    """Contraction into a fused multiply-add would change the bits that a plain -O0 -ffp-contract=off gives."""
    text = '#define VISIBLE __attribute__((visibility("default")))\nVISIBLE' + ARITHMETIC
    (tmp_path / "plain.c").write_text(text)
    plain = [*compiler(), "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-o", str(tmp_path / "plain.so")]
    subprocess.run([*plain, str(tmp_path / "plain.c")], check=True)
    (tmp_path / "made.so").write_bytes(build(text + " " * padding, "steps"))
    plainly, made = (ctypes.CDLL(str(tmp_path / f"{name}.so")).steps for name in ("plain", "made"))
    for function in (plainly, made):
        function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float, ctypes.c_float)
    for x, y in ((0.9, 0.3), (-0.7, 1.1), (0.99, 1e-3)):
        assert made(x, y) == plainly(x, y)


@triton.jit
def halves(x, out):
    half = tl.reshape(tl.load(x + tl.arange(0, 4)).to(tl.float16), [2, 2, 1])
    product = tl.dot(half, tl.full([2, 1, 4], 1.5, tl.float16), out_dtype=tl.float32)
    tl.store(out + tl.arange(0, 16), tl.reshape(product, [16]))


def test_four_lanes_are_rounded_to_float16() -> None:
    """gcc 12 makes one vector of them, and takes the way to float16 and back for nothing where there is avx512fp16."""
    x, out = 2241.3 + torch.arange(4, dtype=torch.float32) / 8, torch.empty(16)
    with cpu.active():
        halves[(1,)](x, out)
    assert torch.equal(out.reshape(4, 4)[:, 0], x.half().float() * 1.5)


@triton.jit
def copied(x, out, B: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, B), tl.load(x + tl.arange(0, B)))


def outcome_with(script: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """The outcome of a kernel, of which nothing is compiled yet, where the C compiler is a shell script."""
    path = tmp_path / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))

    def launcher(x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = torch.empty_like(x)
        copied[(1,)](x, out, B=block)
        return {"out": out}

    target = declare(launcher, reference=lambda x: {"out": x}, x=tensor(size("N", 1, 64)))
    call = Call({"N": block}, {"x": Argument(("N",), "float32", recipe("normal", 1))})
    with cpu.knobs.set(compiler="optimising"):
        return run(target, launcher, (call,), BACKENDS["cpu"])


def test_a_c_compiler_that_fails_is_an_error_of_the_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match="the C compiler failed on kernel copied: .* no such thing"):
        outcome_with("echo no such thing >&2; exit 1", 4, tmp_path, monkeypatch)


def test_a_c_compiler_that_is_too_slow_is_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module, "TIMEOUT", 0.2)
    outcome = outcome_with("exec sleep 60", 8, tmp_path, monkeypatch)
    assert isinstance(outcome, NotRun) and "the C compiler took over 0.2 s on kernel copied" in outcome.message


def test_heartbeats_are_sent_while_the_c_compiler_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeats: list[None] = []
    monkeypatch.setattr(compiler_module, "HEARTBEAT", 0.05)
    monkeypatch.setattr(compiler_module, "heartbeat", lambda: heartbeats.append(None))
    command = " ".join(compiler())
    outcome = outcome_with(f'sleep 0.5; exec {command} "$@"', 16, tmp_path, monkeypatch)
    assert not isinstance(outcome, NotRun) and len(heartbeats) >= 5
