"""Renders templates, every text escaped, and the report in one file that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fuzz.escaping import printable_lines
from fuzz.report.entry_text import case_lines, script_command, severity_lines, ulps_text
from fuzz.web import formatting
from fuzz.web.pages.views import EntryView, ReportContent

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"


def without_controls(value: Any) -> Any:
    """What a template inserts, with escapes for what turns text around or is no character, as names of files may be."""
    is_text = isinstance(value, str | Path) and not hasattr(value, "__html__")
    return printable_lines(str(value)) if is_text else value


ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True, finalize=without_controls,
)  # fmt: skip
ENVIRONMENT.globals.update({one.__name__: one for one in (case_lines, script_command, severity_lines, ulps_text)})


def render(name: str, **values: Any) -> str:
    """One page or part of a page."""
    text: str = ENVIRONMENT.get_template(name).render(**values)
    return text


def read_static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def render_report(content: ReportContent, views: Sequence[EntryView]) -> str:
    """The whole report. Its policy allows its own style and script and nothing else, from nowhere."""
    style, script = read_static("fuzz.css"), read_static("copy.js")
    return render(
        "report.html", **vars(content), views=views, fmt=formatting, style=style, script=script,
        style_hash=csp_hash(style), script_hash=csp_hash(script),
    )  # fmt: skip


def csp_hash(text: str) -> str:
    """The hash by which a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
