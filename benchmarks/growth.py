"""Growth: whether a run slows down or grows with time, and what a case costs by its size and by the known findings.

    python -m benchmarks.growth --seconds 1200 --plot docs/growth.svg

Three tables. A long `fuzz run`: cases a second, resident memory and open files of its processes at a tenth of the time
and at the end. Memory and files are medians of a tenth of the run; cases a second, which go up and down with the plans
and with whatever else the machine does, are the ends of the line through all of them, by the clock and by the time that
its processes were busy, with what the line's slope leaves open at 95 %. Milliseconds a case against the
elements of a plan and its rows. A run on a kernel with a planted bug, beside a corpus of as many known findings, none
of which is that bug.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.reliability.soak import Use, use
from benchmarks.waves import replica_groups
from fuzz import corpus
from fuzz.backends.base import ReplicaLimits
from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import exact
from fuzz.oracles.examine import make_handler
from fuzz.worker.protocol import WorkerConfig

ROOT = Path(__file__).resolve().parents[1]
PLANTED = ("gelu_bw", "erf_saturates")
"""Target and bug of the runs beside known findings."""
PLANS, REPLICAS = 150, 32
RUN = [sys.executable, "-m", "fuzz", "run"]


@dataclass(frozen=True)
class Sample:
    """A moment of a run: seconds since its start, its seconds of processor time and cases so far, and what it holds."""

    seconds: float
    busy: float
    cases: int
    use: Use


def family(pid: int) -> list[int]:
    """A process and those that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def used(pid: int) -> Use:
    """What a process and those that it started hold together."""
    each = []
    for one in family(pid):
        with suppress(OSError):  # It has ended.
            each.append(use(one))
    return Use(sum(one.memory for one in each), sum(one.files for one in each))


def busy(pid: int) -> float:
    """Seconds of processor time of a process and those that it started, ended ones too."""
    ticks = 0
    for one in family(pid):
        with suppress(OSError):
            # utime, stime, cutime and cstime of proc(5), behind the name in brackets.
            ticks += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def long_run(target: str, seconds: float) -> list[Sample]:
    """A sample at each line of progress, one every ten seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*RUN, target, "--backend", "cpu", "--workers", "1", "--seconds", str(seconds), "--corpus", folder]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert running.stderr is not None
        samples = []
        for line in running.stderr:
            told = re.match(r"\s*([\d.]+) s\s+([\d,]+) cases", line)
            if told:
                cases = int(told[2].replace(",", ""))
                samples.append(Sample(float(told[1]), busy(running.pid), cases, used(running.pid)))
    if running.wait():
        raise SystemExit(f"{' '.join(command)}: exit {running.returncode}")
    return samples


def rates(samples: list[Sample]) -> list[float]:
    """Cases a second by the clock, between samples."""
    return [(b.cases - a.cases) / (b.seconds - a.seconds) for a, b in itertools.pairwise(samples)]


def busy_rates(samples: list[Sample]) -> list[float]:
    """Cases a second of processor time, between samples."""
    return [(b.cases - a.cases) / max(b.busy - a.busy, 0.01) for a, b in itertools.pairwise(samples)]


def ends(values: list[float]) -> tuple[float, float]:
    """The medians of the second tenth and of the last one."""
    tenth = max(len(values) // 10, 1)
    return median(values[tenth : 2 * tenth]), median(values[-tenth:])


def trend(values: list[float]) -> tuple[float, float, float]:
    """The ends of the line through all but the first tenth, with the median of the slopes of all pairs (Theil, Sen).

    And how uncertain the late end is at 95 %: half of the interval of slopes that Kendall's test leaves open.
    """
    kept = values[max(len(values) // 10, 1) :]
    count = len(kept)
    slopes = sorted((b - a) / (y - x) for (x, a), (y, b) in itertools.combinations(enumerate(kept), 2))
    slope = median(slopes)
    start = median(value - slope * place for place, value in enumerate(kept))
    away = round(1.96 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2)
    low, high = slopes[max(len(slopes) // 2 - away, 0)], slopes[min(len(slopes) // 2 + away, len(slopes) - 1)]
    return start, start + slope * (count - 1), (high - low) / 2 * (count - 1)


def run_table(samples: list[Sample]) -> list[str]:
    found = {
        "cases/s": trend(rates(samples)),
        "cases/s of processor time": trend(busy_rates(samples)),
        "MiB resident": (*ends([one.use.memory / 2**20 for one in samples]), 0.0),
        "files open": (*ends([float(one.use.files) for one in samples]), 0.0),
    }
    lines = ["| | at a tenth | at the end | |", "|---|---|---|---|"]
    for name, (early, late, doubt) in found.items():
        about = f" (± {doubt / early:.1%})" if doubt else ""
        lines.append(f"| {name} | {early:.1f} | {late:.1f} | {late / early - 1:+.1%}{about} |")
    return lines


def costs(target: str) -> list[tuple[int, int, float]]:
    """(elements, rows, seconds a case) of plans of mixed sizes, each run as a wave, the second time counted."""
    handle = make_handler(WorkerConfig(target, None, "cpu"))
    found = []
    for group in itertools.islice(replica_groups(target, "mixed", ReplicaLimits(REPLICAS, 1 << 20)), PLANS):
        handle(group)
        began = time.perf_counter()
        handle(group)
        seconds = (time.perf_counter() - began) / len(group.sampled)
        found.append((group.plan.elements(), next(iter(group.plan.last.dims.values())), seconds))
    return found


def sizes_table(found: list[tuple[int, int, float]]) -> list[str]:
    lines = ["| elements of a case | plans | milliseconds a case, median |", "|---|---|---|"]
    for low, high in itertools.pairwise((0, 16, 64, 256, 1024, 4096, 1 << 14, 1 << 18)):
        mine = [seconds for elements, _, seconds in found if low < elements <= high]
        if mine:
            lines.append(f"| {low + 1} to {high} | {len(mine)} | {median(mine) * 1e3:.3f} |")
    return lines


def known(folder: Path, count: int) -> None:
    """A corpus with so many findings of the target that are not its planted bug, all of them alike."""
    target, bug = PLANTED
    first = folder / "first"
    command = [*RUN, target, "--planted", bug, "--backend", "cpu", "--seconds", "30", "--max-findings", "1"]
    subprocess.run([*command, "--corpus", str(first)], capture_output=True, check=False, cwd=ROOT)
    entry = corpus.read(next(first.rglob("*.yaml")))
    assert entry.finding is not None
    other_bug = replace(entry.finding, oracle="layout", symptom="bits")
    for number in range(count):
        other = replace(entry, case=moved(entry.case, number), finding=other_bug)
        corpus.save_entry(folder / "corpus", other)


def moved(case: Case, number: int) -> Case:
    """The case with another value in its first tensor."""
    name, value = next(iter(case.last.tensors.items()))
    kind = named_dtype(value.dtype)
    words = value.bits(case.last.dims).copy()
    words.reshape(-1)[0] = number + 1
    call = case.last.with_argument(name, replace(value, values=exact(words, kind)))
    return case.with_call(len(case.calls) - 1, call)


def beside(count: int, cases: int) -> tuple[float, float]:
    """Seconds until a run with so many known findings is at work, and its cases a second."""
    target, bug = PLANTED
    with tempfile.TemporaryDirectory() as text:
        known(Path(text), count)
        command = [*RUN, target, "--planted", bug, "--backend", "cpu", "--cases", str(cases), "--json"]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--corpus", f"{text}/corpus"], capture_output=True, text=True, check=False, cwd=ROOT
        )
        value = json.loads(done.stdout)
        return time.monotonic() - began - value["seconds"], value["cases"] / value["seconds"]


def plot(path: Path, samples: list[Sample], found: list[tuple[int, int, float]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    left.plot([one.seconds / 60 for one in samples[1:]], rates(samples), lw=1)
    left.set(xlabel="minutes", ylabel="cases/s", title="one run", ylim=(0, None))
    memory = left.twinx()
    memory.plot([one.seconds / 60 for one in samples], [one.use.memory / 2**20 for one in samples], lw=1, color="C1")
    memory.set(ylabel="MiB resident", ylim=(0, None))
    for axes, place, name in ((middle, 0, "elements"), (right, 1, "rows")):
        axes.loglog([one[place] for one in found], [one[2] * 1e3 for one in found], ".", ms=4)
        axes.set(xlabel=name, ylabel="milliseconds a case", title=f"by {name}")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="layernorm_bw")
    parser.add_argument("--seconds", type=float, default=1200.0, help="of the long run")
    parser.add_argument("--known", type=int, nargs="+", default=[0, 100, 1000, 10_000])
    parser.add_argument("--cases", type=int, default=4000, help="of each run beside known findings")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    found = costs(asked.target)
    print("\n".join(sizes_table(found)), flush=True)
    print("\n| known findings | seconds to start | cases/s |\n|---|---|---|")
    for count in asked.known:
        seconds, rate = beside(count, asked.cases)
        print(f"| {count:,} | {seconds:.1f} | {rate:.0f} |", flush=True)
    samples = long_run(asked.target, asked.seconds)
    print("\n" + "\n".join(run_table(samples)))
    if asked.plot:
        plot(asked.plot, samples, found)


if __name__ == "__main__":
    main()
