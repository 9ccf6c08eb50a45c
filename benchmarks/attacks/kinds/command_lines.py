"""Command lines that ask for what cannot be."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.attacks.attack import ONE_LINE, Kind
from benchmarks.attacks.kinds.entry_texts import BASE
from benchmarks.attacks.kinds.target_files import BROKEN, RUN, TARGET
from benchmarks.attacks.trial import Trial, require

KIND = Kind("command lines")
ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e"
FEW = ("--cases", "3", "--backend", "cpu")
REFUSED: dict[str, tuple[tuple[str, ...], ...]] = {
    "times_that_are_none": tuple(
        ("run", "gelu_bw", "--seconds", value)
        for value in ("nan", "inf", "-inf", "1e400", "0", "-1", "", "1_0s", "\u0661")
    ),
    "numbers_that_are_none": tuple(
        ("run", "gelu_bw", option, value)
        for option in ("--cases", "--seed", "--workers", "--max-findings")
        for value in ("-1", "1.5", "9" * 5000, ESCAPES)
    ),
    "names_that_are_none": tuple(
        ("run", "gelu_bw", option, ESCAPES)
        for option in ("--backend", "--engine", "--planted", "--fail-on", "--nonsense")
    ),
    "commands_that_are_none": ((ESCAPES,), ("run",), ("run", "--"), ("store", ESCAPES), ("-" * 3000,)),
    "arguments_of_100_kilobytes": (("run", "x" * 100_000), ("show", "y/" * 50_000), ("mark", "z" * 100_000, "open")),
    "sweeps_that_cannot_be": (
        ("sweep", "gelu_bw", "--dtype", ESCAPES), ("sweep", "layernorm_bw", "--dtype", "float32"),
        ("sweep", "gelu_bw", "--dtype", "bfloat16", "--argument", ESCAPES), ("sweep", "nothing", "--dtype", "float16"),
    ),
    "drifts_that_cannot_be": (
         ("drift", "feed_forward", "--layers", "0"), ("drift", "feed_forward", "--layers", "-9"),
        ("drift", "feed_forward", "--layers", "9" * 30), ("drift", "nothing"),
    ),
    "marks_that_cannot_be": (
        ("mark", "entry.yaml", ESCAPES, "--why", "x"), ("mark", "entry.yaml", "fixed"),
        ("mark", "x.py", "open", "--why", "x"),
        ("mark", "missing.yaml", "open", "--why", "x"), ("mark", "entry.yaml", "fixed", "--why"),
    ),
    "services_that_cannot_be": (
        ("serve", "--port", "99999"), ("serve", "--port", "-1"), ("serve", "--host", ESCAPES),
        ("serve", "--host", "0.0.0.0"),
        ("serve", "--host", "0.0.0.0", "--token", "short"), ("serve", "--store", ESCAPES),
        ("serve", "--corpus", "x.py"),
        ("serve", "--judge"), ("serve", "--backend", ESCAPES), ("serve", "missing.yaml"),
    ),
    "reports_that_cannot_be": (
        ("report", "9" * 400), ("report", ESCAPES), ("report", "entry.yaml", "--out", "missing/x.html"),
        ("report", "entry.yaml", "--out", "."), ("report", "entry.yaml", "--coverage", "x.py"), ("report", "x.py"),
        ("report", "1", "--store", ESCAPES),
    ),
    "stores_that_cannot_be": (
        ("store", "rebuild", "--store", ESCAPES), ("store", "rebuild", "--store", "sqlite:////proc/x"),
        ("store", "rebuild", "--corpus", "missing"), ("store", "rebuild", "--corpus", "x.py"),
        ("store", "rebuild", "--store", "postgresql://x:y@127.0.0.1:1/z?connect_timeout=2"),
    ),
    "judgements_that_cannot_be": (
        ("judge", "missing.py", "missing.py"), ("judge", "x.py"), ("judge", "x.py", "x.py", "--format", ESCAPES),
        ("judge", "--batch", "missing", "--problems", "missing"), ("judge", "x.py", "x.py", "--seconds", "nan"),
    ),
    "places_that_cannot_be_written": (
        ("run", "x.py", *FEW, "--corpus", "entry.yaml"), ("run", "x.py", *FEW, "--corpus", "/proc/x"),
        ("run", "x.py", *FEW, "--corpus", "c" * 300), ("run", "x.py", *FEW, "--junit", "missing/x.xml"),
        ("run", "x.py", *FEW, "--sarif", "."), ("run", "x.py", *FEW, "--junit", "same", "--sarif", "same"),
    ),
    "coverage_of_nothing": (("coverage", "missing"), ("coverage", "entry.yaml"), ("coverage", ESCAPES)),
    "skeletons_of_nothing": (("new", "x.py"), ("new", "missing.py:f"), ("new", "x.py:double", "--output", "x.py")),
}  # fmt: skip
"""Name -> the command lines."""


def refuse_all(trial: Trial, lines: tuple[tuple[str, ...], ...]) -> None:
    trial.write("x.py", TARGET)
    trial.write("entry.yaml", BASE)
    for line in lines:
        trial.refused(*line)
    require((trial.work / "x.py").read_text() == TARGET, "the target was written over")
    require((trial.work / "entry.yaml").read_text() == BASE, "the entry was written over")


for _name, _lines in REFUSED.items():
    _what = f"Asks for {len(_lines)} {_name.replace('_', ' ')}, such as `{' '.join(_lines[-1])[:60]!a}`."
    KIND.add(_name, _what, f"{ONE_LINE} for each, and no file is written over", partial(refuse_all, lines=_lines))

COMMANDS = {
    "fails": "exit 7",
    "reads_nothing": "exec <&-; true",
    "kills_itself": "kill -9 $$",
    "leaves_a_process": "sleep 600 & true",
    "fails_and_prints": "cat >&2; false",
    "is_missing": "/there/is/none",
}
"""What a notified command does -> its text."""


def notify(trial: Trial, command: str) -> None:
    trial.write("x.py", BROKEN)
    answer = trial.fuzz("run", "x.py", *RUN, "--json", "--notify", command)
    require(answer.code == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")
    require(len(answer.json["findings"]) == 1, "not one finding")


for _name, _command in COMMANDS.items():
    _what = f"Has a command notified of a finding that {_name.replace('_', ' ')}: `{_command}`."
    KIND.add(
        f"notify_that_{_name}",
        _what,
        "the finding and exit code 1; no process is left",
        partial(notify, command=_command),
    )


@KIND.attack("the finding and exit code 1 within a minute; no process is left")
def notify_that_does_not_end(trial: Trial) -> None:
    """Has a command notified of a finding that ignores signals, and does not end."""
    start = time.monotonic()
    notify(trial, "trap '' TERM INT HUP; while :; do sleep 600; done")
    require(time.monotonic() - start < 120, "it took more than two minutes")


@KIND.attack("the same answers as for one, within the time of a command")
def two_thousand_paths(trial: Trial) -> None:
    """Replays two thousand paths, most of which are missing."""
    trial.write("entry.yaml", BASE)
    answer = trial.fuzz(
        "replay", "--backend", "cpu", "entry.yaml", *(f"missing-{number}.yaml" for number in range(2000))
    )
    require(answer.code == 2, f"exit code {answer.code}: {answer.err[-300:]!a}")
