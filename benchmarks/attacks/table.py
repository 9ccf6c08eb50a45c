"""The table of attacks by kind, and the list of those that fell."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.attacks.run_attacks import FELL, HELD, NOT_POSSIBLE, Result
from fuzz.escaping import clean_text


def attack_table(results: Sequence[Result], where: str) -> str:
    """Markdown: kinds with how many were tried and held, where they ran, and one line for each that did not hold."""
    kinds = list(dict.fromkeys(result.attack.kind for result in results))
    rows = [row(kind, [result for result in results if result.attack.kind == kind]) for kind in kinds]
    lines = ["| kind | tried | held |", "|---|---|---|", *rows, row("**all**", results), "", where]
    for state, title in ((FELL, "Fell"), (NOT_POSSIBLE, "Not possible there, and not counted")):
        if some := [result for result in results if result.state == state]:
            lines += ["", f"{title}:", "", *(describe(result) for result in some)]
    return "\n".join(lines)


def row(title: str, results: Sequence[Result]) -> str:
    tried = [result for result in results if result.state != NOT_POSSIBLE]
    return f"| {title} | {len(tried)} | {sum(result.state == HELD for result in tried)} |"


def describe(result: Result) -> str:
    why = clean_text(result.why, 300).replace("|", "\\|").replace("<", "&lt;")
    return f"- `{result.attack.name}` ({result.attack.kind}): {why}"
