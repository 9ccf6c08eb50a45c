"""Script: a stand-alone program that shows a finding: the kernel's and launcher's source, exact inputs, what is due.

It needs torch and triton on a GPU, and ``fuzz.backends.cpu`` only where there is none. Run alone it ends with exit
code 1 and one line where the kernel is wrong, with 0 where it is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fuzz.case import Argument, Call
from fuzz.dims import resolve
from fuzz.entry import Entry
from fuzz.layout import CONTIGUOUS
from fuzz.loader import variant_source
from fuzz.report.script_checks import checks
from fuzz.target import Plant, Target

TENSOR_HELPER = '''
def tensor(words, dtype, shape, strides, offset=0):
    """The exact bit patterns, in row-major order of the distinct elements, as a strided tensor."""
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16,
            torch.bfloat16: torch.int16, torch.int64: torch.int64, torch.int32: torch.int32,
            torch.int16: torch.int16, torch.int8: torch.int8, torch.uint8: torch.uint8, torch.bool: torch.uint8}[dtype]
    size = torch.empty(0, dtype=bits).element_size() * 8
    values = [int(w, 16) for w in words.split()] if isinstance(words, str) else list(words)
    values = [v - (1 << size) if bits != torch.uint8 and v >> (size - 1) else v for v in values]
    span = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else offset
    base = torch.empty(span, dtype=bits, device=DEVICE).view(dtype) if span < 1 << 26 else lazily_mapped(span, dtype)
    if span < 1 << 26 and dtype.is_floating_point:
        base.fill_(float("nan"))
    stored = [1 if s == 0 else n for n, s in zip(shape, strides)]
    filled = torch.tensor(values, dtype=bits, device=DEVICE).view(dtype).reshape(stored)
    torch.as_strided(base, stored, strides, offset).copy_(filled)
    return torch.as_strided(base, shape, strides, offset)


def lazily_mapped(span, dtype):
    """Memory of which only what is touched is taken."""
    if DEVICE == "cuda":
        return torch.empty(span, dtype=dtype, device=DEVICE)
    import mmap

    size = span * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000), dtype=dtype)
'''


def script(entry: Entry, target: Target, plant: Plant | None, expected: Mapping[str, object], repeat: str) -> str:
    """The program's text. `expected` holds, for an accuracy finding, (value, bound) by element."""
    source = variant_source(target, plant) if plant and plant.changes else target.path.read_text(encoding="utf-8")
    launcher = plant.launcher.__name__ if plant and plant.launcher else target.launcher.__name__
    body, imports = extract(source, [launcher])
    finding = entry.finding
    title = f"{entry.case.target}: {finding.message if finding else 'a seed case'}"
    title = title.replace('"""', "'''").replace("\\", "/")
    parts = [
        f'"""{title}\n\nrepeat   {repeat}\n"""\n',
        "\n".join(["import sys", "", *imports]),
        'DEVICE = "cuda" if torch.cuda.is_available() else "cpu"',
        "# Memory that nobody wrote is NaN, not what happens to lie there.\n"
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        'if DEVICE == "cpu":\n    from fuzz.backends import cpu\n\n    cpu.activate()',
        body,
        TENSOR_HELPER.strip("\n"),
        "\n".join(call_lines(entry)),
        checks(entry, launcher, expected),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def extract(source: str, wanted: Iterable[str]) -> tuple[str, list[str]]:
    """(definitions, imports) of a module that these names need, without the declaration as a target."""
    tree = ast.parse(source)
    defined = {name: node for node in tree.body for name in defines(node)}
    needed: dict[int, ast.stmt] = {}
    pending = list(wanted)
    while pending:
        node = defined.get(pending.pop())
        if node is None or id(node) in needed:
            continue
        needed[id(node)] = node
        pending += uses(node)
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    kept = [line for line in imports if not line.startswith(("from fuzz ", "from fuzz.", "import fuzz"))]
    body = "\n\n".join(text_of(node, source) for node in tree.body if id(node) in needed and not declares(node))
    sizes = [node for node in tree.body if id(node) in needed and declares(node)]
    assert not sizes or body
    return body, list(dict.fromkeys(["import torch", *kept]))


def defines(node: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        for place in node.targets:
            yield from (part.id for part in ast.walk(place) if isinstance(part, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def uses(node: ast.stmt) -> list[str]:
    """The names that a statement reads, its target decorator aside."""
    parts: list[ast.AST] = [node]
    if isinstance(node, ast.FunctionDef):
        kept = [decorator for decorator in node.decorator_list if not is_declaration(decorator)]
        parts = [*node.body, node.args, *kept]
    return [name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)]


def declares(node: ast.stmt) -> bool:
    """Whether a statement only serves the declaration, such as ``M = size("M", 1, 64)``."""
    value = node.value if isinstance(node, ast.Assign) else None
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)] if value else []
    return any(isinstance(call.func, ast.Name) and call.func.id in ("size", "tensor", "option") for call in calls)


def is_declaration(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("target", "planted")


def text_of(node: ast.stmt, source: str) -> str:
    """The statement's own text, without a target decorator."""
    lines = source.splitlines()
    if not isinstance(node, ast.FunctionDef):
        return "\n".join(lines[node.lineno - 1 : node.end_lineno])
    kept = [item for item in node.decorator_list if not is_declaration(item)]
    decorators = ["@" + (ast.get_source_segment(source, item) or "") for item in kept]
    return "\n".join([*decorators, *lines[node.lineno - 1 : node.end_lineno]])


def call_lines(entry: Entry) -> Iterator[str]:
    """Functions that make the arguments of each call, anew each time they are called."""
    for index, call in enumerate(entry.case.calls):
        yield f"def arguments_{index}():"
        yield "    return dict("
        for name, value in call.arguments.items():
            yield f"        {name}={tensor_text(value, call)},"
        for name, option in call.options.items():
            yield f"        {name}={option!r},"
        yield "    )"
        yield ""
        yield ""


def tensor_text(value: Argument, call: Call) -> str:
    shape = resolve(value.shape, call.dims)
    words = value.words(call.dims).reshape(-1)
    text = '"' + " ".join(f"{int(word):x}" for word in words) + '"'
    strides = value.layout.strides(shape)
    offset = f", {value.layout.offset}" if value.layout != CONTIGUOUS and value.layout.offset else ""
    return f"tensor({text}, torch.{value.dtype}, {shape}, {strides}{offset})"


def installed(path: Path) -> bool:
    """Whether a file belongs to an installed package, to be imported instead of copied."""
    return "site-packages" in path.parts
