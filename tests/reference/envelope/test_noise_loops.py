"""The loops in C give the bits of torch's operations."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch
from compiled_loops import compile_loops

from fuzz.reference.envelope import evaluate, input_errors, make_precision, noise_loops
from fuzz.reference.envelope.noise import MemberNoise
from fuzz.reference.envelope.noise_loops import LoopsCompiler
from fuzz.reference.envelope.summation import error_magnitudes, matmul_errors, sum_errors

WORKING, WITH_FLOAT64 = (1, 2, 3, 9), (-2, -1, 9, 10, 12)


def rounded(t: torch.Tensor, ids: tuple[int, ...], check_range: bool, replicas: int, tiny: bool) -> torch.Tensor:
    return MemberNoise(make_precision("libdevice"), ids, 5, check_range, None, replicas).round_(t.clone(), 2.0, tiny)


def all_magnitudes(rows: int, *shape: int) -> torch.Tensor:
    """Numbers of float32's range and beyond it on both sides, zeros of both signs, infinities and NaN."""
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(rows, *shape, generator=generator, dtype=torch.float64)
    t *= 2.0 ** torch.randint(-155, 130, t.shape, generator=generator).double()
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    flat = t.view(rows, -1)
    flat[:, : len(special)] = special[: flat.shape[1]]
    return t


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("ids", [WORKING, WITH_FLOAT64])
@pytest.mark.parametrize("shape", [(), (3, 41), (40_000,), (0,)])
def test_bits_are_those_of_torch(
    shape: tuple[int, ...], ids: tuple[int, ...], replicas: int, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compile_loops() is not None
    t = all_magnitudes(replicas * (1 + len(ids)), *shape)
    for check_range in (False, True):
        by_loop = rounded(t, ids, check_range, replicas, tiny)
        with monkeypatch.context() as patch:
            patch.setattr(noise_loops, "ready_loops", lambda: None)
            by_torch = rounded(t, ids, check_range, replicas, tiny)
        assert torch.equal(by_loop.view(torch.int64), by_torch.view(torch.int64))
        assert torch.equal(by_loop[:: 1 + len(ids)].view(torch.int64), t[:: 1 + len(ids)].view(torch.int64))


def test_they_are_compiled_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton.knobs.cache.dir", str(tmp_path))
    compiler = LoopsCompiler()
    assert compiler.look() is None
    end = time.monotonic() + 60
    while compiler.look() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert compiler.look().round_members
    assert LoopsCompiler().look() is not None


def test_a_process_that_ends_soon_has_none_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton.knobs.cache.dir", str(tmp_path))
    monkeypatch.setattr(noise_loops, "PATIENCE_SECONDS", 1e6)
    compiler = LoopsCompiler()
    for _ in range(3):
        compiler._next_look = 0.0
        assert compiler.look() is None and compiler._build is None


def test_without_a_compiler_they_are_left_to_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton.knobs.cache.dir", str(tmp_path))
    for command in ("/nowhere/cc", "/bin/false"):
        monkeypatch.setenv("CC", command)
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        compiler, end = LoopsCompiler(), time.monotonic() + 60
        while compiler._next_look < math.inf and time.monotonic() < end:
            assert compiler.look() is None
            time.sleep(0.01)
        assert compiler._next_look == math.inf


def test_views_are_left_to_torch() -> None:
    t = all_magnitudes(5, 3, 41)
    turned = t.transpose(1, 2).contiguous().transpose(1, 2)
    expected = rounded(t, WORKING, True, 1, True)
    assert torch.equal(rounded(turned, WORKING, True, 1, True).view(torch.int64), expected.view(torch.int64))


def added(
    t: torch.Tensor, amplitude: torch.Tensor, sum_error: torch.Tensor | None, ids: tuple[int, ...], check_range: bool
) -> torch.Tensor:
    noise = MemberNoise(make_precision("libdevice"), ids, 5, check_range, None, len(t) // (1 + len(ids)))
    return torch.cat(
        [
            noise.add_error_(t.clone(), amplitude.clone(), factor, tiny, sum_error).view(torch.int64)
            for factor, tiny in ((1.7, 5.25), (1.7, 0.0), (0.0, 5.25))
        ]
    )


@pytest.mark.parametrize("has_sum_error", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("ids", [WORKING, WITH_FLOAT64])
@pytest.mark.parametrize("shape", [(), (3, 41), (40_000,), (0,)])
def test_errors_of_sums_have_the_bits_of_torch(
    shape: tuple[int, ...], ids: tuple[int, ...], replicas: int, has_sum_error: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compile_loops() is not None
    t = all_magnitudes(replicas * (1 + len(ids)), *shape)
    # Other magnitudes than those beside them, infinities and NaN among them.
    amplitude = t.flip(0).abs()
    sum_error = all_magnitudes(replicas, *shape).abs() if has_sum_error else None
    for check_range in (False, True):
        by_loop = added(t, amplitude, sum_error, ids, check_range)
        with monkeypatch.context() as patch:
            patch.setattr(noise_loops, "ready_loops", lambda: None)
            by_torch = added(t, amplitude, sum_error, ids, check_range)
        assert torch.equal(by_loop, by_torch)


def perturbed(t: torch.Tensor, ids: tuple[int, ...]) -> torch.Tensor:
    t = t.repeat_interleave(1 + len(ids), 0)
    MemberNoise(make_precision("libdevice"), ids, 5, False, None, len(t) // (1 + len(ids))).perturb_input_(t)
    return t.view(torch.int64)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("shape", [(), (1,), (9,), (3, 41), (5, 7, 130), (40_000,), (8, 0)])
def test_inputs_have_the_bits_of_torch(shape: tuple[int, ...], replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_loops() is not None
    # Members that raise the larger half along the last and the first dim, and two that raise elements at random.
    ids = (2, 3, 6, 9, 12)
    special = all_magnitudes(replicas, *shape)
    for t in (special, special.nan_to_num(1.0, 2.0, -3.0)):
        by_loop = perturbed(t, ids)
        with monkeypatch.context() as patch:
            patch.setattr(input_errors, "ready_loops", lambda: None)
            by_torch = perturbed(t, ids)
        assert torch.equal(by_loop, by_torch)


def evaluated(t: torch.Tensor, replicas: int | None, uncertainty: bool) -> list[torch.Tensor]:
    """What an evaluation says of an elementwise output, of a sum and of an output that depends on no input."""

    def reference(x: torch.Tensor) -> dict[str, torch.Tensor]:
        # A sum of numbers that are far apart would be infinite.
        return dict(moved=x * 1.7, added=(x / 3).clamp(-9, 9).sum(-1), constant=torch.ones(2))

    options = dict(members=6, uncertainty=uncertainty, check_range=False, replicas=replicas)
    found = evaluate(reference, dict(x=t), make_precision("libm"), **options)
    parts = [part for one in found.values() for part in (one.value, one.spread, one.uncertainty) if part is not None]
    return [part.contiguous().view(torch.int64) for part in parts]


@pytest.mark.parametrize("uncertainty", [False, True])
@pytest.mark.parametrize("shape", [(3, 41), (0, 2)])
def test_spreads_have_the_bits_of_torch(
    shape: tuple[int, ...], uncertainty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = all_magnitudes(3, *shape)
    for t in (special, special.nan_to_num(1.0, 2.0, -3.0)):
        for replicas in (None, 3):
            by_loop = evaluated(t, replicas, uncertainty)
            with monkeypatch.context() as patch:
                patch.setattr(noise_loops, "ready_loops", lambda: None)
                by_torch = evaluated(t, replicas, uncertainty)
            assert all(torch.equal(*pair) for pair in zip(by_loop, by_torch, strict=True))


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (5, 7), (9, 300), (3, 4097), (2, 3, 5, 7)])
def test_errors_of_sums_have_the_bits_of_numpy(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    special = all_magnitudes(2, *shape)
    ordinary = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    every_other = torch.stack([ordinary, special], 1)[:, 0]

    def measured(t: torch.Tensor) -> list[torch.Tensor]:
        by_dim = [sum_errors(t, dims, error_magnitudes) for dims in ([1], [t.dim() - 1], [1, t.dim() - 1], [0, 1])]
        return [*by_dim, matmul_errors(t[..., :9, :9], t[..., :9, :9].mT, error_magnitudes)]

    for t in (special, ordinary, every_other, ordinary.transpose(0, 1)):
        by_loop = measured(t)
        with monkeypatch.context() as patch:
            patch.setattr(noise_loops, "ready_loops", lambda: None)
            by_numpy = measured(t)
        pairs = zip(by_loop, by_numpy, strict=True)
        assert all(torch.equal(one.view(torch.int64), other.view(torch.int64)) for one, other in pairs)
