"""The scoreboard: acceptance rules against planted bugs and honest adversarial cases, the same cases for every rule.

    python benchmarks/scoreboard.py            writes docs/scoreboard.md and docs/scoreboard.svg

A bug counts as caught by a rule where, in some case, the rule rejects the planted kernel and accepts the good one: who
rejects everything tells nothing apart. A false alarm is a case in which a rule rejects a good kernel. Cases in which an
intermediate may leave float32's range decide nothing and are left out. Deterministic but for times.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from acceptance import RULES, Compared
from scoreboard_page import page, plot

from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.backends.memory import DTYPE_NAMES
from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Returned
from fuzz.oracles import SAMPLED
from fuzz.oracles.comparison.elements import compare_elements, error_bounds, half_ulp
from fuzz.oracles.comparison.expected import evaluate_reference, reference_inputs
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import SAFETY, Expected
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import Examine

ROOT = Path(__file__).parents[1]
EAGER = ROOT / "targets" / "torch_eager" / "operations.py"
FIRST = ("layernorm_bw", "gelu_bw")
"""Targets whose planted bugs are older than the safety factor's last change; those of the others are newer."""
TRITON = (*FIRST, "rms_norm", "softmax", "matmul", "cross_entropy", "cross_entropy_bw")
HONEST = ("cumsum", "index_add", "embedding", "softplus_bw", "row_sum", "group_norm_by_steps", "sequential_sum")
"""Of torch's own operations, those that broke the envelope's prototype."""
TERMS = {"gelu_bw": "1", "softmax": "1", "matmul": "K", "cross_entropy": "V", "cross_entropy_bw": "V", "embedding": "M",
         "index_add": "M", "softplus_bw": "1", "group_norm_by_steps": "L"}  # fmt: skip
LARGEST = 1 << 12
CLASSES = {
    "range": ("exponents", "subnormals", "tiny", "huge", "boundaries", "nonfinite", "signed_zeros"),
    "nearly constant or far from 0": ("mean_shift", "rows_constant", "near_constant", "constant", "ones"),
    "outliers and cancellation": ("outliers", "cancelling", "alternating", "onehot", "sparse", "ramp"),
}
ALL = tuple(oracle.name for oracle in SAMPLED)
OURS = "ours"


@dataclass
class Board:
    """What the page is made of. Ratios are error over bound; needs are the least safety at which a case passes."""

    caught: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in (OURS, *RULES)})
    alarms: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in (OURS, *RULES)})
    honest: dict[str, int] = field(default_factory=dict)
    undecided: int = 0
    wrong: dict[str, bool] = field(default_factory=dict)
    others: dict[str, tuple[str, bool]] = field(default_factory=dict)
    honest_ratios: list[float] = field(default_factory=list)
    honest_needs: list[float] = field(default_factory=list)
    planted_ratios: dict[str, float] = field(default_factory=dict)
    planted_needs: dict[str, float] = field(default_factory=dict)
    pairs: dict[str, int] = field(default_factory=lambda: dict.fromkeys((OURS, *RULES), 0))


@dataclass(frozen=True)
class Verdicts:
    """Which rules accept a case, and how near it is to our bound."""

    passed: dict[str, bool]
    ratio: float
    need: float


def cases(target: Target, count: int, seed: int) -> Iterator[Case]:
    """Single calls without a split, small enough for many, in the order in which a run draws them."""
    engine, number = RandomEngine(target, seed), 0
    while count:
        case = engine.case(number)
        number += 1
        if len(case.calls) == 1 and case.elements() <= LARGEST:
            count -= 1
            yield replace(case, split=None)


def class_of(case: Case) -> str:
    """The most adversarial kind of values among the case's floating tensors."""
    names = {getattr(value.values, "name", "") for value in case.last.tensors.values() if value.is_float}
    return next((title for title, recipes in CLASSES.items() if names & set(recipes)), "plain")


def eager_outputs(exam: Examination, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The reference's formula in the outputs' dtype by torch; where the target is torch itself, its own outputs."""
    if exam.target.path == EAGER:
        return outputs
    inputs, _ = reference_inputs(exam, 0)
    dtype = next(iter(outputs.values())).dtype
    dtype = next((t.dtype for t in exam_inputs(inputs) if t.is_floating_point()), dtype)
    low = {n: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t for n, t in inputs.items()}
    assert exam.target.reference is not None
    return {name: t.to(outputs[name].dtype) for name, t in exam.target.reference(**low).items()}


def exam_inputs(inputs: dict[str, Any]) -> list[torch.Tensor]:
    return [value for value in inputs.values() if isinstance(value, torch.Tensor)]


def need(out: torch.Tensor, expected: Expected, exam: Examination) -> float:
    """The least safety factor with which this output passes: error beyond the output's rounding, over the spread."""
    kind = named_dtype(DTYPE_NAMES[out.dtype])
    value, slack, _ = error_bounds(expected, kind, exam.precision)
    rounding = half_ulp(value.abs() + slack, kind) + max(exam.precision.eta, kind.smallest_subnormal)
    excess = ((out.double() - value).abs() - rounding).clamp(min=0.0)
    # Whether an infinity is due is decided by rounding, not by a distance.
    measured = torch.isfinite(out) & (excess > 0)
    needed = torch.where(measured, excess / (slack / SAFETY), 0.0).nan_to_num(nan=0.0, posinf=torch.inf)
    needed = torch.where(compare_elements(out, expected, exam.precision).symptom == 1, torch.inf, needed)
    return float(needed.max()) if needed.numel() else 0.0


def verdicts(exam: Examination, known: dict[str, Expected], eager: dict[str, torch.Tensor]) -> Verdicts:
    """All rules on one case."""
    outputs = exam.returned.calls[0].outputs
    terms = exam.case.last.dims.get(TERMS.get(exam.target.name, "N"), 1)
    parts = [Compared(outputs[name], known[name].value, eager[name], terms) for name in known]
    passed = {name: all(rule(part) for part in parts) for name, rule in RULES.items()}
    judged = {name: compare_elements(outputs[name], known[name], exam.precision) for name in known}
    passed[OURS] = not any(one.wrong for one in judged.values())
    ratio = max(one.worst for one in judged.values())
    return Verdicts(passed, ratio, max(need(outputs[name], known[name], exam) for name in known))


def decided(known: dict[str, Expected]) -> bool:
    """Whether no element's bound is infinite."""
    return all(bool(torch.isfinite(one.spread).all()) for one in known.values())


def measure(board: Board, target: Target, count: int, seed: int, bugs: dict[str, Launcher]) -> None:
    """All cases of one target: the good kernel, then each planted one, under every rule."""
    cpu = backend("cpu")
    for case in cases(target, count, seed):
        outcome = run(target, target.launcher, case.calls, cpu)
        exam = Examination(target, target.launcher, case, cpu, outcome)
        if not isinstance(outcome, Returned):
            continue
        known = dict(evaluate_reference(exam, 0, 2))
        if any(
            compare_elements(outcome.calls[0].outputs[name], one, exam.precision).wrong for name, one in known.items()
        ):
            known = dict(evaluate_reference(exam, 0, 3))
        if not decided(known):
            board.undecided += 1
            continue
        eager = eager_outputs(exam, dict(outcome.calls[0].outputs))
        good, title = verdicts(exam, known, eager), class_of(case)
        board.honest[title] = board.honest.get(title, 0) + 1
        board.honest_ratios.append(good.ratio)
        board.honest_needs.append(good.need)
        for name, passed in good.passed.items():
            board.alarms[name][title] = board.alarms[name].get(title, 0) + (not passed)
        for bug, launcher in bugs.items():
            tried = run(target, launcher, case.calls, cpu)
            if isinstance(tried, Returned):
                score(board, bug, good, verdicts(replace(exam, outcome=tried), known, eager))


def score(board: Board, bug: str, good: Verdicts, bad: Verdicts) -> None:
    """What one case tells of one planted bug."""
    for name, passed in bad.passed.items():
        if good.passed[name] and not passed:
            board.caught[name].add(bug)
            board.pairs[name] += 1
    board.planted_ratios[bug] = max(board.planted_ratios.get(bug, 0.0), bad.ratio)
    board.planted_needs[bug] = max(board.planted_needs.get(bug, 0.0), bad.need)


def seen(target: Target, bug: str, oracle: str, count: int) -> bool:
    """Whether a bug that is no wrong value is filed under its oracle within some cases."""
    cpu, launcher, engine = backend("cpu"), load_planted(target, bug)[1], RandomEngine(target, 0)
    for number in range(count):
        case = engine.case(number)
        outcome = run(target, launcher, case.calls, cpu)
        answer = examine(Examination(target, launcher, case, cpu, outcome), Examine(case, ALL, True))
        if any(found.oracle == oracle for found in answer.findings):
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="cases of each Triton target; half as many of torch's")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    board, started = Board(), time.monotonic()
    for name in (*TRITON, *(f"{EAGER}:{name}" for name in HONEST)):
        target = load(name)
        values = [planted_bug.name for planted_bug in target.planted_bugs.values() if planted_bug.oracle == "accuracy"]
        board.wrong |= {f"{target.name} {bug}": name in FIRST for bug in values}
        bugs = {f"{target.name} {bug}": load_planted(target, bug)[1] for bug in values}
        measure(board, target, asked.cases if name in TRITON else asked.cases // 2, asked.seed, bugs)
        for planted_bug in target.planted_bugs.values():
            if planted_bug.oracle != "accuracy":
                found = seen(target, planted_bug.name, planted_bug.oracle, 400)
                board.others[f"{target.name} {planted_bug.name}"] = (planted_bug.oracle, found)
        print(f"{target.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    plot(board, asked.out / "scoreboard.svg")
    (asked.out / "scoreboard.md").write_text(page(board), encoding="utf-8")


if __name__ == "__main__":
    main()
