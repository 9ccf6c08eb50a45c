"""Translates `tl.inline_asm_elementwise`: straight-line PTX over registers to C.

Meanings are those of the PTX ISA. `.approx` is computed by the C library, which errs less than the hardware. What is
not in the tables (memory, branches, special registers) is refused with its text.
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
# What PTX has of f32 alone.
SINGLE_OPS = {
    "min.NaN": "minimumf_f32({0}, {1})", "max.NaN": "maximumf_f32({0}, {1})",
    "min.xorsign.abs": "xorsign(minnumf_f32(fabs({0}), fabs({1})), {0}, {1})",
    "max.xorsign.abs": "xorsign(maxnumf_f32(fabs({0}), fabs({1})), {0}, {1})",
    "min.NaN.xorsign.abs": "xorsign(minimumf_f32(fabs({0}), fabs({1})), {0}, {1})",
    "max.NaN.xorsign.abs": "xorsign(maximumf_f32(fabs({0}), fabs({1})), {0}, {1})",
}  # fmt: skip
# Of f16 and bf16, and of two of them in a register: computed in float32 and rounded once.
HALF_OPS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "fma": "odd_f32(odd_fma({0}, {1}, {2}))",
    "neg": "-{0}", "abs": "fabsf({0})", "min": "minnumf_f32({0}, {1})", "max": "maxnumf_f32({0}, {1})",
    "min.NaN": "minimumf_f32({0}, {1})", "max.NaN": "maximumf_f32({0}, {1})",
}  # fmt: skip
INTEGER_OPS = {
    "mov": "{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul.lo": "{0} * {1}", "mad.lo": "{0} * {1} + {2}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}", "neg": "-{0}", "abs": "absi_{s}({0})",
    "min": "{0} < {1} ? {0} : {1}", "max": "{0} > {1} ? {0} : {1}", "shl": "shli_{s}({0}, {1})",
    "selp": "{2} ? {0} : {1}", "prmt": "prmt({0}, {1}, {2})", "lop3": "lop3({0}, {1}, {2}, {3})",
    "shf.l.wrap": "shf_left({0}, {1}, {2} & 31)", "shf.l.clamp": "shf_left({0}, {1}, {2} < 32u ? {2} : 32u)",
    "shf.r.wrap": "shf_right({0}, {1}, {2} & 31)", "shf.r.clamp": "shf_right({0}, {1}, {2} < 32u ? {2} : 32u)",
}  # fmt: skip
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
               "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
ROUNDINGS = {"rn", "approx", "full", "ftz"}
NOTHING = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
HALVES = {"f16": 1, "bf16": 1, "f16x2": 2, "bf16x2": 2}
"""How many numbers of half precision a register holds."""
REGISTER = {"r": "u32", "f": "u32", "l": "u64", "d": "u64"}
CONVERTIBLE = {f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)} | {"f32", "f64"}
TYPES = {"f32": "f32", "f64": "f64", "u32": "u32", "b32": "u32", "s32": "i32", "u64": "u64", "b64": "u64", "s64": "i64"}
INTEGER = re.compile(r"(-?)(0[xX][0-9A-Fa-f]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")
INSTRUCTION = re.compile(r"(?:@(!?)(\w+)\s+)?([a-z]\w*(?:\.\w+)*)\s*(.*)$", re.DOTALL)


@dataclass
class Assembly:
    """The registers of one text, those of one and of 16 bits among them, and the C lines that it becomes."""

    text: str
    registers: dict[str, str]
    predicates: set[str] = field(default_factory=set)
    halves: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def refuse(self, what: str) -> UnsupportedOperation:
        return UnsupportedOperation(f"tt.elementwise_inline_asm {what.strip()!r} in {self.text!r}")

    def translate(self) -> list[str]:
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", self.text, flags=re.DOTALL)
        for piece in plain.split(";"):
            # Braces around a block, but not those around parts of a register.
            if text := piece.strip().lstrip("{} \t\n").rstrip():
                self.statement(text)
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
        parts = [part.strip() for part in re.split(r",(?![^{]*\})", operands)]
        line = self.instruction(text, opcode.split("."), parts)
        condition = f"if ({negated}{self.registers[guard]}) " if guard in self.registers else ""
        if guard and not condition:
            raise self.refuse(text)
        # Parts of a register are set by a statement each.
        self.lines.append(f"{condition}{{ {line} }}" if condition else line)

    def declare(self, kind: str, names: str) -> None:
        bits = re.fullmatch(r"[busf](8|16|32|64)", kind)
        c = "i1" if kind == "pred" else f"u{bits[1]}" if bits else ""
        if not c:
            raise self.refuse(f".reg .{kind}")
        for name in numbered(names):
            register = f"{name.strip()}_asm"
            if not re.fullmatch(r"[a-z]\w*_asm", register):
                raise self.refuse(f".reg .{kind} {names}")
            if self.registers.get(name.strip()) != register:
                self.registers[name.strip()] = register
                self.predicates |= {name.strip()} if kind == "pred" else set()
                self.halves |= {name.strip()} if c == "u16" else set()
                self.lines.append(f"{c} {register} = 0;")

    def instruction(self, text: str, opcode: list[str], operands: list[str]) -> str:
        name, *modifiers, kind = opcode if len(opcode) > 1 else (*opcode, "?")
        if name == "mov" and any(operand.startswith("{") for operand in operands):
            return self.move_parts(text, kind, operands)
        if name == "cvt":
            return self.convert(text, modifiers, kind, operands)
        if kind in HALVES:
            return self.half_precision(text, name, modifiers, kind, operands)
        if kind not in TYPES or operands[0] not in self.registers:
            raise self.refuse(text)
        t = TYPES[kind]
        flush = "ftz" in modifiers and t == "f32"
        if name in ("prmt", "lop3", "shf") and t != "u32":
            raise self.refuse(text)
        values = [self.value(operand, t, flush, text) for operand in operands[1:]]
        target = self.registers[operands[0]]
        if name == "setp" and len(modifiers) > 0 and modifiers[0] in COMPARISONS and len(values) == 2:
            if t[0] == "f" and modifiers[0] == "ne":  # It is false of NaN, as all ordered comparisons are; neu is not.
                return f"{target} = {values[0]} < {values[1]} || {values[0]} > {values[1]};"
            return f"{target} = {values[0]} {COMPARISONS[modifiers[0]]} {values[1]};"
        expression = self.expression(text, name, [word for word in modifiers if word != "ftz"], t, values)
        expression = f"flush({expression})" if flush else expression
        return f"{target} = bits_{t}({expression});" if t[0] == "f" else f"{target} = {expression};"

    def half_precision(self, text: str, name: str, modifiers: list[str], kind: str, operands: list[str]) -> str:
        """An instruction on one number of half precision, or on each of two."""
        known = HALF_OPS.get(".".join([name, *(word for word in modifiers if word != "rn")]), "")
        count, element = HALVES[kind], kind.removesuffix("x2")
        fits = all(operand in self.registers and (operand in self.halves) == (count == 1) for operand in operands)
        if not (known and fits) or known.count("{") != len(operands) - 1:
            raise self.refuse(text)
        target, *sources = (self.registers[operand] for operand in operands)
        pieces = []
        for shift in range(0, 16 * count, 16):
            result = known.format(*(f"{element}_bits((u16)({source} >> {shift}))" for source in sources))
            pieces.append(f"(u{16 * count})bits_{element}(round_{element}({result})) << {shift}")
        return f"{target} = {' | '.join(pieces)};"

    def expression(self, text: str, name: str, modifiers: list[str], t: str, values: list[str]) -> str:
        if t[0] == "f":
            known = (FLOAT_OPS | SINGLE_OPS if t == "f32" else FLOAT_OPS).get(
                ".".join([name, *(word for word in modifiers if word not in ROUNDINGS)])
            )
        elif name == "shr" and not modifiers:
            known = f"shr{'s' if t[0] == 'i' else 'u'}i_i{t[1:]}({{0}}, {{1}})"
        else:
            known = INTEGER_OPS.get(".".join([name, *modifiers]))
        if known is None or known.count("{0}") + known.count("{1}") + known.count("{2}") + known.count("{3}") < len(
            values
        ):
            raise self.refuse(text)
        try:
            return "(" + known.format(*values, t=t, s=f"i{t[1:]}", f="" if t == "f64" else "f") + ")"
        except IndexError:
            raise self.refuse(text) from None

    def move_parts(self, text: str, kind: str, operands: list[str]) -> str:
        """`mov.b32 {a, b}, c` and `mov.b32 c, {a, b}`: the first part has the lowest bits."""
        if (
            kind not in ("b32", "b64")
            or len(operands) != 2
            or operands[0].startswith("{") == operands[1].startswith("{")
        ):
            raise self.refuse(text)
        unpacks = operands[0].startswith("{")
        whole, parts = operands[unpacks], [part.strip() for part in operands[not unpacks][1:-1].split(",")]
        if any(name not in self.registers for name in (whole, *parts)):
            raise self.refuse(text)
        width, register = int(kind[1:]) // len(parts), self.registers[whole]
        if unpacks:
            pieces = ((self.registers[part], number * width) for number, part in enumerate(parts))
            return " ".join(f"{piece} = (u{width})({register} >> {shift});" for piece, shift in pieces)
        terms = [f"(u{kind[1:]})(u{width}){self.registers[part]} << {k * width}" for k, part in enumerate(parts)]
        return f"{register} = {' | '.join(terms)};"

    def convert(self, text: str, modifiers: list[str], source: str, operands: list[str]) -> str:
        """`cvt[.rounding].to.from`: between integers, from them to a float to nearest, from a float towards zero."""
        *roundings, to = modifiers or ["?"]
        is_known = len(operands) == 2 and {to, source} <= CONVERTIBLE and operands[0] in self.registers
        floats = to[0] == "f", source[0] == "f"
        wanted = {(False, False): [], (True, False): ["rn"], (False, True): ["rzi"]}.get(floats)
        wanted = (["rn"] if (to, source) == ("f32", "f64") else []) if wanted is None else wanted
        if not is_known or operands[1] not in self.registers or roundings != wanted or (floats[1] and to[1:] in "816"):
            raise self.refuse(text)
        c_to, c_source = (f"i{kind[1:]}" if kind[0] == "s" else kind for kind in (to, source))
        register, target = self.registers[operands[1]], self.registers[operands[0]]
        value = f"{source}_bits({register})" if floats[1] else f"({c_source}){register}"
        if floats[0]:
            return f"{target} = bits_{to}(({to}){value});"
        return f"{target} = to_{c_to}_{source}({value});" if floats[1] else f"{target} = ({c_to}){value};"

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
        if t[0] != "f" and (literal := INTEGER.fullmatch(operand)):
            return f"({t}){integer(literal):#x}ull"
        raise self.refuse(text)


def integer(literal: re.Match[str]) -> int:
    """The 64 bits of an integer literal of PTX: hexadecimal, binary, octal where it begins with 0, or decimal."""
    sign, digits = literal.groups()
    base = {"0x": 16, "0b": 2}.get(digits[:2].lower(), 8 if digits[0] == "0" else 10)
    return int(sign + digits, base) & (1 << 64) - 1


def inline_assembly(lowering: Lowering, op: Op) -> None:
    """Each result by an evaluation of its own: the text has no effect beside its results."""
    text = re.sub(r"\\([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), op.keywords[0][1:-1])
    constraints = [word.strip() for word in str(op.attributes["constraints"]).split(",")]
    written = [word[1:].lstrip("&") for word in constraints if word.startswith("=")]
    read = [word for word in constraints if not word.startswith("=")]
    types = [value.type for value in (*op.results, *op.operands)]
    pack = op.integer("packed_element")
    if pack != 1 or not fits([*written, *read], types):
        if not op.result.type.is_tensor or not fits_packed([*written, *read], types, pack):
            raise UnsupportedOperation(f"tt.elementwise_inline_asm {text!r} with constraints {','.join(constraints)!r}")
        packed_assembly(lowering, op, text, pack)
        return
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


def packed_assembly(lowering: Lowering, op: Op, text: str, pack: int) -> None:
    """The text for every `pack` neighbouring elements, in row-major order; a register holds as many as fit into it."""
    sources = [lowering.materialise(operand) for operand in lowering.operands(op)]
    targets = [lowering.array(result.type, result.name) for result in op.results]
    count = op.result.type.count
    start, end, number = [], [], 0
    for place, lane in enumerate((*targets, *sources)):
        type, per = lane.type, elements_of_register(lane.type)
        for first in range(0, pack, per):
            elements = [f"{lane.array}[(p + {first + k}) % {count}]" for k in range(min(per, pack - first))]
            register, width = f"r{number}_asm", max(type.bits, 32)
            number += 1
            if place < len(targets):
                start.append(f"u{width} {register} = 0;")
                end += [
                    f"{element} = {from_bits(type, f'{register} >> {k * type.bits}')};"
                    for k, element in enumerate(elements)
                ]
            else:
                terms = [f"(u{width}){to_bits(type, element)} << {k * type.bits}" for k, element in enumerate(elements)]
                start.append(f"u{width} {register} = {' | '.join(terms)};")
    assembly = Assembly(text, {f"${k}": f"r{k}_asm" for k in range(number)})
    lowering.add(f"for (int p = 0; p < {count}; p += {pack}) {{")
    for line in [*start, *assembly.translate(), *end]:
        lowering.add(line)
    lowering.add("}")
    lowering.values.update(zip(op.results, targets, strict=True))


def elements_of_register(type: Type) -> int:
    return max(32 // type.bits, 1)


def fits_packed(constraints: list[str], types: list[Type], pack: int) -> bool:
    """Whether there is a register of the right size for all of `pack` elements of each value."""
    wanted = []
    for type in types:
        registers = -(-pack // elements_of_register(type))
        wanted += [8 if type.size == 8 else 4] * registers
    sizes = {"u32": 4, "u64": 8}
    return (
        all(type.bits > 1 for type in types)
        and len(constraints) == len(wanted)
        and all(
            word in REGISTER and sizes[REGISTER[word]] == size for word, size in zip(constraints, wanted, strict=True)
        )
    )


def to_bits(type: Type, text: str) -> str:
    return f"(u{type.bits}){f'bits_{type.element}' if type.is_float else ''}({text})"


def from_bits(type: Type, text: str) -> str:
    return f"{type.element}_bits((u{type.bits})({text}))" if type.is_float else f"({type.c})({text})"


def numbered(names: str) -> list[str]:
    """The registers of a declaration; `a<2>` is a0 and a1."""
    found = []
    for name in names.split(","):
        match = re.fullmatch(r"\s*(%?\w+)<(\d+)>\s*", name)
        found += [f"{match[1]}{k}" for k in range(int(match[2]))] if match else [name.strip()]
    return found


OPERATIONS = (
    OpDef("tt.elementwise_inline_asm", range(17), inline_assembly, keywords=None,
          attributes={"constraints": None, "packed_element": None, "pure": None}),
)  # fmt: skip
