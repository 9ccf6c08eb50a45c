"""The table of mutants counts what is killed of what is live, and lists every survivor."""

from benchmarks.mutations.table import NAME, page, write

MUTANT = {"operator": "bound moved", "kernel": "k", "line": 3, "old": "a < b", "new": "(a <= b)", "target": "softmax"}
ROWS = [
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "killed", "first_seconds": 4.0},
    MUTANT | {"seconds": 60.0, "cases": 5, "result": "equivalent"},
    MUTANT
    | {"seconds": 60.0, "cases": 900, "result": "live", "old": "a | b", "judged": {"why": "y differs", "cases": 7}},
]


def test_page():
    text = page(ROWS)
    assert text.startswith("**1 of 2 live mutants of 1 kernels killed (50%)**, 60 s each.")
    assert "| bound moved | 1 of 2 | 50% | 4 | 1 | 0 | 0 | 0 |" in text
    assert "| softmax k, line 3 | `a \\| b` becomes `(a <= b)` | y differs, at case 7 | 900 |" in text


def test_write_replaces_what_stands_between_the_marks(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(f"before\n<!-- {NAME} -->\nold\n<!-- /{NAME} -->\nafter\n")
    write(document, ROWS)
    text = document.read_text()
    assert text.startswith(f"before\n<!-- {NAME} -->\n\n**1 of 2")
    assert text.endswith(f"<!-- /{NAME} -->\nafter\n")
    assert "old\n" not in text
