"""Adds counters of what a kernel does: branches, trips of loops, lanes of masks and selects."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.backends.cpu.codegen.index import current_index
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CounterSite
from fuzz.backends.cpu.frontend.ir import Op, Value, walk

TWO_WAYS = ("taken", "not taken")
TRIPS = ("0", "1", "2", "3", "4 to 7", "8 to 15", "16 to 31", "32 to 127", "128 or more")
LANES = ("none", "some", "all")
CHOICES = ("all false", "mixed", "all true")


class CoverageCounters:
    """Is called before each operation is lowered."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        outer = [op for _, op in walk(lowering.function.blocks) if op.definition.is_per_element]
        self.not_counted = {inner for op in outer for region in op.regions for _, inner in walk(region)}

    def __call__(self, op: Op) -> None:
        if op.definition.count is not None and op not in self.not_counted:
            op.definition.count(self, op)

    def add_site(self, kind: str, outcomes: tuple[str, ...]) -> int:
        """A new counter site at the current line; the number of the counter of its first outcome."""
        first = sum(len(site.outcomes) for site in self.lowering.counters)
        location = self.lowering.location
        self.lowering.counters.append(CounterSite(kind, location.file, location.line, outcomes))
        return first

    def count_scalar(self, kind: str, outcomes: tuple[str, ...], outcome: str) -> None:
        first = self.add_site(kind, outcomes)
        self.lowering.add(f"count(run->all->counters + {first} + ({outcome}));")

    def count_lanes(self, kind: str, outcomes: tuple[str, ...], value: Value) -> None:
        """Counts whether none, some or all lanes of an i1 value are set."""
        lowering, shape = self.lowering, value.type.shape
        if not value.type.is_tensor:
            self.count_scalar(kind, outcomes, f"{lowering.scalar(value)} ? 2 : 0")
            return
        first, operand = self.add_site(kind, outcomes), lowering.operand(value)
        loop = lowering.loop_for(shape, [operand])
        name = lowering.identifiers.pick("lanes")
        loop.sums.append(name)
        lowering.add_to_loop(loop, f"{name} += {operand.at(current_index(shape), loop)};")
        outcome = f"{name} == 0 ? 0 : {name} == {value.type.count} ? 2 : 1"
        loop.after.append(f"count(run->all->counters + {first} + ({outcome}));")


def count_branch(counters: CoverageCounters, op: Op) -> None:
    counters.count_scalar("branch", TWO_WAYS, f"!{counters.lowering.scalar(op.operands[0])}")


def count_while(counters: CoverageCounters, op: Op) -> None:
    counters.count_scalar("loop goes on", TWO_WAYS, f"!{counters.lowering.scalar(op.operands[0])}")


def count_trips(counters: CoverageCounters, op: Op) -> None:
    low, high, step = map(counters.lowering.scalar, op.operands[:3])
    cast = f"({op.operands[0].type.unsigned})" if op.attributes.get("unsigned") else ""
    trips = f"{cast}{low} < {cast}{high} ? ((i64){high} - {low} - 1) / {step} + 1 : 0"
    counters.count_scalar("loop", TRIPS, f"bucket({trips})")


def count_select(counters: CoverageCounters, op: Op) -> None:
    counters.count_lanes("select", CHOICES, op.operands[0])


def count_mask(operand: int) -> Callable[[CoverageCounters, Op], None]:
    """Counts the lanes of the mask, which is this operand where the operation has so many."""

    def count(counters: CoverageCounters, op: Op) -> None:
        if len(op.operands) > operand:
            counters.count_lanes(f"mask of {op.name.removeprefix('tt.')}", LANES, op.operands[operand])

    return count
