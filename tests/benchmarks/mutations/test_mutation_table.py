"""The table of mutants counts what is killed of what is live, and lists every survivor."""

from benchmarks.mutations.table import NAME, page, write

MUTANT = {"operator": "bound moved", "kernel": "k", "line": 3, "old": "a < b", "new": "(a <= b)", "target": "softmax"}
ROWS = [
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "killed", "first_seconds": 4.0, "severity": "high"},
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "killed", "first_seconds": 6.0, "severity": None},
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "equivalent", "judged": {"why": "", "cases": 1500}},
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "undecided", "judged": {"why": "", "cases": 12}},
    MUTANT
    | {"seconds": 60.0, "cases": 900, "result": "live", "old": "a | b", "judged": {"why": "y differs", "cases": 7}},
]


def test_page():
    text = page({"softmax": ROWS})
    assert text.startswith(
        "**2 of 3 live mutants of 1 kernels killed (67%)**, 60 s each, 1 of them by a finding that was not graded. "
        "Kernels listed: 1. Equivalent or within rounding: by 1,500 cases or more.\n"
    )
    assert "| bound moved | 2 of 3 | 67% | 5 | 1 | 0 | 0 | 1 | 0 |" in text
    assert "| softmax k, line 3 | `a \\| b` becomes `(a <= b)` | y differs, at case 7 | 900 |" in text


def test_kernels_that_are_not_measured_are_told():
    text = page({"softmax": ROWS, "matmul": [None], "geglu": [*ROWS, None], "msda": []})
    assert "Kernels listed: 4, of which not measured to the end: matmul, geglu, msda." in text


def test_write_replaces_what_stands_between_the_marks(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n<!-- {NAME} -->\nold\n<!-- /{NAME} -->\nafter\n")
    write(document, {"softmax": ROWS})
    text = document.read_text()
    assert text.startswith(f"before\n<!-- {NAME} -->\n\n**2 of 3")
    assert text.endswith(f"<!-- /{NAME} -->\nafter\n")
    assert "old\n" not in text
