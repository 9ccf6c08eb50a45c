"""Observes which statements of kernels Triton's code generator compiles, and which branches of conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import CompiledKernel, make_backend

from fuzz.backends.reached_functions import is_foreign
from fuzz.backends.triton_host.compile_only import run_front_end
from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.coverage_report.protocol import CompiledNode, SourceFunction
from fuzz.coverage_report.scope import describe

Compiled = dict[SourceFunction, set[CompiledNode]]


class CodeGeneration:
    """Gathers what the code generator visits between `start` and `finish`: a kernel, and the functions it inlines."""

    def __init__(self) -> None:
        self.compiled: Compiled = {}
        self.conditions: dict[ast.AST, ast.If] = {}

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Inside, the code generator says what it visits."""
        visit = CodeGenerator.visit

        def observe(generator: Any, node: ast.AST | None) -> Any:
            if isinstance(node, ast.If):
                self.conditions[node.test] = node
            value = visit(generator, node)
            if isinstance(node, ast.stmt) and hasattr(node, "lineno"):  # Triton makes some itself, for defaults.
                self._record(generator, node, None)
            elif node and (statement := self.conditions.get(node)):
                for outcome in _outcomes(value):
                    self._record(generator, statement, outcome)
            return value

        with patched([Patch(CodeGenerator, "visit", observe)]):
            yield

    def start(self) -> None:
        """Forgets what was visited for a kernel that was refused, or for another device."""
        self.compiled, self.conditions = {}, {}

    def finish(self, kernel: CompiledKernel) -> Compiled:
        """What was compiled into a kernel since `start`."""
        if not self.compiled:  # It comes from the cache on disk, which does not say.
            _generate(kernel)
        return self.compiled

    def _record(self, generator: Any, node: ast.stmt, outcome: bool | None) -> None:
        if function := _describe(generator.jit_fn.fn):
            compiled = CompiledNode(generator.begin_line + node.lineno, node.col_offset, outcome)
            self.compiled.setdefault(function, set()).add(compiled)


@cache
def _describe(function: FunctionType) -> SourceFunction | None:
    """The record of a function that is not one of Triton's own."""
    return None if is_foreign(function) else describe(function)


def _outcomes(condition: Any) -> tuple[bool, ...]:
    """What a condition may be when the kernel runs: both where it is no constant of compilation."""
    if isinstance(condition, tl.tensor):
        return True, False
    return (bool(condition.value if isinstance(condition, tl.constexpr) else condition),)


def _generate(kernel: CompiledKernel) -> None:
    """Generates the code of a compiled kernel once more, as Triton does where its cache has no such kernel."""
    target = kernel.metadata.target
    run_front_end(kernel.src, target, make_backend(target).parse_options(kernel.metadata._asdict()))
