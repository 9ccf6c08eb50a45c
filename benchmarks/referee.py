"""`fuzz judge` on the problems of KernelBench: how many load, whether PyTorch itself passes, whether zeros do not.

python benchmarks/referee.py [--source DIR] [--only KIND]... [--match TEXT] [--sample N --seed N] [--seconds N]
                             [--write FILE]

The repository is cloned at a fixed commit into .referee/, or taken from the folder KernelBench of --source. Nothing of
it is kept here. What was measured stands in .referee/results.jsonl, so that the work can be interrupted. `torch` is the
problem's own module as the solution, `zeros` a solution that returns zeros.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.referee_sources import KERNELBENCH, STORE, fetch
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.judgement import Judgement
from fuzz.judge.processes.requests import PROBLEM_HANDLER, Describe, ProblemConfig, Refusal
from fuzz.judge.referee import EAGER_SECONDS, ELEMENTS, judge
from fuzz.run.setup import start_worker_server
from fuzz.worker.process import Worker, WorkerCrash

START, END = "<!-- referee: written by make referee -->", "<!-- /referee -->"
MEMORY = 6 << 30
KINDS = ("loads", "torch", "zeros")
Task = tuple[str, Callable[[], Mapping[str, Any]]]
"""The name of something to measure, and what measures it."""
ZEROS = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        return torch.zeros_like(outputs) if isinstance(outputs, torch.Tensor) else type(outputs)(
            torch.zeros_like(one) for one in outputs)
"""


def number(path: Path) -> int:
    """The number that a problem's name begins with."""
    found = re.match(r"\d+", path.name)
    return int(found[0]) if found else 0


def problems(folder: Path, level: str) -> list[Path]:
    return sorted((folder / "KernelBench" / level).glob("*.py"), key=number)


def describe_problem(path: Path) -> Mapping[str, Any]:
    """Whether a problem loads, and its dims."""
    config = ProblemConfig("kernelbench", path, "cpu", ELEMENTS[False], EAGER_SECONDS)
    with Worker(PROBLEM_HANDLER, config, MEMORY, 120.0) as worker:
        found = worker.call(Describe())
    if isinstance(found, Refusal | WorkerCrash):
        return {"verdict": "refused", "reason": str(found)}
    return {"verdict": "loads", "dims": [size.name for size in found.sizes], "scaled": found.is_scaled}


def judge_source(problem: Path, source: str, seconds: float) -> Mapping[str, Any]:
    """The judgement of a solution's source text."""
    with tempfile.TemporaryDirectory() as folder:
        solution = Path(folder) / "solution.py"
        solution.write_text(source, encoding="utf-8")
        return summary(judge(JudgeOptions(problem, solution, backend="cpu", seconds=seconds, memory=MEMORY)))


def summary(judgement: Judgement) -> Mapping[str, Any]:
    findings = [f"{one.severity} {one.oracle}/{one.symptom} {one.message}" for one in judgement.evidence]
    return {
        "verdict": judgement.verdict, "reason": judgement.reason, "seconds": round(judgement.seconds, 1),
        "cases": judgement.cases, "own_rule": judgement.own_rule, "findings": findings, "launches": judgement.launches,
    }  # fmt: skip


def as_solution(problem: Path) -> str:
    """PyTorch itself as the solution: the problem's own module."""
    return re.sub(r"\bModel\b(?=[(,:])", "ModelNew", problem.read_text(encoding="utf-8"))


def tasks(source: Path | None, only: list[str], seconds: float) -> Iterator[Task]:
    """(name, what to measure) of everything that is asked for."""
    wanted = set(only or KINDS)
    folder = fetch(KERNELBENCH, source)
    for level in ("level1", "level2"):
        for path in problems(folder, level):
            name = f"{level}/{path.stem}"
            if "loads" in wanted:
                yield f"loads {name}", lambda path=path: describe_problem(path)
            if "torch" in wanted:
                yield f"torch {name}", lambda path=path: judge_source(path, as_solution(path), seconds)
            if "zeros" in wanted and level == "level1":
                text = path.read_text(encoding="utf-8") + ZEROS
                yield f"zeros {name}", lambda path=path, text=text: judge_source(path, text, 0.0)


def draw(found: Iterable[Task], sample: int | None, seed: int) -> list[Task]:
    """The tasks, or so many of each kind and level in an order drawn by a seed."""
    tasks = list(found)
    if sample is None:
        return tasks
    kinds = dict.fromkeys(kind_of(name) for name, _ in tasks)
    drawn = [
        name
        for kind in kinds
        for name in draw_names([name for name, _ in tasks if kind_of(name) == kind], sample, f"{kind} {seed}")
    ]
    measures = dict(tasks)
    return [(name, measures[name]) for name in drawn]


def draw_names(names: list[str], sample: int, seed: str) -> list[str]:
    return random.Random(seed).sample(names, min(sample, len(names)))


def kind_of(name: str) -> str:
    """What a task measures: its kind, and the level of its problem."""
    return " ".join(part.partition("/")[0] for part in name.split(" ")[:2])


def read_results() -> dict[str, Mapping[str, Any]]:
    """What was measured so far, by name."""
    path = STORE / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {value["name"]: value for value in map(json.loads, lines)}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """How many of each kind ended how."""
    rows: dict[str, dict[str, int]] = {}
    for name, value in results.items():
        counts = rows.setdefault(kind_of(name), {})
        counts[value["verdict"]] = counts.get(value["verdict"], 0) + 1
    lines = ["| material | outcome |", "|---|---|"]
    for kind, counts in sorted(rows.items()):
        outcome = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        lines.append(f"| {kind} ({sum(counts.values())}) | {outcome} |")
    return "\n".join(lines)


def write_table(document: Path, text: str) -> None:
    """Puts a table between the marks of a document."""
    before, _, rest = document.read_text(encoding="utf-8").partition(START)
    document.write_text(f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--only", action="append", default=[], choices=KINDS)
    parser.add_argument("--match", default="")
    parser.add_argument("--sample", type=int, help="measure so many of each kind and level, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--limit", type=float, default=1e9, help="end after so many seconds")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    STORE.mkdir(exist_ok=True)
    start_worker_server()
    results, end = read_results(), time.monotonic() + options.limit
    for name, measure in draw(tasks(options.source, options.only, options.seconds), options.sample, options.seed):
        if name in results or options.match not in name or time.monotonic() > end:
            continue
        results[name] = {"name": name, **measure()}
        with (STORE / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(results[name]) + "\n")
        print(name, results[name]["verdict"], results[name].get("reason", "")[:160], flush=True)
    print(table(results))
    if options.write:
        write_table(options.write, table(results))


if __name__ == "__main__":
    main()
