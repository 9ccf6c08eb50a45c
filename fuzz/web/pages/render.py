"""Render: the templates, every text escaped, and the report in one file that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError
from fuzz.web.pages.views import View

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; those of `numeric`, by their place, stand on the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@cache
def templates() -> Any:
    """The environment of all templates. UsageError where Jinja2, which comes with torch, is missing."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise UsageError("pages need Jinja2: pip install 'triton-differential-fuzz[service]'") from None
    loader = FileSystemLoader(FOLDER / "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def page(name: str, **values: Any) -> str:
    """One page or part of a page."""
    text: str = templates().get_template(name).render(**values)
    return text


def static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def report(title: str, views: Sequence[View], facts: Mapping[str, str], tables: Sequence[Table] = ()) -> str:
    """The whole report. Its policy allows its own style and script and nothing else, from nowhere."""
    style, script = static("fuzz.css"), static("copy.js")
    return page(
        "report.html", title=title, views=views, facts=facts, tables=tables, style=style, script=script,
        style_hash=digest(style), script_hash=digest(script),
    )  # fmt: skip


def digest(text: str) -> str:
    """The hash by which a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
