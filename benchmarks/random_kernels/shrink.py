"""A smaller kernel that still fails: subtrees become constants or parts of themselves, statements go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from .tree import Atomic, Buffer, Expr, For, Function, If, Kernel, Let, Scalar, Statement, Store, While, rebuild, walk

BATCH = 24
# (kernels) -> whether each fails as the first one did.
Fails = Callable[[Sequence[Kernel]], list[bool]]


def shrink(kernel: Kernel, fails: Fails, rounds: int = 40) -> Kernel:
    """Take the first smaller kernel that fails, as long as there is one."""
    for _ in range(rounds):
        options, found = smaller(kernel), None
        while found is None and (batch := list(islice(options, BATCH))):
            found = next((option for option, bad in zip(batch, fails(batch), strict=True) if bad), None)
        if found is None:
            break
        kernel = found
    return kernel


def smaller(kernel: Kernel) -> Iterator[Kernel]:
    """Kernels with one thing less, the largest steps first."""
    if kernel.grid != (1, 1):
        yield replace(kernel, grid=(1, 1))
    pruned = prune(kernel)
    if pruned is not None:
        yield pruned
    nodes = sorted(inner(kernel), key=lambda node: -sum(1 for _ in walk(node)))
    for node in nodes:
        if isinstance(node, Expr):
            for other in simpler(node):
                yield substitute(kernel, node, (other,))
        else:
            for others in without(node):
                changed = substitute(kernel, node, others)
                if bound(changed):
                    yield changed


def inner(kernel: Kernel) -> list[Any]:
    """Every node once, but the kernel."""
    return list({id(node): node for node in walk(kernel) if not isinstance(node, (Kernel, Function))}.values())


def simpler(node: Expr) -> Iterator[Expr]:
    if node.op in ("const", "pid", "arange"):
        return
    kind = node.type.dtype.kind
    for value in (0.0, 1.5) if kind == "f" else (0, 1):
        yield Expr("const", node.type, data=(value, "full"))
    for part in walk(node):
        if part is not node and isinstance(part, Expr) and part.type == node.type and part.op != "const":
            yield part


def without(node: Statement) -> Iterator[tuple[Statement, ...]]:
    """What may stand in a statement's place."""
    yield ()
    match node:
        case For() | While():
            yield tuple(Let(name, value) for name, value in zip(node.names, node.first, strict=True))
        case If():
            yield (*node.yes, *(Let(n, v) for n, v in zip(node.names, node.yes_values, strict=True)))
            yield (*node.no, *(Let(n, v) for n, v in zip(node.names, node.no_values, strict=True)))
        case Store() | Atomic():
            if node.mask is not None:
                yield (replace(node, mask=None),)


def substitute(kernel: Kernel, old: Any, new: Sequence[Any]) -> Kernel:
    """The kernel with other nodes in one's place, wherever it stands; what is shared stays shared."""
    done: dict[int, Any] = {}

    def changed(node: Any) -> Any:
        if node is old:
            return new[0] if len(new) == 1 else None
        if id(node) not in done:
            done[id(node)] = rebuild(spliced(node, old, new), changed)
        return done[id(node)]

    made: Kernel = changed(kernel)
    return made


def spliced(node: Any, old: Any, new: Sequence[Any]) -> Any:
    """A node whose bodies have none or several statements for one."""
    altered = {}
    for name in ("body", "yes", "no"):
        body = getattr(node, name, None)
        if body is not None and len(new) != 1 and any(part is old for part in body):
            altered[name] = tuple(new_part for part in body for new_part in (new if part is old else (part,)))
    return replace(node, **altered) if altered else node


def bound(kernel: Kernel) -> bool:
    """Whether every variable has a statement that binds it."""
    names = {scalar.name for scalar in kernel.scalars}
    used = set()
    inside: set[str] = set()
    for node in walk(kernel):
        match node:
            case Let() | Atomic():
                names.add(node.name)
            case For():
                names |= {node.counter, *node.names}
            case While() | If():
                names |= set(node.names)
            case Function():
                inside |= {f"p{number}" for number in range(len(node.parameters))}
            case Expr(op="var"):
                used.add(node.data[0])
    return used <= names | inside


def prune(kernel: Kernel) -> Kernel | None:
    """Without the arguments that nothing uses."""
    used: set[str] = set()
    for node in walk(kernel):
        match node:
            case Expr(op="var" | "load"):
                used.add(node.data[0])
            case Store() | Atomic():
                used.add(node.buffer)
    buffers: tuple[Buffer, ...] = tuple(buffer for buffer in kernel.buffers if buffer.name in used)
    scalars: tuple[Scalar, ...] = tuple(scalar for scalar in kernel.scalars if scalar.name in used)
    if (len(buffers), len(scalars)) == (len(kernel.buffers), len(kernel.scalars)):
        return None
    return replace(kernel, buffers=buffers, scalars=scalars)
