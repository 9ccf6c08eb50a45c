"""Loops, branches, jumps, the grid, and operations without effect here."""

from __future__ import annotations

from fuzz.backends.cpu.analysis.provenance import shifted
from fuzz.backends.cpu.codegen.lower import Lowering, lowers
from fuzz.backends.cpu.codegen.operands import Operand, Uniform
from fuzz.backends.cpu.frontend.ir import Block, Op, Value


@lowers("tt.get_program_id")
def program_id(lowering: Lowering, op: Op) -> None:
    text = f"(i32)run->{op.words[0]}"
    lowering.values[op.result] = lowering.declare(op.result.typed, lowering.names.pick(op.result.name), text)


@lowers("tt.get_num_programs")
def num_programs(lowering: Lowering, op: Op) -> None:
    text = f"(i32)run->n{op.words[0]}"
    lowering.values[op.result] = lowering.declare(op.result.typed, lowering.names.pick(op.result.name), text)


@lowers("ttg.barrier", "gpu.barrier")
def nothing(lowering: Lowering, op: Op) -> None:
    """Barriers: an operation ends for the whole tensor before the next begins."""


@lowers("scf.for")
def counted_loop(lowering: Lowering, op: Op) -> None:
    block = op.regions[0][0]
    induction, *carried = block.arguments
    variables = start(lowering, carried, op.operands[3:])
    note_shifted(lowering, op)
    low, high, step = (lowering.operand(value).at((), None) for value in op.operands[:3])
    name = lowering.names.pick(induction.name)
    lowering.values[induction] = Uniform(induction.typed, name)
    cast = f"({induction.typed.unsigned})" if op.attributes.get("unsigned") else ""
    kind = induction.typed.c
    lowering.statement(f"for ({kind} {name} = {low}; {cast}{name} < {cast}{high}; {name} += {step}) {{")
    body(lowering, block, variables)
    lowering.statement("}")
    lowering.values.update(zip(op.results, variables, strict=True))


def note_shifted(lowering: Lowering, op: Op) -> None:
    """Keep where tensors that the loop only shifts start."""
    for carried, first in shifted(op, lowering.makers):
        name = lowering.names.pick(f"{carried.name}_start")
        start_text = lowering.operand(carried).at(tuple("0" for _ in carried.typed.shape), None)
        lowering.statement(f"const i64 {name} = (i64){start_text};")
        lowering.shifted[carried] = first, name


@lowers("scf.if")
def branch(lowering: Lowering, op: Op) -> None:
    variables = [lowering.variable(result.typed, result.name) for result in op.results]
    lowering.statement(f"if ({lowering.operand(op.operands[0]).at((), None)}) {{")
    for number, region in enumerate(op.regions):
        if number:
            lowering.statement("} else {")
        body(lowering, region[0], variables)
    lowering.statement("}")
    lowering.values.update(zip(op.results, variables, strict=True))


@lowers("scf.while")
def while_loop(lowering: Lowering, op: Op) -> None:
    before, after = op.regions[0][0], op.regions[1][0]
    variables = start(lowering, before.arguments, op.operands)
    passed = [lowering.variable(result.typed, result.name) for result in op.results]
    lowering.statement("for (;;) {")
    for inner in before.ops[:-1]:
        lowering.op(inner)
    if lowering.watcher is not None:
        lowering.watcher(before.ops[-1])
    condition, *values = lowering.operands(before.ops[-1])
    lowering.assign_all(passed, values)
    lowering.statement(f"if (!{condition.at((), None)}) break;")
    lowering.values.update(zip(after.arguments, passed, strict=True))
    body(lowering, after, variables)
    lowering.statement("}")
    lowering.values.update(zip(op.results, passed, strict=True))


def start(lowering: Lowering, carried: list[Value], initial: list[Value]) -> list[Operand]:
    """Variables for the values that a loop carries, with their first values."""
    variables = [lowering.variable(value.typed, value.name) for value in carried]
    lowering.assign_all(variables, [lowering.operand(value) for value in initial])
    lowering.values.update(zip(carried, variables, strict=True))
    return variables


def body(lowering: Lowering, block: Block, variables: list[Operand]) -> None:
    """A region's operations, ended by copying what it yields."""
    lowering.close()
    for inner in block.ops:
        if inner.name == "scf.yield":
            lowering.assign_all(variables, lowering.operands(inner))
        else:
            lowering.op(inner)
    lowering.close()


def lower_blocks(lowering: Lowering, blocks: list[Block]) -> None:
    """All blocks of a function or region; arguments of blocks are variables, assigned before a jump."""
    outer = lowering.labels
    lowering.labels = {}
    first, *rest = blocks
    for block in rest:
        variables = [lowering.variable(value.typed, value.name) for value in block.arguments]
        lowering.labels[block.label] = (lowering.names.pick(block.label), variables)
        lowering.values.update(zip(block.arguments, variables, strict=True))
    for block in (first, *rest):
        if block is not first:
            lowering.statement(f"{lowering.labels[block.label][0]}:;")
        lowering.block(block)
    lowering.labels = outer


def inlined(lowering: Lowering, blocks: list[Block], variables: list[Operand]) -> None:
    """Blocks of which every return assigns the variables and goes on after them."""
    after = lowering.names.pick("after")
    lowering.returns.append((after, variables))
    lower_blocks(lowering, blocks)
    lowering.returns.pop()
    lowering.statement(f"{after}:;")


@lowers("tt.call")
def call(lowering: Lowering, op: Op) -> None:
    blocks = op.regions[0]
    variables = [lowering.variable(result.typed, result.name) for result in op.results]
    lowering.values.update(zip(blocks[0].arguments, lowering.operands(op), strict=True))
    inlined(lowering, blocks, variables)
    lowering.values.update(zip(op.results, variables, strict=True))


@lowers("tt.map_elementwise")
def map_elementwise(lowering: Lowering, op: Op) -> None:
    """The region for every `pack` neighbouring elements, in row-major order."""
    blocks, pack = op.regions[0], op.integer("pack")
    sources = [lowering.materialise(operand) for operand in lowering.operands(op)]
    targets = [lowering.array(result.typed, lowering.names.pick(result.name)) for result in op.results]
    lowering.statement(f"for (int p = 0; p < {sources[0].type.count}; p += {pack}) {{")
    for number, argument in enumerate(blocks[0].arguments):
        place = f"{sources[number // pack].array}[p + {number % pack}]"
        name = lowering.names.pick(argument.name)
        lowering.values[argument] = lowering.declare(argument.typed, name, place)
    scalars = [
        lowering.variable(result.typed.with_shape(()), result.name) for result in op.results for _ in range(pack)
    ]
    inlined(lowering, blocks, scalars)
    for number, scalar in enumerate(scalars):
        lowering.statement(f"{targets[number // pack].array}[p + {number % pack}] = {scalar.at((), None)};")
    lowering.statement("}")
    lowering.values.update(zip(op.results, targets, strict=True))


@lowers("cf.br")
def jump(lowering: Lowering, op: Op) -> None:
    go(lowering, op, 0)


@lowers("cf.cond_br")
def conditional_jump(lowering: Lowering, op: Op) -> None:
    lowering.statement(f"if ({lowering.operand(op.operands[0]).at((), None)}) {{")
    go(lowering, op, 0)
    lowering.statement("} else {")
    go(lowering, op, 1)
    lowering.statement("}")


def go(lowering: Lowering, op: Op, number: int) -> None:
    block, values = op.successors[number]
    label, variables = lowering.labels[block]
    lowering.assign_all(variables, [lowering.operand(value) for value in values])
    lowering.statement(f"goto {label};")


@lowers("tt.return", "tt.map_elementwise.return")
def leave(lowering: Lowering, op: Op) -> None:
    if not lowering.returns:
        lowering.statement("return;")
        return
    after, variables = lowering.returns[-1]
    lowering.assign_all(variables, lowering.operands(op))
    lowering.statement(f"goto {after};")
