"""A pass towards launches as they are without launch options: none, fewer of them, an earlier configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzz.model.case import Case
from fuzz.model.edit import with_launch
from fuzz.target.spec import Target


def plain_launch(case: Case, target: Target) -> Iterator[Case]:
    """No launch options, then without each of them, then with smaller configurations."""
    launch = case.last.launch
    if launch is None:
        return
    yield with_launch(case, None)
    for name in launch.as_dict():
        yield with_launch(case, replace(launch, **{name: None}))
    for config in range(launch.config or 0):
        yield with_launch(case, replace(launch, config=config))
