"""Translates `tl.inline_asm_elementwise`: straight-line PTX over 32- and 64-bit registers to a C statement expression.

Meanings are those of the PTX ISA. `.approx` is computed by the C library, which errs less than the hardware. What is
not in the tables (memory, branches, special registers, packed halves) is refused with its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.definition import OpDef

FLOAT_OPS = {
    "mov": "{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "abs": "fabs({0})", "min": "minnumf_{t}({0}, {1})", "max": "maxnumf_{t}({0}, {1})", "fma": "fma{f}({0}, {1}, {2})",
    "ex2": "exp2{f}({0})", "lg2": "log2{f}({0})", "rcp": "1 / {0}", "sqrt": "sqrt{f}({0})", "rsqrt": "rsqrt_{t}({0})",
    "sin": "sin{f}({0})", "cos": "cos{f}({0})", "tanh": "tanh{f}({0})", "selp": "{2} ? {0} : {1}",
}  # fmt: skip
INTEGER_OPS = {
    "mov": "{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul.lo": "{0} * {1}", "mad.lo": "{0} * {1} + {2}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}", "neg": "-{0}", "abs": "absi_{s}({0})",
    "min": "{0} < {1} ? {0} : {1}", "max": "{0} > {1} ? {0} : {1}", "shl": "shli_{s}({0}, {1})",
    "selp": "{2} ? {0} : {1}",
}  # fmt: skip
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
               "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
ROUNDINGS = {"rn", "approx", "full", "ftz"}
NOTHING = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
REGISTER = {"r": "u32", "f": "u32", "l": "u64", "d": "u64"}
TYPES = {"f32": "f32", "f64": "f64", "u32": "u32", "b32": "u32", "s32": "i32", "u64": "u64", "b64": "u64", "s64": "i64"}
INSTRUCTION = re.compile(r"(?:@(!?)(\w+)\s+)?([a-z]\w*(?:\.\w+)*)\s*(.*)$", re.DOTALL)


@dataclass
class Assembly:
    """The registers of one text, and the C lines that it becomes."""

    text: str
    registers: dict[str, str]
    predicates: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def refuse(self, what: str) -> UnsupportedOperation:
        return UnsupportedOperation(f"tt.elementwise_inline_asm {what.strip()!r} in {self.text!r}")

    def translate(self) -> list[str]:
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", self.text, flags=re.DOTALL)
        for piece in re.split(r"[;{}]", plain):
            if piece.strip():
                self.statement(piece.strip())
        return self.lines

    def statement(self, text: str) -> None:
        if text in NOTHING:
            return
        if declared := re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text):
            self.declare(declared[1], declared[2])
            return
        match = INSTRUCTION.match(text)
        if match is None:
            raise self.refuse(text)
        negated, guard, opcode, operands = match.groups()
        line = self.instruction(text, opcode.split("."), [part.strip() for part in operands.split(",")])
        condition = f"if ({negated}{self.registers[guard]}) " if guard in self.registers else ""
        if guard and not condition:
            raise self.refuse(text)
        self.lines.append(condition + line)

    def declare(self, kind: str, names: str) -> None:
        c = "i1" if kind == "pred" else f"u{TYPES[kind][1:]}" if kind in TYPES else ""
        if not c:
            raise self.refuse(f".reg .{kind}")
        for name in names.split(","):
            register = f"{name.strip()}_asm"
            if not re.fullmatch(r"[a-z]\w*_asm", register):
                raise self.refuse(f".reg .{kind} {names}")
            if self.registers.get(name.strip()) != register:
                self.registers[name.strip()] = register
                self.predicates |= {name.strip()} if kind == "pred" else set()
                self.lines.append(f"{c} {register} = 0;")

    def instruction(self, text: str, opcode: list[str], operands: list[str]) -> str:
        name, *modifiers, kind = opcode if len(opcode) > 1 else (*opcode, "?")
        if kind not in TYPES or operands[0] not in self.registers:
            raise self.refuse(text)
        t = TYPES[kind]
        flush = "ftz" in modifiers and t == "f32"
        values = [self.value(operand, t, flush, text) for operand in operands[1:]]
        target = self.registers[operands[0]]
        if name == "setp" and len(modifiers) > 0 and modifiers[0] in COMPARISONS and len(values) == 2:
            return f"{target} = {values[0]} {COMPARISONS[modifiers[0]]} {values[1]};"
        expression = self.expression(text, name, [word for word in modifiers if word != "ftz"], t, values)
        expression = f"flush({expression})" if flush else expression
        return f"{target} = bits_{t}({expression});" if t[0] == "f" else f"{target} = {expression};"

    def expression(self, text: str, name: str, modifiers: list[str], t: str, values: list[str]) -> str:
        if t[0] == "f":
            known = FLOAT_OPS.get(name) if set(modifiers) <= ROUNDINGS else None
        elif name == "shr" and not modifiers:
            known = f"shr{'s' if t[0] == 'i' else 'u'}i_i{t[1:]}({{0}}, {{1}})"
        else:
            known = INTEGER_OPS.get(".".join([name, *modifiers]))
        if known is None or known.count("{0}") + known.count("{1}") + known.count("{2}") < len(values):
            raise self.refuse(text)
        try:
            return "(" + known.format(*values, t=t, s=f"i{t[1:]}", f="" if t == "f64" else "f") + ")"
        except IndexError:
            raise self.refuse(text) from None

    def value(self, operand: str, t: str, flush: bool, text: str) -> str:
        """C text of a register or number, as the type of the instruction."""
        if operand in self.registers:
            register = self.registers[operand]
            if t[0] != "f" or operand in self.predicates:
                return register if t[0] == "f" else f"({t}){register}"
            return f"flush({t}_bits({register}))" if flush else f"{t}_bits({register})"
        if re.fullmatch(r"0[fd][0-9A-Fa-f]+", operand) and t[0] == "f":
            return f"{t}_bits(0x{operand[2:]}u)"
        if t[0] == "f" and re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", operand):
            return f"({t}){float(operand)!r}"
        if t[0] != "f" and re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)", operand):
            return f"({t}){int(operand, 0)}ll"
        raise self.refuse(text)


def inline_assembly(lowering: Lowering, op: Op) -> None:
    """Each result by an evaluation of its own: the text has no effect beside its results."""
    text = re.sub(r"\\([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), op.keywords[0][1:-1])
    constraints = str(op.attributes["constraints"]).split(",")
    written = [word[1:].lstrip("&") for word in constraints if word.startswith("=")]
    read = [word for word in constraints if not word.startswith("=")]
    types = [value.type for value in (*op.results, *op.operands)]
    if op.attributes["packed_element"] != 1 or not fits([*written, *read], types):
        raise UnsupportedOperation(f"tt.elementwise_inline_asm {text!r} with constraints {','.join(constraints)!r}")
    assembly = Assembly(text, {f"${number}": f"r{number}_asm" for number in range(len(types))})
    lines = assembly.translate()
    for chosen, result in enumerate(op.results):
        lowering.elementwise(
            result,
            lowering.operands(op),
            lambda texts, chosen=chosen: block(types, written, texts, lines, chosen),  # type: ignore[misc]
        )


def fits(constraints: list[str], types: list[Type]) -> bool:
    """Whether every element has the size of its register."""
    sizes = {"u32": 4, "u64": 8}
    return len(constraints) == len(types) and all(
        word in REGISTER and sizes[REGISTER[word]] == type.size for word, type in zip(constraints, types, strict=True)
    )


def block(types: list[Type], written: list[str], texts: list[str], lines: list[str], chosen: int) -> str:
    """A statement expression: registers from the operands, the lines, the chosen result."""
    count = len(written)
    start = [f"{REGISTER[word]} r{number}_asm = 0;" for number, word in enumerate(written)]
    for number, (type, text) in enumerate(zip(types[count:], texts, strict=True), count):
        start.append(f"u{type.bits} r{number}_asm = {f'bits_{type.element}' if type.is_float else ''}({text});")
    result = types[chosen]
    end = f"{result.element}_bits(r{chosen}_asm)" if result.is_float else f"({result.c})r{chosen}_asm"
    return f"({{ {' '.join([*start, *lines])} {end}; }})"


OPERATIONS = (
    OpDef("tt.elementwise_inline_asm", range(17), inline_assembly, keywords=None,
          attributes={"constraints": None, "packed_element": None, "pure": None}),
)  # fmt: skip
