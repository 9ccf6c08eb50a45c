"""Defines what a target promises of its outputs' values."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.errors import TargetError

BITS = ("bitwise", "envelope")
"""What may be promised of two runs that should agree: the same bits, or both inside the envelope."""

RANGES = ("working", "full")
"""Where results are to be right: where no intermediate of the reference leaves the working range, or everywhere."""


@dataclass(frozen=True)
class Contract:
    """`kind` is envelope (as near as honest rounding gets), ulps (so many from the rounded value), or bitwise."""

    kind: str = "envelope"
    ulps: float = 0.0

    def __str__(self) -> str:
        return f"at most {self.ulps:g} ulp from the correctly rounded value" if self.kind == "ulps" else self.kind


ENVELOPE = Contract()


def ulps(most: float) -> Contract:
    """At most so many units in the last place from the correctly rounded value, for elementwise targets.

    A unit is the distance between neighbours of the output's dtype at the correctly rounded value (Goldberg).
    """
    if not most >= 0:
        raise TargetError(f"ulps({most:g}): a number of units, 0 or more")
    return Contract("ulps", float(most))


def parse_contract(contract: Contract | str) -> Contract:
    """A contract by its name, or as it is."""
    if isinstance(contract, Contract):
        return contract
    if contract not in BITS:
        raise TargetError(f"unknown contract {contract!r}: 'envelope', ulps(n), or 'bitwise' with a baseline")
    return Contract(contract)
