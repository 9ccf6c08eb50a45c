"""Collects the commands of the command line, in the order in which `fuzz --help` lists them.

A command is imported when it runs: what all of them need takes longer than printing help.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fuzz.run import environment

COMMANDS = {
    "list": "targets:list_targets",
    "run": "run:run",
    "sweep": "sweep:sweep",
    "drift": "drift:drift",
    "coverage": "coverage:coverage",
    "campaign": "campaign:campaign",
    "replay": "replay:replay",
    "shrink": "entries:shrink",
    "show": "entries:show",
    "mark": "entries:mark",
    "report": "report:report",
    "serve": "service:serve",
    "new": "targets:new",
    "judge": "judge:judge",
    "doctor": "targets:doctor",
    "store": "service:store",
}
"""The function of each command, or its group of commands, as module:name in this folder."""


class ImportedCommands(TyperGroup):
    """A group that imports a command when it runs, and reads its description from the text of its module."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Their names are listed in this order, and are what a wrong one may be meant for.
        self.commands = {name: TyperCommand(name) for name in COMMANDS}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command without its options, for the list of commands."""
        return TyperCommand(cmd_name, help=describe(cmd_name)) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, import_command(name) if name in COMMANDS else command, rest


def import_command(name: str) -> Any:
    """The command with its options."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(import_module(f"fuzz.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        found, function = typer.Typer(add_completion=False, pretty_exceptions_enable=False), found
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    return command


def describe(name: str) -> str:
    """What the documentation string of a command says, or the text of its group."""
    module, _, attribute = COMMANDS[name].partition(":")
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            return ast.get_docstring(node) or ""
    return import_command(name).help or ""


app = typer.Typer(
    cls=ImportedCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Differential fuzzing of Triton kernels against float64 references.",
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if show:
        print(f"fuzz {environment.fuzz_version()}")
        raise typer.Exit(0)
