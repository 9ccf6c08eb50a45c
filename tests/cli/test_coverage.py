"""`fuzz coverage` on a target whose declaration is narrower than its function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fuzz import cli
from fuzz.coverage_report import collect
from fuzz.coverage_report.protocol import Observations
from fuzz.target.spec import Target

TARGET = '''
"""Adds a row to rows."""
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N = size("M", 1, 4), size("N", 1, 16)


@triton.jit
def kernel(x, bias, y, n, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + columns, mask=columns < n)
    if HAS_BIAS:
        value += tl.load(bias + columns, mask=columns < n)
    tl.store(y + row * n + columns, value, mask=columns < n)


def reference(x):
    return dict(y=x * 1)


@target(x=tensor(M, N), dtypes=("float32",), reference=reference, unreached={"constexpr *": "bias is for later"})
def add(x, bias=None):
    x = x.contiguous()
    y = torch.empty_like(x)
    if bias is not None:
        bias = bias.contiguous()
    kernel[(x.shape[0],)](x, bias, y, x.shape[1], BLOCK=16, HAS_BIAS=bias is not None)
    return dict(y=y)
'''


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("coverage") / "fuzz_add.py"
    path.write_text(TARGET)
    return path


def test_the_report_says_what_was_never_tried(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.exit_code(["coverage", str(target), "--cases", "25", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"version", "target", "cases", "rejected", "lines", "branches", "masks", "blockers"}
    assert (report["target"], report["cases"]) == ("add", 25)
    found = {(blocker["kind"], blocker["what"]): blocker for blocker in report["blockers"]}
    assert ("branch", "add: `bias is not None` is never true") in found
    constant = found["constexpr", "kernel: `HAS_BIAS` is never true"]
    assert constant["reason"] == "bias is for later" and report["blockers"][-1] == constant
    assert not any(kind == "mask" for kind, _ in found)
    assert 0 < report["lines"]["run"] < report["lines"]["accounted"] < report["lines"]["all"]


def test_a_threshold_decides_the_exit_code(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.exit_code(["coverage", str(target), "--cases", "3", "--fail-under", "100"]) == 1
    text = capsys.readouterr().out
    assert "`bias is not None` is never true" in text and "left out: bias is for later" in text
    assert cli.exit_code(["coverage", str(target), "--cases", "3", "--fail-under", "10"]) == 0
    assert cli.exit_code(["coverage", str(target), "--fail-under", "101"]) == 2
    assert "--fail-under is a percentage from 0 to 100, not 101" in capsys.readouterr().err


def test_a_target_without_a_case_does_not_lose_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fuzz_two.py"
    lines = ["from fuzz import size, target, tensor\n\nN = size('N', 1, 4)\n"]
    lines += [f"\n\n@target(x=tensor(N))\ndef {name}(x):\n    return dict(y=x + 1)\n" for name in ("slow", "quick")]
    path.write_text("".join(lines))
    real = collect.collect

    begins: list[float] = []

    def collected(target: Target, *rest: Any) -> collect.Collected:
        begins.append(rest[-1])
        return collect.Collected(Observations(), []) if target.name == "slow" else real(target, *rest)

    monkeypatch.setattr(collect, "collect", collected)
    for limit, code in (((), 0), (("--fail-under", "50"), 1)):
        assert cli.exit_code(["coverage", str(path), "--cases", "2", *limit]) == code
        out, err = capsys.readouterr()
        assert out.startswith("quick") and "slow: the time ended before the first case" in err
    assert begins[0] < begins[1], "each target has the whole time"


def test_a_folder_has_one_line_for_each_of_its_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "from fuzz import size, target, tensor\n\nN = size('N', 1, 4)\n"
    body = "\n\n@target(x=tensor(N), dtypes=('float32',))\ndef NAME(x):\n    return dict(y=x + 1)\n"
    for file, names in (("fuzz_two.py", ("one", "two")), ("fuzz_three.py", ("three",))):
        (tmp_path / file).write_text(head + "".join(body.replace("NAME", name) for name in names))
    (tmp_path / "helpers.py").write_text("raise SystemExit('is not loaded')")
    assert cli.exit_code(["coverage", str(tmp_path), "--cases", "3", "--fail-under", "100"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith("together") and last.endswith("lines 100.0 % (100.0 % with reasons) of 3 in 2 files")
    assert [line.split()[0] for line in lines] == ["three", "one", "two"]
    assert all("lines 100.0 % (100.0 % with reasons) of" in line and line.endswith("3 cases") for line in lines)
    assert cli.exit_code(["coverage", str(tmp_path), "--cases", "1", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [report["target"] for report in value["targets"]] == ["three", "one", "two"] and value["version"] == 1
    assert [len(file["ran"]) for file in value["files"]] == [1, 2]
