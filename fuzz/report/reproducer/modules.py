"""Reads the modules that a stand-alone script is made of: what they bind, and import from files beside the target."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import PathFinder
from pathlib import Path

import fuzz

INSTALLED = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
"""Folders that Python searches before that of a target."""
Import = ast.Import | ast.ImportFrom


@dataclass
class Module:
    """A file's text, and which of its top-level statements are needed.

    `root` is the folder that its imports start from, `others` are the modules that it may borrow names from.
    """

    source: str
    path: Path
    root: Path
    package: bool = False
    others: Mapping[Path, Module] = field(default_factory=dict)
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
        found: dict[str, tuple[Path, str]] = {}
        for node in (node for node in self.tree.body if isinstance(node, ast.ImportFrom)):
            path = self.local_file(node)
            for alias in node.names if path is not None else []:
                assert path is not None
                if alias.name == "*":
                    found |= {name: (path, name) for name in self.others[path].exported}
                elif not self.is_submodule(node, alias):
                    found[alias.asname or alias.name] = path, alias.name
        return found

    @property
    def exported(self) -> list[str]:
        """The names that ``from .. import *`` takes."""
        for node in self.defined.get("__all__", []):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple):
                return [str(part.value) for part in node.value.elts if isinstance(part, ast.Constant)]
        imported = (name for node in self.tree.body for name, _ in imports(node))
        return [name for name in dict.fromkeys([*self.defined, *imported, *self.imported_files]) if name[0] not in "_*"]

    def imported_module(self, node: ast.ImportFrom) -> str:
        """The full name of the module that a statement imports from."""
        folders = self.path.relative_to(self.root).parts[:-1] if node.level else ()
        return ".".join([*folders[: len(folders) + 1 - node.level], *([node.module] if node.module else [])])

    def of_own_package(self, node: ast.AST) -> bool:
        """Whether a statement imports from a package that the module is in, by dots, which fails for any other."""
        folders = self.path.relative_to(self.root).parts[:-1]
        return isinstance(node, ast.ImportFrom) and 0 < node.level <= len(folders)

    def local_file(self, node: ast.ImportFrom) -> Path | None:
        """The file that an import is from, if that is taken along."""
        name = self.imported_module(node)
        if self.package:
            path = self.root / f"{name.replace('.', '/')}.py"
            return path if name.startswith("fuzz.") and path.is_file() else None
        return file_beside(self.root, name)

    def is_submodule(self, node: ast.ImportFrom, alias: ast.alias) -> bool:
        """Whether what is imported is a module of a package beside the target, and no name in a file of it."""
        if self.package or file_beside(self.root, f"{self.imported_module(node)}.{alias.name}") is None:
            return False
        path = self.local_file(node)
        other = self.others.get(path) if path else None
        return other is None or alias.name not in other.defined

    def local_files(self) -> Iterator[Path]:
        """The files that it borrows names from, each after those of the packages that it is in."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (path := self.local_file(node)) is not None:
                yield from () if self.package else files_beside(self.root, self.imported_module(node))
                yield path

    def embedded_files(self, node: ast.AST) -> Iterator[Path]:
        """The files beside the target that a statement of it, or one inside of that, imports as modules."""
        for part in ast.walk(node):
            for alias in part.names if isinstance(part, ast.Import) else []:
                yield from files_beside(self.root, alias.name)
            for alias in part.names if isinstance(part, ast.ImportFrom) else []:
                name = self.imported_module(part)  # type: ignore[arg-type]
                yield from files_beside(self.root, f"{name}.{alias.name}")

    @cached_property
    def public(self) -> set[str]:
        """Names that are imported from fuzz, which only declarations use."""
        nodes = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and of_fuzz(node.module)]
        names = {alias.asname or alias.name for node in nodes for alias in node.names}
        return names - {"*"} | {*fuzz.__all__} if "*" in names else names


def files_beside(root: Path, name: str) -> Iterator[Path]:
    """The files in a folder that Python executes to import a module of that full name: its packages', then its own."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = file_beside(root, ".".join(parts[:end]))
        if path is not None:
            yield path


def file_beside(root: Path, name: str) -> Path | None:
    """The file in a folder that a module of that full name is, if there is one and none is installed."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts) or is_installed(parts[0]):
        return None
    path = root.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.parent / f"{path.name}.py") if file.is_file()), None)


@cache
def is_installed(name: str) -> bool:
    """Whether Python finds a module among what is installed, before it looks beside the target."""
    found = PathFinder.find_spec(name, [*INSTALLED])
    return found is not None and found.loader is not None


def of_fuzz(name: str | None) -> bool:
    return (name or "").partition(".")[0] == "fuzz"


def imports(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(name, the statement that would bind it alone) of what a statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            # ``import a.b`` binds a.
            plain = ast.alias(alias.name.partition(".")[0]) if alias.asname is None else alias
            yield plain.asname or plain.name, ast.unparse(ast.Import([plain]))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, ast.unparse(ast.ImportFrom(node.module, [alias], node.level))


def bindings(nodes: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """(name, the import that binds it, if one does) of statements and those inside of them, but for functions'."""
    for node in nodes:
        yield from imports(node)
        yield from ((name, "") for name in defines(node))
        targets = [node.target] if isinstance(node, ast.For) else []
        targets += (
            [item.optional_vars for item in node.items if item.optional_vars] if isinstance(node, ast.With) else []
        )
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Name):
                yield part.id, ""
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = ast.iter_child_nodes(node)
            parts = [one for part in inside for one in ([part] if isinstance(part, ast.stmt) else branches(part))]
            yield from bindings(parts)


def branches(node: ast.AST) -> list[ast.stmt]:
    """The statements of a handler or a case."""
    return node.body if isinstance(node, ast.ExceptHandler | ast.match_case) else []


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
