"""Defines loops, branches, jumps, calls, the grid, and operations that have no effect here."""

from __future__ import annotations

from fuzz.backends.cpu.analysis import dataflow
from fuzz.backends.cpu.codegen import coverage_counters
from fuzz.backends.cpu.codegen.index import origin
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Operand, Uniform
from fuzz.backends.cpu.frontend import custom_syntax
from fuzz.backends.cpu.frontend.ir import Block, Op, Value
from fuzz.backends.cpu.ops.definition import OpDef, keywords, no_results


def program_id(lowering: Lowering, op: Op) -> None:
    lowering.bind_scalar(op.result, f"(i32)run->{op.keywords[0]}")


def num_programs(lowering: Lowering, op: Op) -> None:
    lowering.bind_scalar(op.result, f"(i32)run->n{op.keywords[0]}")


def barrier(lowering: Lowering, op: Op) -> None:
    """Adds nothing: an operation ends for the whole tensor before the next begins."""


def counted_loop(lowering: Lowering, op: Op) -> None:
    block = op.regions[0][0]
    induction, *carried = block.arguments
    variables = carried_variables(lowering, carried, op.operands[3:])
    note_shifted_values(lowering, op)
    low, high, step = (lowering.scalar(value) for value in op.operands[:3])
    name = lowering.identifiers.pick(induction.name)
    lowering.values[induction] = Uniform(induction.type, name)
    cast = f"({induction.type.unsigned})" if op.attributes.get("unsigned") else ""
    kind = induction.type.c
    lowering.add(f"for ({kind} {name} = {low}; {cast}{name} < {cast}{high}; {name} += {step}) {{")
    lower_body(lowering, block, variables)
    lowering.add("}")
    lowering.values.update(zip(op.results, variables, strict=True))


def note_shifted_values(lowering: Lowering, op: Op) -> None:
    """Keeps where tensors that the loop only shifts start."""
    for carried, first in dataflow.shifted_values(op, lowering.producers):
        name = lowering.identifiers.pick(f"{carried.name}_start")
        start_text = lowering.operand(carried).at(origin(carried.type.shape), None)
        lowering.add(f"const i64 {name} = (i64){start_text};")
        lowering.shifted[carried] = first, name


def branch(lowering: Lowering, op: Op) -> None:
    variables = [lowering.variable(result.type, result.name) for result in op.results]
    lowering.add(f"if ({lowering.scalar(op.operands[0])}) {{")
    for number, region in enumerate(op.regions):
        if number:
            lowering.add("} else {")
        lower_body(lowering, region[0], variables)
    lowering.add("}")
    lowering.values.update(zip(op.results, variables, strict=True))


def while_loop(lowering: Lowering, op: Op) -> None:
    before, after = op.regions[0][0], op.regions[1][0]
    variables = carried_variables(lowering, before.arguments, op.operands)
    passed = [lowering.variable(result.type, result.name) for result in op.results]
    lowering.add("for (;;) {")
    for inner in before.ops[:-1]:
        lowering.lower(inner)
    lowering.count(before.ops[-1])
    condition, *values = lowering.operands(before.ops[-1])
    lowering.assign_all(passed, values)
    lowering.add(f"if (!{condition.at((), None)}) break;")
    lowering.values.update(zip(after.arguments, passed, strict=True))
    lower_body(lowering, after, variables)
    lowering.add("}")
    lowering.values.update(zip(op.results, passed, strict=True))


def carried_variables(lowering: Lowering, carried: list[Value], initial: list[Value]) -> list[Operand]:
    """Variables for the values that a loop carries, with their first values."""
    variables = [lowering.variable(value.type, value.name) for value in carried]
    lowering.assign_all(variables, [lowering.operand(value) for value in initial])
    lowering.values.update(zip(carried, variables, strict=True))
    return variables


def lower_body(lowering: Lowering, block: Block, variables: list[Operand]) -> None:
    """A region's operations, ended by copying what it yields."""
    lowering.end_loop()
    for inner in block.ops:
        if inner.name == "scf.yield":
            lowering.assign_all(variables, lowering.operands(inner))
        else:
            lowering.lower(inner)
    lowering.end_loop()


def lower_blocks(lowering: Lowering, blocks: list[Block]) -> None:
    """All blocks of a function or region; arguments of blocks are variables, assigned before a jump."""
    outer = lowering.labels
    lowering.labels = {}
    first, *rest = blocks
    for block in rest:
        variables = [lowering.variable(value.type, value.name) for value in block.arguments]
        lowering.labels[block.label] = (lowering.identifiers.pick(block.label), variables)
        lowering.values.update(zip(block.arguments, variables, strict=True))
    for block in (first, *rest):
        if block is not first:
            lowering.add(f"{lowering.labels[block.label][0]}:;")
        lowering.lower_block(block)
    lowering.labels = outer


def lower_inlined(lowering: Lowering, blocks: list[Block], variables: list[Operand]) -> None:
    """Blocks of which every return assigns the variables and goes on after them."""
    after = lowering.identifiers.pick("after")
    lowering.returns.append((after, variables))
    lower_blocks(lowering, blocks)
    lowering.returns.pop()
    lowering.add(f"{after}:;")


def call(lowering: Lowering, op: Op) -> None:
    blocks = op.regions[0]
    variables = [lowering.variable(result.type, result.name) for result in op.results]
    lowering.values.update(zip(blocks[0].arguments, lowering.operands(op), strict=True))
    lower_inlined(lowering, blocks, variables)
    lowering.values.update(zip(op.results, variables, strict=True))


def map_elementwise(lowering: Lowering, op: Op) -> None:
    """The region for every `pack` neighbouring elements, in row-major order."""
    blocks, pack = op.regions[0], op.integer("pack")
    sources = [lowering.materialise(operand) for operand in lowering.operands(op)]
    targets = [lowering.array(result.type, result.name) for result in op.results]
    lowering.add(f"for (int p = 0; p < {sources[0].type.count}; p += {pack}) {{")
    for number, argument in enumerate(blocks[0].arguments):
        element = f"{sources[number // pack].array}[p + {number % pack}]"
        lowering.bind_scalar(argument, element)
    scalars = [lowering.variable(result.type.with_shape(()), result.name) for result in op.results for _ in range(pack)]
    lower_inlined(lowering, blocks, scalars)
    for number, scalar in enumerate(scalars):
        lowering.add(f"{targets[number // pack].array}[p + {number % pack}] = {scalar.at((), None)};")
    lowering.add("}")
    lowering.values.update(zip(op.results, targets, strict=True))


def jump(lowering: Lowering, op: Op) -> None:
    jump_to(lowering, op, 0)


def conditional_jump(lowering: Lowering, op: Op) -> None:
    lowering.add(f"if ({lowering.scalar(op.operands[0])}) {{")
    jump_to(lowering, op, 0)
    lowering.add("} else {")
    jump_to(lowering, op, 1)
    lowering.add("}")


def jump_to(lowering: Lowering, op: Op, number: int) -> None:
    block, values = op.successors[number]
    label, variables = lowering.labels[block]
    lowering.assign_all(variables, [lowering.operand(value) for value in values])
    lowering.add(f"goto {label};")


def return_(lowering: Lowering, op: Op) -> None:
    if not lowering.returns:
        lowering.add("return;")
        return
    after, variables = lowering.returns[-1]
    lowering.assign_all(variables, lowering.operands(op))
    lowering.add(f"goto {after};")


# Attributes of loops and branches that change no value.
HINTS = ("tt.", "loop_annotation", "llvm.")
ANY_FEW = range(33)
AXES = keywords("x y z")
OPERATIONS = (
    OpDef("tt.get_program_id", [0], program_id, AXES),
    OpDef("tt.get_num_programs", [0], num_programs, AXES),
    OpDef("ttg.barrier", [0], barrier, keywords("all local global_read global_write none")),
    OpDef("gpu.barrier", [0], barrier),
    OpDef("scf.for", None, counted_loop, attributes={"unsigned": None}, hints=HINTS, parse=custom_syntax.loop,
          flows=dataflow.for_flows, count=coverage_counters.count_trips),
    OpDef("scf.if", None, branch, hints=HINTS, parse=custom_syntax.branch, flows=dataflow.if_flows,
          count=coverage_counters.count_branch),
    OpDef("scf.while", None, while_loop, hints=HINTS, parse=custom_syntax.while_loop, flows=dataflow.while_flows),
    OpDef("scf.condition", None, hints=HINTS, parse=custom_syntax.condition, count=coverage_counters.count_while),
    OpDef("scf.yield", None, hints=HINTS, result_types=no_results),
    OpDef("cf.br", None, jump, hints=HINTS, parse=custom_syntax.jump, flows=dataflow.jump_flows),
    OpDef("cf.cond_br", None, conditional_jump, hints=HINTS, parse=custom_syntax.jump, flows=dataflow.jump_flows,
          count=coverage_counters.count_branch),
    OpDef("tt.call", ANY_FEW, call, attributes={"callee": None}, parse=custom_syntax.call,
          flows=dataflow.call_flows),
    OpDef("tt.return", ANY_FEW, return_, result_types=no_results),
    OpDef("tt.map_elementwise", range(1, 33), map_elementwise, attributes={"pack": None}, is_per_element=True),
    OpDef("tt.map_elementwise.return", range(1, 33), return_, result_types=no_results),
)  # fmt: skip
