"""Writes the skeleton of a target's file from a launcher's signature, for its author to fill in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.target.skeleton.defaults import free_names
from fuzz.target.skeleton.signature import Parameter, Signature, read_signature
from fuzz.target.spec import KEYWORDS

HEAD = '''"""{name}: say in one sentence what it computes. Interesting: say which inputs are likely to break it."""

import torch
from {module} import {imported}

from fuzz import {public}

{sizes}


def reference({parameters}):
    """The definition, in float64, by stable formulas; returns the same outputs by name."""
    raise NotImplementedError("write the reference of {name}")


@target(
{declarations}
    reference=reference,
)
def {function}({parameters}):
{body}
'''
VECTORS = ("weight", "bias", "w", "b", "gamma", "beta", "scale", "dt_bias", "rstd", "mean")
"""Parameters that are taken for one row."""
PREFIX_SUMS = re.compile(r"cu_.*|.*_?(indptr|offsets|seqlens)|cu")
INDICES = re.compile(r".*(label|target|indices|index|idx|_ids|positions|block_table|slot_mapping|lens|lengths).*|ids")
KIND_OF_TENSOR = re.compile(r"(tensor|indices|prefix_sums)\(")
MASKS = re.compile(r".*mask")
DIMS = {"M": 'M = size("M", 1, 1024)', "N": 'N = size("N", 1, 4096)', "V": 'V = size("V", 1, 1000)',
        "S": 'S = size("S", 1, 16)'}  # fmt: skip
"""How each dim of the skeleton is declared."""


def skeleton(text: str) -> str:
    """The file's text for ``path.py:LAUNCHER``. TargetError where there is no such launcher."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not file.endswith(".py") or not name:
        raise TargetError(f"{text!r} does not name a launcher; write path.py:LAUNCHER")
    if not path.is_file():
        raise TargetError(f"{file} does not exist")
    signature = read_signature(path, name)
    function = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if signature.kind != "function" else name
    called = name if function != name else "launcher" if name != "launcher" else "original"
    signature = _rename(signature, called)
    parameters = [one for one in (*signature.built, *signature.parameters) if _is_declared(one)]
    declared = _declare_one_tensor({one.argument: _declaration(one) for one in parameters})
    lines = [f"{key}={_double_quoted(value)}" for key, value in declared.items()]
    lines += list(_promises(signature, declared))
    used = "\n".join(lines)
    dims = [dim for dim in DIMS if re.search(rf"\b{dim}\b", used)]
    kinds = [kind for kind in ("indices", "option", "prefix_sums", "size", "target", "tensor") if f"{kind}(" in used]
    body = list(_body(signature, called, declared))
    return HEAD.format(
        name=name,
        function=function,
        module=path.stem,
        imported=", ".join([name if called == name else f"{name} as {called}", *_names(signature, parameters)]),
        public=", ".join(sorted({*kinds, "target", *(["size"] if dims else [])})),
        sizes="\n".join(DIMS[dim] for dim in dims),
        parameters=", ".join(declared),
        declarations="\n".join(f"    {line}," for line in lines),
        body="\n".join(f"    {line}" for line in body),
    )


def _rename(signature: Signature, called: str) -> Signature:
    """The signature, of whose parameters the target calls those otherwise that have a name which it uses itself."""
    parameters = (*signature.built, *signature.parameters)
    taken = {*KEYWORDS, called, "module", *(one.enum for one in parameters)}
    names = {one.name for one in parameters}

    def rename(parameter: Parameter) -> Parameter:
        name = parameter.name
        while name in taken or name != parameter.name and name in names:
            name += "_"
        return replace(parameter, renamed=name)

    built, others = (tuple(map(rename, part)) for part in (signature.built, signature.parameters))
    return replace(signature, built=built, parameters=others)


def _declare_one_tensor(declared: dict[str, str]) -> dict[str, str]:
    """The declarations, of which one tensor at least is never None."""
    tensors = [key for key, value in declared.items() if KIND_OF_TENSOR.match(value)]
    if tensors and all(declared[key].endswith(" | None") for key in tensors):
        return declared | {tensors[0]: declared[tensors[0]].removesuffix(" | None")}
    return declared


def _double_quoted(text: str) -> str:
    return text if '"' in text else text.replace("'", '"')


def _is_declared(parameter: Parameter) -> bool:
    """Whether a parameter is drawn: no tensor that a caller may give to hold the result, no dtype, no device.

    Nor one whose default is no plain value, such as a dtype or a tuple, or is not known from the source.
    """
    kind = parameter.annotation.split(".")[-1]
    plain = kind not in ("dtype", "device") and parameter.name not in ("out", "dtype", "device")
    is_known = bool(parameter.value or parameter.choices or parameter.is_tensor)
    return plain and is_known or not parameter.default


def _declaration(parameter: Parameter) -> str:
    none = " | None" if parameter.optional else ""
    if parameter.choices:
        default = [parameter.value] if parameter.value else []
        choices = dict.fromkeys([*default, *parameter.choices, *(["None"] if parameter.optional else [])])
        return f"option({', '.join(choices)})"
    if parameter.is_tensor:
        return _tensor(parameter.name) + none
    if parameter.annotation in ("int", "") and not parameter.default:
        dim = parameter.name.upper()
        return dim if dim in DIMS else f'size("{dim}", 1, 16)'
    usual = {"float": "1.0", "int": "1", "str": '"?"'}.get(parameter.annotation, "0")
    if parameter.value:
        more = [usual] if parameter.value == "None" else []
        return f"option({', '.join([parameter.value, *more])})"
    return f"option({', '.join([*(['None'] if parameter.optional else []), usual])})"


def _tensor(name: str) -> str:
    """The declaration that a tensor's name suggests."""
    if PREFIX_SUMS.fullmatch(name):
        return "prefix_sums(S + 1, total=M)"
    if INDICES.fullmatch(name):
        return "indices(M, below=V)"
    if MASKS.fullmatch(name):
        return 'tensor(M, N, dtypes=("bool",))'
    return "tensor(N)" if name in VECTORS else "tensor(M, N)"


def _promises(signature: Signature, declared: dict[str, str]) -> Iterator[str]:
    yield 'dtypes=("float32", "bfloat16", "float16")'
    if signature.kind != "function":
        shapes = [value.removesuffix(" | None") for value in declared.values() if value.startswith("tensor(")]
        shape = "tensor(M, N)" if "tensor(M, N)" in shapes else next(iter(shapes), "tensor(M, N)")
        yield f"differentiable=dict(out={shape})"
    if any("prefix_sums(" in value for value in declared.values()):
        yield "dims=(S,)"
    elif "tensor(M, N)" in declared.values():
        yield "batch=M" if signature.kind == "function" else "rows=dict(out=M)"
    if signature.written:
        yield _double_quoted(f"in_place=({', '.join(map(repr, _written(signature).values()))},)")


def _written(signature: Signature) -> dict[str, str]:
    """The arguments that it writes, with the target's names for them."""
    names = {one.name: one.argument for one in signature.parameters}
    return {name: names.get(name, name) for name in signature.written}


def _body(signature: Signature, called: str, declared: Mapping[str, str]) -> Iterator[str]:
    passed = _passed(signature.parameters, declared)
    if signature.kind == "module":
        device = next((one.argument for one in signature.parameters if one.is_tensor), "x")
        yield f"module = {called}({_passed(signature.built, declared)}).to({device}.device, {device}.dtype)"
        yield "# Its parameters are those that it is made with: draw them as tensors, by torch.func.functional_call."
        yield f"return dict(out=module({passed}))"
    elif signature.kind == "autograd function":
        yield f"return dict(out={called}.apply({passed}))"
    elif signature.written and not signature.returns:
        yield f"{called}({passed})"
        yield f"return dict({', '.join(f'{name}={argument}' for name, argument in _written(signature).items())})"
    else:
        yield f"return dict(out={called}({passed}))"


def _passed(parameters: Sequence[Parameter], declared: Mapping[str, str]) -> str:
    """The arguments of the call; by name after the first one that is left out.

    One that is left out before another one that goes by position alone is passed its default.
    """
    texts, named = [], False
    needed = _needed_defaults(parameters, declared)
    for parameter in parameters:
        if parameter.argument not in declared:
            texts += [parameter.default] if parameter in needed else []
            named = named or parameter not in needed
            continue
        value = f"{parameter.enum}[{parameter.argument}]" if parameter.enum else parameter.argument
        if parameter.enum and parameter.optional:
            value = f"{parameter.argument} and {value}"
        texts.append(f"{parameter.name}={value}" if named or parameter.named else value)
    return ", ".join(texts)


def _needed_defaults(parameters: Sequence[Parameter], declared: Mapping[str, str]) -> list[Parameter]:
    """The parameters that are left out before one that goes by position alone."""
    last = max(
        (place for place, one in enumerate(parameters) if one.positional and one.argument in declared), default=0
    )
    return [one for one in parameters[:last] if one.argument not in declared]


def _names(signature: Signature, drawn: Sequence[Parameter]) -> list[str]:
    """What the target imports of the launcher's module beside it: Enums, and what defaults are made of."""
    declared = {one.argument: "" for one in drawn}
    needed = [one for part in (signature.built, signature.parameters) for one in _needed_defaults(part, declared)]
    found = {one.enum for one in drawn if one.enum} | {name for one in needed for name in free_names(one.default)}
    return sorted(found - {"torch"})
