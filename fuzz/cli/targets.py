"""Implements ``fuzz list``, ``fuzz doctor`` and ``fuzz new``: what there is, what works here, a start for one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import Json
from fuzz.errors import TargetError, UsageError, os_errors_as
from fuzz.escaping import shell_quote
from fuzz.run import environment
from fuzz.run.target_index import Listing, keep_listing, read_listing
from fuzz.target.loader import built_in_files, library_files, load_all, load_module, targets_in
from fuzz.target.skeleton.text import skeleton
from fuzz.target.spec import Target


def list_targets(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="A name, a file, or path.py:NAME; the built-in ones by default."),
    ] = None,
    json: Json = False,
) -> int:
    """List targets, what they promise, and their planted bugs: for one's own, whether the declaration is in order."""
    named = [target for text in targets or () for target in load_all(text).values()]
    described = [describe_target(target) for target in named] if targets else known()
    if json:
        put_json(described)
        return 0
    for fields in described:
        put(f"{fields['name']}: {fields['doc']}")
        put(f"  inputs    {describe_inputs(fields['inputs'])}")
        put(f"  outputs   {', '.join(fields['outputs'])}")
        put(f"  promises  {fields['promises']}")
        put(f"  planted   {', '.join(fields['planted']) or 'none'}")
    return 0


def describe_inputs(inputs: Mapping[str, Sequence[str]]) -> str:
    """The tensors by their dtypes, in the order of the declaration: "x, weight float32 | float16; labels int64"."""
    names: dict[str, list[str]] = {}
    for name, dtypes in inputs.items():
        names.setdefault(" | ".join(dtypes), []).append(name)
    return "; ".join(f"{', '.join(some)} {dtypes}" for dtypes, some in names.items())


def known() -> list[dict[str, Any]]:
    """The descriptions of the built-in targets, with a line on standard error for each library that is missing."""
    listing = read_listing()
    if listing is None:
        listing = make_listing()
        keep_listing(listing)
    for reason in listing["missing"]:
        errors.print(reason)
    targets: list[dict[str, Any]] = listing["targets"]
    return targets


def make_listing() -> Listing:
    """The descriptions of all targets that can be loaded, and why others cannot."""
    targets = [target for path in built_in_files() for target in targets_in(load_module(path)).values()]
    missing: dict[str, str] = {}
    for path in library_files():
        try:
            targets += targets_in(load_module(path)).values()
        except TargetError as error:
            missing.setdefault(path.parent.name, str(error))
    return {"targets": [describe_target(target) for target in targets], "missing": list(missing.values())}


def describe_target(target: Target) -> dict[str, Any]:
    from fuzz.backends import BACKENDS
    from fuzz.oracles.execution.probe import check_reference

    return {
        "name": target.name,
        "inputs": {name: list(value.dtypes) for name, value in target.tensors.items()},
        "outputs": list(check_reference(target)),
        "dtypes": list(dict.fromkeys(dtype for value in target.tensors.values() for dtype in value.dtypes)),
        "backends": [name for name, backend in BACKENDS.items() if not backend.unavailable_reason()],
        "planted": list(target.planted_bugs),
        "doc": target.doc,
        "promises": target.promises(),
    }


def doctor(json: Json = False) -> int:
    """Say what this machine can run, and what is known to be wrong with it."""
    description = environment.describe_machine()
    if json:
        put_json(description)
        return 0
    for title, value in description.items():
        if isinstance(value, dict):
            put(f"{title}")
            for name, text in value.items():
                put(f"  {name:<12} {', '.join(text) if isinstance(text, list) else text}")
        elif isinstance(value, list):
            put("\n".join([title, *(f"  {line}" for line in value)]) if value else f"{title:<14} none")
        else:
            put(f"{title:<14} {value}")
    return 0


def new(
    launcher: Annotated[str, typer.Argument(help="path.py:LAUNCHER")],
    output: Annotated[Path | None, typer.Option(help="Where to write it; standard output by default.")] = None,
) -> int:
    """Write a target's skeleton from a launcher's signature."""
    text = skeleton(launcher)
    if output is None:
        print(text)
        return 0
    if output.exists():
        raise UsageError(f"{output} exists already; it is not written over")
    with os_errors_as(UsageError, f"cannot write {output}"), output.open("x", encoding="utf-8") as file:
        file.write(text)
    errors.print(f"wrote {output}; fill in the sizes and the reference, then: fuzz run {shell_quote(str(output))}")
    return 0
