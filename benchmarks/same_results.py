"""Records what the fuzzer draws and finds, and compares two records: a redesign must change neither.

    python -m benchmarks.same_results record before.json      in one checkout
    python -m benchmarks.same_results record after.json       in the other
    python -m benchmarks.same_results compare before.json after.json

A record holds the digest of every case of six targets, and of 30 planted bugs the signature of the finding and the
shrunk case, as the command line gives them. The two checkouts may run at different times and speeds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fuzz.corpus import codec
from fuzz.model.entry import Entry
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.target.loader import load
from fuzz.worker.protocol import ReplicaGroup
from fuzz.worker.worker_server import preload

TARGETS = ("layernorm_bw", "gelu_bw", "cross_entropy", "matmul", "layer_norm", "msda")
BUGS = {
    "layernorm_bw": (
        "swapped_param_grads", "one_pass_variance", "mean_divides_by_block", "bessel", "sign_of_c2", "tail_unmasked",
        "partial_uninitialised", "writes_dx_into_dy", "block_chosen_by_batch", "store_past_end", "atomic_order",
        "first_n_baked_in",
    ),
    "gelu_bw": ("erf_saturates", "cdf_by_one_plus_erf", "tanh_form"),
    "cross_entropy": ("ignored_in_denominator", "no_max_subtracted", "sentinel_read"),
    "cross_entropy_function": ("gradient_over_input", "label_lost"),
    "matmul": ("k_tail_lost", "b_assumed_contiguous", "operands_in_bfloat16"),
    "layer_norm": ("shape_not_checked", "contiguous_gradient_assumed", "gradient_over_cotangent"),
    "softmax": ("no_max_subtracted", "sum_sees_padding"),
    "msda": ("swapped_xy",),
    "swiglu": ("silu_of_up",),
}  # fmt: skip
SIGNATURE = ("id", "oracle", "output", "symptom", "verdict", "dims", "elements", "first_case", "also", "calls")


class Recorder(Watcher):
    """Keeps the digest of each case of a run, in the order in which they are drawn."""

    def __init__(self) -> None:
        self.digests: list[str] = []

    def on_group_start(self, group: ReplicaGroup) -> None:
        for number in range(len(group.sampled)):
            text = codec.dumps(Entry(group.plan.replica(number)))
            self.digests.append(hashlib.sha256(text.encode()).hexdigest()[:16])


def record_cases(name: str, cases: int) -> dict[str, Any]:
    """The digests of the cases of a run on the cpu backend, and its largest error over the bound."""
    options, recorder = RunOptions(name, cases=cases, backend="cpu"), Recorder()
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(options, load(name), "cpu", Path(folder), recorder, environment.versions())
        result = fuzzer.run()
    return dict(digests=recorder.digests, worst=repr(result.statistics.worst), bugs=len(result.bugs))


def record_bug(name: str, bug: str) -> list[dict[str, Any]]:
    """What `fuzz run` finds of a planted bug: signature and shrunk case, by the digest in its name."""
    with tempfile.TemporaryDirectory() as folder:
        budget = ("--seed", "0", "--cases", "3000", "--max-findings", "1", "--backend", "cpu")
        command = (sys.executable, "-m", "fuzz", "run", name, "--planted", bug, *budget, "--json", "--corpus", folder)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [{key: finding[key] for key in SIGNATURE} for finding in json.loads(done.stdout)["findings"]]


def record(cases: int) -> dict[str, Any]:
    preload("fuzz.server_preload")
    return {
        "cases": {name: record_cases(name, cases) for name in TARGETS},
        "bugs": {f"{name}/{bug}": record_bug(name, bug) for name, bugs in BUGS.items() for bug in bugs},
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each target whose cases differ, and for each bug that ends otherwise."""
    lines = []
    for name, old in before["cases"].items():
        new = after["cases"][name]
        pairs = zip(old["digests"], new["digests"], strict=False)
        unequal = [index for index, pair in enumerate(pairs) if len({*pair}) > 1]
        if unequal or len(old["digests"]) != len(new["digests"]):
            lines.append(f"{name}: {len(unequal)} of {len(old['digests'])} cases differ, the first at {unequal[:1]}")
        if (old["worst"], old["bugs"]) != (new["worst"], new["bugs"]):
            lines.append(
                f"{name}: {old['worst']}, {old['bugs']} became {new['worst']}, {new['bugs']} (worst ratio, bugs)"
            )
    bugs = ((name, old, after["bugs"][name]) for name, old in before["bugs"].items())
    return lines + [f"{name}: {old} became {new}" for name, old, new in bugs if old != new]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--cases", type=int, default=2000)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        options.out.write_text(json.dumps(record(options.cases)), encoding="utf-8")
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (options.before, options.after))
    lines = differences(before, after)
    print("\n".join(lines) or f"the same: {len(before['cases'])} targets, {len(before['bugs'])} planted bugs")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
