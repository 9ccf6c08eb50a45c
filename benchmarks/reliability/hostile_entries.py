"""Gives every command hostile entries, and counts the answers that hold; `make faults` runs it.

An answer holds where it is a result on printable lines, or one clear line and exit code 2, within two minutes, and
where nothing that an entry or its name holds was executed. The table goes into docs/reliability.md by `--write`.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import cli
from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.escaping import printable_lines

MARKS = "<!-- hostile entries -->", "<!-- /hostile entries -->"
LONGEST = 120
"""Seconds that an answer may take."""
BASE = """\
format: fuzz-case/1
target: gelu_bw
planted: erf_saturates
status: open
why: ""
digest: b5936751bfb0419c
case:
  calls:
  - dims: {N: 1}
    arguments:
      dy:
        shape: [N]
        dtype: float32
        bits: "0x3f800000"  # 1.0
      x:
        shape: [N]
        dtype: float32
        bits: "0xc0800000"  # -4.0
finding:
  oracle: accuracy
  outputs: [dx]
  symptom: sign
  message: "dx: 1 of 1 elements wrong"
  call: 0
  ratio: 1074823.4
  disagreeing: 1
  compared: 1
  elements:
  - {output: dx, index: 0, got: 0.0014, got_word: 0x3ab9d59c, want: "-0.0005", bound: 1.79e-09, ulps: 3.3e+07, exact: "-0.0005"}
seen:
  backend: cpu
  rate: 10/10
  verdict: kernel
  digits: 800
"""  # noqa: E501
BREAK = r"\"\"\"; import os; os.system('touch pwned') #\\"
TEXTS = {
    "half a surrogate pair": r"\ud800 x \uDFFF",
    "NUL": r"a \0 b",
    "escape sequences": r"\e]0;owned\a\e[2J\e[31m 0 failed \x9b1A",
    "new lines": r"x\n\n  status   fixed\nok     y.yaml: fixed, agrees\r\n",
    "the end of a docstring": BREAK,
    "HTML": r"<script>alert(1)</script>'\"><img src=x onerror=alert(2)></textarea></pre><svg/onload=alert(4)>",
    "templates": r"{{7*7}} {% raw %} {{config.__class__}} ${7*7} #{7*7}",
    "rich markup": r"[bold red]x[/] [/nothing] [link=file:///etc/passwd]y[/link] :skull:",
    "right to left": r"\u202e\u2066gnorw\u200f\u061c",
    "invisible tags": r"\ufeff\u200b\u2060\U000E0041\u2028\u2029\x85",
    "a shell": "$(touch pwned) `touch pwned`; touch pwned | touch pwned & touch pwned",
    "format strings": "%s%n%x {0} {x!r} {}{}",
    "a very long line": "x" * 500_000,
    "XML": r"]]></failure><evil/>&ouml;&#0;<!DOCTYPE x>\ufffe\uffff",
    "CSV and Markdown": r"=cmd|' /C calc'!A0 | [x](javascript:alert(1)) | ![y](http://127.0.0.1:9/z)",
}
FIELDS = {
    "message": ('message: "dx: 1 of 1 elements wrong"', "message: {}"),
    "why": ('why: ""', "why: {}"),
    "seen": ("  backend: cpu", "  backend: {0}\n  device: {0}\n  diagnosis: {0}\n  witnesses: {0}"),
    "element": ("got: 0.0014, got_word: 0x3ab9d59c", "got: {0}, got_word: {0}"),
}
NUMBERS = {
    "dims of 2^62": ("{N: 1}", "{N: 4611686018427387904}"),
    "dims of 2^45, expanded": ("dtype: float32\n", "dtype: float32\n        layout: {expand: [0]}\n"),
    "elements of 2^63": ("[N]", '["N*9223372036854775808"]'),
    "a negative size": ("[N]", '["N-9"]'),
    "a thousand dims": ("[N]", f"[{', '.join(['N'] * 1000)}]"),
    "a power": ("[N]", '["9**9**9"]'),
    "a call in a shape": ("[N]", "[\"__import__('os').system('touch pwned')\"]"),
    "reach past any memory": ("dtype: float32\n", "dtype: float32\n        layout: {order: [0], reach: 40}\n"),
    "an option of 300 digits": ("{N: 1}", "{N: 1}\n    options: {a: " + "9" * 300 + "}"),
    "counts that are NaN": ("disagreeing: 1", "disagreeing: nan"),
    "counts of 2^63": ("compared: 1", "compared: 9223372036854775808"),
    "an index of 2^62": ("index: 0", "index: 4611686018427387904 3 9"),
    "a call of 5000 digits": ("call: 0", "call: " + "9" * 5000),
    "a ratio that is NaN": ("1074823.4", "nan"),
    "an infinite ratio": ("1074823.4", "1e9999"),
    "a rate of nothing": ("rate: 10/10", "rate: 1/0"),
    "a rate over one": ("rate: 10/10", "rate: 5/3"),
    "a rate of text": ("rate: 10/10", "rate: x"),
    "ulps of text": ("ulps: 3.3e+07", "ulps: x"),
    "digits of text": ("digits: 800", "digits: many"),
    "overrides far away": ('bits: "0xc0800000"', 'recipe: "normal/1 seed=1"\n        overrides: "999999999999: 0"'),
    "a split of 2^26 rows": ("finding:\n", "  split: {start: 0, length: 1, before: 67108864, after: 0}\nfinding:\n"),
}
WHAT = "oracle: {}\n  outputs: {}\n  symptom: {}"
FINDINGS = {
    f"{oracle}/{symptom}": (WHAT.format("accuracy", "[dx]", "sign"), WHAT.format(oracle, names, symptom))
    for oracle, symptom, names in (
        ("rejects", "accepted", "[x]"),
        ("invariance", "bits", "[dx]"),
        ("invariance", "drift", "[nothing]"),
        ("scaling", "scale", "[dx]"),
        ("scaling", "permutation", "[dx]"),
        ("autograd", "between", "[dx]"),
        ("autograd", "missing", "[nothing]"),
        ("layout", "bits", "[dx]"),
        ("deterministic", "bits", "[]"),
        ("accuracy", "bits", "[dx]"),
        ("accuracy", "reference", "[dx]"),
        ("mutation", "written", "[nothing]"),
        ("bounds", "race", '["../../x"]'),
        ("fault", "died", "[launcher]"),
        ("parity", "value", "[dx]"),
        ("accuracy", "value", "[nothing]"),
    )  # fmt: skip
}
STRUCTURE = {
    "a tag": ('why: ""', 'why: !!python/object/apply:os.system ["touch pwned"]'),
    "an alias": ('why: ""', "why: &a x\nx: *a"),
    "100,000 brackets": ('why: ""', "why: " + "[" * 100_000),
    "480,000 values, then an error": ('why: ""', "why: [" + "a," * 480_000 + "}"),
    "a repeated key": ("status: open", "status: open\nstatus: fixed"),
    "two documents": ('why: ""', 'why: ""\n---\nx: y'),
    "a raw control character": ('why: ""', 'why: "\x1b[2J"'),
    "another digest": ("b5936751bfb0419c", "0000000000000000"),
    "a path for a target": ("target: gelu_bw", "target: ../../x"),
    "a target in full width": ("target: gelu_bw", "target: ｇelu_bw"),
    "no elements": ("  elements:\n", "  place: ../../etc/passwd:7\n  elements: []\nx:\n"),
    "thirty thousand calls": ("finding:\n", "  - {dims: {}, arguments: {}}\n" * 30_000 + "finding:\n"),
}
NAMES = [
    b'a"""; import os; os.system("touch pwned"); """.yaml', b"a; touch pwned; b.yaml", b"$(touch pwned).yaml",
    b"`touch pwned`.yaml", b"-rf.yaml", b"--help.yaml", b"new\nok     line.yaml", b"caf\xe9.yaml", b"\x1b[2J.yaml",
    b"<img src=x onerror=alert(1)>.yaml", b"{{7*7}}.yaml", b"[red]x[.yaml", b"quo'te.yaml", b"back\\slash.yaml",
    "\u202egnorw.yaml".encode(), b" .yaml", b"x" * 250 + b".yaml", b"%00%2e%2e%2f.yaml", b"a:b?c*d|e.yaml",
]  # fmt: skip


@dataclass
class AnswerCounts:
    """The answers to commands on one kind of hostile thing, and those that did not hold."""

    tried: int = 0
    broken: list[str] = field(default_factory=list)


def with_digest(text: str) -> str:
    """The text with the digest of its case, where it is an entry but for that."""
    try:
        codec.loads(text.encode())
    except CorpusError as error:
        if match := re.search(r"bytes give '([0-9a-f]{16})'", str(error)):
            return re.sub(r"(?m)^digest: .*", f'digest: "{match[1]}"', text)
    return text


def make_entries() -> Iterator[tuple[str, bytes, str]]:
    """(kind, file name, text) of each hostile entry."""
    number = 0
    for kind, changes in (("numbers", NUMBERS), ("findings that cannot be", FINDINGS), ("structure", STRUCTURE)):
        for old, new in changes.values():
            number += 1
            text = BASE.replace(old, new) if kind != "structure" else BASE.replace(old, new, 1)
            if "expand" in new:
                text = text.replace("{N: 1}", "{N: 35184372088832}")
            yield kind, b"entry-%d.yaml" % number, with_digest(text)
    for text in TEXTS.values():
        for old, new in FIELDS.values():
            number += 1
            yield "texts", b"entry-%d.yaml" % number, BASE.replace(old, new.format(f'"{text}"'))
    for name in NAMES:
        yield "file names", name, BASE
    yield "file names", b"x" * 249 + b".yaml", BASE


def make_special(folder: Path) -> Iterator[Path]:
    """What is named like an entry and is none."""
    for name, make in {
        "pipe": os.mkfifo,
        "stdin": lambda path: path.symlink_to("/dev/stdin"),
        "zero": lambda path: path.symlink_to("/dev/zero"),
        "loop": lambda path: path.symlink_to(path),
        "nowhere": lambda path: path.symlink_to(folder / "missing"),
        "outside": lambda path: path.symlink_to("/etc/passwd"),
        "folder": lambda path: path.mkdir(),
        "parent": lambda path: path.symlink_to(folder),
        "socket": lambda path: bind_socket(path),
        "empty": lambda path: path.touch(),
        "sparse": lambda path: (path.touch(), os.truncate(path, 10 << 30)),
        "unreadable": lambda path: (path.write_text(BASE), path.chmod(0)),
        "binary": lambda path: path.write_bytes(bytes(range(256))),
        "utf-16": lambda path: path.write_bytes(BASE.encode("utf-16")),
    }.items():
        path = folder / f"{name}.yaml"
        make(path)
        yield path


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(path.parent)
        listener.bind(path.name)
        os.chdir(here)


def nest(folder: Path, depth: int) -> Path:
    """A folder with so many folders inside each other, and an entry in the innermost one that a path reaches."""
    here = os.getcwd()
    top = folder / "deep"
    top.mkdir()
    os.chdir(top)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    return top


def ask(arguments: list[str]) -> str:
    """Runs a command as the command line does; why its answer does not hold, or nothing."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict", write_through=True) for _ in range(2))
    signal.alarm(LONGEST)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.exit_code(arguments)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return why_broken(code, *texts, is_script="--script" in arguments)


def why_broken(code: int, out: str, err: str, *, is_script: bool) -> str:
    if code == 2:
        complaints = [line for line in err.splitlines() if line.startswith("fuzz: ")]
        lasting = [line for line in complaints if not line.startswith("fuzz: skipped ")]
        clear = complaints and len(lasting) <= 1 and "Traceback" not in err
        return "" if clear else f"exit 2 without one clear line: {err[-200:]}"
    if code not in (0, 1):
        return f"exit {code}: {err[-400:]}"
    if is_script:
        return "the script has more code" if "pwned" in "".join(map(ast.dump, ast.parse(out).body[1:])) else ""
    return "" if printable_lines(out) == out else f"not printable: {out!a}"[:300]


def commands(path: Path, out: Path) -> Iterator[list[str]]:
    """What is asked of a path that may be an entry."""
    name = ["--target=gelu_bw", "--", str(path)]
    yield ["show", *name]
    yield ["show", "--script", *name]
    yield ["replay", "--backend", "cpu", *name]
    yield ["report", "--no-plots", "--out", str(out), *name]
    yield ["mark", "--why", 'hostile "\x1b[2J"', "--", str(path), "open"]


def ask_of_entries(folder: Path, counts: dict[str, AnswerCounts]) -> None:
    (folder / "corpus").mkdir()
    files = [(kind, make_file(folder, index, name, text)) for index, (kind, name, text) in enumerate(make_entries())]
    special = folder / "corpus" / "special"
    special.mkdir()
    files += [("special files", path) for path in make_special(special)]
    for kind, path in files:
        for arguments in commands(path, folder / "report.html"):
            note(counts[kind], ask(arguments), [*arguments[:2], ascii(path.name)[:60]])


def make_file(folder: Path, index: int, name: bytes, text: str) -> Path:
    path = folder / "corpus" / f"{index:03}" / os.fsdecode(name)
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


def note(counts: AnswerCounts, broken: str, what: list[str]) -> None:
    counts.tried += 1
    if broken:
        counts.broken.append(f"{' '.join(what)}: {broken}")
        print(counts.broken[-1], file=sys.stderr, flush=True)


def ask_of_folders(folder: Path, counts: AnswerCounts) -> None:
    """Whole folders with everything in them, nested deeply, and none."""
    places = [folder / "corpus", nest(folder, 300), folder / "nowhere", folder / ("x" * 300), Path("/dev/null")]
    for place in places:
        for arguments in (["replay", str(place)], ["report", "--out", str(folder / "report.html"), str(place)]):
            note(counts, ask(arguments), [arguments[0], place.name[:60]])
    for name in ("corpus", "corpus/special"):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--fuzz-cases=0",
            "--fuzz-backend=cpu",
        ]
        done = subprocess.run(
            [*command, f"--fuzz-corpus={folder / name}", str(folder / name)],
            cwd=folder, capture_output=True, timeout=1800, stdin=subprocess.PIPE if name == "corpus/special" else None,
        )  # fmt: skip
        broken = b"INTERNALERROR" in done.stdout + done.stderr or done.returncode not in (0, 1, 2, 5)
        note(counts, (done.stdout + done.stderr).decode(errors="replace")[-800:] if broken else "", ["pytest", name])


def ask_of_what_is_right(folder: Path, counts: AnswerCounts) -> None:
    """A report with plots and scripts of the hostile entries that can be read."""
    good = folder / "good"
    good.mkdir()
    for number, path in enumerate(sorted((folder / "corpus").glob("*/*.yaml"))[::9]):
        if cli_reads(path):
            (good / f"{number}.yaml").write_bytes(path.read_bytes())
    out = folder / "all.html"
    note(counts, ask(["report", "--backend", "cpu", "--out", str(out), str(good)]), ["report", "with plots"])
    page = out.read_text(encoding="utf-8") if out.exists() else ""
    hostile = [tag for tag in ("<script>alert", "<img src=x", "<svg/onload") if tag in page]
    note(counts, f"the page has {hostile}" if hostile or not page else "", ["the report's page"])


def cli_reads(path: Path) -> bool:
    from fuzz import corpus

    try:
        corpus.read(path)
    except CorpusError:
        return False
    return True


def ask_everything(folder: Path) -> dict[str, AnswerCounts]:
    kinds = ("texts", "numbers", "findings that cannot be", "structure", "file names", "special files", "folders")
    counts = {kind: AnswerCounts() for kind in kinds}
    ask_of_entries(folder, counts)
    ask_of_folders(folder, counts["folders"])
    ask_of_what_is_right(folder, counts["folders"])
    executed = [path for place in (folder, Path.cwd()) for path in place.glob("**/pwned*")]
    if executed:
        counts["folders"].broken.append(f"executed: {executed}")
    return counts


def write(path: Path, counts: dict[str, AnswerCounts]) -> None:
    """Puts the table into the document."""
    rows = [f"| {kind} | {one.tried} | {one.tried - len(one.broken)} |" for kind, one in counts.items()]
    text = path.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in MARKS)
    table = "\n".join([MARKS[0], "| hostile | answers | held |", "|---|---|---|", *rows, ""])
    path.write_text(text[:start] + table + text[end:], encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    arguments = parser.parse_args()
    document = arguments.write.resolve() if arguments.write else None

    def expire(number: int, frame: object) -> None:
        raise TimeoutError(f"no answer within {LONGEST} s")

    signal.signal(signal.SIGALRM, expire)
    with tempfile.TemporaryDirectory(prefix="fuzz-hostile-") as text:
        os.chdir(text)
        counts = ask_everything(Path(text))
        os.chdir("/")
    total = Counter({kind: one.tried for kind, one in counts.items()})
    print(
        f"{total.total()} answers: {dict(total)}", *(line for one in counts.values() for line in one.broken), sep="\n"
    )
    if document:
        write(document, counts)
    return int(any(one.broken for one in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
