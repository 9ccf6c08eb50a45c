"""Counters of what a kernel does: branches, trips of loops, lanes of masks and selects."""

from __future__ import annotations

from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CounterSite
from fuzz.backends.cpu.frontend.ir import Op, Value, walk

TWO_WAYS = ("taken", "not taken")
TRIPS = ("0", "1", "2", "3", "4 to 7", "8 to 15", "16 to 31", "32 to 127", "128 or more")
LANES = ("none", "some", "all")
CHOICES = ("all false", "mixed", "all true")
PER_ELEMENT = ("tt.reduce", "tt.scan", "tt.map_elementwise")
MASKS = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}


class Tally:
    """Called before each operation is lowered."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        # What is inside reductions runs once per element.
        inside = [op for _, op in walk(lowering.function.blocks) if op.name in PER_ELEMENT]
        self.inner = {inner for op in inside for region in op.regions for _, inner in walk(region)}

    def __call__(self, op: Op) -> None:
        if op in self.inner:
            return
        if op.name in ("scf.if", "cf.cond_br", "scf.condition"):
            self.scalar("loop goes on" if op.name == "scf.condition" else "branch", TWO_WAYS, f"!{self.text(op, 0)}")
        elif op.name == "scf.for":
            self.scalar("loop", TRIPS, self.trips(op))
        elif op.name == "arith.select":
            self.lanes("select", CHOICES, op.operands[0])
        elif len(op.operands) > MASKS.get(op.name, len(op.operands)):
            self.lanes(f"mask of {op.name.removeprefix('tt.')}", LANES, op.operands[MASKS[op.name]])

    def text(self, op: Op, number: int) -> str:
        return self.lowering.operand(op.operands[number]).at((), None)

    def trips(self, op: Op) -> str:
        low, high, step = (self.text(op, number) for number in range(3))
        kind = op.operands[0].typed
        cast = f"({kind.unsigned})" if op.attributes.get("unsigned") else ""
        return f"bucket({cast}{low} < {cast}{high} ? ((i64){high} - {low} - 1) / {step} + 1 : 0)"

    def counter(self, kind: str, outcomes: tuple[str, ...]) -> int:
        """A new counter at the current line; the number of its first outcome."""
        first = sum(len(counter.outcomes) for counter in self.lowering.counters)
        place = self.lowering.location
        self.lowering.counters.append(CounterSite(kind, place.file, place.line, outcomes))
        return first

    def scalar(self, kind: str, outcomes: tuple[str, ...], which: str) -> None:
        first = self.counter(kind, outcomes)
        self.lowering.statement(f"count(run->all->counters + {first} + ({which}));")

    def lanes(self, kind: str, outcomes: tuple[str, ...], value: Value) -> None:
        """Whether none, some or all lanes of an i1 value are set."""
        if not value.typed.is_tensor:
            self.scalar(kind, outcomes, f"{self.lowering.operand(value).at((), None)} ? 2 : 0")
            return
        first, operand, shape = self.counter(kind, outcomes), self.lowering.operand(value), value.typed.shape
        loop = self.lowering.loop_for(shape, [operand])
        name = self.lowering.names.pick("lanes")
        loop.sums.append(name)
        index = tuple("0" if size == 1 else f"d{axis}" for axis, size in enumerate(shape))
        self.lowering.into(loop, None, f"{name} += {operand.at(index, loop)};")
        which = f"{name} == 0 ? 0 : {name} == {value.typed.count} ? 2 : 1"
        loop.after.append(f"count(run->all->counters + {first} + ({which}));")
