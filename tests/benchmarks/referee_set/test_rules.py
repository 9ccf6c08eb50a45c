"""Published rules, applied to solutions of the set that show what each rule looks at."""

from __future__ import annotations

import pytest

from benchmarks.referee_set.__main__ import FOLDERS, solutions
from benchmarks.referee_set.rules import GPUEMU, apply_rule

LOOSE, TIGHT = "KernelBench, 1e-2", "KernelBench, 1e-4"


@pytest.mark.parametrize(
    ("rule", "name", "accepts"),
    [
        (LOOSE, "softmax__zeros", True),
        (TIGHT, "softmax__zeros", False),
        (TIGHT, "softmax__patched", True),
        (TIGHT, "linear_gelu__missing_term", False),
        ("BackendBench", "swiglu__narrow_store", True),
        ("BackendBench", "swiglu__torch", True),
        ("gpuemu", "swiglu__torch", True),
        ("gpuemu", "mean__zeros", False),
        ("gpuemu", "layer_norm__stale_weight", True),
    ],
)
def test_a_rule_accepts_what_it_does_not_look_at(rule: str, name: str, accepts: bool) -> None:
    pairs = [pair for folder in FOLDERS for pair in solutions(folder, name)]
    assert len(pairs) == 1
    reason, _ = apply_rule(rule, *pairs[0])
    assert bool(reason) is not accepts, reason


def test_every_kind_of_mistake_is_there_twice_and_every_problem_has_four_honest_solutions() -> None:
    wrong, right = ([path.stem for _, path in solutions(folder, "")] for folder in FOLDERS)
    kinds = [name.partition("__")[2] for name in wrong]
    assert len(wrong) >= 40 and {kinds.count(kind) for kind in kinds} == {2}
    problems = [name.partition("__")[0] for name in right]
    assert min(problems.count(problem) for problem in problems) == 4 and set(problems) == set(GPUEMU)
