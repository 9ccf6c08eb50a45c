"""Sweeps of real and of toy targets: the table, wrong signs, what is not finite, and what ends in the corpus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fuzz

from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.reference.envelope import make_precision
from fuzz.sweep import correct_rounding
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import make_handler, measure_part
from fuzz.sweep.plan import make_plan
from fuzz.sweep.report import format_table
from fuzz.sweep.runner import breaks_contract, exit_code, file_findings, make_cases, run_sweep
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load

TOYS = str(Path(__file__).parent / "toy_targets.py")


def swept(text: str, dtype: str, **how: Any) -> SweepCounts:
    plan = make_plan(load(text), text, dtype=dtype, backend="cpu", **how)
    handle, total = make_handler(plan), SweepCounts()
    for part in range(plan.parts):
        found = handle(part)
        assert isinstance(found, SweepCounts)
        total.add(found)
    return total


@pytest.mark.parametrize("target", ["gelu_bw", "silu", "swiglu", "geglu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_good_kernels_are_within_one_unit_for_every_value(target: str, dtype: str) -> None:
    found = swept(target, dtype)
    assert found.count == 1 << 16 and found.wrong == 0 and found.sign_runs == []
    assert float(found.maxima[0].max()) <= 1 and not found.over.any()
    assert found.other["undecided"] == found.other["flushed"] == found.other["nonfinite"] == 0


def saturated_signs() -> list[float]:
    """Values of bfloat16 at which 2^-9 + x pdf(x) is positive though the rounded derivative is negative."""
    kind = named_dtype("bfloat16")
    values = from_bits(np.arange(0x8000, 0xFF80, dtype=np.uint16), kind)
    wrong = []
    for x in values[(values < -2) & (values > -40)].tolist():
        slope = x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        true = from_bits(to_bits(0.5 * math.erfc(-x / math.sqrt(2)) + slope, kind), kind)
        if true < 0 < 2.0**-9 + slope:
            wrong.append(x)
    return wrong


def test_a_saturating_erf_has_the_wrong_sign_from_minus_3_64_down() -> None:
    expected, found = saturated_signs(), swept("gelu_bw", "bfloat16", planted="erf_saturates")
    assert found.sign_runs == [(min(expected), max(expected))] == [(-13.75, -3.640625)]
    assert found.other["sign"] == len(expected)
    assert (found.other["nan"], found.other["nan_differs"]) == (254, 0)
    regions = {one["name"]: one for one in found.regions()}
    assert regions["near negative"]["max_ulp"] == regions["large positive"]["max_ulp"] == 0
    assert 29000 < regions["moderate negative"]["max_ordinal"] < 30000
    assert int(found.over[3]) > 16000


def test_exact_arithmetic_decides_where_the_reference_cancels() -> None:
    """The kernel is right but for double rounding; its reference has no digits left from -6 to -13.5."""
    found = swept(f"{TOYS}:one_plus_erf", "bfloat16", settings={"y": "1"})
    assert found.other["decided"] > 200 and found.other["undecided"] == found.wrong == 0
    plan = make_plan(load(f"{TOYS}:one_plus_erf"), "", dtype="bfloat16", backend="cpu", settings={"y": "1"})
    assert f"{found.other['decided']:,} values by arbitrary precision, 0 undecided" in format_table(plan, found)
    assert float(found.maxima[0].max()) <= 1


def test_what_there_is_no_time_to_decide_counts_as_the_further_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.5 * x is a tie for odd subnormal x, and x * x / 4 decides it."""
    monkeypatch.setattr(correct_rounding, "SECONDS", 0.0)
    found = swept("silu", "bfloat16")
    assert (found.other["undecided"], found.other["decided"], found.wrong) == (256, 0, 0)
    assert float(found.maxima[0].max()) == 1


@pytest.mark.parametrize("seconds", [0.0, 10.0])  # For finite results: spot checks have their own.
@pytest.mark.parametrize("target", ["logarithm", "exponential"])
def test_results_that_are_due_to_be_nan_or_infinite_are_neither_wrong_nor_undecided(
    target: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correct_rounding, "SECONDS", seconds)
    found = swept(f"{TOYS}:{target}", "bfloat16")
    assert found.other["nonfinite"] == found.wrong == 0 and found.sign_runs == []
    assert found.other["undecided"] < 10 if seconds == 0 else found.other["undecided"] == 0
    assert found.other["decided"] < 100


@pytest.mark.parametrize("text", [f"{TOYS}:{name}" for name in ("logarithm", "exponential", "softplus")])
def test_what_a_reference_overflows_to_is_undecided_without_time_for_spot_checks(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correct_rounding, "SECONDS", 0.0)
    monkeypatch.setattr(correct_rounding, "SPOT_SECONDS", 0.0)
    found = swept(text, "float16")
    assert found.other["nonfinite"] == found.other["decided"] == 0 and found.other["unbounded"] > 6000


def test_what_a_reference_overflows_to_is_never_right_for_lack_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correct_rounding, "SECONDS", 0.0)
    found = swept(f"{TOYS}:softplus", "float16")
    assert found.other["nonfinite"] == 0 and found.other["unbounded"] > 6000
    found = swept(f"{TOYS}:softplus", "float16", planted="overflows")
    assert found.other["nonfinite"] == correct_rounding.SPOT and found.other["unbounded"] > 6000


def test_what_a_reference_overflows_to_is_asked_of_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(f"{TOYS}:softplus", "float16")
    assert found.other["nonfinite"] == found.other["undecided"] == found.wrong == 0
    assert found.other["decided"] > 6000
    exact = correct_rounding.CorrectRounding._exact
    monkeypatch.setattr(correct_rounding.CorrectRounding, "_exact", lambda *given: exact(*given)[:16])
    found = swept(f"{TOYS}:softplus", "float16")
    assert found.other["nonfinite"] == 0 and found.other["undecided"] > 6000 and found.sign_runs == []
    plan = make_plan(load(f"{TOYS}:softplus"), "", dtype="float16", backend="cpu")
    assert "over all" not in format_table(plan, found)


def test_a_sweep_without_finite_results_claims_no_bound() -> None:
    plan = make_plan(load(f"{TOYS}:same"), f"{TOYS}:same", dtype="float16", backend="cpu")
    counts = SweepCounts(count=1 << 16)
    assert "over all" not in format_table(plan, counts)
    counts.values[0] = 1
    assert "correct rounding over all" in format_table(plan, counts)


def test_flushed_subnormals_count_apart_where_the_backend_flushes() -> None:
    plan = make_plan(load(f"{TOYS}:same"), f"{TOYS}:same", dtype="bfloat16", backend="cpu", planted="flushes")
    target = load(plan.text)
    launcher = target.planted_bugs["flushes"].launcher
    assert launcher is not None
    from fuzz.backends import backend

    for arithmetic, flushed, worst in (("libdevice", 254, 0), ("libm", 0, 127)):
        kernel = SweptKernel(plan, target, launcher, backend("cpu"))
        kernel.rounding.precision = make_precision(arithmetic)
        found = measure_part(kernel, 0)
        assert (found.other["flushed"], found.maxima[0].max()) == (flushed, worst)


def test_a_needle_in_one_bit_pattern_becomes_one_finding(tmp_path: Path) -> None:
    plot = tmp_path / "needle.png"
    arguments = (f"{TOYS}:same", "--dtype", "bfloat16", "--planted", "needle", "--corpus", tmp_path, "--plot", plot)
    done = fuzz("sweep", *arguments, "--json", "--backend", "cpu")
    assert done.code == 1, done.err
    value = done.json
    assert value["wrong_sign"] == [[3.140625, 3.140625]] and value["broken"] == {"sign": 1}
    assert (value["count"], value["exhaustive"], value["arguments"]) == (65536, True, ["x"])
    assert sum(one["count"] for one in value["regions"]) == 65536 - 256
    assert value["over"] == {"1": 1, "10": 1, "100": 1, "1000": 0}  # 6.28 in units of 2^-6 is 402
    (found,) = value["findings"]
    assert (found["dims"], found["symptom"], found["verdict"]) == ({"N": 1}, "sign", "kernel")
    assert "3.14" in Path(found["path"]).read_text() and plot.stat().st_size > 10_000


def test_what_agrees_alone_is_asked_again_with_its_part_around_it() -> None:
    plan = make_plan(load(f"{TOYS}:same"), f"{TOYS}:same", dtype="bfloat16", backend="cpu", planted="late")
    handle, filed = make_handler(plan), []
    found = handle(0)
    assert isinstance(found, SweepCounts) and found.wrong == 1000

    class NothingFound:
        bugs: tuple[()] = ()

    def file(cases: list[Case]) -> Any:
        filed.append([case.last.dims["N"] for case in cases])
        return NothingFound()

    file_findings(plan, found, file)
    assert filed == [[1], [1 << 16]]


def test_a_kernel_that_does_not_return_becomes_a_case_of_its_part() -> None:
    plan = make_plan(load(f"{TOYS}:same"), f"{TOYS}:same", dtype="float16", backend="cpu", planted="dies")
    found = next(run_sweep(plan, 1 << 40, 60.0))
    assert found.failed == [(0, "raised RuntimeError: the kernel is gone")]
    assert [case.last.dims for case in make_cases(plan, found)] == [{"N": 1 << 16}]
    assert "the kernel is gone" in format_table(plan, found)
    assert exit_code(None, is_broken=breaks_contract(found, None)) == 1


def test_float32_is_sampled_evenly_and_edges_are_in_it() -> None:
    plan = make_plan(load("gelu_bw"), "gelu_bw", dtype="float32", backend="cpu", count=5120)
    words = np.concatenate([plan.bits(part)[0] for part in range(plan.parts)])
    exponents = np.bincount((words >> np.uint32(23)).astype(np.int64), minlength=512)
    assert plan.parts == 512 and exponents.min() >= 10 and len(set(words.tolist())) == len(words)
    values = from_bits(words, plan.kind)
    assert {0.0, -3.71875, 5.0, math.inf, -math.inf} <= set(values.tolist()) and np.isnan(values).any()
    found = swept("gelu_bw", "float32", count=20000)
    assert found.wrong == 0 and found.count >= 20000


def test_pairs_cover_every_exponent_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(load("swiglu"), "swiglu", dtype="bfloat16", backend="cpu", pairs=True, count=1 << 18)
    pairs = [plan.bits(part) for part in range(plan.parts)]
    both = np.stack([np.concatenate(side) for side in zip(*pairs, strict=True)]) >> 7
    assert len(set(map(tuple, both.T.tolist()))) == 512 * 512
    monkeypatch.setattr(correct_rounding, "SECONDS", 1.0)
    found = swept("swiglu", "bfloat16", pairs=True, count=1 << 18)
    assert found.wrong == 0 and found.count == 512 * 512


def test_a_target_is_told_how_many_values_it_gets() -> None:
    found = swept(f"{TOYS}:counted", "bfloat16")
    assert (found.failed, found.wrong, found.count, found.over[0]) == ([], 0, 1 << 16, 0)


def test_what_is_said_of_all_values_leaves_out_inputs_with_another_result() -> None:
    plan, found = make_plan(load("silu"), "silu", dtype="bfloat16", backend="cpu"), SweepCounts()
    assert "correct rounding" not in format_table(plan, found)
    found.values[0] = 1
    assert "; correct rounding over all values, for cpu" in format_table(plan, found)
    found.other["infinite_differs"] = 1
    assert "; correct rounding over all finite inputs, for cpu" in format_table(plan, found)


def test_a_binary_target_is_swept_with_the_other_argument_set() -> None:
    plan = make_plan(
        load(TOYS + ":one_plus_erf"), TOYS, dtype="bfloat16", backend="cpu", settings={"y": "3", "scale": "2.0"}
    )
    assert (plan.swept, plan.fixed) == (("x",), {"y": "3.0", "scale": "2.0"})
    assert "every value of x in bfloat16, with y = 3.0, scale = 2.0" in format_table(plan, SweepCounts())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax", "--dtype", "bfloat16"), "not elementwise"),
        (("layernorm_bw", "--dtype", "bfloat16"), "not elementwise"),
        (("gelu_bw", "--dtype", "int8"), "a sweep takes bfloat16, float16, float32"),
        (("gelu_bw", "--dtype", "bfloat16", "--set", "dz=1"), "--set dz"),
        (("gelu_bw", "--dtype", "bfloat16", "--set", "dy"), "NAME=VALUE"),
        (("gelu_bw", "--dtype", "bfloat16", "--set", "dy=much"), "not a number"),
        (("gelu_bw", "--dtype", "float16", "--set", "dy=70000"), "must be finite in float16"),
        (("gelu_bw", "--dtype", "bfloat16", "--argument", "z"), "no floating argument 'z'"),
        (("silu", "--dtype", "bfloat16", "--pairs"), "two arguments"),
        (("gelu_bw", "--dtype", "float32", "--pairs", "--stratified", "0"), "--stratified 0"),
        (("gelu_bw", "--dtype", "bfloat16", "--stratified", "9"), "all 65,536 values of bfloat16 are computed"),
        ((f"{TOYS}:others", "--dtype", "bfloat16"), "it takes a size that is not the number of its elements"),
        (("gelu_bw", "--dtype", "bfloat16", "--fail-on", "none"), "--fail-on is one of low, medium, high"),
        (("gelu_bw", "--dtype", "bfloat16", "--plot", "curve.jpeg"), ".png, .svg, .pdf"),
        (("gelu_bw", "--dtype", "bfloat16", "--planted", "nonsense"), "no planted bug"),
        (("gelu_bw",), "--dtype"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from fuzz import cli

    assert cli.exit_code(["sweep", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and told.out == ""
