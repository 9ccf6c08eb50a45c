"""Writes the skeleton of a target's file from a launcher's signature, for its author to fill in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.target.skeleton.signature import Parameter, Signature, read_signature

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
    parameters = [one for one in (*signature.built, *signature.parameters) if _is_declared(one)]
    declared = {one.name: _declaration(one) for one in parameters}
    lines = [f"{key}={_double_quoted(value)}" for key, value in declared.items()]
    lines += list(_promises(signature, declared))
    used = "\n".join(lines)
    dims = [dim for dim in DIMS if re.search(rf"\b{dim}\b", used)]
    kinds = [kind for kind in ("indices", "option", "prefix_sums", "size", "target", "tensor") if f"{kind}(" in used]
    return HEAD.format(
        name=name,
        function=re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if signature.kind != "function" else name,
        module=path.stem,
        imported=", ".join([f"{name} as launcher" if signature.kind == "function" else name, *_enums(parameters)]),
        public=", ".join(sorted({*kinds, "target", *(["size"] if dims else [])})),
        sizes="\n".join(DIMS[dim] for dim in dims),
        parameters=", ".join(declared),
        declarations="\n".join(f"    {line}," for line in lines),
        body="\n".join(f"    {line}" for line in _body(signature, declared)),
    )


def _double_quoted(text: str) -> str:
    return text if '"' in text else text.replace("'", '"')


def _is_declared(parameter: Parameter) -> bool:
    """Whether a parameter is drawn: no tensor that a caller may give to hold the result, no dtype, no device."""
    kind = parameter.annotation.split(".")[-1]
    plain = kind not in ("dtype", "device") and parameter.name not in ("out", "dtype", "device")
    return plain or not parameter.default


def _declaration(parameter: Parameter) -> str:
    none = " | None" if parameter.optional else ""
    if parameter.choices:
        default = [parameter.default] if parameter.default else []
        choices = dict.fromkeys([*default, *parameter.choices, *(["None"] if parameter.optional else [])])
        return f"option({', '.join(choices)})"
    if parameter.is_tensor:
        return _tensor(parameter.name) + none
    if parameter.annotation in ("int", "") and not parameter.default:
        dim = parameter.name.upper()
        return dim if dim in DIMS else f'size("{dim}", 1, 16)'
    usual = {"float": "1.0", "int": "1", "str": '"?"'}.get(parameter.annotation, "0")
    if parameter.default:
        more = [usual] if parameter.default == "None" else []
        return f"option({', '.join([parameter.default, *more])})"
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
        yield "differentiable=dict(out=tensor(M, N))"
    if any("prefix_sums(" in value for value in declared.values()):
        yield "dims=(S,)"
    elif "tensor(M, N)" in declared.values():
        yield "batch=M" if signature.kind == "function" else "rows=dict(out=M)"
    if signature.written:
        yield _double_quoted(f"in_place=({', '.join(map(repr, signature.written))},)")


def _body(signature: Signature, declared: dict[str, str]) -> Iterator[str]:
    called = _passed(signature.parameters, declared)
    if signature.kind == "module":
        device = next((one.name for one in signature.parameters if one.is_tensor), "x")
        yield f"module = {signature.name}({_passed(signature.built, declared)}).to({device}.device, {device}.dtype)"
        yield "# Its parameters are those that it is made with: draw them as tensors, by torch.func.functional_call."
        yield f"return dict(out=module({called}))"
    elif signature.kind == "autograd function":
        yield f"return dict(out={signature.name}.apply({called}))"
    elif signature.written and not signature.returns:
        yield f"launcher({called})"
        yield f"return dict({', '.join(f'{name}={name}' for name in signature.written)})"
    else:
        yield f"return dict(out=launcher({called}))"


def _passed(parameters: Sequence[Parameter], declared: dict[str, str]) -> str:
    """The arguments of the call; by name after the first one that is left out."""
    texts, named = [], False
    for parameter in parameters:
        if parameter.name not in declared:
            named = True
            continue
        value = f"{parameter.enum}[{parameter.name}]" if parameter.enum else parameter.name
        if parameter.enum and parameter.optional:
            value = f"{parameter.name} and {value}"
        texts.append(f"{parameter.name}={value}" if named or parameter.named else value)
    return ", ".join(texts)


def _enums(parameters: Sequence[Parameter]) -> list[str]:
    return sorted({parameter.enum for parameter in parameters if parameter.enum})
