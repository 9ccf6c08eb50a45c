"""Codec: Entry <-> text. A strict subset of YAML: no tags, anchors, aliases, repeated keys or implicit types.

Tensors are hex words with their decimal values as a comment, or a versioned recipe with overrides; options are decimal
numbers that read back exactly. Reading never executes anything, and is capped in size before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from fuzz.case import Argument, Call, Case, Scalar, Split
from fuzz.dims import evaluate
from fuzz.dtypes import DTYPES, decimal, hexword
from fuzz.dtypes import dtype as named_dtype
from fuzz.entry import STATUSES, Entry
from fuzz.errors import CorpusError, FuzzError
from fuzz.finding import SYMPTOMS, Element, Finding
from fuzz.layout import Layout
from fuzz.values import Exact, Patched, Recipe, Values

FORMAT = "fuzz-case/1"
LARGEST = 4 << 20
"""Bytes of the largest entry that is read."""
COMMENTED = 16
"""Words whose decimal values are told in a comment."""
SPECIAL = re.compile(r"[^\w ./+()-]|^[ -]|^$| $")


def dumps(entry: Entry) -> str:
    """The entry's text; loads(dumps(entry)) == entry."""
    lines = [f"format: {FORMAT}", f"target: {entry.case.target}"]
    if entry.planted:
        lines.append(f"planted: {entry.planted}")
    lines += [f"status: {entry.status}", f"why: {_quoted(entry.why)}", f"digest: {_quoted(entry.digest)}"]
    lines += ["case:", "  calls:"]
    for call in entry.case.calls:
        lines += _call_lines(call)
    if entry.case.split:
        split = entry.case.split
        lines.append(
            f"  split: {{start: {split.start}, length: {split.length}, before: {split.before}, after: {split.after}}}"
        )
    if entry.finding:
        lines += _finding_lines(entry)
    if entry.seen:
        lines += ["seen:", *(f"  {key}: {_quoted(value)}" for key, value in entry.seen.items())]
    return "\n".join(lines) + "\n"


def _call_lines(call: Call) -> list[str]:
    dims = ", ".join(f"{name}: {size}" for name, size in call.dims.items())
    lines = [f"  - dims: {{{dims}}}"]
    if call.options:
        options = ", ".join(f"{name}: {_scalar(value)}" for name, value in call.options.items())
        lines.append(f"    options: {{{options}}}")
    for title, part in (("arguments", call.arguments), ("cotangents", call.cotangents)):
        if part:
            lines.append(f"    {title}:")
            for name, value in part.items():
                lines += _argument_lines(name, value)
    return lines


def _argument_lines(name: str, value: Argument) -> list[str]:
    shape = ", ".join(_quoted(text) for text in value.shape)
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
        words = " ".join(hexword(word, kind) for word in values.words)
        comment = " ".join(decimal(word, kind) for word in values.words[:COMMENTED])
        more = " .." if len(values.words) > COMMENTED else ""
        return [f'bits: "{words}"  # {comment}{more}']
    if isinstance(values, Patched):
        overrides = ", ".join(f"{index}: {word:x}" for index, word in values.overrides)
        return [f'recipe: "{values.recipe.text()}"', f'overrides: "{overrides}"']
    return [f'recipe: "{values.text()}"']


def _finding_lines(entry: Entry) -> list[str]:
    finding = entry.finding
    assert finding is not None
    lines = [
        "finding:",
        f"  oracle: {finding.oracle}",
        f"  outputs: [{', '.join(_quoted(name) for name in finding.outputs)}]",
        f"  symptom: {finding.symptom}",
        f"  message: {_quoted(finding.message)}",
        f"  call: {finding.call}",
        f"  disagreeing: {finding.disagreeing}",
        f"  compared: {finding.compared}",
        *([f"  place: {_quoted(finding.place)}"] if finding.place else []),
    ]
    if finding.elements:
        lines.append("  elements:")
        lines += [f"  - {_element_text(element)}" for element in finding.elements]
    if entry.also:
        lines.append(f"  also: [{', '.join(_quoted(text) for text in entry.also)}]")
    return lines


def _element_text(element: Element) -> str:
    fields = {**vars(element), "index": " ".join(map(str, element.index))}
    return "{" + ", ".join(f"{key}: {_quoted(str(value))}" for key, value in fields.items()) + "}"


def _scalar(value: Scalar) -> str:
    if isinstance(value, str):
        return f'"str {value}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _quoted(text: str) -> str:
    """The text as a YAML scalar: plain where nothing in it is special."""
    if not SPECIAL.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class _Loader(yaml.BaseLoader):
    """Every scalar stays text; tags, anchors, aliases and repeated keys are errors."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise CorpusError("anchors and aliases are not allowed")
        if getattr(event, "tag", None):
            raise CorpusError(f"tag {event.tag!r} is not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise CorpusError(f"key {key!r} is repeated")
        return super().construct_mapping(node, deep)


def loads(data: bytes) -> Entry:
    """The entry of a file's bytes. CorpusError says in one line what is not as it should be."""
    if not data.strip():
        raise CorpusError("the file is empty")
    if len(data) > LARGEST:
        raise CorpusError(f"{len(data)} bytes, more than the {LARGEST} that are read")
    text = _text(data)
    first = text.splitlines()[0]
    if first != f"format: {FORMAT}":
        raise CorpusError(f"line 1 is {first[:60]!r}, not 'format: {FORMAT}'; a newer version may read it")
    try:
        fields = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise CorpusError(f"not readable as text of this format: {' '.join(str(error).split())}") from None
    try:
        return _entry(fields)
    except FuzzError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorpusError(f"not an entry: {type(error).__name__}: {error}") from None


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorpusError("not text: the file is binary") from None
    if "\0" in text:
        raise CorpusError("not text: the file is binary")
    return text


def _entry(fields: Any) -> Entry:
    _only(fields, "an entry", "format target planted status why digest case finding seen")
    name = fields["target"]
    if not name.isidentifier():
        raise CorpusError(f"target {name!r} is not a target's name; a path is not allowed here")
    if fields["status"] not in STATUSES:
        raise CorpusError(f"status {fields['status']!r} is not one of {', '.join(STATUSES)}")
    _only(fields["case"], "case", "calls split")
    calls = tuple(_call(call) for call in fields["case"]["calls"])
    split = fields["case"].get("split")
    case = Case(name, calls, Split(**{key: _integer(value) for key, value in split.items()}) if split else None)
    finding = _finding(fields["finding"]) if "finding" in fields else None
    entry = Entry(
        case=case,
        finding=finding,
        status=fields["status"],
        why=fields.get("why", ""),
        planted=fields.get("planted", ""),
        also=tuple(fields.get("finding", {}).get("also", ())),
        seen=dict(fields.get("seen", {})),
    )
    if entry.digest != fields["digest"]:
        raise CorpusError(f"digest is {fields['digest']!r}, but the case's bytes give {entry.digest!r}")
    return entry


def _only(fields: Any, what: str, allowed: str) -> None:
    if not isinstance(fields, dict):
        raise CorpusError(f"{what} is not a mapping")
    for key in fields:
        if key not in allowed.split():
            raise CorpusError(f"unknown key {key!r} in {what}; known: {', '.join(allowed.split())}")


def _call(fields: Mapping[str, Any]) -> Call:
    _only(fields, "a call", "dims options arguments cotangents")
    dims = {name: _integer(size) for name, size in fields["dims"].items()}
    return Call(
        dims,
        {name: _argument(value, dims) for name, value in fields["arguments"].items()},
        {name: _read_scalar(value) for name, value in fields.get("options", {}).items()},
        {name: _argument(value, dims) for name, value in fields.get("cotangents", {}).items()},
    )


def _argument(fields: Mapping[str, Any], dims: Mapping[str, int]) -> Argument:
    _only(fields, "an argument", "shape dtype layout bits recipe overrides")
    shape = tuple(fields["shape"])
    for text in shape:
        evaluate(text, dims)
    if fields["dtype"] not in DTYPES:
        raise CorpusError(f"unknown dtype {fields['dtype']!r}; known: {', '.join(DTYPES)}")
    layout = _layout(fields.get("layout", {}))
    if not layout.fits(len(shape)):
        raise CorpusError(f"layout {fields.get('layout')} does not fit {len(shape)} dims")
    return Argument(shape, fields["dtype"], _values(fields), layout)


def _layout(fields: Mapping[str, Any]) -> Layout:
    _only(fields, "a layout", "order step pad offset expand reach")
    numbers = {
        key: tuple(map(_integer, value)) if isinstance(value, list) else _integer(value)
        for key, value in fields.items()
    }
    return Layout(**numbers)  # type: ignore[arg-type]


def _values(fields: Mapping[str, Any]) -> Values:
    if "bits" in fields:
        return Exact(tuple(int(word, 16) for word in fields["bits"].split()), fields["dtype"])
    recipe = Recipe.parse(fields["recipe"])
    if "overrides" not in fields:
        return recipe
    pairs = [pair.split(":") for pair in fields["overrides"].split(",")]
    return Patched(recipe, tuple((int(index), int(word, 16)) for index, word in pairs))


def _finding(fields: Mapping[str, Any]) -> Finding:
    _only(fields, "a finding", "oracle outputs symptom message call disagreeing compared place elements also")
    if fields["symptom"] not in SYMPTOMS.get(fields["oracle"], ()):
        raise CorpusError(f"oracle {fields['oracle']!r} has no symptom {fields['symptom']!r}")
    return Finding(
        fields["oracle"],
        tuple(fields["outputs"]),
        fields["symptom"],
        fields["message"],
        tuple(_element(element) for element in fields.get("elements", ())),
        _integer(fields["call"]),
        disagreeing=_integer(fields["disagreeing"]),
        compared=_integer(fields["compared"]),
        place=fields.get("place", ""),
    )


def _element(fields: Mapping[str, str]) -> Element:
    index = tuple(_integer(place) for place in fields["index"].split())
    return Element(**{**fields, "index": index})  # type: ignore[arg-type]


def _integer(text: str) -> int:
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text):
        raise CorpusError(f"{text!r} is not a whole number")
    return int(text)


def _read_scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("str "):
        return text[4:]
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
