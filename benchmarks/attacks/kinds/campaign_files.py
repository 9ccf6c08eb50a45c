"""Hostile campaign files, which are refused, and hostile campaigns, which end in order."""

from __future__ import annotations

import os
import resource
import signal
import time
from functools import partial

from benchmarks.attacks.attack import ONE_LINE, Kind
from benchmarks.attacks.kinds.target_files import TARGET
from benchmarks.attacks.trial import FUZZ, Answer, Trial, check_answer, end_group, require
from fuzz import corpus

KIND = Kind("campaign files and campaigns")
GOOD = """\
targets: [targets.py]
backends: [cpu]
budget: {cases: 60}
slice: 5s
workers: 1
memory: 900MiB
corpus: found
store: sqlite:///store.sqlite
folder: state
"""
PLACES = (
    "targets: [targets.py]",
    "backends: [cpu]",
    "budget: {cases: 60}",
    "slice: 5s",
    "workers: 1",
    "memory: 900MiB",
)
T, BACKEND, BUDGET, SLICE, WORKERS, MEMORY = PLACES
BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(9))
REFUSED = {
    "endless_budget": (BUDGET, "budget: {time: .inf}"),
    "budget_of_nan": (BUDGET, "budget: {time: nan}"),
    "budget_of_nothing": (BUDGET, "budget: {cases: 0}"),
    "budget_without_an_end": (BUDGET, "budget: {}"),
    "budget_of_400_digits": (BUDGET, "budget: {cases: " + "9" * 400 + "}"),
    "budget_of_a_list": (BUDGET, "budget: [[[]]]"),
    "unknown_backend": (BACKEND, 'backends: ["\\e[2J"]'),
    "unknown_engine": (BACKEND, BACKEND + "\nengines: [psychic]"),
    "unknown_key": (WORKERS, f"{WORKERS}\n{'k' * 5000}: 1"),
    "repeated_key": (WORKERS, f"{WORKERS}\n{WORKERS}"),
    "number_for_a_key": (WORKERS, f"{WORKERS}\n1: 2\n[]: 3\n? {{}}\n: 4"),
    "tag_of_python": (WORKERS, 'workers: !!python/object/apply:os.system ["touch pwned"]'),
    "alias": (WORKERS, "workers: &a 1\ncoverage: *a"),
    "alias_of_itself": (T, "targets: &a [*a]"),
    "bomb_of_aliases": (T, BOMB + T),
    "brackets": (T, "targets: " + "[" * 100_000),
    "no_targets": (T, "targets: []"),
    "pattern_without_a_file": (T, "targets: ['nowhere/**/*.py']"),
    "hostile_pattern": (T, "targets: ['[', '!*', '../../../../../../*/*/*\\e[2J']"),
    "workers_below_zero": (WORKERS, "workers: -1"),
    "workers_of_2_to_62": (WORKERS, "workers: 4611686018427387904"),
    "slice_of_nothing": (SLICE, "slice: 0s"),
    "memory_of_nothing": (MEMORY, "memory: 0MiB"),
    "seeds_of_nothing": (WORKERS, f"{WORKERS}\nseeds: []"),
    "seeds_below_zero": (WORKERS, f"{WORKERS}\nseeds: [-1]"),
    "name_of_a_path": (WORKERS, f'{WORKERS}\nname: "../../x\\e"'),
    "corpus_with_nul": ("corpus: found", 'corpus: "a\\0b"'),
    "corpus_that_is_a_file": ("corpus: found", "corpus: targets.py"),
    "folder_that_is_a_file": ("folder: state", "folder: targets.py"),
    "store_of_another_kind": ("sqlite:///store.sqlite", "mysql+pwned://x/y"),
    "store_of_garbage": ("sqlite:///store.sqlite", "'://\\e[2J'"),
    "store_in_a_file": ("sqlite:///store.sqlite", "sqlite:///targets.py/store.sqlite"),
    "notify_of_a_list_of_lists": (WORKERS, f"{WORKERS}\nnotify: [[touch, pwned]]"),
    "planted_of_nothing": (WORKERS, f"{WORKERS}\nplanted: ['double+none', '+', 'x+../../y']"),
    "wide_file": (GOOD, GOOD.encode("utf-16").decode("latin-1")),
    "raw_control_character": (WORKERS, f"{WORKERS}\nname: '\x1b[2J'"),
    "large_file": (WORKERS, f"{WORKERS}\n#" + "x" * (8 << 20)),
}
"""Name -> (text of a good file, what stands in its place)."""


def refuse(trial: Trial, text: str) -> None:
    trial.write("targets.py", TARGET)
    trial.write("c.yaml", text)
    trial.refused("campaign", "c.yaml")


for _name, (_old, _new) in REFUSED.items():
    assert _old in GOOD, _old
    _what = f"Starts a campaign whose file has {_new[:50]!a} in the place of {_old[:30]!r}."
    KIND.add(f"campaign_{_name}", _what, ONE_LINE, partial(refuse, text=GOOD.replace(_old, _new, 1)))


@KIND.attack(f"{ONE_LINE} for each")
def campaign_file_that_is_none(trial: Trial) -> None:
    """Starts campaigns by a pipe, /dev/zero, a folder, a link to itself, a missing and an empty file."""
    os.mkfifo(trial.work / "pipe")
    (trial.work / "loop").symlink_to("loop")
    (trial.work / "folder").mkdir()
    trial.write("empty", "")
    for name in ("pipe", "/dev/zero", "folder", "loop", "missing", "empty"):
        trial.refused("campaign", name)


def campaign(trial: Trial, targets: str, *, text: str = GOOD, **options: object) -> Answer:
    """A whole campaign over a file of targets."""
    trial.write("targets.py", targets)
    trial.write("c.yaml", text)
    return trial.fuzz("campaign", "c.yaml", "--resume", "--json", **options)


def symptoms(answer: Answer) -> list[str]:
    require(answer.code in (0, 1), f"exit code {answer.code}: {answer.err[-400:]!a}")
    return sorted(finding["symptom"] for finding in answer.json["findings"])


def wrong(condition: str, statement: str) -> str:
    """A target that executes a statement where a condition on `x` holds."""
    return TARGET.replace("    return", f"    if {condition}:\n        {statement}\n    return")


@KIND.attack("one finding, whose text can be read everywhere")
def campaign_of_texts_that_no_database_holds(trial: Trial) -> None:
    """Fuzzes a launcher that raises a text with NUL, half a surrogate pair and what is not UTF-8."""
    answer = campaign(trial, wrong("x.numel() > 4", r'raise RuntimeError("\0 \ud800 \udce9 \x1b[2J")'))
    require(symptoms(answer) == ["raised"], f"found {symptoms(answer)}")


@KIND.attack("no finding, and the logs of the campaign stay below 16 MiB")
def campaign_of_a_launcher_that_prints(trial: Trial) -> None:
    """Fuzzes a launcher that prints 4 MiB in each case."""
    answer = campaign(trial, wrong("True", 'import os; os.write(1, b"p" * (4 << 20))'))
    require(symptoms(answer) == [], f"found {symptoms(answer)}")
    size = sum(path.stat().st_size for path in (trial.work / "state").rglob("*") if path.is_file())
    require(size < 16 << 20, f"the folder has {size >> 20} MiB")


@KIND.attack("one finding of memory that runs out, and a campaign that ends in order")
def campaign_of_a_launcher_that_fills_memory(trial: Trial) -> None:
    """Fuzzes a launcher that takes all memory for one element, of 900 MiB that a worker may have."""
    answer = campaign(trial, wrong("x.numel() == 1", "x = [torch.ones(1 << 22) for _ in range(1 << 20)]"))
    require(symptoms(answer) == ["out-of-memory"], f"found {symptoms(answer)}")


@KIND.attack("the campaign ends in order, and finds what is wrong")
def campaign_with_few_files(trial: Trial) -> None:
    """Runs a campaign whose processes may open 64 files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    answer = campaign(trial, wrong("x.numel() > 4", "x = x + 1"), preexec_fn=limit)
    require(symptoms(answer) == ["value"], f"found {symptoms(answer)}")


@KIND.attack(f"{ONE_LINE}, as no case was computed")
def campaign_that_is_refused_everything(trial: Trial) -> None:
    """Runs a campaign whose launcher refuses every case with a text of escape sequences."""
    text = GOOD.replace(BUDGET, "budget: {time: 8s}")
    answer = campaign(trial, wrong("True", r'raise ValueError("\x1b[2J" * 1000)'), text=text)
    require(answer.code == 2 and len(answer.complaints) == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")


def kill_midway(trial: Trial, number: signal.Signals, *, tree: bool) -> int:
    """Starts a campaign, waits for its first entry or 20 s, sends a signal, and returns the exit code."""
    trial.write("targets.py", wrong("x.numel() > 4", "x = x + 1"))
    trial.write("c.yaml", GOOD)
    with (trial.work / "log").open("wb") as log:
        process = trial.start(FUZZ, "campaign", "c.yaml", "--resume", stdout=log, stderr=log)
    until = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < until and not list(trial.work.glob("found/*/*.yaml")):
        time.sleep(0.05)
    if tree:
        end_group(process)
    else:
        process.send_signal(number)
    try:
        return process.wait(60)
    finally:
        end_group(process)


@KIND.attack("after `--resume` there is one finding, whole, and the campaign has ended in order")
def campaign_that_is_killed(trial: Trial) -> None:
    """Kills a campaign and its group as soon as an entry is there, twice, and resumes it."""
    for _ in range(2):
        kill_midway(trial, signal.SIGKILL, tree=True)
    answer = campaign(trial, wrong("x.numel() > 4", "x = x + 1"))
    require(symptoms(answer) == ["value"], f"found {symptoms(answer)}")
    require(len(list(corpus.entry_files([trial.work / "found"]))) == 1, "not one entry")


@KIND.attack("the campaign ends in order within a minute, and leaves no process")
def campaign_that_is_terminated(trial: Trial) -> None:
    """Ends a campaign by SIGTERM as soon as an entry is there."""
    code = kill_midway(trial, signal.SIGTERM, tree=False)
    log = (trial.work / "log").read_text(errors="replace")
    check_answer(Answer(code if code >= 0 else 130, "", log))
    require(code in (0, 1, -signal.SIGTERM), f"exit code {code}: {log[-300:]!a}")
