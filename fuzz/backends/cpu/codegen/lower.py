"""Lowers the operations of one function to the C of one program: views, loops of elementwise operations, arrays."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fuzz.backends.cpu.codegen.identifiers import Identifiers
from fuzz.backends.cpu.codegen.index import Index, IndexFunction, current_index, current_position, make_index_function
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.codegen.operands import Lane, LoopNest, Operand, Statement, Uniform, indexed_view
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Block, FuncOp, Op, SourceLocation, Value, walk
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.instruments import PLAIN, Instruments

if TYPE_CHECKING:
    from fuzz.backends.cpu.analysis.affine import AffineAnalysis

Compute = Callable[[list[str]], str]
"""The C texts of operands of one lane -> a C expression or statement."""


class Lowering:
    """The state of lowering one function. Tensor operations join the open loop where that changes no result."""

    affine: AffineAnalysis

    def __init__(self, function: FuncOp, instruments: Instruments = PLAIN, reaches_before: bool = False) -> None:
        self.function = function
        self.instruments = instruments
        # Whether elements of an argument may lie before its address.
        self.reaches_before = reaches_before
        # The C names of the parameters; that of a pointer is the lowest address of its argument.
        self.parameter_names: list[str] = []
        self.producers = producers(function)
        # Of tensors that a loop carries and only shifts: their first value, and the name of its first element.
        self.shifted: dict[Value, tuple[Value, str]] = {}
        # The arithmetic that makes offsets, by the number that tags a wrapped address.
        self.offset_locations: list[SourceLocation] = []
        self.counters: list[CounterSite] = []
        self.synchronises = "conflicts" in instruments and any(
            op.definition.synchronises(op) for op in self.producers.values()
        )
        # Adds counters for an operation, where they are asked for.
        self.count: Callable[[Op], None] = lambda op: None
        self.identifiers = Identifiers()
        self.code: list[str | LoopNest] = []
        self.arrays: list[Lane] = []
        self.values: dict[Value, Operand] = {}
        self.sites: list[CheckSite] = []
        self.labels: dict[str, tuple[str, list[Operand]]] = {}
        # For each region that is inlined: the label behind it, and the variables of what it returns.
        self.returns: list[tuple[str, list[Operand]]] = []
        # By name the declarations of how many addresses an access of some size has in an argument, and of an
        # argument's own address where that may not be its lowest one.
        self.limits: dict[str, str] = {}
        self.uses_libdevice = False
        self.open_loop: LoopNest | None = None
        self.location = function.location
        self.commented: SourceLocation | None = None

    # operations

    def lower_block(self, block: Block) -> None:
        for op in block.ops:
            self.lower(op)

    def lower(self, op: Op) -> None:
        if op.location.line:
            self.location = op.location
        self.count(op)
        try:
            self.lower_as_defined(op)
        except UnsupportedOperation as refused:
            if refused.located:
                raise
            raise UnsupportedOperation(refused.what, self.function.name, str(self.location)) from None

    def lower_as_defined(self, op: Op) -> None:
        if op.definition.lower is not None:
            op.definition.lower(self, op)
        elif op.definition.index_map is not None:
            self.bind_view(op.result, self.operand(op.operands[0]), make_index_function(op.definition.index_map(op)))
        else:
            raise UnsupportedOperation(op.name)

    def operands(self, op: Op) -> list[Operand]:
        return [self.values[value] for value in op.operands]

    def operand(self, value: Value) -> Operand:
        return self.values[value]

    def scalar(self, value: Value) -> str:
        """The C text of a scalar, or of a tensor that has one value everywhere."""
        return self.values[value].at((), None)

    # code

    def end_loop(self) -> None:
        """Ends the open loop: what follows sees all of its lanes."""
        self.open_loop = None

    def add(self, text: str) -> None:
        """Adds a line after everything so far."""
        self.end_loop()
        self.add_source_comment()
        self.code.append(text)

    def add_source_comment(self) -> None:
        """Says once which source line the following C comes from."""
        if self.location.line and self.commented != self.location:
            self.commented = self.location
            self.code.append(source_comment(self.location))

    def declare(self, type: Type, name: str, text: str) -> Uniform:
        """A new C scalar, computed before the open loop (which cannot depend on it, nor it on the loop)."""
        line = f"{type.c} {name} = {text};"
        if self.open_loop is not None and self.code[-1] is self.open_loop:
            self.code.insert(len(self.code) - 1, line)
        else:
            self.add_source_comment()
            self.code.append(line)
        return Uniform(type, name)

    def bind_scalar(self, result: Value, text: str) -> None:
        """Binds a result to a new C scalar."""
        self.values[result] = self.declare(result.type, self.identifiers.pick(result.name), text)

    def variable(self, type: Type, name: str) -> Operand:
        """A C variable or array that may be assigned more than once."""
        if type.is_tensor:
            return self.array(type, name)
        name = self.identifiers.pick(name)
        self.add(f"{type.c} {name};")
        return Uniform(type, name)

    def array(self, type: Type, name: str) -> Lane:
        """A new array, of a name like this one."""
        lane = Lane(type, self.identifiers.pick(name), None, needs_array=True)
        self.arrays.append(lane)
        return lane

    # elementwise operations

    def elementwise(self, result: Value, operands: Sequence[Operand], compute: Compute, effect: str = "") -> None:
        """Defines a result lane by lane. `effect` is `load`, `store` or `atomic` where memory is touched."""
        type = result.type
        name = self.identifiers.pick(result.name)
        if type.is_tensor:
            loop = self.loop_for(type.shape, operands, effect)
            here = current_index(type.shape)
            self.add_lane(result, name, loop, compute([operand.at(here, loop) for operand in operands]))
            return
        if effect:
            self.end_loop()
        self.values[result] = self.declare(type, name, compute([operand.at((), None) for operand in operands]))

    def add_lane(self, result: Value, name: str, loop: LoopNest, text: str) -> Statement:
        """Binds a result to the value of an expression in each lane of the loop."""
        lane = Lane(result.type, name, loop)
        self.arrays.append(lane)
        self.values[result] = lane
        return self.add_to_loop(loop, text, lane)

    def for_each_lane(self, shape: tuple[int, ...], operands: Sequence[Operand], compute: Compute, effect: str) -> None:
        """Adds a statement for every lane, without a result."""
        if not shape:
            self.add(compute([operand.at((), None) for operand in operands]))
            return
        loop = self.loop_for(shape, operands, effect)
        here = current_index(shape)
        self.add_to_loop(loop, compute([operand.at(here, loop) for operand in operands]))

    def add_to_loop(self, loop: LoopNest, text: str, lane: Lane | None = None) -> Statement:
        if self.location.line and self.commented != self.location:
            self.commented = self.location
            loop.statements.append(Statement(source_comment(self.location)))
        statement = Statement(text, lane)
        loop.statements.append(statement)
        return statement

    def loop_for(self, shape: tuple[int, ...], operands: Sequence[Operand], effect: str = "") -> LoopNest:
        """The open loop if the operation may join it, else a new one."""
        loop = self.open_loop
        if loop is None or not may_join(loop, shape, operands, effect):
            loop = self.open_loop = LoopNest(shape)
            self.code.append(loop)
        loop.loads |= effect == "load"
        loop.stores |= effect in ("store", "atomic")
        for operand in operands:
            loop.note_read(operand)
        return loop

    # whole tensors

    def assign(self, target: Operand, source: Operand) -> None:
        """Copies a value into a variable."""
        if isinstance(target, Uniform):
            self.add(f"{target.text} = {source.at((), None)};")
            return
        assert isinstance(target, Lane)
        loop = self.open_loop
        if loop and (target in loop.lanes_read_elsewhere or (loop.may_retry and target in loop.lanes_read)):
            # What is read and then changed in a loop that is done twice would be changed twice.
            self.end_loop()
        shape = target.type.shape
        position = current_position(shape)
        self.for_each_lane(shape, [source], lambda text: f"{target.name}[{position}] = {text[0]};", "")

    def assign_all(self, targets: Sequence[Operand], sources: Sequence[Operand]) -> None:
        """Copies values into variables as if at the same time; tensors first, as their views may read scalars."""
        pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if t is not s]
        pairs.sort(key=lambda pair: isinstance(pair[0], Uniform))
        copies = [(t, self.copy_if_overwritten(t, s, targets)) for t, s in pairs]
        for target, source in copies:
            self.assign(target, source)
        self.end_loop()

    def copy_if_overwritten(self, target: Operand, source: Operand, targets: Sequence[Operand]) -> Operand:
        """The source, copied first if it reads a variable that is about to change."""
        if not source.type.is_tensor:
            changed = {other.text for other in targets if isinstance(other, Uniform)}
            # A pointer that was cast to an integer is an expression that reads the variable.
            is_overwritten = bool(changed & set(re.findall(r"\w+", source.at((), None))))
        else:
            shape = target.type.shape
            is_overwritten = any(
                lane in targets and (lane is not target or index != lane.here)
                for lane, index in source.lanes(current_index(shape))
            )
        if not is_overwritten:
            return source
        copy = self.variable(target.type, "copy")
        self.assign(copy, source)
        return copy

    def materialise(self, operand: Operand, name: str = "dense") -> Lane:
        """The operand as an array that any index may be read from, after the open loop."""
        if not isinstance(operand, Lane):
            copy = self.array(operand.type, name)
            self.assign(copy, operand)
            operand = copy
        operand.needs_array = True
        self.end_loop()
        return operand

    def bind_view(self, result: Value, source: Operand, function: IndexFunction) -> None:
        """Binds a result to its source read at other indexes."""
        self.values[result] = indexed_view(result.type, source, function)


def producers(function: FuncOp) -> dict[Value, Op]:
    """The operation that each value is the result of; an argument of a call has the producer of the caller's value."""
    by_result = {result: op for _, op in walk(function.blocks) for result in op.results}
    for _, op in walk(function.blocks):
        if op.name == "tt.call":
            passed = zip(op.regions[0][0].arguments, op.operands, strict=True)
            by_result |= {argument: by_result[operand] for argument, operand in passed if operand in by_result}
    return by_result


def may_join(loop: LoopNest, shape: tuple[int, ...], operands: Iterable[Operand], effect: str) -> bool:
    """Whether fusing keeps whole-tensor semantics: no lane may see another lane's result of the same loop,
    and no load may run beside a store, which could alias it."""
    if loop.shape != shape or effect == "atomic":
        return False
    if (effect == "load" and loop.stores) or (effect == "store" and (loop.loads or loop.stores)):
        return False
    here: Index = current_index(shape)
    reads = [read for operand in operands for read in operand.lanes(here)]
    return all(lane.loop is not loop or index == here for lane, index in reads)


def source_comment(location: SourceLocation) -> str:
    text = linecache.getline(location.file, location.line).strip()
    text = re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /").rstrip("\\")
    return f"/* {os.path.basename(location.file)}:{location.line}  {text} */"
