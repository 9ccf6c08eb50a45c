"""The operations that docs/tolerance.md lists for references are those that have a rule."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from programs import run_program

from fuzz.reference.envelope.rules.factories import RANDOM

DOCUMENT = Path(__file__).parents[3] / "docs/tolerance.md"
INTERNAL = re.compile(r"^_|_$|_backward(_data)?$|_copy$|_(forward|indices)$")
"""Names that torch gives to steps of its own: gradients, copies of views, operations in place."""
NAMES = """
import torch
from fuzz.reference.envelope import evaluate, make_precision
from fuzz.reference.envelope.ensemble import RULES

evaluate(lambda x: {"y": x + x}, {"x": torch.ones(2)}, make_precision("libm"))
print(*{func.overloadpacket.__name__ for func in RULES})
"""
"""Run in a process of its own: the table also takes in what it finds a decomposition of."""


def operations_with_a_rule() -> list[str]:
    """By the names under which a reference calls them."""
    names = run_program("-c", NAMES).stdout.split()
    return sorted(name for name in {*names} - {*RANDOM.split()} if not INTERNAL.search(name))


def test_the_document_lists_every_operation_that_has_a_rule() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = text.partition("<!-- operations -->")[2].partition("<!-- /operations -->")[0]
    known = [name for name in re.findall(r"`(\w+)`", listed) if hasattr(torch.ops.aten, name)]
    assert known == operations_with_a_rule()
