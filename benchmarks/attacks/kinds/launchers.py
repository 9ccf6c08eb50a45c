"""Launchers that attack, each by one `fuzz run`."""

from __future__ import annotations

import ast
import shutil
from functools import partial
from pathlib import Path

from benchmarks.attacks.attack import Kind
from benchmarks.attacks.launchers import channel, output, process, results, state
from benchmarks.attacks.launchers.declare import LAUNCHERS, LINE, NONE, Launcher
from benchmarks.attacks.trial import Trial, require

KIND = Kind("launchers that attack, by `fuzz run`")
MODULES = (process, channel, state, results, output)
ROOT = Path(__file__).parents[3]
EARLIER = ROOT / "benchmarks" / "reliability" / "hostile.py"
CASES, SECONDS = 12, 300
FILLS_MEMORY = "fills"
"""The launcher that takes as much memory as a run allows, half the machine's, from whatever else runs there."""


def run_launcher(trial: Trial, launcher: Launcher) -> None:
    """Runs a copy of the launcher's file for some cases, and looks at what it gave."""
    file = trial.work / "target.py"
    shutil.copy(launcher.file, file)
    arguments = ("--cases", CASES, "--seconds", SECONDS, "--backend", "cpu", "--corpus", "found", "--json")
    answer = trial.fuzz(
        "run", f"target.py:{launcher.name}", *arguments, "--no-derived-rejects", environment={"PYTHONPATH": str(ROOT)}
    )
    if answer.code == 2:
        require(len(answer.complaints) == 1, f"exit code 2 without one line: {answer.err[-400:]!a}")
        require(LINE in launcher.allowed, f"refused: {answer.complaints[0]}")
    else:
        symptoms = [finding["symptom"] for finding in answer.json["findings"]]
        require(len(symptoms) == len(set(symptoms)), f"several findings of one kind: {symptoms}")
        require(
            {*symptoms} <= {*launcher.allowed} and (symptoms or NONE in launcher.allowed), f"came of it: {symptoms}"
        )
        require(answer.json["cases"] == CASES, f"of {CASES} cases {answer.json['cases']} ran")
    require(trial.note.exists() or launcher.file == EARLIER, "the attack was not made")


def add(launcher: Launcher) -> None:
    ends = {NONE: "no finding", LINE: "one line and exit code 2"}
    what = ", or ".join(ends.get(one, f"one finding, `{one}`") for one in launcher.allowed)
    holds = f"{what}; the other cases run, and no process is left"
    KIND.add(launcher.name, launcher.what, holds, partial(run_launcher, launcher=launcher))


def earlier_launchers() -> list[Launcher]:
    """Those of `benchmarks/reliability/hostile.py`, read without executing it."""
    found, expected = [], {}
    for node in ast.parse(EARLIER.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "EXPECTED":
            expected = ast.literal_eval(node.value)
        if isinstance(node, ast.FunctionDef) and node.name in expected and node.name != FILLS_MEMORY:
            allowed = (expected[node.name] or NONE,)
            found.append(Launcher(EARLIER, node.name, ast.get_docstring(node) or "", allowed))
    return found


for one in [*LAUNCHERS, *earlier_launchers()]:
    add(one)
