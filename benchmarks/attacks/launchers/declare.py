"""Declares hostile launchers: each doubles its argument, and attacks where it gets one element."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fuzz import size, target, tensor

NONE, LINE = "none", "line"
"""No finding; one line and exit code 2."""
N = size("N", 1, 64)


@dataclass(frozen=True)
class Launcher:
    """A hostile launcher, and what may come of it: symptoms of its one finding, NONE or LINE."""

    file: Path
    name: str
    what: str
    allowed: tuple[str, ...]


LAUNCHERS: list[Launcher] = []


def double(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return dict(y=x * 2)


def hostile(*allowed: str, timeout: float = 60.0) -> Callable[[Callable[[Any], Any]], Any]:
    """Declares a target over a function that attacks; what it returns is the result, which is right by default.

    The first case of every run has one element. The file that `FUZZ_ATTACK_NOTE` names says that the attack was made.
    """

    def declare(attack: Callable[[Any], Any]) -> Any:
        @functools.wraps(attack)
        def launcher(x: torch.Tensor) -> Any:
            if x.numel() != 1:
                return double(x)
            note()
            result = attack(x)
            return double(x) if result is None else result

        file = Path(sys.modules[attack.__module__].__file__ or "")
        LAUNCHERS.append(Launcher(file, attack.__name__, attack.__doc__ or "", allowed))
        seeds = {"attack": dict(N=1)}
        return target(x=tensor(N), dtypes=("float32",), reference=double, seeds=seeds, timeout=timeout)(launcher)

    return declare


def note() -> None:
    """Notes that the attack is made, where somebody asks for it."""
    if name := os.environ.get("FUZZ_ATTACK_NOTE"):
        with open(name, "a", encoding="utf-8"):
            pass
