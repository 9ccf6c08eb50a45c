"""How values flow through a function: the parameters a pointer may derive from, and tensors that loops only shift."""

from __future__ import annotations

from fuzz.backends.cpu.frontend.ir import Block, Function, Op, Value

Flow = tuple[Value, Value]
# What these give is not computed from the address that they are given.
FROM_MEMORY = ("tt.load", "tt.atomic_rmw", "tt.atomic_cas")


def trace(function: Function) -> None:
    """Fill `Value.arguments` of every pointer in the function."""
    for index, parameter in enumerate(function.parameters):
        if parameter.typed.is_pointer:
            parameter.arguments.add(index)
    flows = [flow for flow in all_flows(function.blocks) if is_address(flow[1])]
    changed = True
    while changed:
        changed = False
        for source, target in flows:
            if not source.arguments <= target.arguments:
                target.arguments |= source.arguments
                changed = True


def is_address(value: Value) -> bool:
    """Pointers, and integers wide enough to be one."""
    return value.typed.is_pointer or value.typed.element == "i64"


def all_flows(blocks: list[Block]) -> list[Flow]:
    """Every pair (value, value that may equal it or be computed from it)."""
    labels = {block.label: block for block in blocks}
    ops = [op for block in blocks for op in block.ops]
    flows = [flow for op in ops for flow in op_flows(op, labels)]
    return flows + [flow for op in ops for region in op.regions for flow in all_flows(region)]


def op_flows(op: Op, blocks: dict[str, Block]) -> list[Flow]:
    if op.name == "scf.for":
        body = op.regions[0][0]
        return loop_flows(op.operands[3:], body.arguments[1:], yielded(body), op.results)
    if op.name == "scf.if":
        return [pair for region in op.regions for pair in zip(yielded(region[0]), op.results, strict=True)]
    if op.name == "scf.while":
        return while_flows(op)
    if op.name in ("cf.br", "cf.cond_br"):
        return [pair for label, values in op.successors for pair in zip(values, blocks[label].arguments, strict=True)]
    if op.name == "tt.call":
        returns = [block.ops[-1] for block in op.regions[0] if block.ops[-1].name == "tt.return"]
        passed = list(zip(op.operands, op.regions[0][0].arguments, strict=True))
        return passed + [pair for leave in returns for pair in zip(leave.operands, op.results, strict=True)]
    if op.name in FROM_MEMORY:
        return []
    return [(operand, result) for operand in op.operands if is_address(operand) for result in op.results]


def loop_flows(first: list[Value], carried: list[Value], last: list[Value], results: list[Value]) -> list[Flow]:
    into = [*zip(first, carried, strict=True), *zip(last, carried, strict=True)]
    return [*into, *zip(carried, results, strict=True)]


def while_flows(op: Op) -> list[Flow]:
    before, after = op.regions[0][0], op.regions[1][0]
    passed = before.ops[-1].operands[1:]
    flows = [*zip(op.operands, before.arguments, strict=True), *zip(yielded(after), before.arguments, strict=True)]
    return [*flows, *zip(passed, after.arguments, strict=True), *zip(passed, op.results, strict=True)]


def yielded(block: Block) -> list[Value]:
    return block.ops[-1].operands if block.ops and block.ops[-1].name == "scf.yield" else []


def is_volatile(op: Op) -> bool:
    """A load that must see what other programs store meanwhile."""
    return op.attributes.get("isVolatile") is True


def synchronises(op: Op) -> bool:
    """Whether programs may use the operation to wait for each other."""
    return op.name.startswith("tt.atomic") or (op.name == "tt.load" and is_volatile(op))


def shifted(op: Op, makers: dict[Value, Op]) -> list[tuple[Value, Value]]:
    """Of the tensors that a `scf.for` carries, those that every turn only moves by one number for all lanes, with
    their first values."""
    body = op.regions[0][0]
    rows = zip(body.arguments[1:], op.operands[3:], yielded(body), strict=True)
    return [
        (carried, first)
        for carried, first, last in rows
        if carried.typed.is_tensor and not carried.typed.is_float and moves(last, carried, makers)
    ]


def moves(value: Value, start: Value, makers: dict[Value, Op]) -> bool:
    """Whether the value is the start plus numbers that are the same for all lanes."""
    while value is not start:
        op = makers.get(value)
        if op is None or op.name not in ("tt.addptr", "arith.addi") or not uniform(op.operands[1], makers):
            return False
        value = op.operands[0]
    return True


def uniform(value: Value, makers: dict[Value, Op]) -> bool:
    op = makers.get(value)
    return op is not None and (op.name == "tt.splat" or (op.name == "arith.constant" and not is_table(op)))


def is_table(op: Op) -> bool:
    """Whether a constant has several values: in nested brackets, or as one string of all bytes."""
    return str(op.attributes["value"]).startswith(("[", '"'))
