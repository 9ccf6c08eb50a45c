"""Replaces attributes of modules and classes for a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

ABSENT = object()
"""The value of an attribute that an object does not have itself."""


class Patch(NamedTuple):
    """One attribute and the value that it has instead."""

    owner: Any
    name: str
    value: Any

    def apply(self) -> None:
        """Sets the attribute, or removes it: an inherited one then shows again."""
        if self.value is ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.value)


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[list[Patch]]:
    """Applies patches for a block, which gets those that restore what was there before."""
    before: list[Patch] = []
    try:
        for patch in patches:
            restore = patch._replace(value=vars(patch.owner).get(patch.name, ABSENT))
            patch.apply()
            before.append(restore)
        yield before
    finally:
        for restore in reversed(before):
            restore.apply()
