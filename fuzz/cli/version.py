"""``fuzz --version``."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

DISTRIBUTION = "triton-differential-fuzz"


def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if show:
        print(f"fuzz {number()}")
        raise typer.Exit(0)


def number() -> str:
    """The installed version; a checkout that is not installed has no other source than its package."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        import fuzz

        return fuzz.__version__
