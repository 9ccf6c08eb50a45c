"""Implements ``fuzz --version``."""

from __future__ import annotations

from typing import Annotated

import typer

from fuzz.run import environment


def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if show:
        print(f"fuzz {environment.fuzz_version()}")
        raise typer.Exit(0)
