"""The attacks by surface, one file each."""

from __future__ import annotations

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kinds import (
    campaign_files,
    command_lines,
    entries,
    entry_texts,
    environments,
    inputs,
    launchers,
    service,
    side_by_side,
    stores,
    target_files,
)

KINDS = (
    launchers.KIND,
    target_files.KIND,
    entry_texts.KIND,
    entries.KIND,
    campaign_files.KIND,
    inputs.KIND,
    command_lines.KIND,
    environments.KIND,
    stores.KIND,
    service.KIND,
    side_by_side.KIND,
)
"""Every kind, in the order of the table."""


def all_attacks() -> list[Attack]:
    """Every attack."""
    return [attack for kind in KINDS for attack in kind.attacks]
