"""Implements ``fuzz show``, ``fuzz shrink`` and ``fuzz mark``: one saved entry."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import put, put_program
from fuzz.cli.shared_options import BackendName, EntryPath, EntryTarget, refuse_unused
from fuzz.errors import UsageError
from fuzz.model.entry import Entry
from fuzz.report.entry_text import format_entry, replay_command, script_command, severity_lines, typical_values_text
from fuzz.run.replay import load_target_of, open_triage
from fuzz.run.setup import choose_backend, fork_worker_server
from fuzz.run.shrink_entry import grade_entry, improves, replace_entry, save_grade, shrink_entry
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import load_planted
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime


def show(
    path: EntryPath,
    script: Annotated[bool, typer.Option("--script", help="Print a stand-alone program that shows it.")] = False,
    typical: Annotated[bool, typer.Option("--typical", help="The typical case in place of the least one.")] = False,
    good: Annotated[bool, typer.Option("--good", help="In the program, the good kernel for the planted one.")] = False,
    target: EntryTarget = "",
) -> int:
    """Show one saved case on one screen, or as a stand-alone program."""
    if not script:
        refuse_unused("--script", {"--good": good})
    entry = corpus.read(path)
    repeat = replay_command(path, target)
    if typical:
        if entry.typical_entry is None:
            raise UsageError(f"{path} has no typical case; fuzz shrink looks for one where it is not graded yet")
        entry = entry.typical_entry
    if not script:
        shown = format_entry(entry, str(path), repeat, typical_values_text if typical else None)
        put(shown + (f"\n  program  {script_command(path, target)}" if typical else ""))
        return 0
    from fuzz.report.reproducer.script import script as program

    _, loaded = load_target_of(entry, path, target)
    planted_bug = load_planted(loaded, entry.planted)[0] if entry.planted and not good else None
    put_program(program(entry, loaded, planted_bug, repeat))
    return 0


def shrink(
    path: EntryPath,
    seconds: Annotated[float, typer.Option(help="How long to go on.")] = 60.0,
    grade: Annotated[bool, typer.Option("--grade", help="Grade it, again if need be, and do not shrink.")] = False,
    backend: BackendName = "auto",
    target: EntryTarget = "",
) -> int:
    """Go on shrinking a saved case, and grade it; the entry is replaced where a smaller case shows the same."""
    if not 0 < seconds < inf:
        raise UsageError(f"--seconds must be a number of seconds, more than 0, not {seconds:g}")
    entry = corpus.read(path)
    if entry.finding is None:
        raise UsageError(f"{path} is a seed case; there is no finding to keep while it shrinks")
    fork_worker_server()
    text, loaded = load_target_of(entry, path, target)
    with open_triage(entry, text, loaded, choose_backend(backend)) as triage:
        if grade:
            return grade_in_place(path, entry, triage, Budget(seconds=seconds))
        bug = shrink_entry(entry, triage, Budget(seconds=seconds), graded=not entry.planted)
    if bug is None:
        raise UsageError(f"{path} does not disagree here, so that there is nothing to shrink")
    cost = f"{bug.executions} executions" + (f"; {bug.cut_off} was cut off" if bug.cut_off else "")
    if improves(bug, entry, loaded):
        put(f"{replace_entry(path, entry, bug)} replaces {path} ({cost})")
    else:
        put(f"{path} is as small as it gets ({cost})")
    return 0


def grade_in_place(path: Path, entry: Entry, triage: Triage, budget: Budget) -> int:
    """Grades an entry in its place."""
    try:
        grade = grade_entry(entry, triage, budget)
    except OutOfTime:
        raise UsageError(f"{path} is not graded: the time ended; --seconds gives it more") from None
    if grade is None:
        raise UsageError(f"{path} does not disagree here, so that there is nothing to grade")
    save_grade(path, entry, grade)
    put(f"{path}: " + "\n  ".join(severity_lines(grade)))
    return 0


def mark(
    path: EntryPath,
    status: Annotated[str, typer.Argument(help="open, fixed or accepted.")],
    why: Annotated[str, typer.Option(help="The reason, kept in the entry.")],
) -> int:
    """Change a saved entry's status."""
    entry = corpus.mark(path, status, why)
    put(f"{path}: {entry.status}" + f", {entry.why}" * bool(entry.why))
    return 0
