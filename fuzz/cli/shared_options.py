"""Declares the options and arguments that several commands have, and refuses those that nothing heeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fuzz.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")]
BackendName = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Targets = Annotated[
    str, typer.Argument(help="A built-in target such as liger/softmax, a file or folder of targets, or file.py:name.")
]
PlotBackendName = Annotated[str, typer.Option(help="Where plots are computed: auto, cpu or cuda.")]
EntryPath = Annotated[Path, typer.Argument(help="A corpus entry.")]
EntryTarget = Annotated[str, typer.Option(help="The file of its target, where it is not beside the corpus.")]
EntriesTarget = Annotated[str, typer.Option(help="The file of the entries' target, where it is not beside them.")]
FindingsFolder = Annotated[Path | None, typer.Option(help="Folder for findings.")]
OnlyNew = Annotated[bool, typer.Option("--only-new", help="Exit with 1 only for findings not yet saved.")]
FailOn = Annotated[str, typer.Option(help="Exit with 1 from this severity on: low, medium or high.")]
Junit = Annotated[Path | None, typer.Option(help="Write findings as JUnit XML into this file.")]
Sarif = Annotated[Path | None, typer.Option(help="Write findings as SARIF 2.1.0 into this file.")]
StoreUrl = Annotated[str, typer.Option("--store", help="sqlite:///FILE or postgresql://HOST/NAME.")]


def refuse_unused(option: str, given: Mapping[str, bool]) -> None:
    """UsageError for the first of some options that is given, though nothing but another option heeds them."""
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} is for {option}")
