"""Judges the set by `fuzz judge` and by published rules: what each catches, false alarms, and seconds.

python -m benchmarks.referee_set [--only TEXT] [--backend NAME] [--seconds N] [--workers N] [--limit N] [--write FILE]

What was judged by this version is kept in .referee, so that the work can be interrupted. The published rules run on the
`cpu` backend only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import replace_between_marks
from benchmarks.referee_set import rules
from benchmarks.referee_set.table import OURS, Outcome, page
from fuzz.judge.batch.listing import list_folder
from fuzz.judge.batch.results_file import ResultsFile
from fuzz.judge.batch.run_batch import run_batch
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats import KERNELBENCH
from fuzz.judge.result.judgement import CHEAT, RIGHT, WRONG
from fuzz.run.setup import choose_backend

HERE = Path(__file__).parent
STORE = HERE.parents[1] / ".referee"
FOLDERS = ("wrong", "right")
MEMORY = {"cpu": 2 << 30, "cuda": 8 << 30}
"""Bytes that each process may hold, by the backend: CUDA's libraries alone take more than one GiB."""


def solutions(folder: str, only: str) -> list[tuple[Path, Path]]:
    """(problem, solution) of each solution of a folder whose name contains a text."""
    pairs = list_folder(KERNELBENCH, HERE / folder, HERE / "problems").pairs
    return [(Path(problem), Path(solution)) for problem, solution in pairs if only in Path(solution).stem]


def judge_all(options: argparse.Namespace, backend: str) -> Iterator[Outcome]:
    """What `fuzz judge` says, as far as the time allows."""
    given = TaskOptions(KERNELBENCH, backend, options.seconds, memory=MEMORY[backend])
    tasks = [JudgeTask(given, str(a), str(b)) for folder in FOLDERS for a, b in solutions(folder, options.only)]
    place = STORE / ("set.jsonl" if backend == "cpu" else f"set-{backend}.jsonl")
    known, start = set(ResultsFile(place).kept), time.monotonic()

    def show(judgement: Mapping[str, Any]) -> None:
        seconds = f"{judgement['seconds']:.1f} s"
        print(judgement["verdict"], Path(judgement["solution"]).stem, seconds, judgement["reason"][:120], flush=True)
        if time.monotonic() - start > options.limit:
            raise TimeoutError

    with suppress(TimeoutError):
        run_batch(tasks, options.workers, ResultsFile(place), show)
    kept, seconds = ResultsFile(place).kept, time.monotonic() - start
    if new := len(set(kept) - known):
        text = f"{new} judged on {backend} in {seconds:.0f} s with {options.workers} workers"
        print(f"{text}: {60 * new / seconds:.1f} a minute", flush=True)
    for task in tasks:
        if (one := kept.get(task.key)) is not None:
            folder, name = Path(task.solution).parent.name, Path(task.solution).stem
            caught = one["verdict"] in (WRONG, CHEAT) or folder == "right" and one["verdict"] != RIGHT
            reason = "" if one["verdict"] == RIGHT else f"{one['verdict']}: {one['reason']}"
            yield Outcome(OURS, folder, name, not caught, one["seconds"], reason)


def apply_rules(only: str) -> Iterator[Outcome]:
    """What the published rules say."""
    place = STORE / "set_rules.jsonl"
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    kept = {value["key"]: value for value in map(json.loads, lines)}
    for folder in FOLDERS:
        for problem, solution in solutions(folder, only):
            for rule in rules.RULES:
                key = content_key(rule, problem, solution)
                if key not in kept:
                    reason, seconds = rules.apply_rule(rule, problem, solution)
                    kept[key] = {"key": key, "reason": reason, "seconds": seconds}
                    with place.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(kept[key]) + "\n")
                    print(f"{rule}: {solution.stem} {reason or 'accepted'}", flush=True)
                reason = kept[key]["reason"]
                yield Outcome(rule, folder, solution.stem, not reason, kept[key]["seconds"], reason)


def content_key(rule: str, problem: Path, solution: Path) -> str:
    """A hash of a rule's name and of the files that its answer depends on."""
    files = (Path(rules.__file__), problem, solution)
    return hashlib.sha256(b"\0".join([rule.encode(), *(path.read_bytes() for path in files)])).hexdigest()[:24]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="take the solutions whose name contains this")
    parser.add_argument("--seconds", type=float, default=10.0, help="of odd values for each solution")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--backend", default="cpu", choices=sorted(MEMORY))
    parser.add_argument("--limit", type=float, default=1e9, help="judge no more after so many seconds")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    STORE.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    # The rules first: they fork this process, which has no other threads yet.
    outcomes = list(apply_rules(options.only)) if options.backend == "cpu" else []
    outcomes += judge_all(options, choose_backend(options.backend))
    text = page(outcomes)
    print(text)
    if options.write:
        mark = "referee-set" if options.backend == "cpu" else f"referee-set-{options.backend}"
        replace_between_marks(options.write, mark, text)


if __name__ == "__main__":
    main()
