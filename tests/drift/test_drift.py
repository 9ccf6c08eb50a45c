"""Drift of a row with its batch: what is measured, what breaks a promise, and what becomes of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import fuzz

from fuzz.backends import BACKENDS
from fuzz.cli import exit_code
from fuzz.drift import runner
from fuzz.drift.measure import LayerStack, make_handler, measure_batch, reference_layers
from fuzz.drift.plan import BatchDrift, make_plan
from fuzz.drift.runner import breaks_promise, make_cases, run_drift
from fuzz.errors import UsageError
from fuzz.model.outcome import NotRun
from fuzz.model.recipes import Exact
from fuzz.target.loader import load
from fuzz.worker import retry_backoff
from fuzz.worker.deadline import Deadline

EAGER = str(Path(__file__).parents[2] / "targets" / "torch_eager" / "feed_forward.py")


def measure(text: str, size: int, **how: Any) -> BatchDrift:
    plan = make_plan(load(text), text, backend="cpu", batches=(size,), **how)
    return make_handler(plan)(size)


@pytest.mark.parametrize("residual", ["True", "False"])
def test_a_batch_invariant_layer_keeps_its_bits_to_any_depth(residual: str) -> None:
    found = measure("feed_forward", 33, layers=6, settings={"E": "40", "H": "24", "residual": residual})
    assert [row.layer for row in found.layers] == [1, 2, 3, 4, 5, 6]
    assert all(row.drift == row.differ == 0 and 0 < row.truth_error < row.envelope for row in found.layers)


def test_torchs_own_layer_drifts_inside_the_envelope_and_more_with_depth() -> None:
    found = measure(EAGER, 64, layers=12)
    assert found.layers[-1].drift > found.layers[0].drift > 0 and not any(row.beyond for row in found.layers)
    assert all(0 < row.truth_error < row.envelope for row in found.layers)


def test_split_k_drifts_where_the_number_of_splits_depends_on_the_rows() -> None:
    """K = 128 has 4 blocks: one row has 8 tiles, so that each block is a split; 128 rows have 64 tiles, one split."""
    how = dict(layers=3, settings={"K": "128", "N": "128"})
    assert measure("matmul_invariant", 128, **how).first_different is None
    drifting = measure("matmul_split_k", 128, **how)
    assert drifting.first_different == 1 and not any(row.beyond for row in drifting.layers)


def test_the_truth_is_the_reference_layer_by_layer_and_the_envelope_grows_with_it() -> None:
    plan = make_plan(load("softmax"), "softmax", backend="cpu", layers=3, batches=(4,), settings={"N": "5"})
    from fuzz.backends import backend

    target = load("softmax")
    stack = LayerStack(plan, target, target.launcher, backend("cpu"))
    layers = [stack.last_row(stack.tensors(layer, 4)) for layer in range(3)]
    by_hand = layers[0]["x"].double()
    for expected in reference_layers(stack, layers):
        by_hand = torch.softmax(by_hand, -1)
        torch.testing.assert_close(expected.value, by_hand, rtol=1e-14, atol=0)
        assert (expected.spread > 0).all()
    assert measure_batch(stack, 4).first_different is None


SCALED = """from fuzz import size, target, tensor

M, N = size("M", 1, 8), size("N", 1, 8)


@target(x=tensor(M, N), n_rows=M, n_cols=N, reference=lambda x, n_rows, n_cols: dict(y=x / n_cols), batch=M)
def scaled(x, n_rows, n_cols):
    assert x.shape == (n_rows, n_cols)
    return dict(y=x / n_cols)
"""


def test_a_size_that_a_dim_cannot_have_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(SCALED.replace('size("N", 1, 8)', 'size("N", 1, 8, multiple_of=4)'))
    with pytest.raises(UsageError, match="--set N=6: N of scaled is 1 to 8, a multiple of 4$"):
        make_plan(load(str(path)), "", backend="cpu", batches=(1,), settings={"N": "6"})
    assert make_plan(load(str(path)), "", backend="cpu", batches=(1,)).dims == {"N": 8}


def test_a_target_of_whole_numbers_is_not_refused_for_a_dtype_that_nobody_gave(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    text = SCALED.replace("x=tensor(M, N), ", 'x=tensor(M, N), k=tensor(M, dtypes=("int32",)), ')
    path.write_text(text.replace("x, n_rows", "x, k, n_rows"))
    with pytest.raises(UsageError, match=r"^no layer can be in \w+: k of scaled is one of int32$"):
        make_plan(load(str(path)), "", backend="cpu", batches=(1,))


def test_sizes_are_passed_under_the_names_that_the_launcher_has_for_them(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(SCALED)
    assert measure(str(path), 3, layers=2, settings={"N": "4"}).first_different is None


@pytest.mark.parametrize("value", ["x * 1e30", "x * float('nan')"])
def test_the_same_infinities_and_nans_keep_the_promise(tmp_path: Path, value: str) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(SCALED.replace("x / n_cols", value))
    done = fuzz("drift", path, "--layers", 3, "--batches", "3", "--backend", "cpu", "--json", "--corpus", tmp_path)
    assert (done.code, done.json["broken"]) == (0, False), done.err
    assert [(row["drift"], row["differ"], row["beyond"]) for row in done.json["rows"]] == [(0, 0, 0)] * 3
    assert done.json["rows"][-1]["truth_error"] is None


def test_a_zero_of_the_other_sign_has_other_bits_as_the_oracle_says(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    text = SCALED.replace("x / n_cols", "x.abs() * 0")
    path.write_text(text.replace("return dict(y=x.abs() * 0", "return dict(y=x.abs() * (0.0 if len(x) == 1 else -0.0)"))
    done = fuzz("drift", path, "--layers", 1, "--batches", "3", "--backend", "cpu", "--json", "--corpus", tmp_path)
    assert (done.code, done.json["broken"]) == (1, True), done.err
    (row,) = done.json["rows"]
    assert row["differ"] == 8 and row["drift"] == row["beyond"] == 0
    assert [found["oracle"] for found in done.json["findings"]] == ["invariance"]


def test_a_nan_of_the_batch_alone_breaks_either_promise(tmp_path: Path) -> None:
    path = tmp_path / "scaled.py"
    path.write_text(SCALED.replace("return dict(y=x", "return dict(y=x * (1 if len(x) == 1 else float('nan'))"))
    (row, *_) = measure(str(path), 3, layers=1).layers
    assert row.differ == row.beyond > 0


def test_the_last_row_is_that_of_the_batch_and_the_case_is_a_recipe() -> None:
    plan = make_plan(load("matmul_invariant"), "matmul_invariant", backend="cpu", batches=(9,), layers=2)
    case = plan.case(0, 9)
    assert case.split is not None and (case.split.start, case.split.length) == (8, 1)
    assert case.last.dims == {"K": 64, "N": 64, "M": 9}
    given, other = plan.arguments(0, 9), plan.arguments(1, 9)
    assert len({str(one.values) for one in (*given.values(), *other.values())}) == 4


def test_a_later_layer_is_told_by_the_words_of_its_state() -> None:
    how = dict(backend="cpu", batches=(9,), layers=2, planted="split_by_batch")
    plan = make_plan(load("matmul_invariant"), "matmul_invariant", **how)
    found = make_handler(plan)(9)
    assert breaks_promise(plan, found.layers[0]) and make_cases(plan, [found])[0].key == plan.case(0, 9).key
    assert isinstance(found.state, Exact)
    still = replace(found.layers[0], differ=0)
    later = BatchDrift((still, replace(found.layers[1], differ=1)), found.state)
    assert make_cases(plan, [later])[0].last.arguments["a"].values == found.state


@pytest.mark.parametrize(("rows", "reason"), [(1, ""), (5, "its last 2 alone do not show it")])
def test_of_a_state_that_is_too_large_for_a_case_the_last_rows_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, reason: str
) -> None:
    monkeypatch.setattr(runner, "MAX_EXACT", 23)
    path = tmp_path / "scaled.py"
    later = f"(0.25 if len(x) > {rows} and float(x.abs().max()) < 1 else 0)"
    path.write_text(SCALED.replace("return dict(y=x / n_cols", f"return dict(y=x / n_cols + {later}"))
    more = ("--layers", 2, "--batches", "8", "--backend", "cpu", "--json", "--corpus", tmp_path)
    done = fuzz("drift", path, *more)
    assert done.code == 1 and [row["differ"] for row in done.json["rows"]] == [0, 8]
    assert bool(done.json["findings"]) == (not reason)
    assert ("nothing is saved" in done.err) == bool(reason) and reason in done.err


def test_a_broken_promise_is_saved_as_an_ordinary_finding(tmp_path: Path) -> None:
    options = ["--planted", "one_row_by_another_path", "--layers", "2", "--batches", "1,9", "--backend", "cpu"]
    options += ["--set", "K=4", "--set", "N=4"]
    more = ["--corpus", tmp_path, "--json", "--plot", tmp_path / "drift.png"]
    done = fuzz("drift", "matmul_invariant", *options, *more)
    assert done.code == 1, done.err
    value = done.json
    assert (value["target"], value["layers"], value["broken"]) == ("matmul_invariant", 2, True)
    assert [(row["batch"], row["layer"]) for row in value["rows"]] == [(1, 1), (1, 2), (9, 1), (9, 2)]
    assert value["rows"][0]["drift"] == 0 < value["rows"][3]["drift"] < value["rows"][3]["envelope"]
    (found,) = value["findings"]
    assert (found["oracle"], found["dims"]) == ("invariance", {"M": 1, "K": 2, "N": 1})
    assert (tmp_path / "drift.png").stat().st_size > 10_000 and Path(found["path"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cross_entropy",), "cannot be stacked"),
        (("matmul", "--set", "K=3", "--set", "N=4", "--layers", "1"), "choose sizes by --set"),
        (("matmul", "--batches", "1,many"), "--batches 1,many"),
        (("matmul", "--batches", "5000"), "M of matmul is 1 to 1024"),
        (("matmul", "--layers", "0"), "at least 1"),
        (("matmul", "--set", "Q=3"), "no such dim or option; there is K, N"),
        (("matmul", "--set", "K=0"), "a size, at least 1"),
        (("matmul", "--dtype", "int8"), "--dtype int8"),
        (("matmul", "--set", "K=\u00b2"), "a size, at least 1"),
        (("matmul", "--set", "K=" + "9" * 5000), "a size, at least 1"),
        (("matmul", "--set", "K=5000"), "--set K=5000: K of matmul is 1 to 4096"),
        (("matmul", "--set", "M=9"), "--set M: the rows are as many as --batches says"),
        (("matmul", "--seed", "200000000000000"), "--seed must be at most"),
    ],
)
def test_what_cannot_be_stacked_is_refused_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["drift", *arguments, "--backend", "cpu"]) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and told.out == ""


def failing(tmp_path: Path, error: str) -> Path:
    """A target whose launcher raises this error for four rows."""
    path = tmp_path / "scaled.py"
    text = SCALED.replace("    return dict(y=x", f"    if len(x) == 4:\n        raise {error}\n    return dict(y=x")
    path.write_text("import torch\n" + text)
    return path


@pytest.mark.parametrize("error", ["illegal memory access", "out of order"])
def test_a_launcher_that_raises_ends_the_command_in_one_line(tmp_path: Path, error: str) -> None:
    path = failing(tmp_path, f"RuntimeError({error!r})")
    done = fuzz("drift", path, "--layers", 2, "--batches", "1,4", "--backend", "cpu", "--corpus", tmp_path)
    assert done.code == 2 and "Traceback" not in done.err and done.out == ""
    assert done.err.endswith(f"with 4 rows: raised RuntimeError: {error}; fuzz run shows more\n")


def test_memory_that_others_hold_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(failing(tmp_path, "torch.OutOfMemoryError('full')"))
    monkeypatch.setattr(type(BACKENDS["cpu"]), "external_oom_reason", lambda self, error: "others hold it")
    plan = make_plan(load(path), path, backend="cpu", batches=(1, 4))
    handle, slept = make_handler(plan), []
    measured, lacking = handle(1), handle(4)
    assert isinstance(measured, BatchDrift) and lacking == NotRun("no memory is left here: others hold it")
    responses = iter([measured, lacking, measured])
    worker = SimpleNamespace(call=lambda size: next(responses), deadline=Deadline())
    monkeypatch.setattr(retry_backoff, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(runner, "Worker", lambda *_: nullcontext(worker))
    assert list(run_drift(plan, 1 << 30)) == [measured] * 2 and len(slept) == 1
