"""The table of open entries in docs/findings.md: severity, typical case, upstream issue, first and last date.

With --grade every open entry without a severity is graded first, on its own backend, one after another; what is done
stays done, so that the work can be interrupted. Dates are those of the entry's first and last change in git; an
upstream issue is the text `upstream` of what the entry says of where it was seen.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.document import replace_between_marks
from fuzz import corpus
from fuzz.escaping import is_storable
from fuzz.model.entry import Entry
from fuzz.report.entry_text import describe_inputs

ROOT = Path(__file__).parents[1]
CORPUS, DOCUMENT = ROOT / "corpus", ROOT / "docs" / "findings.md"
COLUMNS = ("entry", "severity", "which inputs", "PyTorch in its precision", "upstream", "first", "last")
ISSUE = "upstream"
"""The text of an entry that names its issue upstream."""


def grade(path: Path, entry: Entry, seconds: float) -> None:
    """Grades an entry in its place; what does not disagree here stays as it is."""
    command = [sys.executable, "-m", "fuzz", "shrink", str(path), "--grade", "--seconds", f"{seconds:g}"]
    subprocess.run([*command, "--backend", entry.provenance.backend or "auto"], cwd=ROOT)


def dates(path: Path) -> tuple[str, str]:
    """The days on which a file was first and last changed, as git has them; empty where it has none."""
    listed = ["git", "log", "--follow", "--format=%as", "--", str(path)]
    days = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True).stdout.split()
    return (days[-1], days[0]) if days else ("", "")


def make_row(name: str, entry: Entry, first: str, last: str) -> str:
    """The line of one entry."""
    found, upstream = entry.grade, entry.provenance.versions.get(ISSUE, "")
    inputs = describe_inputs(found) if found else f"not graded; seen on {entry.provenance.backend}"
    eager = f"{found.eager_ratio:.2g} of the bound" if found and found.eager_ratio is not None else ""
    reason = f"; {found.reason}" if found and found.reason else ""
    link = f"[{upstream.rpartition('/')[2]}]({upstream})" if is_storable(upstream) and upstream else ""
    cells = (f"`{name}`", entry.severity or "", inputs + reason, eager, link, first, last)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: Sequence[str]) -> int:
    """Grades what is to be graded, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grade", action="store_true", help="grade entries that have no severity")
    parser.add_argument("--seconds", type=float, default=300.0, help="of grading one entry")
    options = parser.parse_args(arguments)
    rows = []
    for path in corpus.entry_files([CORPUS]):
        entry = corpus.read(path)
        if entry.status != "open":
            continue
        if options.grade and entry.grade is None:
            grade(path, entry, options.seconds)
            entry = corpus.read(path)
        rows.append(make_row(path.relative_to(CORPUS).as_posix(), entry, *dates(path)))
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    replace_between_marks(DOCUMENT, "severities", "\n".join([*head, *rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
