"""Renders templates, every text escaped, and the report in one file that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fuzz.report.text import case_lines, script_command, severity_lines, ulps_text
from fuzz.web import formatting
from fuzz.web.pages.views import CoverageView, EntryView

if TYPE_CHECKING:
    from fuzz.campaign.store import Job

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
FUNCTIONS = (case_lines, script_command, severity_lines, ulps_text)
"""What templates call by name."""


@cache
def environment() -> Environment:
    """The environment of all templates."""
    loader = FileSystemLoader(FOLDER / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals.update({function.__name__: function for function in FUNCTIONS})
    return made


def render(name: str, **values: Any) -> str:
    """One page or part of a page."""
    text: str = environment().get_template(name).render(**values)
    return text


def read_static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def render_report(
    title: str,
    views: Sequence[EntryView],
    facts: Mapping[str, str],
    jobs: Sequence[Job] = (),
    coverage: CoverageView | None = None,
) -> str:
    """The whole report; `jobs` are those of a campaign.

    Its policy allows its own style and script and nothing else, from nowhere.
    """
    style, script = read_static("fuzz.css"), read_static("copy.js")
    return render(
        "report.html", title=title, views=views, facts=facts, jobs=jobs, coverage=coverage, fmt=formatting,
        style=style, script=script, style_hash=csp_hash(style), script_hash=csp_hash(script),
    )  # fmt: skip


def csp_hash(text: str) -> str:
    """The hash by which a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
