"""`fuzz judge` on published material: whether problems load, PyTorch itself passes, zeros and known mistakes do not.

python -m benchmarks.referee [--source DIR] [--backend NAME] [--only KIND]... [--match TEXT] [--sample N --seed N]
                             [--seconds N] [--each N] [--workers N] [--limit N] [--write FILE]

The repositories are cloned at fixed commits into .referee/, or taken from the folders of their names in --source.
Nothing of them is kept here. What was measured stands in .referee/results.jsonl (results-cuda.jsonl for `cuda`), so
that the work can be interrupted. `torch` is the problem's own module of KernelBench as the solution, `equal` the same
with operations replaced by others that are equal, `zeros` a solution that returns zeros, `published` is what
benchmarks/referee_published.py lists.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.referee_published import REJECTED, Published, published
from benchmarks.referee_sources import KERNELBENCH, STORE, fetch
from fuzz.judge.batch.host import FURTHER_SECONDS, JudgeHost
from fuzz.judge.batch.run_batch import judge_side_by_side
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats import KERNELBENCH as KERNELBENCH_FORMAT
from fuzz.judge.processes.first_dims import EAGER_SECONDS, ELEMENTS
from fuzz.judge.processes.requests import PROBLEM_HANDLER, Describe, ProblemConfig, Refusal
from fuzz.judge.result.judgement import RIGHT
from fuzz.run.setup import choose_backend, start_worker_server
from fuzz.worker.worker import Worker, WorkerCrash

MEMORY = 6 << 30
LEVELS = ("level1", "level2")
LOADS, TORCH, EQUAL, ZEROS, PUBLISHED = KINDS = ("loads", "torch", "equal", "zeros", "published")
Result = Mapping[str, Any]
"""What was measured of one thing: at least its name and the verdict."""
ZERO_MODEL = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        return torch.zeros_like(outputs) if isinstance(outputs, torch.Tensor) else type(outputs)(
            torch.zeros_like(one) for one in outputs)
"""
EQUAL_MODEL = """

class ModelNew(Model):
    def forward(self, *args, **kwargs):
        with EqualOperations():
            return super().forward(*args, **kwargs)
"""
OPERATIONS = Path(__file__).with_name("equal_operations.py")


def number(path: Path) -> int:
    """The number that a problem's name begins with."""
    found = re.match(r"\d+", path.name)
    return int(found[0]) if found else 0


def problems(folder: Path, level: str) -> list[Path]:
    return sorted((folder / "KernelBench" / level).glob("*.py"), key=number)


def describe_problem(path: Path) -> Result:
    """Whether a problem loads, and its dims."""
    config = ProblemConfig("kernelbench", path, "cpu", ELEMENTS[False], EAGER_SECONDS)
    with Worker(PROBLEM_HANDLER, config, MEMORY, 120.0) as worker:
        found = worker.call(Describe())
    if isinstance(found, Refusal | WorkerCrash):
        return {"verdict": "refused", "reason": str(found)}
    return {"verdict": "loads", "dims": [size.name for size in found.sizes], "scaled": found.is_scaled}


def as_solution(problem: Path) -> str:
    """PyTorch itself as the solution: the problem's own module."""
    return re.sub(r"\bModel\b(?=[(,:])", "ModelNew", problem.read_text(encoding="utf-8"))


def with_equal_operations(problem: str) -> str:
    """The problem's own module as the solution, with operations replaced by equal ones."""
    operations = OPERATIONS.read_text(encoding="utf-8").replace("from __future__ import annotations\n", "")
    return f"{problem}\n{operations}{EQUAL_MODEL}"


def list_solutions(source: Path | None, wanted: set[str]) -> Iterator[Published]:
    """The solutions of each kind that is asked for, by a name that begins with the kind."""
    if PUBLISHED in wanted:
        for one in published(source, STORE / "written"):
            yield Published(f"{PUBLISHED} {one.name}", one.format, one.problem, one.solution, one.expected)
    for level in LEVELS:
        for path in problems(fetch(KERNELBENCH, source), level) if wanted & {TORCH, EQUAL, ZEROS} else ():
            name, text = f"{level}/{path.stem}", path.read_text(encoding="utf-8")
            if TORCH in wanted:
                yield write_solution(f"{TORCH} {name}", path, as_solution(path), (RIGHT,))
            if EQUAL in wanted:
                yield write_solution(f"{EQUAL} {name}", path, with_equal_operations(text), (RIGHT,))
            if ZEROS in wanted and level == LEVELS[0]:
                yield write_solution(f"{ZEROS} {name}", path, text + ZERO_MODEL, REJECTED)


def write_solution(name: str, problem: Path, text: str, expected: tuple[str, ...]) -> Published:
    """A solution of a problem of KernelBench, its text in a file."""
    file = STORE / "written" / f"{name.replace(' ', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return Published(name, KERNELBENCH_FORMAT, problem, file, expected)


def draw(names: Iterable[str], sample: int | None, seed: int) -> list[str]:
    """The names, or so many of each kind and level in an order drawn by a seed."""
    found = list(names)
    if sample is None:
        return found
    kinds = dict.fromkeys(map(kind_of, found))
    return [
        name
        for kind in kinds
        for name in draw_some([name for name in found if kind_of(name) == kind], sample, f"{kind} {seed}")
    ]


def draw_some(names: list[str], sample: int, seed: str) -> list[str]:
    return random.Random(seed).sample(names, min(sample, len(names)))


def kind_of(name: str) -> str:
    """What a name is of: its kind, and the level of its problem."""
    kind, _, rest = name.partition(" ")
    return kind if kind == PUBLISHED else f"{kind} {rest.partition('/')[0]}"


def measure_loading(folder: Path, known: Mapping[str, Result], options: argparse.Namespace) -> Iterator[Result]:
    """Which problems load that are not known yet."""
    paths = {f"{LOADS} {level}/{path.stem}": path for level in LEVELS for path in problems(folder, level)}
    start_worker_server()
    for name in choose(draw(paths, options.sample, options.seed), known, options.match):
        yield {"name": name, **describe_problem(paths[name])}


def judge_solutions(
    solutions: Iterable[Published], known: Mapping[str, Result], options: argparse.Namespace
) -> Iterator[Result]:
    """The judgement of each solution that has none yet, as they come."""
    found = {one.name: one for one in solutions}
    settings = options.backend, options.seconds, 0, options.memory << 20
    tasks = {
        name: JudgeTask(TaskOptions(found[name].format, *settings), str(found[name].problem), str(found[name].solution))
        for name in choose(draw(found, options.sample, options.seed), known, options.match)
    }
    make_host = partial(JudgeHost, further_seconds=options.each)
    with closing(judge_side_by_side(tasks, options.workers, make_host)) as judged:
        for name, judgement in judged:
            yield {"name": name, "expected": found[name].expected, **summary(judgement)}


def choose(names: Iterable[str], known: Mapping[str, Result], match: str) -> list[str]:
    """The names that contain a text and are not known yet."""
    return [name for name in names if name not in known and match in name]


def summary(judgement: Result) -> Result:
    """What is kept of a judgement."""
    findings = [f"{one['severity']} {one['oracle']}/{one['symptom']} {one['message']}" for one in judgement["findings"]]
    kept = ("verdict", "reason", "seconds", "cases", "own_rule", "launches", "codes", "notes", "dims")
    cases = [one["case"] for one in judgement["findings"]]
    return {**{name: judgement[name] for name in kept}, "findings": findings, "cases_found": cases}


def is_unexpected(result: Result) -> bool:
    """Whether a verdict is none of those that are right, where these are known."""
    return bool(result.get("expected")) and result["verdict"] not in result["expected"]


def read_results(path: Path) -> dict[str, Result]:
    """What was measured so far, by name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {value["name"]: value for value in map(json.loads, lines)}


def table(results: Mapping[str, Result]) -> str:
    """How many of each kind ended how, and each verdict that is not the right one."""
    rows: dict[str, dict[str, int]] = {}
    for name, value in results.items():
        counts = rows.setdefault(kind_of(name), {})
        counts[value["verdict"]] = counts.get(value["verdict"], 0) + 1
    lines = ["| material | outcome |", "|---|---|"]
    for kind, counts in sorted(rows.items()):
        outcome = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        lines.append(f"| {kind} ({sum(counts.values())}) | {outcome} |")
    unexpected = [
        f"- {name}: {value['verdict']}, not {' or '.join(value['expected'])}: {value['reason'][:200]}"
        for name, value in sorted(results.items())
        if is_unexpected(value)
    ]
    return "\n".join([*lines, "", *unexpected] if unexpected else lines)


def main() -> None:
    options = make_parser().parse_args()
    STORE.mkdir(exist_ok=True)
    options.backend = choose_backend(options.backend)
    mark = "referee" if options.backend == "cpu" else f"referee-{options.backend}"
    path = STORE / f"results{mark.removeprefix('referee')}.jsonl"
    wanted, start = set(options.only or KINDS), time.monotonic()
    for kind in KINDS:
        known = read_results(path)
        if kind not in wanted:
            continue
        if kind == LOADS:
            measured = measure_loading(fetch(KERNELBENCH, options.source), known, options)
        else:
            measured = judge_solutions(list_solutions(options.source, {kind}), known, options)
        with closing(measured), path.open("a", encoding="utf-8", buffering=1) as file:
            for result in measured:
                file.write(json.dumps(result) + "\n")
                print(result["name"], result["verdict"], result.get("reason", "")[:160], flush=True)
                if time.monotonic() - start > options.limit:
                    break
    text = table(read_results(path))
    print(text)
    if options.write:
        replace_between_marks(options.write, mark, text)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--only", action="append", default=[], choices=KINDS)
    parser.add_argument("--match", default="")
    parser.add_argument("--sample", type=int, help="measure so many of each kind and level, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="of odd values for each solution")
    parser.add_argument("--each", type=float, default=FURTHER_SECONDS, help="seconds for a judgement beside those")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--memory", type=int, default=MEMORY >> 20, help="MiB of each process")
    parser.add_argument("--limit", type=float, default=1e9, help="end after so many seconds")
    parser.add_argument("--write", type=Path)
    return parser


if __name__ == "__main__":
    main()
