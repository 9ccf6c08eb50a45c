"""The pytest plugin and Target.run, on a softmax in a folder outside the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import Target, corpus
from fuzz.target.loader import load

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("no_cross_checks")

SOFTMAX = '''"""Softmax over rows."""
import torch
import triton
import triton.language as tl
from fuzz import size, target, tensor

M, N = size("M", 1, 4), size("N", 1, 32)

@triton.jit
def softmax_kernel(out, x, x_row, x_column, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * x_row + columns * x_column, mask=columns < n, other=-float("inf")).to(tl.float32)
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + columns, (powers / tl.sum(powers, 0)).to(out.dtype.element_ty), mask=columns < n)

def reference(x):
    return dict(out=torch.softmax(x, -1))

@target(x=tensor(M, N), dtypes=("float32",), batch=M, reference=reference)
def softmax_rows(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_kernel[(x.shape[0],)](out, x, x.stride(0), x.stride(1), x.shape[1], BLOCK=32)
    return dict(out=out)

softmax_rows.planted("no_max", oracle="accuracy", outputs=("out",), change=("value - tl.max(value, 0)", "value"))
'''
BROKEN = SOFTMAX.replace("tl.exp(value - tl.max(value, 0))", "tl.exp(value)")
LIGHT = "-pno:schemathesis"
"""Leaves out what takes a pytest longest to import."""
SHOWN = "softmax_rows * accuracy/nonfinite: out: 1 of 1 elements wrong; *"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "fuzz_softmax.py"
    path.write_text(SOFTMAX)
    return path


def loaded(path: Path) -> Target:
    found = load(str(path))
    assert isinstance(found, Target)
    return found


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.yaml"))


def plugged(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A pytest on the CPU, in this process, which has imported what it needs already."""
    return pytester.runpytest_inprocess(LIGHT, "-rA", "--fuzz-backend=cpu", *arguments)


def test_importing_the_package_or_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys, fuzz, fuzz.pytest_plugin; print({'torch', 'triton', 'hypothesis', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_run_passes_on_a_good_kernel_and_saves_nothing(kernel: Path) -> None:
    loaded(kernel).run(cases=8, backend="cpu")
    assert not entries(kernel.parent)


def test_run_shows_a_planted_bug_and_leaves_the_corpus_alone(kernel: Path) -> None:
    with pytest.raises(AssertionError, match=r"softmax_rows \(planted: no_max\) +accuracy/nonfinite: out"):
        loaded(kernel).run(cases=8, backend="cpu", planted="no_max")
    assert not entries(kernel.parent)


def test_run_saves_a_finding_and_replays_it_until_it_is_marked(kernel: Path) -> None:
    kernel.write_text(BROKEN)
    target = loaded(kernel)
    with pytest.raises(AssertionError, match="accuracy/nonfinite"):
        target.run(cases=8, backend="cpu")
    (saved,) = entries(kernel.parent / "corpus" / "softmax_rows")
    with pytest.raises(AssertionError, match="open, disagrees"):
        target.run(cases=1, backend="cpu")
    with pytest.raises(AssertionError, match="open, disagrees"):
        target.run(cases=1, backend="cpu", corpus=str(kernel.parent / "corpus"))
    corpus.mark(saved, "fixed", "it is not")
    with pytest.raises(AssertionError, match="marked fixed, but it disagrees again"):
        target.run(cases=1, backend="cpu")
    corpus.mark(saved, "accepted", "inputs of this size do not occur")
    target.run(cases=1, backend="cpu")


def test_run_says_that_an_open_entry_agrees_now(kernel: Path) -> None:
    with pytest.raises(AssertionError):
        loaded(kernel).run(cases=8, backend="cpu", planted="no_max", corpus=kernel.parent / "corpus")
    (saved,) = entries(kernel.parent)
    saved.write_text(saved.read_text().replace("planted: no_max\n", ""))
    with pytest.raises(AssertionError, match=r"agrees now; fuzz mark .*yaml fixed --why"):
        loaded(kernel).run(cases=1, backend="cpu")


def test_without_the_option_nothing_is_collected(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("fuzz_softmax.py").write_text(SOFTMAX)
    result = pytester.runpytest_subprocess(LIGHT)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_corpus_without_a_number_of_cases_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(LIGHT, "--fuzz-corpus=.")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fuzz-corpus needs --fuzz-cases N; N = 0 only replays entries*"])


def test_a_severity_that_there_is_not_is_refused_once(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(LIGHT, "--fuzz-cases=1", "--fuzz-fail-on=none")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--fuzz-fail-on is one of low, medium, high, not 'none'*"])


def test_targets_are_collected_in_fuzz_files_alone(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("fuzz_softmax.py").write_text(SOFTMAX)
    pytester.path.joinpath("fuzz_nothing.py").write_text("x = 1\n")
    pytester.path.joinpath("fuzz_broken.py").write_text("@target(\n")
    pytester.path.joinpath("fuzz_leaves.py").write_text("import os\nos._exit(3)\n@target()\ndef one(): ...\n")
    pytester.path.joinpath("other.py").write_text(SOFTMAX.replace("softmax_rows", "other_rows"))
    collected = plugged(pytester, "--fuzz-cases=5", "--collect-only", "-q")
    collected.stdout.fnmatch_lines(["fuzz_softmax.py::softmax_rows", "*fuzz_broken.py:1: syntax error: *"])
    collected.stdout.fnmatch_lines(["the target's file ended a worker before its first case: *exit status 3"])
    collected.stdout.no_fnmatch_line("*other*")


def test_a_finding_fails_with_its_screen_and_is_replayed_in_both_directions(pytester: pytest.Pytester) -> None:
    kernel = pytester.path / "fuzz_softmax.py"
    kernel.write_text(BROKEN)
    found = plugged(pytester, "--fuzz-cases=8")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines([SHOWN, "*repeat *fuzz replay *.yaml"])
    found.stdout.no_fnmatch_line("*Traceback*")
    (saved,) = entries(pytester.path / "corpus")
    kernel.write_text(SOFTMAX)
    stale = plugged(pytester, "--fuzz-cases=0", "fuzz_softmax.py")
    stale.assert_outcomes(failed=1)
    stale.stdout.fnmatch_lines(["*marked open, but it agrees now; fuzz mark *"])
    corpus.mark(saved, "fixed", "the maximum is subtracted")
    # The entry, and the targets of a fuzz file and of a file that is named.
    pytester.path.joinpath("other.py").write_text(SOFTMAX.replace("softmax_rows", "other_rows"))
    named = plugged(pytester, "--fuzz-cases=5", "fuzz_softmax.py", "other.py")
    named.assert_outcomes(passed=3)
    named.stdout.fnmatch_lines(["PASSED fuzz_softmax.py::softmax_rows", "PASSED other.py::other_rows"])


def test_a_corpus_elsewhere_is_replayed_where_it_is_named(pytester: pytest.Pytester) -> None:
    kernel = pytester.path / "kernels" / "fuzz_softmax.py"
    kernel.parent.mkdir()
    kernel.write_text(SOFTMAX)
    with pytest.raises(AssertionError):
        loaded(kernel).run(cases=8, backend="cpu", planted="no_max", corpus=kernel.parent / "saved")
    empty = pytester.mkdir("empty")
    plugged(pytester, "--fuzz-cases=0", "--fuzz-corpus=kernels/saved", str(empty)).assert_outcomes(xfailed=1)


def test_a_corpus_elsewhere_is_replayed_with_the_targets_that_it_was_saved_of(pytester: pytest.Pytester) -> None:
    kernel, saved = pytester.path / "kernels" / "fuzz_softmax.py", pytester.mkdir("saved")
    kernel.parent.mkdir()
    kernel.write_text(BROKEN)
    found = plugged(pytester, "--fuzz-cases=8", f"--fuzz-corpus={saved}", "kernels")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines([f"*repeat *fuzz replay *saved/*.yaml --target {kernel}:softmax_rows"])
    plugged(pytester, "--fuzz-cases=0", f"--fuzz-corpus={saved}", "kernels").assert_outcomes(xfailed=1)
