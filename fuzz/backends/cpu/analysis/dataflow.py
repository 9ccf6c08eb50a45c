"""Finds how values flow through a function: which parameters an address derives from, and which tensors loops shift."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.backends.cpu.frontend.ir import Block, FuncOp, Op, Value, walk
from fuzz.backends.cpu.ops.definition import Flow

MEMORY = -1
"""The provenance of a pointer that comes from memory or from an integer, besides numbers of parameters."""


def trace_provenance(function: FuncOp) -> None:
    """Fills `Value.provenance` of every address in the function."""
    for index, parameter in enumerate(function.parameters):
        if parameter.type.is_pointer:
            parameter.provenance.add(index)
    flows = [flow for flow in all_flows(function.blocks) if flow[1].is_address]
    propagate(flows)
    for _, op in walk(function.blocks):
        for result in op.results:
            if result.type.is_pointer and op.name in ("tt.load", "tt.int_to_ptr") and not result.provenance:
                result.provenance.add(MEMORY)
    propagate(flows)


def propagate(flows: list[Flow]) -> None:
    """Carries provenance from sources to targets until nothing changes."""
    changed = True
    while changed:
        changed = False
        for source, target in flows:
            if not source.provenance <= target.provenance:
                target.provenance |= source.provenance
                changed = True


def all_flows(blocks: list[Block]) -> list[Flow]:
    """Every pair (value, value that may equal it or be computed from it)."""
    labels = {block.label: block for block in blocks}
    ops = [op for block in blocks for op in block.ops]
    flows = [flow for op in ops for flow in op.definition.flows(op, labels)]
    return flows + [flow for op in ops for region in op.regions for flow in all_flows(region)]


def for_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    body = op.regions[0][0]
    first, carried, last = op.operands[3:], body.arguments[1:], find_yielded(body)
    into = [*zip(first, carried, strict=True), *zip(last, carried, strict=True)]
    return [*into, *zip(carried, op.results, strict=True)]


def if_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    return [pair for region in op.regions for pair in zip(find_yielded(region[0]), op.results, strict=True)]


def while_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    before, after = op.regions[0][0], op.regions[1][0]
    passed = before.ops[-1].operands[1:]
    flows = [*zip(op.operands, before.arguments, strict=True), *zip(find_yielded(after), before.arguments, strict=True)]
    return [*flows, *zip(passed, after.arguments, strict=True), *zip(passed, op.results, strict=True)]


def jump_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    return [pair for label, values in op.successors for pair in zip(values, labels[label].arguments, strict=True)]


def call_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    returns = [block.ops[-1] for block in op.regions[0] if block.ops[-1].name == "tt.return"]
    passed = list(zip(op.operands, op.regions[0][0].arguments, strict=True))
    return passed + [pair for leave in returns for pair in zip(leave.operands, op.results, strict=True)]


def find_yielded(block: Block) -> list[Value]:
    return block.ops[-1].operands if block.ops and block.ops[-1].name == "scf.yield" else []


def shifted_values(op: Op, producers: dict[Value, Op]) -> list[tuple[Value, Value]]:
    """Of the tensors that a `scf.for` carries, those that every turn only moves by one number for all lanes, with
    their first values."""
    body = op.regions[0][0]
    rows = zip(body.arguments[1:], op.operands[3:], find_yielded(body), strict=True)
    return [
        (carried, first)
        for carried, first, last in rows
        if carried.type.is_tensor and not carried.type.is_float and is_shifted(last, carried, producers)
    ]


def is_shifted(value: Value, start: Value, producers: dict[Value, Op]) -> bool:
    """Whether the value is the start plus numbers that are the same for all lanes."""
    while value is not start:
        op = producers.get(value)
        if op is None or op.name not in ("tt.addptr", "arith.addi") or not is_uniform(op.operands[1], producers):
            return False
        value = op.operands[0]
    return True


def is_uniform(value: Value, producers: dict[Value, Op]) -> bool:
    op = producers.get(value)
    return op is not None and (op.name == "tt.splat" or (op.name == "arith.constant" and not has_many_values(op)))


def has_many_values(op: Op) -> bool:
    """Whether a constant has several values: in nested brackets, or as one string of all bytes."""
    return str(op.attributes["value"]).startswith(("[", '"'))
