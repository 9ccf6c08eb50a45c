"""Writes entries as text, the same text for equal entries."""

from __future__ import annotations

import re

from fuzz.corpus.codec.strict_yaml import FORMAT, GRADED_FORMAT, UNKNOWN
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dtypes import decimal, hex_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import Entry
from fuzz.model.finding import Element, Finding
from fuzz.model.grade import Grade
from fuzz.model.layout import Layout
from fuzz.model.recipes import Exact, Patched, Values

COMMENTED = 16
"""Bits whose decimal values are written in a comment."""
SPECIAL = re.compile(r"[^\w ./+()-]|^[ -]|^$| $", re.ASCII)


def dumps(entry: Entry, *, digest: bool = True) -> str:
    """The entry's text; loads(dumps(entry).encode()) == entry. Without its digest it is text for one run only."""
    lines = [f"format: {GRADED_FORMAT if entry.grade else FORMAT}", f"target: {entry.case.target}"]
    if entry.planted:
        lines.append(f"planted: {entry.planted}")
    lines += [
        f"status: {entry.status}",
        f"why: {_quote(entry.why)}",
        f"digest: {_quote(entry.digest if digest else UNKNOWN)}",
    ]
    lines += _case_lines(entry.case)
    if entry.finding:
        lines += _finding_lines(entry.finding)
        if entry.also:
            lines.append(f"  also: [{', '.join(_quote(text) for text in entry.also)}]")
    if entry.grade:
        lines += _grade_lines(entry.grade)
    if seen := entry.provenance.fields():
        lines += ["seen:", *(f"  {key}: {_quote(value)}" for key, value in seen.items())]
    return "\n".join(lines) + "\n"


def words_size(case: Case) -> int:
    """Bytes of the hex words of a case, which are most of a large entry."""
    tensors = [value.values for call in case.calls for value in call.tensors.values()]
    return sum(
        len(values.bits) * len(hex_bits(0, named_dtype(values.dtype)) + " ")
        for values in tensors
        if isinstance(values, Exact)
    )


def _grade_lines(grade: Grade) -> list[str]:
    lines = ["grade:", f"  severity: {grade.severity}", f"  input_class: {grade.input_class}"]
    if grade.eager_ratio is not None:
        lines += [f"  eager_ratio: {grade.eager_ratio!r}", f"  eager_dtype: {grade.eager_dtype}"]
    if grade.reason:
        lines.append(f"  reason: {_quote(grade.reason)}")
    if grade.typical:
        lines += ["  typical:", f"    rate: {grade.typical.rate}"]
        lines += [f"    {line}" for line in _case_lines(grade.typical.case) + _finding_lines(grade.typical.finding)]
    return lines


def _case_lines(case: Case) -> list[str]:
    lines = ["case:", "  calls:"]
    for call in case.calls:
        lines += _call_lines(call)
    if case.split:
        split = case.split
        lines.append(
            f"  split: {{start: {split.start}, length: {split.length}, before: {split.before}, after: {split.after}}}"
        )
    return lines


def _call_lines(call: Call) -> list[str]:
    dims = ", ".join(f"{name}: {size}" for name, size in call.dims.items())
    lines = [f"  - dims: {{{dims}}}"]
    if call.options:
        options = ", ".join(f"{name}: {_scalar(value)}" for name, value in call.options.items())
        lines.append(f"    options: {{{options}}}")
    if call.launch is not None:
        launch = ", ".join(f"{name}: {value}" for name, value in call.launch.as_dict().items())
        lines.append(f"    launch: {{{launch}}}")
    for title, part in (("arguments", call.arguments), ("cotangents", call.cotangents)):
        if part:
            lines.append(f"    {title}:")
            for name, value in part.items():
                lines += _argument_lines(name, value)
    return lines


def _argument_lines(name: str, value: Argument) -> list[str]:
    shape = ", ".join(_quote(text) for text in value.shape)
    lines = [f"      {name}:", f"        shape: [{shape}]", f"        dtype: {value.dtype}"]
    if value.layout != Layout():
        parts = [
            f"{field}: {list(number) if isinstance(number, tuple) else number}"
            for field, number in vars(value.layout).items()
            if number != getattr(Layout(), field)
        ]
        lines.append(f"        layout: {{{', '.join(parts)}}}")
    return lines + [f"        {line}" for line in _values_lines(value.values)]


def _values_lines(values: Values) -> list[str]:
    if isinstance(values, Exact):
        kind = named_dtype(values.dtype)
        patterns = " ".join(hex_bits(pattern, kind) for pattern in values.bits)
        comment = " ".join(decimal(pattern, kind) for pattern in values.bits[:COMMENTED])
        more = " .." if len(values.bits) > COMMENTED else ""
        return [f'bits: "{patterns}"  # {comment}{more}']
    if isinstance(values, Patched):
        overrides = ", ".join(f"{index}: {pattern:x}" for index, pattern in values.overrides)
        return [f'recipe: "{values.recipe.text()}"', f'overrides: "{overrides}"']
    return [f'recipe: "{values.text()}"']


def _finding_lines(finding: Finding) -> list[str]:
    # Where each output has the symptom of the finding, and no other one, that need not be said.
    plain = {(output, finding.symptom) for output in finding.outputs}
    kinds = [f"{symptom} {output}" for output, symptom in finding.kinds if set(finding.kinds) != plain]
    lines = [
        "finding:",
        f"  oracle: {finding.oracle}",
        f"  outputs: [{', '.join(_quote(name) for name in finding.outputs)}]",
        f"  symptom: {finding.symptom}",
        f"  message: {_quote(finding.message)}",
        f"  call: {finding.call}",
        f"  ratio: {finding.ratio!r}",
        f"  disagreeing: {finding.disagreeing}",
        f"  compared: {finding.compared}",
        *([f"  place: {_quote(finding.source_line)}"] if finding.source_line else []),
        *([f"  kinds: [{', '.join(_quote(kind) for kind in kinds)}]"] if kinds else []),
        *([f"  change: [{', '.join(_quote(str(part)) for part in finding.change)}]"] if finding.change else []),
    ]
    if finding.elements:
        lines.append("  elements:")
        lines += [f"  - {_element_text(element)}" for element in finding.elements]
    return lines


def _element_text(element: Element) -> str:
    fields = {**vars(element), "index": " ".join(map(str, element.index))}
    if not element.exact:
        del fields["exact"]
    return "{" + ", ".join(f"{key}: {_quote(str(value))}" for key, value in fields.items()) + "}"


def _scalar(value: Scalar) -> str:
    if isinstance(value, str):
        return _quote(f"str {value}")
    return str(value).lower() if value is None or isinstance(value, bool) else repr(value)


def _quote(text: str) -> str:
    """The text as a YAML scalar on one line: plain where nothing in it is special."""
    if not SPECIAL.search(text):
        return text
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"
