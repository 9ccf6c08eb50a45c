"""Good kernels by other hands, fuzzed until each had so many cases: what is found is a real error or a false alarm.

python -m benchmarks.honest [--set NAME]... [--cases N] [--seconds N] [--minutes N] [--backend NAME] [--jobs N]
                            [--engine NAME] [--replicas N] [--order N] [--write FILE]

Every run is kept in .honest, and how many cases it judged in docs/honest-cases.csv, which holds those of other
machines too. A target that lacks cases is fuzzed again with another seed: those with the fewest runs first, and first
of all those whose last run had no time to confirm what disagreed. The order of the others is drawn. Jobs divide the
processors, and share a GPU at once where NVIDIA's Multi-Process Service is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.honest import ledger
from benchmarks.honest.shared_gpu import SharedGpu, shared_gpu, without_service
from benchmarks.honest.shares import Shares
from benchmarks.honest.store import ROOT, SETS, STORE, environment, graded_runs, keep_run, kept_runs
from benchmarks.honest.table import write
from benchmarks.processors import share_of
from fuzz.backends.cuda.backend import NO_GPU
from fuzz.errors import TargetError
from fuzz.run.environment import installed_version
from fuzz.target.loader import library_files, load_module, targets_in
from fuzz.worker.system import signal_name

OPERATIONS = STORE / "targets"
PATIENCE = 120.0
"""Seconds for which a process may go on after a run's time has ended."""
OWN = ("layernorm_bw", "gelu_bw", "rms_norm", "softmax", "matmul", "cross_entropy", "cross_entropy_bw")


def targets_of(name: str) -> list[str]:
    """The targets of a set, as `fuzz run` takes them."""
    if name == "own":
        return list(OWN)
    if name in ("torch", "flag_gems"):
        return [text for path in sorted((OPERATIONS / name).glob("*.py")) for text in named_in(path)]
    if name in ("liger", "fla"):
        return [text for path in library_files() if path.parent.name == name for text in named_in(path)]
    return list(named_in(Path(__file__).parent / "kernels" / f"{name}.py"))


def named_in(path: Path) -> Iterator[str]:
    """The targets that a file declares; none where what it imports is not installed."""
    try:
        yield from (f"{path.relative_to(ROOT)}:{name}" for name in targets_in(load_module(path)))
    except TargetError as error:
        print(error, file=sys.stderr)


def declare_operations(jobs: int) -> None:
    """Declares the targets of torch's operations, again where they are those of other code or libraries."""
    files = [Path(__file__).with_name(f"{name}.py") for name in ("bounds", "calls", "declarations", "operations")]
    parts = [
        repr([installed_version(name) for name in ("torch", "flag_gems")]).encode(),
        *(file.read_bytes() for file in files),
    ]
    digest, done = sha256(b"".join(parts)).hexdigest(), OPERATIONS / "done"
    if done.is_file() and done.read_text(encoding="utf-8") == digest:
        return
    shutil.rmtree(OPERATIONS, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.honest.declarations", str(OPERATIONS), f"--jobs={jobs}"]
    subprocess.run(command, check=True, cwd=ROOT)
    done.write_text(digest, encoding="utf-8")


def arguments(asked: argparse.Namespace) -> list[str]:
    """The command of a process that fuzzes the targets that it is asked for."""
    corpus = STORE / "corpus" / asked.backend
    options = [f"--backend={asked.backend}", f"--engine={asked.engine}", f"--corpus={corpus}"]
    options += [f"--replicas={asked.replicas}"] if asked.replicas else []
    return [sys.executable, "-m", "benchmarks.honest.batch", *options]


def work(shares: Shares, asked: argparse.Namespace, gpu: SharedGpu | None, processors: Sequence[int]) -> None:
    """Fuzzes one target after the other in a process of its own, which is replaced where it ends or hangs.

    A run without a case does not count where the shared GPU was not to be had: the fault of another target's kernel had
    taken it, or the service was starting. As the fault may have been its own, its target does not share the GPU any
    more.
    """
    # Of the thread that calls: the process that it starts inherits them.
    os.sched_setaffinity(0, processors)
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    share = shares.take()
    while share is not None:
        alone = share.alone
        variables = without_service(environment()) if alone else environment()
        with subprocess.Popen(arguments(asked), **pipes, env=variables) as process:  # type: ignore[call-overload]
            while share is not None and share.alone == alone:
                before = gpu.replaced if gpu else 0
                line = answer(process, shares.request(share))
                run = json.loads(line) if line else {"target": share.target, "cases": 0, "why": why_ended(process)}
                is_empty = not run.get("cases")
                if gpu and is_empty:
                    gpu.replace_faulty(before)
                was_replaced = gpu is not None and gpu.replaced > before
                share.alone |= was_replaced
                finds_no_gpu = NO_GPU in run.get("why", "") + run.get("error", "")
                if gpu and is_empty and (was_replaced or finds_no_gpu):
                    shares.put_back(share)
                else:
                    keep_run(asked.backend, share.set, run)
                    shares.give_back(share, run)
                share = shares.take()
                # To torch a GPU that was missing once is missing until the process ends.
                if not line or finds_no_gpu:
                    break
            process.kill()


def why_ended(process: subprocess.Popen[str]) -> str:
    """How a process that did not answer has ended: with what status, by which signal, or killed because it hung."""
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    if status == -signal.SIGKILL:
        return f"its process was killed, {PATIENCE:g} s after its time had ended or because memory ran out"
    how = f"by {signal_name(-status)}" if status < 0 else f"with exit status {status}"
    return f"its process ended {how}"


def answer(process: subprocess.Popen[str], request: Mapping[str, Any]) -> str:
    """The line with which a process answers a request; empty where it ended, or was killed for its hanging."""
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(request["seconds"] + PATIENCE, process.kill)
    timer.start()
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return ""
    finally:
        timer.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--cases", type=int, default=10_000, help="judged, of each target, in all runs together")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run, at most")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--engine", default="auto", help="random gives plans of more replicas on a GPU")
    parser.add_argument("--replicas", type=int, help="of each plan, at most; the compilation is shared by all of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--order", type=int, default=0, help="the seed of the order of targets, and of all cases")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing runs any more")
    parser.add_argument("--write", type=Path, help="a document for the tables; findings go into *-findings.md")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    STORE.mkdir(exist_ok=True)
    sets = asked.set or SETS
    if {"torch", "flag_gems"} & set(sets):
        declare_operations(asked.jobs)
    shares = Shares(asked.cases, asked.seconds, end, asked.order)
    machine, lines = ledger.machine(), ledger.read(ledger.LEDGER)
    for name in sets:
        elsewhere = ledger.elsewhere(lines, machine, asked.backend, name)
        shares.add(name, targets_of(name), kept_runs(asked.backend, name), elsewhere)
    is_shared = asked.backend == "cuda" and asked.jobs > 1
    with shared_gpu() if is_shared else nullcontext() as gpu, ThreadPoolExecutor(asked.jobs) as pool:
        jobs = [(shares, asked, gpu, share_of(job, asked.jobs)) for job in range(asked.jobs)]
        for worker in [pool.submit(work, *job) for job in jobs]:
            worker.result()
    if asked.write:
        runs = {(backend, name): graded_runs(backend, name) for backend in ("cpu", "cuda") for name in SETS}
        lines = ledger.joined(lines, machine, runs)
        ledger.write(ledger.LEDGER, lines)
        write(asked.write, runs, lines)


if __name__ == "__main__":
    main()
