"""One function's op tree -> the C of one program: lazy views, loops that gather elementwise operations, arrays."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fuzz.backends.cpu.analysis.provenance import synchronises
from fuzz.backends.cpu.codegen.identifiers import Names
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.codegen.operands import Index, Lane, Loop, Operand, Uniform, View, current, identity
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Block, Function, Location, Op, Value, walk
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.instruments import PLAIN, Instruments

if TYPE_CHECKING:
    from fuzz.backends.cpu.analysis.affine import Intervals

Handler = Callable[["Lowering", Op], None]
Compute = Callable[[list[str]], str]
HANDLERS: dict[str, Handler] = {}


def lowers(*names: str) -> Callable[[Handler], Handler]:
    """Register the function that lowers operations of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


class Lowering:
    """State of lowering one function. Tensor operations join the open loop where that changes no result."""

    intervals: Intervals

    def __init__(self, function: Function, instruments: Instruments = PLAIN) -> None:
        self.function = function
        self.instruments = instruments
        self.makers = makers(function)
        # Of tensors that a loop carries and only shifts: their first value, and the name of its first element.
        self.shifted: dict[Value, tuple[Value, str]] = {}
        self.wraps: list[Location] = []
        self.counters: list[CounterSite] = []
        self.synchronises = "conflicts" in instruments and any(map(synchronises, self.makers.values()))
        self.watcher: Callable[[Op], None] | None = None
        self.names = Names()
        self.code: list[str | Loop] = []
        self.arrays: list[Lane] = []
        self.values: dict[Value, Operand] = {}
        self.sites: list[CheckSite] = []
        self.labels: dict[str, tuple[str, list[Operand]]] = {}
        self.returns: list[tuple[str, list[Operand]]] = []
        self.rooms: dict[str, str] = {}
        self.open: Loop | None = None
        self.location = function.location
        self.commented: Location | None = None

    # operations

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        handler = HANDLERS.get(op.name)
        if op.location.line:
            self.location = op.location
        if handler is None:
            raise self.unsupported(op.name)
        if self.watcher is not None:
            self.watcher(op)
        try:
            handler(self, op)
        except UnsupportedOperation as refused:
            if refused.located:
                raise
            raise self.unsupported(refused.what) from None

    def unsupported(self, what: str) -> UnsupportedOperation:
        return UnsupportedOperation(what, self.function.name, str(self.location))

    def operands(self, op: Op) -> list[Operand]:
        return [self.values[value] for value in op.operands]

    def operand(self, value: Value) -> Operand:
        return self.values[value]

    # code

    def close(self) -> None:
        """End the open loop: what follows sees all of its lanes."""
        self.open = None

    def statement(self, text: str) -> None:
        """A line after everything so far."""
        self.close()
        self.comment(self.code)
        self.code.append(text)

    def comment(self, where: list[str | Loop]) -> None:
        """Say once which source line the following C comes from."""
        if self.location.line and self.commented != self.location:
            self.commented = self.location
            where.append(source_comment(self.location))

    def declare(self, type: Type, name: str, text: str) -> Uniform:
        """A new C scalar, computed before the open loop (which cannot depend on it, nor it on the loop)."""
        line = f"{type.c} {name} = {text};"
        if self.open is not None and self.code[-1] is self.open:
            self.code.insert(len(self.code) - 1, line)
        else:
            self.comment(self.code)
            self.code.append(line)
        return Uniform(type, name)

    def variable(self, type: Type, name: str) -> Operand:
        """A C variable or array that may be assigned more than once."""
        name = self.names.pick(name)
        if type.is_tensor:
            return self.array(type, name)
        self.statement(f"{type.c} {name};")
        return Uniform(type, name)

    def array(self, type: Type, name: str) -> Lane:
        """A new array; `name` must be fresh."""
        lane = Lane(type, name, None, kept=True)
        self.arrays.append(lane)
        return lane

    # elementwise operations

    def elementwise(
        self, result: Value, operands: Sequence[Operand], compute: Compute, effect: str = "", type: Type | None = None
    ) -> Operand:
        """Define a result lane by lane. `effect` is `load`, `store` or `atomic` where memory is touched."""
        type = type or result.typed
        name = self.names.pick(result.name)
        if not type.is_tensor:
            if effect:
                self.close()
            bound: Operand = self.declare(type, name, compute([operand.at((), None) for operand in operands]))
        else:
            loop = self.loop_for(type.shape, operands, effect)
            here = identity(type.shape)
            bound = lane = Lane(type, name, loop)
            self.arrays.append(lane)
            self.into(loop, lane, compute([operand.at(here, loop) for operand in operands]))
        self.values[result] = bound
        return bound

    def effect(self, shape: tuple[int, ...], operands: Sequence[Operand], compute: Compute, effect: str) -> None:
        """A statement for every lane, without a result."""
        if not shape:
            self.statement(compute([operand.at((), None) for operand in operands]))
            return
        loop = self.loop_for(shape, operands, effect)
        here = identity(shape)
        self.into(loop, None, compute([operand.at(here, loop) for operand in operands]))

    def into(self, loop: Loop, lane: Lane | None, text: str) -> None:
        if self.location.line and self.commented != self.location:
            self.commented = self.location
            loop.lines.append((None, source_comment(self.location)))
        loop.lines.append((lane, text))

    def loop_for(self, shape: tuple[int, ...], operands: Sequence[Operand], effect: str = "") -> Loop:
        """The open loop if the operation may join it, else a new one."""
        loop = self.open
        if loop is None or not joins(loop, shape, operands, effect):
            loop = self.open = Loop(shape)
            self.code.append(loop)
        loop.loads |= effect == "load"
        loop.stores |= effect in ("store", "atomic")
        for operand in operands:
            loop.reads(operand)
        return loop

    # whole tensors

    def assign(self, target: Operand, source: Operand) -> None:
        """Copy a value into a variable."""
        if isinstance(target, Uniform):
            self.statement(f"{target.text} = {source.at((), None)};")
            return
        assert isinstance(target, Lane)
        if self.open is not None and (target in self.open.foreign or self.open.retries and target in self.open.read):
            # What is read and then changed in a loop that is done twice would be changed twice.
            self.close()
        shape = target.type.shape
        here = current(shape)
        self.effect(shape, [source], lambda text: f"{target.name}[{here}] = {text[0]};", "")

    def assign_all(self, targets: Sequence[Operand], sources: Sequence[Operand]) -> None:
        """Copy values into variables as if at the same time; tensors first, as their views may read scalars."""
        pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if t is not s]
        pairs.sort(key=lambda pair: isinstance(pair[0], Uniform))
        staged = [(t, self.staged(t, s, targets)) for t, s in pairs]
        for target, source in staged:
            self.assign(target, source)
        self.close()

    def staged(self, target: Operand, source: Operand, targets: Sequence[Operand]) -> Operand:
        """The source, copied first if it reads a variable that is about to change."""
        if isinstance(source, Uniform) and not source.type.is_tensor:
            changed = {other.text for other in targets if isinstance(other, Uniform)}
            hazard = source.text in changed
        else:
            shape = target.type.shape
            hazard = any(
                lane in targets and (lane is not target or index != lane.here)
                for lane, index in source.lanes(identity(shape))
            )
        if not hazard:
            return source
        copy = self.variable(target.type, "copy")
        self.assign(copy, source)
        return copy

    def materialise(self, operand: Operand, name: str = "dense") -> Lane:
        """The operand as an array that any index may be read from, after the open loop."""
        if not isinstance(operand, Lane):
            copy = self.array(operand.type, self.names.pick(name))
            self.assign(copy, operand)
            operand = copy
        operand.kept = True
        self.close()
        return operand

    def bind_view(self, result: Value, source: Operand, remap: Callable[[Index], Index]) -> None:
        """Bind a result that is its source read at rewritten indexes."""
        fetch = lambda index, loop: source.at(remap(index), loop)  # noqa: E731
        self.values[result] = View(result.typed, fetch, [(source, remap)])


def makers(function: Function) -> dict[Value, Op]:
    """The operation that each value is the result of; what a call is given is the result of its caller's."""
    found = {result: op for _, op in walk(function.blocks) for result in op.results}
    for _, op in walk(function.blocks):
        if op.name == "tt.call":
            given = zip(op.regions[0][0].arguments, op.operands, strict=True)
            found |= {argument: found[operand] for argument, operand in given if operand in found}
    return found


def joins(loop: Loop, shape: tuple[int, ...], operands: Iterable[Operand], effect: str) -> bool:
    """Whether fusing keeps whole-tensor semantics: no lane may see another lane's result of the same loop,
    and no load may run beside a store, which could alias it."""
    if loop.shape != shape or effect == "atomic":
        return False
    if (effect == "load" and loop.stores) or (effect == "store" and (loop.loads or loop.stores)):
        return False
    here = identity(shape)
    reads = [read for operand in operands for read in operand.lanes(here)]
    return all(lane.loop is not loop or index == here for lane, index in reads)


def source_comment(location: Location) -> str:
    text = linecache.getline(location.file, location.line).strip()
    text = re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /").rstrip("\\")
    return f"/* {os.path.basename(location.file)}:{location.line}  {text} */"
