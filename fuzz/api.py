"""Api: what a target's file uses. `target` turns a launcher into a Target that can be run from a plain function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.target import Launcher, declare
from fuzz.target import Target as Record


class Target(Record):
    """A declared target. Calling it calls the launcher."""


def target(**declaration: Any) -> Callable[[Launcher], Target]:
    """Declare the decorated launcher as a target; docs/targets.md lists every keyword. Raises TargetError."""

    def decorate(launcher: Launcher) -> Target:
        made = declare(launcher, cls=Target, **declaration)
        assert isinstance(made, Target)
        return made

    return decorate
