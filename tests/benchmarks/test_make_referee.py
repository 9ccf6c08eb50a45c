"""The table of `make referee`, which solutions are drawn, and published ones that are written from documents."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.referee import as_solution, draw, kind_of, table
from benchmarks.referee_published import flashinfer, read_examples
from fuzz.judge.result.judgement import RIGHT, WRONG

GEMM = {
    "name": "gemm_n128_k2048",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 128}, "K": {"type": "const", "value": 2048}},
    "reference": "def run(A, B):\n    return A @ B.T",
}


def result(verdict: str, *expected: str) -> dict[str, object]:
    return {"verdict": verdict, "reason": "why", "expected": list(expected)}


def test_the_table_names_verdicts_that_are_not_the_right_ones() -> None:
    results = {
        "torch level1/1_A": result("RIGHT", "RIGHT"),
        "torch level1/2_B": result("NOT COMPARABLE"),
        "published sum/wrong/cheat": result("RIGHT", "WRONG", "CHEAT"),
    }
    assert table(results).splitlines() == [
        "| material | outcome |",
        "|---|---|",
        "| published (1) | 1 RIGHT |",
        "| torch level1 (2) | 1 NOT COMPARABLE, 1 RIGHT |",
        "",
        "- published sum/wrong/cheat: RIGHT, not WRONG or CHEAT: why",
    ]


def test_so_many_of_each_kind_and_level_are_drawn_by_the_seed() -> None:
    names = [f"torch {level}/{number}" for level in ("level1", "level2") for number in range(50)]
    drawn = draw(names, 4, 1)
    assert [kind_of(name) for name in drawn] == ["torch level1"] * 4 + ["torch level2"] * 4
    assert drawn == draw(names, 4, 1) != draw(names, 4, 2) and draw(names, None, 1) == names


def test_the_problems_own_module_becomes_the_solution(tmp_path: Path) -> None:
    problem = tmp_path / "p.py"
    problem.write_text("class Model(nn.Module):\n    def __init__(self):\n        super(Model, self).__init__()\n")
    assert as_solution(problem).count("ModelNew") == 2


def test_a_documented_solution_gets_a_definition_with_an_odd_axis(tmp_path: Path) -> None:
    shown = {"name": "gemm_v1", "definition": "gemm", "sources": [{"path": "main.py", "content": "x"}]}
    document = f"text\n```json\n{{not: json}}\n```\n```json\n{json.dumps(shown)}\n```\n"
    assert list(read_examples(document)) == [shown]
    (tmp_path / "docs" / "flashinfer-trace").mkdir(parents=True)
    (tmp_path / "docs" / "flashinfer-trace" / "solution.mdx").write_text(document)
    for name in ("rmsnorm/rmsnorm_h128", "rmsnorm/fused_add_rmsnorm_h2048", "gemm/gemm_n128_k2048"):
        path = tmp_path / "flashinfer_trace" / "definitions" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**GEMM, "name": path.stem}))
    (tmp_path / "written").mkdir()
    found = list(flashinfer(tmp_path, tmp_path / "written"))
    assert [one.expected for one in found] == [(RIGHT,)] * 3 + [(WRONG,)]
    odd = json.loads(found[-1].problem.read_text())
    assert odd["axes"]["K"]["value"] == 2047 and odd["axes"]["N"]["value"] == 128
    assert json.loads(found[-1].solution.read_text())["definition"] == odd["name"] == "gemm_n128_k2047"
