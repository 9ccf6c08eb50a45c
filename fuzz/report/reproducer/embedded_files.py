"""Embeds in a stand-alone script the files that functions import while they run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

PROGRAM = """
# Files that functions import while they run.
import tempfile
from pathlib import Path

EMBEDDED_FILES = {{
{files}
}}
EMBEDDED_FOLDER = tempfile.mkdtemp()
for embedded_name, embedded_text in EMBEDDED_FILES.items():
    Path(EMBEDDED_FOLDER, embedded_name).write_text(embedded_text, encoding="utf-8")
sys.path.insert(0, EMBEDDED_FOLDER)
"""


def embed(files: Iterable[Path]) -> Iterator[str]:
    """The statements that make these files, and those that they import from beside them, importable in the script."""
    pending, found = list(files), dict[Path, str]()
    while pending:
        path = pending.pop()
        if path not in found:
            found[path] = path.read_text(encoding="utf-8")
            pending += imported_beside(ast.parse(found[path]), path.parent)
    if found:
        texts = (f"{path.name!r}: {literal(found[path])}," for path in sorted(found))
        yield PROGRAM.format(files="\n".join(texts)).strip("\n")


def imported_beside(node: ast.AST, folder: Path) -> Iterator[Path]:
    """The files in `folder` that are imported anywhere in a statement."""
    for part in ast.walk(node):
        modules = [part.module] if isinstance(part, ast.ImportFrom) and not part.level else []
        modules += [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
        for name in filter(None, modules):
            path = folder / f"{name}.py"
            if name.isidentifier() and path.is_file():
                yield path


def literal(text: str) -> str:
    """A string literal that stays readable where the text allows it."""
    plain = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''{text}'''" if plain else repr(text)
