"""The honest set's tables count cases and findings by severity, and say what could not be run."""

from pathlib import Path

from benchmarks.honest.table import NAME, grade, page, write

FOUND = {"seen": "new", "verdict": "kernel", "message": "y | wrong", "severity": "low", "input_class": "ordinary"}
RUNS = {
    ("cpu", "torch"): [
        {"target": "a.py:exp", "cases": 60, "seconds": 36.0, "findings": [FOUND, FOUND | {"seen": "known"}]},
        {
            "target": "a.py:exp",
            "cases": 45,
            "rejected": 5,
            "seconds": 36.0,
            "findings": [],
            "cut_off": {"disagreements": 7},
        },
        {"target": "a.py:mm", "cases": 50, "seconds": 36.0, "findings": []},
        {"target": "a.py:lu", "error": "target 'lu': no rule says how it rounds"},
    ],
    ("cuda", "torch"): [],
}


def test_what_is_written(tmp_path: Path) -> None:
    sets, found = tmp_path / "honest.md", tmp_path / "honest-findings.md"
    for path in (sets, found):
        path.write_text(f"before\n<!-- {NAME} -->\nold\n<!-- /{NAME} -->\nafter\n")
    write(sets, RUNS)
    assert "| torch | cpu | 2 | 150 | 50 | 0.03 | 1 | 0 | 0 | 0 | 7 | 1 |" in sets.read_text()
    assert "| 1 | no rule says how it rounds |" in sets.read_text()
    assert found.read_text().count("| torch exp | cpu | high | kernel | y \\| wrong |") == 1
    for text in (sets.read_text(), found.read_text()):
        assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text


def test_errors_of_torch_are_graded_by_their_inputs():
    assert grade("torch", {"severity": "low", "input_class": "special"}) == "medium"
    assert grade("liger", {"severity": "low", "input_class": "special"}) == "low"
    assert grade("torch", {"severity": "low"}) == "low"
    assert grade("own", {"severity": None, "input_class": None}) == "not graded"


def test_bugs_and_controls_of_gpuemu_are_counted_apart():
    silent = {"cases": 9, "seconds": 1.0, "findings": []}
    found = silent | {"findings": [FOUND | {"severity": "high"}]}
    low = silent | {"findings": [FOUND]}
    kernels = {"a_buggy": found, "b_buggy": low, "a": silent, "b": low, "c": found}
    runs = {("cpu", "gpuemu"): [{"target": f"gpuemu.py:{name}"} | run for name, run in kernels.items()]}
    assert "gpuemu's corpus on `cpu`: 1 of 2 bugs and 1 of 3 controls reported." in page(runs)
