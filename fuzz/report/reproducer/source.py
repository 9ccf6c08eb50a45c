"""Collects the parts of modules that a stand-alone script needs, without the declarations as targets.

A target's file may import helpers from files beside it; these are taken along. What is installed stays an import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from fuzz.errors import TargetError

PACKAGE = Path(__file__).parents[2]
PREFIX = "fuzz_"
"""What names of this package begin with in a script, where the launcher's own names stand beside them."""


@dataclass
class Module:
    """A file's text, and which of its top-level statements are needed."""

    source: str
    folder: Path
    package: bool = False
    needed: set[int] = field(default_factory=set)
    requested: set[str] = field(default_factory=set)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def defined(self) -> dict[str, list[ast.stmt]]:
        """Name -> the top-level statements that bind it or change what it holds, in the order of the file."""
        found: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            for name in dict.fromkeys([*defines(node), *changes(node)]):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def imported_files(self) -> dict[str, tuple[Path, str]]:
        """Names imported from files that are taken along: where each stands, and what it is called there."""
        return {
            alias.asname or alias.name: (path, alias.name)
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom) and (path := self.local_file(node)) is not None
            for alias in node.names
        }

    def local_file(self, node: ast.ImportFrom) -> Path | None:
        """The file that an import is from, if that is taken along."""
        name = node.module or ""
        if self.package:
            path = PACKAGE.parent / f"{name.replace('.', '/')}.py"
            return path if name.startswith("fuzz.") and path.is_file() else None
        path = self.folder / f"{name}.py"
        return path if name.isidentifier() and path.is_file() else None

    @cached_property
    def public(self) -> set[str]:
        """Names that are imported from fuzz, which only declarations use."""
        nodes = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and of_fuzz(node.module)]
        return {alias.asname or alias.name for node in nodes for alias in node.names}


@dataclass
class SourceCollector:
    """Modules by their file, those that others borrow from first."""

    modules: dict[Path, Module] = field(default_factory=dict)

    def add(self, path: Path, source: str = "") -> Module:
        """The module of a file; `source` is its text where that is not what the file holds."""
        if path not in self.modules:
            module = Module(source or path.read_text(encoding="utf-8-sig"), path.parent, path.is_relative_to(PACKAGE))
            for other in dict.fromkeys(place for place, _ in module.imported_files.values()):
                self.add(other)
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
        taken: dict[str, Path] = {}
        imported: set[str] = set()
        effects = {path: list(self.effects(module)) for path, module in self.modules.items()}
        for path, nodes in effects.items():
            self.require(path, [name for node in nodes for name in names_in(node)])
        for path, module in self.modules.items():
            if not module.needed and not effects[path]:
                continue
            for node in (node for node in module.tree.body if id(node) in module.needed and not module.package):
                for name in defines(node):
                    if taken.setdefault(name, path) != path:
                        files = f"{taken[name].name} and {path.name}"
                        raise TargetError(f"no script can be made: {name!r} means two things, in {files}")
            for node in module.tree.body:
                text = self.text(module, node, node in effects[path])
                if text and text not in imported:
                    yield text
                imported |= {text} if isinstance(node, ast.Import | ast.ImportFrom) else set()

    def imported_modules(self) -> dict[str, str]:
        """Name -> text of files that are imported as modules or while a function runs, and of those beside them."""
        pending, found = list[Path](), dict[Path, str]()
        for module in self.modules.values():
            for node in module.tree.body if not module.package else []:
                if isinstance(node, ast.Import) or id(node) in module.needed:
                    pending += imported_beside(node, module.folder)
        while pending:
            path = pending.pop()
            if path not in found:
                found[path] = path.read_text(encoding="utf-8-sig")
                pending += imported_beside(ast.parse(found[path]), path.parent)
        return {path.name: found[path] for path in sorted(found)}

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
            if module.local_file(node) is not None:
                kept = [alias for alias in node.names if alias.asname in module.requested and not module.package]
                return "\n".join(f"{alias.asname} = {alias.name}" for alias in kept)
            return "" if of_fuzz(node.module) or node.module == "__future__" else ast.unparse(node)
        if isinstance(node, ast.Import):
            return "" if any(of_fuzz(alias.name) for alias in node.names) else ast.unparse(node)
        if id(node) not in module.needed and not effect:
            return ""
        return package_text(module, node) if module.package else target_text(module, node, self.declaring(module))


def imported_beside(node: ast.AST, folder: Path) -> Iterator[Path]:
    """The files in `folder` that are imported anywhere in a statement."""
    for part in ast.walk(node):
        modules = [part.module] if isinstance(part, ast.ImportFrom) and not part.level else []
        modules += [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
        for name in filter(None, modules):
            path = folder / f"{name}.py"
            if name.isidentifier() and path.is_file():
                yield path


def of_fuzz(name: str | None) -> bool:
    return (name or "").partition(".")[0] == "fuzz"


def futures(module: Module) -> list[str]:
    """Its imports from the future, which stand first in a script."""
    nodes = [node for node in module.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [ast.unparse(node) for node in nodes]


def places(node: ast.stmt) -> list[ast.expr]:
    """What a top-level statement that is no definition assigns to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def defines(node: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    for part in (part for place in places(node) for part in ast.walk(place)):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part.id


def changes(node: ast.stmt) -> Iterator[str]:
    """The names of whose value a top-level statement changes a part, as in ``TABLE["key"] = 3``."""
    for part in (part for place in places(node) for part in ast.walk(place)):
        if isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(part.ctx, ast.Load):
            root: ast.expr = part
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id


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
