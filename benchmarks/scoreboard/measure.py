"""Measures one target for the scoreboard, in a process of its own, and keeps its board as JSON.

python -m benchmarks.scoreboard.measure TARGET FILE --cases N --seed N [--title TITLE]

With a title the target is one of the honest set: it has no planted bugs, and its cases are counted under that title.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.scoreboard.acceptance import LOW, RULES, Compared
from benchmarks.scoreboard.board import OURS, Board, save
from fuzz.backends import backend
from fuzz.backends.execute import FatalError, run
from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.errors import FuzzError
from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Returned
from fuzz.oracles import SAMPLED
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.comparison.eager import run_eager
from fuzz.oracles.comparison.elements import compare_elements, error_bounds, half_ulp
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import SAFETY, Expected
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import Examine

ROOT = Path(__file__).parents[2]
EAGER = ROOT / "targets" / "torch_eager" / "operations.py"
FIRST = ("layernorm_bw", "gelu_bw")
"""Targets whose planted bugs are older than the safety factor's last change; those of the others are newer."""
TERMS = {"gelu_bw": "1", "softmax": "1", "matmul": "K", "cross_entropy": "V", "cross_entropy_bw": "V", "embedding": "M",
         "index_add": "M", "softplus_bw": "1", "group_norm_by_steps": "L"}  # fmt: skip
LARGEST = 1 << 12
MOST_DRAWN = 20
"""Cases that are drawn for each that is small enough, at most."""
CLASSES = {
    "range": ("exponents", "subnormals", "tiny", "huge", "boundaries", "nonfinite", "signed_zeros"),
    "nearly constant or far from 0": ("mean_shift", "rows_constant", "near_constant", "constant", "ones"),
    "outliers and cancellation": ("outliers", "cancelling", "alternating", "onehot", "sparse", "ramp"),
}
ALL = tuple(oracle.name for oracle in SAMPLED)
SECONDS = 10.0
"""What the exact value of a case may cost that our rule rejects."""


@dataclass(frozen=True)
class Verdicts:
    """Which rules accept a case, and how near it is to our bound."""

    passed: dict[str, bool]
    ratio: float
    need: float


def cases(target: Target, count: int, seed: int) -> Iterator[Case]:
    """Single calls without a split, small enough for many, in the order in which a run draws them."""
    engine, left = RandomEngine(target, seed), count
    for number in range(MOST_DRAWN * count):
        case = engine.case(number)
        if left and len(case.calls) == 1 and case.elements() <= LARGEST:
            left -= 1
            yield replace(case, split=None)


def class_of(case: Case) -> str:
    """The most adversarial kind of values among the case's floating tensors."""
    names = {getattr(value.values, "name", "") for value in case.last.tensors.values() if value.is_float}
    return next((title for title, recipes in CLASSES.items() if names & set(recipes)), "plain")


def eager_outputs(exam: Examination) -> Mapping[str, torch.Tensor] | None:
    """The reference's formula in the inputs' dtype by torch; where the target is torch itself, its own outputs.

    None where the formula cannot be computed in that dtype.
    """
    outputs = exam.returned.calls[0].outputs
    if exam.target.path == EAGER:
        return outputs
    floating = (value.dtype for value in exam.case.last.tensors.values() if value.is_float)
    first = next(floating, DTYPE_NAMES[next(iter(outputs.values())).dtype])
    dtype = next(kind for kind, name in DTYPE_NAMES.items() if name == first)
    try:
        found = run_eager(exam, 0, dtype)
    except Exception:  # noqa: BLE001  A reference is written for float64.
        return None
    known = set(outputs) <= set(found) and all(found[name].shape == output.shape for name, output in outputs.items())
    return {name: found[name].to(output.dtype) for name, output in outputs.items()} if known else None


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


def count_terms(case: Case, name: str, title: str) -> int:
    """How many terms a sum of the target has; of one of the honest set the largest dim, the kindest number."""
    dims = case.last.dims
    return max(dims.values(), default=1) if title else dims.get(TERMS.get(name, "N"), 1)


def verdicts(
    exam: Examination, known: Mapping[str, Expected], eager: Mapping[str, torch.Tensor], terms: int
) -> Verdicts:
    """All rules on one case."""
    outputs = exam.returned.calls[0].outputs
    floating = [name for name in known if outputs[name].dtype in LOW]
    parts = [Compared(outputs[name], known[name].value, eager[name], terms) for name in floating]
    passed = {name: all(rule(part) for part in parts) for name, rule in RULES.items()}
    judged = {name: compare_elements(outputs[name], known[name], exam.precision) for name in known}
    passed[OURS] = not any(one.wrong for one in judged.values())
    ratio = max(one.worst for one in judged.values())
    return Verdicts(passed, ratio, max((need(outputs[name], known[name], exam) for name in floating), default=0.0))


def reason_to_leave_out(
    exam: Examination, known: Mapping[str, Expected], eager: Mapping[str, torch.Tensor] | None
) -> str:
    """Why a good kernel's case says nothing of a rule, or nothing."""
    if not all(bool(torch.isfinite(one.spread).all()) for one in known.values()):
        return "an intermediate may leave the range"
    if eager is None:
        return "eager PyTorch cannot compute it"
    finding = AccuracyOracle().check_case(exam) if is_rejected(exam, known) else None
    if finding is not None and adjudicate(exam, finding, SECONDS).name == "kernel":
        return "the kernel is wrong, as its exact value says"
    return ""


def is_rejected(exam: Examination, known: Mapping[str, Expected]) -> bool:
    outputs = exam.returned.calls[0].outputs
    return any(compare_elements(outputs[name], one, exam.precision).wrong for name, one in known.items())


def known_outputs(exam: Examination) -> dict[str, Expected]:
    """What is due: by 20 members, and by 80 where that rejects something."""
    known = dict(evaluate_reference(exam, 0, len(STAGES) - 2))
    return dict(evaluate_reference(exam, 0, len(STAGES) - 1)) if is_rejected(exam, known) else known


def measure(board: Board, target: Target, count: int, seed: int, bugs: Mapping[str, Launcher], title: str) -> None:
    """All cases of one target: the good kernel, then each planted one, under every rule."""
    cpu = backend("cpu")
    for case in cases(target, count, seed):
        try:
            outcome = run(target, target.launcher, case.calls, cpu)
            exam = Examination(target, target.launcher, case, cpu, outcome)
            if not isinstance(outcome, Returned):
                board.left_out[f"the kernel ends as {type(outcome).__name__}"] += 1
                continue
            known, eager = known_outputs(exam), eager_outputs(exam)
            if reason := reason_to_leave_out(exam, known, eager):
                board.left_out[reason] += 1
                continue
        except FatalError:
            board.left_out["the kernel ends its process"] += 1
            continue
        except FuzzError as error:
            board.left_out[f"{type(error).__name__}: {error}"[:100]] += 1
            continue
        assert eager is not None
        terms = count_terms(case, target.name, title)
        good, kind = verdicts(exam, known, eager, terms), title or class_of(case)
        board.honest[kind] += 1
        board.honest_ratios.append(good.ratio)
        board.honest_needs.append(good.need)
        for name, passed in good.passed.items():
            board.alarms[name][kind] += not passed
        if not good.passed[OURS]:
            board.rejected.append(f"{target.name}: {good.ratio:.3g} of the bound at {dict(case.last.dims)}")
        for bug, launcher in bugs.items():
            tried = run(target, launcher, case.calls, cpu)
            if isinstance(tried, Returned):
                score(board, bug, good, verdicts(replace(exam, outcome=tried), known, eager, terms))


def score(board: Board, bug: str, good: Verdicts, bad: Verdicts) -> None:
    """What one case tells of one planted bug."""
    for name, passed in bad.passed.items():
        if good.passed[name] and not passed:
            board.pairs[name] += 1
            if bug not in board.caught[name]:
                board.caught[name].append(bug)
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--title", default="")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    board, target, bugs = Board(), load(asked.target), {}
    backend("cpu").prepare()
    for one in target.planted_bugs.values() if not asked.title else ():
        name = f"{target.name} {one.name}"
        if one.oracle == "accuracy":
            board.wrong[name] = target.name in FIRST
            bugs[name] = load_planted(target, one.name)[1]
        else:
            board.others[name] = one.oracle, seen(target, one.name, one.oracle, 400)
    measure(board, target, asked.cases, asked.seed, bugs, asked.title)
    save(board, asked.file)


if __name__ == "__main__":
    main()
