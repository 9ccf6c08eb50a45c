"""Collects the parts of modules that a stand-alone script needs, without the declarations as targets.

A target's file may import helpers from files and packages beside it; these are taken along. What is installed stays an
import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from fuzz.errors import TargetError
from fuzz.report.reproducer.modules import Import, Module, bindings, changes, defines, of_fuzz

PACKAGE = Path(__file__).parents[2]
PREFIX = "fuzz_"
"""What names of this package begin with in a script, where the launcher's own names stand beside them."""


@dataclass
class SourceCollector:
    """Modules by their file, those that others borrow from first."""

    modules: dict[Path, Module] = field(default_factory=dict)
    reading: list[Path] = field(default_factory=list)

    def add(self, path: Path, source: str = "", root: Path | None = None) -> Module:
        """The module of a file; `source` is its text where that is not what the file holds.

        TargetError where files borrow names from each other in a circle.
        """
        if path not in self.modules:
            package = path.is_relative_to(PACKAGE)
            root = PACKAGE.parent if package else root or path.parent
            module = Module(source or path.read_text(encoding="utf-8-sig"), path, root, package, self.modules)
            self.reading.append(path)
            for other in dict.fromkeys(module.local_files()):
                # A package is read while it imports from its own files.
                if other in self.reading and other.name != "__init__.py":
                    raise TargetError(f"no script can be made: {path.name} and {other.name} import each other")
                if other not in self.reading:
                    self.add(other, root=root)
            self.reading.remove(path)
            self.modules[path] = module
        return self.modules[path]

    def require(self, path: Path, names: Sequence[str]) -> None:
        """Takes these names of a module, and what they use. TargetError where that is part of a declaration."""
        module, pending = self.modules[path], list(names)
        while pending:
            name = pending.pop()
            module.requested.add(name)
            if name in module.imported_files:
                self.require(module.imported_files[name][0], [module.imported_files[name][1]])
            for node in module.defined.get(name, []):
                if id(node) in module.needed:
                    continue
                if not isinstance(node, ast.FunctionDef | ast.ClassDef) and module.public & set(uses(node, set())):
                    part = f"the launcher uses {name!r}, which is part of a declaration"
                    raise TargetError(f"no script can be made: {part}")
                if any(isinstance(part, ast.ImportFrom) and part.level for part in ast.walk(node)):
                    raise TargetError(f"no script can be made: {name!r} imports from its own package while it runs")
                module.needed.add(id(node))
                pending += (
                    uses(node, set(), annotations=False) if module.package else uses(node, self.declaring(module))
                )

    def declaring(self, module: Module) -> set[str]:
        """Names in a module that declare targets: the public ones, and functions that use them, borrowed or its own."""
        found = set(module.public)
        for name, (path, original) in module.imported_files.items():
            found |= {name} if original in self.declaring(self.modules[path]) else set()
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and found & set(body_names(node)):
                found.add(node.name)
        return found

    def pieces(self) -> Iterator[str]:
        """The text of what is needed, module by module in the order of each file. TargetError where names collide."""
        imported: set[str] = set()
        effects = {path: list(self.effects(module)) for path, module in self.modules.items()}
        for path, nodes in effects.items():
            self.require(path, [name for node in nodes for name in names_in(node)])
        self.bound()
        for path, module in self.modules.items():
            if not module.needed and not module.requested and not effects[path]:
                continue
            for node in module.tree.body:
                text = self.text(module, node, node in effects[path])
                if text and text not in imported:
                    yield text
                imported |= {text} if isinstance(node, ast.Import | ast.ImportFrom) else set()

    def bound(self) -> dict[str, str]:
        """The names that are taken along, each with its import or its file. TargetError where one means two things."""
        meanings: dict[str, tuple[str, Path]] = {}
        for path, module in self.modules.items():
            for name, meaning in self.meanings(module).items() if not module.package else []:
                first, other = meanings.setdefault(name, (meaning, path))
                if first != meaning:
                    raise TargetError(
                        f"no script can be made: {name!r} means two things, in {other.name} and {path.name}"
                    )
        return {name: meaning for name, (meaning, _) in meanings.items()}

    def meanings(self, module: Module) -> dict[str, str]:
        """The names that a module binds in a script, each with the import that does, or the module's file."""
        effects, found = list(self.effects(module)), dict[str, str]()
        for node in module.tree.body:
            if not isinstance(node, Import) and id(node) not in module.needed and node not in effects:
                continue
            for name, statement in bindings([node]):
                borrowed = module.imported_files.get(name)
                if statement and name not in module.requested or borrowed and borrowed[1] == name:
                    continue
                meaning = str(module.path) if borrowed else statement or str(module.path)
                found[name] = meaning if found.get(name, meaning) == meaning else str(module.path)
        return found

    def imported_modules(self) -> dict[str, str]:
        """Path -> text of files that are imported as modules or while a function runs, and what those import."""
        pending, found = list[Path](), dict[Path, str]()
        root = Path()
        for module in self.modules.values():
            if not module.package:
                root = module.root
                pending += self.embedded_files(module)
        while pending:
            path = pending.pop()
            if path not in found:
                found[path] = path.read_text(encoding="utf-8-sig")
                embedded = Module(found[path], path, root)
                pending += embedded.embedded_files(embedded.tree)
        return {path.relative_to(root).as_posix(): found[path] for path in sorted(found)}

    def embedded_files(self, module: Module) -> Iterator[Path]:
        """The files that the statements which are taken of a module import as modules."""
        effects = list(self.effects(module))
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom):
                yield from module.embedded_files(ast.ImportFrom(node.module, submodules(module, node), node.level))
            elif isinstance(node, ast.Import) or id(node) in module.needed or node in effects:
                yield from module.embedded_files(node)

    def effects(self, module: Module) -> Iterator[ast.stmt]:
        """Top-level statements that bind no name and declare nothing, such as a setting of the environment."""
        declared = {*self.declaring(module), *(node.name for node in module.tree.body if declared_by(node))}
        users = {name: {used for node in nodes for used in names_in(node)} for name, nodes in module.defined.items()}
        while more := {name for name, used in users.items() if declared & used} - declared:
            declared |= more
        own = {name for node in module.tree.body for name in defines(node)}
        for node in module.tree.body if not module.package else []:
            plain = isinstance(node, ast.If | ast.For | ast.While | ast.Match | ast.With | ast.Try | ast.Expr)
            text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            foreign = any(True for _ in changes(node)) and not own & {*defines(node), *changes(node)}
            if (plain or foreign) and not text and not declared & set(names_in(node)):
                yield node

    def text(self, module: Module, node: ast.stmt, effect: bool) -> str:
        """What becomes of a top-level statement; empty where it is left out."""
        if isinstance(node, ast.ImportFrom):
            modules = submodules(module, node)
            imported = [ast.unparse(ast.ImportFrom(module.imported_module(node), modules, 0))] if modules else []
            if module.local_file(node) is not None:
                kept = [alias for alias in node.names if alias.asname in module.requested and not module.package]
                named = [f"{alias.asname} = {alias.name}" for alias in kept if alias not in modules]
                return "\n".join([*imported, *named])
            return "" if of_fuzz(node.module) or node.module == "__future__" else ast.unparse(node)
        if isinstance(node, ast.Import):
            return "" if any(of_fuzz(alias.name) for alias in node.names) else ast.unparse(node)
        if id(node) not in module.needed and not effect:
            return ""
        if any(map(module.of_own_package, ast.walk(node))):
            return ast.unparse(FullNames(module).visit(ast.parse(ast.unparse(node)).body[0]))
        return package_text(module, node) if module.package else target_text(module, node, self.declaring(module))


def submodules(module: Module, node: ast.ImportFrom) -> list[ast.alias]:
    """What a statement imports that is a module of a package beside the target."""
    return [alias for alias in node.names if module.is_submodule(node, alias)]


def futures(module: Module) -> list[str]:
    """Its imports from the future, which stand first in a script."""
    nodes = [node for node in module.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [ast.unparse(node) for node in nodes]


def names_in(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def body_names(node: ast.FunctionDef) -> list[str]:
    return [name for part in node.body for name in names_in(part)]


def uses(node: ast.stmt, declaring: set[str], *, annotations: bool = True) -> list[str]:
    """The names that a statement reads, the decorators that declare it aside, and annotations of parameters if so."""
    if not isinstance(node, ast.FunctionDef):
        return names_in(node)
    kept = [decorator for decorator in node.decorator_list if not is_declaration(decorator, declaring)]
    parameters = [node.args] if annotations else node.args.defaults
    return body_names(node) + [name for part in (*parameters, *kept) for name in names_in(part)]


def is_declaration(decorator: ast.expr, declaring: set[str]) -> bool:
    """Whether a decorator declares a target or a planted bug."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(function, ast.Attribute):
        return function.attr == "planted" or function.attr in declaring
    return getattr(function, "id", "") in declaring


def declared_by(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Whether a statement is a function with a decorator that is called, as targets are."""
    return isinstance(node, ast.FunctionDef) and any(isinstance(item, ast.Call) for item in node.decorator_list)


def target_text(module: Module, node: ast.stmt, declaring: set[str]) -> str:
    """The statement's own text, without the decorators that declare it."""
    lines = module.source.splitlines()
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return "\n".join(lines[node.lineno - 1 : node.end_lineno])
    kept = [item for item in node.decorator_list if not is_declaration(item, declaring)]
    decorators = ["@" + (ast.get_source_segment(module.source, item) or "") for item in kept]
    return "\n".join([*decorators, *lines[node.lineno - 1 : node.end_lineno]])


class FullNames(ast.NodeTransformer):
    """Imports from the module's own package by its full name: a script is in no package, and would lack what they bind.

    One in a ``try`` would not even be missed.
    """

    def __init__(self, module: Module) -> None:
        self.module = module

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        own = self.module.of_own_package(node)
        return ast.ImportFrom(self.module.imported_module(node), node.names, 0) if own else node


class RenameForScript(ast.NodeTransformer):
    """Drops annotations of parameters, and prefixes the names of this package."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(PREFIX + node.id if node.id in self.names else node.id, node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def package_text(module: Module, node: ast.stmt) -> str:
    """A statement of this package under the name that it has in scripts."""
    names = {*module.defined, *module.imported_files}
    renamed = RenameForScript(names).visit(ast.parse(ast.unparse(node)).body[0])
    if isinstance(renamed, ast.FunctionDef | ast.ClassDef):
        renamed.name = PREFIX + renamed.name
    return ast.unparse(ast.fix_missing_locations(renamed))


def lambda_at(source: str, line: int, columns: tuple[int, int]) -> str:
    """The text of the smallest lambda that holds these columns of a line."""
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Lambda)
        and node.lineno <= line <= (node.end_lineno or 0)
        and (node.lineno < line or node.col_offset <= columns[0])
        and (line < (node.end_lineno or 0) or columns[1] <= (node.end_col_offset or 0))
    ]
    least = min(found, key=lambda node: len(ast.get_source_segment(source, node) or ""))
    return ast.get_source_segment(source, least) or ""
