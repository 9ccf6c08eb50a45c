"""What an empty cache costs, side by side with another checkout of this project.

    python -m benchmarks.cold_against BEFORE specialisations [TARGET ..] [--plans 6] [--kernels 40]
    python -m benchmarks.cold_against BEFORE plans [TARGET ..] [--seconds 60]
    python -m benchmarks.cold_against BEFORE findings [BUG ..] [--seconds 60] [--releases FOLDER] [--wheels FOLDER]
    python -m benchmarks.cold_against BEFORE planted [BUG ..]
    python -m benchmarks.cold_against BEFORE rates [TARGET ..] [--plans 24] [--slowest 30]
    python -m benchmarks.cold_against BEFORE warm [TARGET ..] [--plans 6] [--kernels 40]

BEFORE is the folder of the other checkout; this one and that one run at the same time, each on `--width` processors of
its own, `--jobs` pairs at once. `specialisations`: processor seconds of the launches that compile; a kernel counts by
the median of its specialisations. `plans`: how many plans and cases `fuzz run --seconds` makes. `findings`: seconds
to the first finding of the bugs of `make history`; a finding counts where its case agrees on the release that repaired
it. `planted`, of this checkout alone: seconds to the first finding beyond a bare `import torch, triton` just after it,
two processors each. `rates`, of a full cache: cases of later plans a second of the processor in one worker,
for the targets that were slowest before. `warm`, of a full cache: seconds of the launches of the first plans, each the
least of many, measured twice, with the processors exchanged where `--jobs` is 1. Prints tables in Markdown; a row in
which a side failed counts in no median.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from benchmarks.cold import default_targets, library_targets
from benchmarks.cold_against.sides import ROOT, Side, pairs
from benchmarks.history import BUGS, Bug, is_of_kind
from benchmarks.releases import install
from fuzz import corpus
from fuzz.errors import FuzzError
from fuzz.target.loader import load
from fuzz.target.spec import Target

CHILD = str(Path(__file__).with_name("child.py"))
PLANS_OF = (
    "liger/rms_norm", "liger/layer_norm", "liger/cross_entropy", "liger/jsd", "liger/swiglu",
    "liger/fused_linear_cross_entropy", "fla/norm_gated", "fla/l2_norm", "fla/causal_conv1d", "fla/rotary",
)  # fmt: skip
PLANTED_OF = ("layernorm_bw", "gelu_bw")
IMPORTS = "import torch, triton"
SIDES = ("before", "now")
Measured = TypeVar("Measured")


def last_line(process: subprocess.Popen[str], seconds: float | None = None) -> Any:
    """The JSON value in the last line that a process prints; {} where it prints none. It is killed after `seconds`."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def complete(rows: Iterable[tuple[str, list[Measured | None]]]) -> Iterator[tuple[str, list[Measured]]]:
    """The rows in which no side failed; of any other one it prints which did, and the number of the other side."""
    for name, results in rows:
        sides = list(zip(SIDES[-len(results) :], results, strict=True))
        if failed := [side for side, one in sides if one is None]:
            others = "".join(f" | {side} {one:.3g} s" for side, one in sides if isinstance(one, float))
            print(f"| {name} | failed {' and '.join(failed)}{others} |", flush=True)
        else:
            yield name, [one for one in results if one is not None]


def compare_specialisations(sides: Sequence[Side], asked: argparse.Namespace) -> None:
    def measure(side: Side, target: str, cpus: Sequence[int], cache: str) -> Any:
        return last_line(side.start(cpus, cache, CHILD, "specialisations", target, str(asked.plans))) or None

    rows: dict[str, tuple[float, float]] = {}
    print("| kernel | before | now | times less |\n|---|---|---|---|")
    names = asked.names or default_targets()
    for _, (before, now) in complete(pairs(measure, names, sides, asked.jobs, asked.limit, asked.width)):
        for kernel in sorted(set(before) & set(now) - set(rows)):
            rows[kernel] = median(before[kernel]), median(now[kernel])
            print(f"| {kernel} | {ratio_text(*rows[kernel], 's')} |", flush=True)
        if len(rows) >= asked.kernels:
            break
    print_medians(list(rows.values()), "s")


def compare_plans(sides: Sequence[Side], asked: argparse.Namespace) -> None:
    def measure(side: Side, target: str, cpus: Sequence[int], cache: str) -> tuple[int, int] | None:
        counts = last_line(side.start(cpus, cache, CHILD, "plans", target, str(asked.seconds)))
        return (counts["plans"], counts["cases"]) if counts else None

    rows = []
    print("| target | plans before | now | times as many | cases before | now |\n|---|---|---|---|---|---|")
    measured = pairs(measure, asked.names or PLANS_OF, sides, asked.jobs, asked.limit, asked.width)
    for target, (before, now) in complete(measured):
        rows.append(now[0] / max(before[0], 1))
        print(f"| {target} | {before[0]} | {now[0]} | {rows[-1]:.1f} | {before[1]} | {now[1]} |", flush=True)
    print(f"| median of {len(rows)} | | | {median(rows or [math.nan]):.1f} | | |")


def with_full_cache(side: Side, cpus: Sequence[int], cache: str, *arguments: str) -> Any:
    """What a process measures after another one has done the same and filled its cache."""
    last_line(side.start(cpus, cache, CHILD, *arguments))
    return last_line(side.start(cpus, cache, CHILD, *arguments))


def compare_rates(sides: Sequence[Side], asked: argparse.Namespace) -> None:
    def measure(side: Side, target: str, cpus: Sequence[int], cache: str) -> float | None:
        done = with_full_cache(side, cpus, cache, "rates", target, str(asked.plans))
        return done["cases"] / done["seconds"] if done else None

    print("| target | cases/s before | now | times as many |\n|---|---|---|---|")
    names = asked.names or library_targets()
    measured = complete(pairs(measure, names, sides, asked.jobs, asked.limit, asked.width))
    rows = sorted((before, now, target) for target, (before, now) in measured)[: asked.slowest]
    for before, now, target in rows:
        print(f"| {target} | {before:.0f} | {now:.0f} | {now / before:.2f} |")
    middle = median([now / before for before, now, _ in rows] or [math.nan])
    print(f"| median of {len(rows)} | | | {middle:.2f} |")


def compare_warm(sides: Sequence[Side], asked: argparse.Namespace) -> None:
    def measure(side: Side, target: str, cpus: Sequence[int], cache: str) -> dict[str, float] | None:
        return with_full_cache(side, cpus, cache, "warm", target, str(asked.plans)) or None

    # The second time the sides have each other's processors.
    twice = [name for name in asked.names or default_targets() for _ in range(2)]
    times: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    rows: dict[str, float] = {}
    print("| kernel | before | now | times as long |\n|---|---|---|---|")
    for target, (before, now) in complete(pairs(measure, twice, sides, asked.jobs, asked.limit, asked.width)):
        for kernel in sorted(set(before) & set(now) - set(rows)):
            times[target, kernel].append((before[kernel], now[kernel]))
            if len(times[target, kernel]) == 2:
                old, new = (1e6 * fmean(one) for one in zip(*times[target, kernel], strict=True))
                rows[kernel] = new / old
                print(f"| {kernel} | {old:.0f} us | {new:.0f} us | {rows[kernel]:.2f} |", flush=True)
        if len(rows) >= asked.kernels:
            break
    print(f"| median of {len(rows)} | | | {median(rows.values() or [math.nan]):.2f} |")


def compare_findings(sides: Sequence[Side], asked: argparse.Namespace) -> None:
    bugs = {bug.id: bug for bug in BUGS if bug.id in (asked.names or [bug.id])}
    folder = Path(asked.releases).absolute()
    for bug in bugs.values():
        # Loading turns standard output away, so that it is done before anything is printed.
        target_of(bug.target)
    releases = {(bug.package, version) for bug in bugs.values() for version in (bug.buggy, bug.fixed) if version}
    where = {one: install(*one, folder / "-".join(one), asked.wheels) for one in sorted(releases)}

    def measure(side: Side, name: str, cpus: Sequence[int], folder: str) -> float | None:
        return first_finding(side, bugs[name], where, cpus, folder, asked.seconds)

    rows = []
    print("| bug | target | before | now | times less |\n|---|---|---|---|---|")
    for name, (before, now) in complete(pairs(measure, bugs, sides, asked.jobs, asked.limit, asked.width)):
        rows.append((before, now))
        print(f"| {name} | {bugs[name].target} | {ratio_text(before, now, 's')} |", flush=True)
    print_medians(rows, "s")
    if rows:
        print(f"worst: {max(before for before, _ in rows):.1f} s before, {max(now for _, now in rows):.1f} s now")


def first_finding(
    side: Side, bug: Bug, where: dict[tuple[str, str], Path], cpus: Sequence[int], folder: str, seconds: int
) -> float | None:
    """Seconds to the first finding that is the bug, infinite where none is; others may be found before.

    None where a command ended without a result.
    """
    buggy = Side(side.tree, where[bug.package, bug.buggy])
    budget = ["--seconds", str(seconds), "--backend", "cpu", "--json", "--corpus", "findings"]
    running = buggy.start(cpus, folder, "-m", "fuzz", "run", bug.target, *budget)
    # A case that is under way, or that is shrunk, may go on for long after the time has ended.
    ended = last_line(running, 4 * seconds)
    if not ended:
        return None
    found = [one for one in ended["findings"] if may_be(bug, Path(folder, one["path"]))]
    if bug.fixed and found:
        fixed = Side(side.tree, where[bug.package, bug.fixed])
        paths = [one["path"] for one in found]
        replayed = last_line(
            fixed.start(cpus, folder, "-m", "fuzz", "replay", *paths, "--target", bug.target, "--json")
        )
        if not replayed:
            return None
        agree = {entry["path"] for entry in replayed["entries"] if entry.get("reproduced") is False}
        found = [one for one in found if one["path"] in agree]
    return min((one["first_seconds"] for one in found), default=float("inf"))


@cache
def target_of(name: str) -> Target:
    return load(name)


def may_be(bug: Bug, path: Path) -> bool:
    """Whether a file holds a finding of the bug's kind."""
    try:
        entry = corpus.read(path)
    except (FuzzError, OSError):
        return False
    finding = entry.finding
    return finding is not None and is_of_kind(bug, target_of(bug.target), finding.oracle, finding.outputs, entry.case)


def measure_planted(now: Side, asked: argparse.Namespace) -> None:
    bugs = {bug: name for name in PLANTED_OF for bug in load(name).planted_bugs}

    def measure(side: Side, bug: str, cpus: Sequence[int], cache: str) -> tuple[float, float] | None:
        budget = ["--seconds", str(asked.seconds), "--max-findings", "1", "--backend", "cpu", "--json"]
        command = ["-m", "fuzz", "run", bugs[bug], "--planted", bug, *budget, "--corpus", "findings"]
        ended = last_line(side.start(cpus, cache, *command))
        if not ended:
            return None
        start = time.monotonic()
        side.start(cpus, cache, "-c", IMPORTS).wait()
        first = min((one["first_seconds"] for one in ended["findings"]), default=float("inf"))
        return first, time.monotonic() - start

    rows = []
    print("| planted bug | first finding | bare import | beyond |\n|---|---|---|---|")
    for bug, ((first, bare),) in complete(pairs(measure, asked.names or bugs, [now], asked.jobs, asked.limit, 2)):
        rows.append(first - bare)
        print(f"| {bugs[bug]} {bug} | {first:.1f} s | {bare:.1f} s | {first - bare:.1f} s |", flush=True)
    print(f"| median of {len(rows)} | | | {median(rows or [math.nan]):.2f} s |")


def ratio(before: float, now: float) -> float:
    """How many times less; 1 where both are endless."""
    return 1.0 if before == now else before / now


def ratio_text(before: float, now: float, unit: str) -> str:
    return f"{before:.3g} {unit} | {now:.3g} {unit} | {ratio(before, now):.1f}"


def print_medians(rows: Sequence[tuple[float, float]], unit: str) -> None:
    medians = (median([row[side] for row in rows] or [math.nan]) for side in range(2))
    ratios = median([ratio(*row) for row in rows] or [math.nan])
    print(
        f"| median of {len(rows)} | {' | '.join(f'{one:.3g} {unit}' for one in medians)} | {ratios:.1f} |", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("what", choices=["specialisations", "plans", "findings", "planted", "rates", "warm"])
    parser.add_argument("names", nargs="*", help="targets or bugs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--width", type=int, default=1, help="processors of each side")
    parser.add_argument("--plans", type=int, default=6)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--slowest", type=int, default=30)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which nothing more is begun")
    parser.add_argument("--releases", default=".history")
    parser.add_argument("--wheels", type=Path)
    asked = parser.parse_args()
    before, now = Side(asked.before.absolute()), Side(ROOT)
    for side in (before, now):
        side.compile_bytecode()
    if asked.what == "planted":
        measure_planted(now, asked)
    else:
        compare = {
            "specialisations": compare_specialisations, "plans": compare_plans, "findings": compare_findings,
            "rates": compare_rates, "warm": compare_warm,
        }  # fmt: skip
        compare[asked.what]([before, now], asked)


if __name__ == "__main__":
    main()
