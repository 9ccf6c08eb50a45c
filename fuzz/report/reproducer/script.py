"""Script: a stand-alone program that shows a finding: the kernel's and launcher's source, exact inputs, what is due.

It needs torch and triton on a GPU, and ``fuzz.backends.cpu`` only where there is none. Run alone it ends with exit
code 1 and one line where the kernel is wrong, with 0 where it is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError
from fuzz.model.case import Argument, Call, Scalar
from fuzz.model.dims import resolve
from fuzz.model.entry import Entry
from fuzz.model.layout import CONTIGUOUS
from fuzz.report.reproducer.checks import OWN, checks, computations
from fuzz.report.reproducer.source import PACKAGE, Gathering, defines, futures, lambda_at
from fuzz.target.loader import variant_source
from fuzz.target.spec import PlantedBug, Target

GRADIENTS, COMPANY = PACKAGE / "backends" / "autodiff.py", PACKAGE / "oracles" / "autograd_graphs.py"
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
START = """
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Memory that nobody wrote is NaN, not what happens to lie there.
torch.use_deterministic_algorithms(True, warn_only=True)
if DEVICE == "cpu":
    from fuzz.backends import cpu

    cpu.activate()
"""


@dataclass(frozen=True)
class Due:
    """What a script compares with. `values`: (value, bound) by element of each output; `again`: the call that the
    invariance oracle compares with."""

    values: Mapping[str, object]
    again: Call | None = None


def script(entry: Entry, target: Target, plant: PlantedBug | None, due: Due, repeat: str) -> str:
    """The program's text. UsageError where the reference is at fault, TargetError where no script can be made."""
    finding = entry.finding
    if finding and finding.symptom == "reference":
        raise UsageError("the reference is at fault, not the kernel: there is nothing for a program to show")
    source = variant_source(target, plant) if plant and plant.changes else target.path.read_text(encoding="utf-8")
    launcher = (plant.launcher if plant and plant.launcher else target.launcher).__name__
    gathered = Gathering()
    main = gathered.add(target.path, source)
    wanted = [launcher]
    if finding and finding.symptom == "bits" and finding.oracle == "accuracy" and target.baseline:
        wanted.append(target.baseline.__name__)
    gathered.need(target.path, wanted)
    split = finding is not None and finding.oracle == "invariance"
    spoil = spoiler(gathered, target, finding.output) if finding and finding.oracle == "rejects" else ""
    body = list(gathered.pieces())
    check_names(main.defined[name] for name in main.defined if id(main.defined[name]) in main.needed)
    title = f"{entry.case.target}: {finding.message if finding else 'a seed case'}"
    title = title.replace('"""', "'''").replace("\\", "/")
    parts = [
        f'"""{title}\n\nrepeat   {repeat}\n"""\n',
        "\n".join([*futures(main), "import sys", "", "import torch"]),
        START.strip("\n"),
        *grouped(text for text in body if text != "import torch"),
        *helpers(entry, target),
        TENSOR_HELPER.strip("\n"),
        "\n".join(call_lines(entry.case.calls, target)),
        *(["\n".join(call_lines([due.again], target, "again"))] if due.again and split else []),
        checks(entry, target, launcher, due.values, spoil),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def grouped(pieces: Iterable[str]) -> Iterator[str]:
    """Imports that follow each other as one piece."""
    imports: list[str] = []
    for text in pieces:
        if text.startswith(("import ", "from ")):
            imports.append(text)
            continue
        if imports:
            yield "\n".join(imports)
            imports = []
        yield text
    if imports:
        yield "\n".join(imports)


def check_names(nodes: Iterator[Any]) -> None:
    """UsageError where the launcher's module has a name that the script uses for something else."""
    taken = sorted({name for node in nodes for name in defines(node)} & OWN)
    if taken:
        raise UsageError(f"no script can be made: its own name {taken[0]!r} is one of the launcher's; rename that")


def helpers(entry: Entry, target: Target) -> Iterator[str]:
    """How a launcher is called and differentiated, and the company that the autograd oracle puts it in."""
    gathered = Gathering()
    gathered.add(COMPANY)
    gathered.need(GRADIENTS, ["gradients" if target.differentiable else "forward"])
    if entry.finding and entry.finding.oracle == "autograd":
        gathered.need(COMPANY, computations(entry.finding.symptom))
    yield from gathered.pieces()


def spoiler(gathered: Gathering, target: Target, name: str) -> str:
    """What makes of the arguments those that must be refused, as an expression."""
    function: Callable[..., Any] = target.rejects[name]
    if function.__name__ != "<lambda>":
        gathered.need(target.path, [function.__name__])
        return function.__name__
    path = Path(function.__code__.co_filename)
    positions = [place for place in function.__code__.co_positions() if place[0] == place[1] and None not in place[2:]]
    line, _, first, last = max(positions, key=lambda place: (place[3] or 0) - (place[2] or 0))
    assert line is not None and first is not None and last is not None
    text = lambda_at(path.read_text(encoding="utf-8"), line, (first, last))
    free = [used for used in function.__code__.co_names if used in gathered.modules[path].defined]
    gathered.need(path, free)
    return inspect.cleandoc(text)


def call_lines(calls: Any, target: Target, name: str = "") -> Iterator[str]:
    """Functions that make the tensors of each call anew, and its options and sizes."""
    for index, call in enumerate(calls):
        label = name or str(index)
        yield from maker(f"arguments_{label}", call.arguments, call)
        yield from maker(f"cotangents_{label}", call.cotangents, call)
        sizes = {key: call.dims[dim] for key, dim in target.passed_sizes.items()}
        yield f"options_{label} = dict({', '.join(f'{key}={value!r}' for key, value in options(call, sizes))})"
        yield ""
        yield ""


def options(call: Call, sizes: Mapping[str, int]) -> Iterator[tuple[str, Scalar]]:
    yield from call.options.items()
    yield from sizes.items()


def maker(name: str, tensors: Mapping[str, Argument], call: Call) -> Iterator[str]:
    """The text of a function that makes tensors by name."""
    yield f"def {name}():"
    if not tensors:
        yield from ("    return {}", "", "")
        return
    yield "    return dict("
    yield from (f"        {key}={tensor_text(value, call)}," for key, value in tensors.items())
    yield from ("    )", "", "")


def tensor_text(value: Argument, call: Call) -> str:
    shape = resolve(value.shape, call.dims)
    words = value.bits(call.dims).reshape(-1)
    text = '"' + " ".join(f"{int(word):x}" for word in words) + '"'
    strides = value.layout.strides(shape)
    offset = f", {value.layout.offset}" if value.layout != CONTIGUOUS and value.layout.offset else ""
    return f"tensor({text}, torch.{value.dtype}, {shape}, {strides}{offset})"
