"""Lists the mutants of the kernels in a module, draws some by seed, and makes a mutated copy of its package."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.mutations.operators import OPERATORS, SKIPPED, TUNING, Kernel, called

BARE = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.Assign)
"""Nodes whose text needs no brackets wherever it is put."""


@dataclass(frozen=True)
class Mutant:
    """One change of a source text: bytes `start` to `end`, which begin on `line`, become `new`."""

    operator: str
    kernel: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def digest(self) -> str:
        """A name that no other mutant has."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def apply(self, source: str) -> str:
        """The source text with this change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def list_mutants(source: str, kernels: set[str]) -> list[Mutant]:
    """Every mutant of the Triton functions of these names, and of those of the same module that they call."""
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if is_jit_function(node)}
    reached = reach(functions, kernels & functions.keys())
    starts = line_starts(source)
    return [
        mutant
        for name, function in functions.items()
        if name in reached
        for mutant in mutants_of(function, source, starts)
    ]


def is_jit_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list)


def reach(functions: dict[str, ast.FunctionDef], names: set[str]) -> set[str]:
    """The names, and those of the functions that they call, directly or not."""
    reached, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [text for node in ast.walk(functions[name]) if (text := called(node)) in functions]
    return reached


def mutants_of(function: ast.FunctionDef, source: str, starts: list[int]) -> Iterator[Mutant]:
    """The mutants of one function, operator by operator in the order of its text."""
    kernel = Kernel(strides_of(function))
    nodes = [node for statement in function.body for node in visit(statement)]
    data = source.encode()
    for name, operator in OPERATORS.items():
        for node in nodes:
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            for changed in operator(node, kernel):
                text = ast.unparse(ast.fix_missing_locations(changed))
                new = text if isinstance(changed, BARE) else f"({text})"
                yield Mutant(name, function.name, node.lineno, start, end, data[start:end].decode(), new)


def strides_of(function: ast.FunctionDef) -> tuple[str, ...]:
    """The parameters that are called strides, or that multiply something where an address is computed."""
    names = [argument.arg for argument in function.args.args]
    inside = [
        part for node in ast.walk(function) if called(node) in ("load", "store") for part in ast.walk(node.args[0])
    ]
    factors = [part for node in inside if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
               for part in (node.left, node.right)]  # fmt: skip
    multiplied = {part.id for part in factors if isinstance(part, ast.Name)}
    return tuple(name for name in names if "stride" in name.lower() or name in multiplied)


def visit(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The expressions and statements below a node that compute something."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) or called(node) in SKIPPED:
        return
    if isinstance(node, ast.keyword) and node.arg in TUNING:
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, child in ast.iter_fields(node):
        if name != "annotation":
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST):
                    yield from visit(part)


def line_starts(source: str) -> list[int]:
    """The byte at which each line begins."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def draw_mutants(mutants: list[Mutant], seed: str) -> Iterator[Mutant]:
    """All mutants in an order that depends on the seed: the operators take turns, each with its own in random order."""
    random = Random(seed)
    waiting = {name: [one for one in mutants if one.operator == name] for name in OPERATORS}
    queues = [queue for queue in waiting.values() if queue]
    random.shuffle(queues)
    for queue in queues:
        random.shuffle(queue)
    while queues:
        for queue in queues:
            yield queue.pop()
        queues = [queue for queue in queues if queue]


def overlay(folder: Path, root: Path, file: Path, text: str) -> Path:
    """A copy of the tree under `root` in `folder`, by links, in which `file` holds another text; returns that file."""
    place = folder / root.name
    place.mkdir(parents=True)
    for part in (*file.relative_to(root).parts[:-1], ""):
        for path in root.iterdir():
            if path.name not in ("__pycache__", part, file.name if not part else ""):
                (place / path.name).symlink_to(path)
        if part:
            root, place = root / part, place / part
            place.mkdir()
    mutated = place / file.name
    mutated.write_text(text, encoding="utf-8")
    return mutated
