"""Defines a pass, one kind of simplification: a function, (case, target) -> smaller cases, boldest first.

It holds no state and draws nothing at random: whether it makes progress depends on the case alone. The shrinker drops
candidates that are not smaller under sort_key, so that a pass may propose freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fuzz.model.case import Case
from fuzz.target.spec import Target

Pass = Callable[[Case, Target], Iterator[Case]]
