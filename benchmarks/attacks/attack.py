"""What an attack is, and how the files of this package list theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.attacks.trial import Trial

ONE_LINE = "one line that begins with `fuzz: `, and exit code 2"


class FellError(Exception):
    """The attack did not hold; the text says what happened instead."""


class NotPossibleError(Exception):
    """This machine cannot make the attack; the text says why."""


@dataclass(frozen=True)
class Attack:
    """One attack: what it does, what it means that it holds, and the function that makes it and raises FellError."""

    name: str
    kind: str
    what: str
    holds: str
    run: Callable[[Trial], None]


@dataclass
class Kind:
    """Attacks on one surface. `title` stands in the table."""

    title: str
    attacks: list[Attack] = field(default_factory=list)

    def attack(self, holds: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
        """Lists a function as an attack: its name is the attack's, its docstring says what the attack does."""

        def declare(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
            self.add(run.__name__, run.__doc__ or "", holds, run)
            return run

        return declare

    def add(self, name: str, what: str, holds: str, run: Callable[[Trial], None]) -> None:
        """Lists an attack. ValueError for a name that is taken or a sentence that is missing."""
        if not (what and holds) or name in {attack.name for attack in self.attacks}:
            raise ValueError(f"attack {name}: the name is taken, or does not say what it does and what holds")
        self.attacks.append(Attack(name, self.title, " ".join(what.split()), holds, run))
