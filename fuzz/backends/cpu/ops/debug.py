"""Defines the messages of a kernel: `device_print`, `device_assert` and `assume`."""

from __future__ import annotations

import re

from fuzz.backends.cpu.codegen.index import current_index, current_position
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CheckSite
from fuzz.backends.cpu.frontend import custom_syntax
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.definition import OpDef, no_results

FLUSH = "fflush(stdout);"


def device_assert(lowering: Lowering, op: Op) -> None:
    """A lane where the condition is false is reported; Triton emits this only for `debug=True` or TRITON_DEBUG=1."""
    report_where_false(lowering, op, "assert", unescaped(op.keywords[0]))


def assume(lowering: Lowering, op: Op) -> None:
    """A GPU's compiler builds on it unchecked, so that a false one may give anything: reported as an assertion."""
    report_where_false(lowering, op, "assume", "")


def report_where_false(lowering: Lowering, op: Op, kind: str, message: str) -> None:
    condition = lowering.operand(op.operands[0])
    shape, location = condition.type.shape, lowering.location
    number = len(lowering.sites)
    lowering.sites.append(CheckSite(kind, location.file, location.line, shape, (), 1, message))
    lane = current_position(shape)
    lowering.for_each_lane(
        shape, [condition], lambda texts: f"if (!({texts[0]})) failed(run, {number}, {lane});", "atomic"
    )
    lowering.end_loop()


def device_print(lowering: Lowering, op: Op) -> None:
    """A line a lane in row-major order, `pid (x, y, z) idx (i, j) prefix(operand k) value`, written as a GPU does: on
    standard output, or on standard error inside `observe()`, whose caller may write results there."""
    prefix = unescaped(op.keywords[0])
    if not op.operands:
        lowering.add(print_statement(prefix, (), [], []) + FLUSH)
        return
    signed = op.attributes.get("isSigned", [])
    for number, value in enumerate(op.operands):
        type = value.type
        label = f"{prefix}(operand {number}) " if len(op.operands) > 1 else prefix
        is_signed = isinstance(signed, list) and (number >= len(signed) or bool(signed[number]))
        form, convert = conversion(type, op.attributes.get("hex") is True, is_signed)
        show = lambda texts, form=form, convert=convert, label=label, shape=type.shape: print_statement(  # noqa: E731
            label, shape, [form], [convert.format(texts[0])]
        )
        lowering.for_each_lane(type.shape, [lowering.operand(value)], show, "atomic")
        lowering.add(FLUSH)


def conversion(type: Type, hexadecimal: bool, signed: bool) -> tuple[str, str]:
    """printf's conversion of a value and the C expression that it wants."""
    if type.is_pointer:
        return "0x%016llx", "(unsigned long long)({})"
    if hexadecimal:
        bits = f"bits_{type.element}({{}})" if type.is_float else f"({type.unsigned})({{}})"
        return f"0x%0{2 * type.size}llx", f"(unsigned long long){bits}"
    if type.is_float:
        return "%f", "(f64)({})"
    if signed and type.element != "i1":
        return "%lld", "(long long)({})"
    return "%llu", f"(unsigned long long)({type.unsigned})({{}})"


def print_statement(prefix: str, shape: tuple[int, ...], forms: list[str], values: list[str]) -> str:
    text = prefix.replace("%", "%%") + "".join(forms)
    index = ", ".join(f"%{len(str(size - 1))}d" for size in shape)
    form = c_string(f"pid (%d, %d, %d) idx ({index}){text}\n")
    arguments = ["(int)run->x", "(int)run->y", "(int)run->z", *map(str, current_index(shape)), *values]
    return f"fprintf(run->all->packed[8].i ? stdout : stderr, {form}, {', '.join(arguments)});"


def unescaped(word: str) -> str:
    """The text of a string as MLIR prints it: quotes around, bytes as two hexadecimal digits after a backslash."""
    text = re.sub(r"\\([0-9A-Fa-f]{2}|.)", lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], word[1:-1])
    return text.encode("latin-1").decode("utf-8", "replace")


def c_string(text: str) -> str:
    """A C string literal; what is not printable ASCII as three octal digits, so that no digit after joins it."""
    plain = [chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode()]
    return f'"{"".join(plain)}"'


OPERATIONS = (
    OpDef("tt.assert", [1], device_assert, keywords=None, attributes={"message": None}, result_types=no_results),
    OpDef("llvm.intr.assume", [1], assume, result_types=no_results),
    OpDef("tt.print", None, device_print, keywords=None, attributes={"hex": None, "isSigned": None},
          parse=custom_syntax.display),
)  # fmt: skip
