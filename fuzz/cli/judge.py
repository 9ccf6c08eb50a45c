"""Implements ``fuzz judge``: a verdict on a solution of a problem, as both are published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import BackendName, Json
from fuzz.errors import UsageError
from fuzz.judge.formats import FORMATS, KERNELBENCH
from fuzz.judge.report import format_judgement, judgement_json

SCRIPT = "script"
USAGE = "PROBLEM SOLUTION (or a folder of them), flashinfer DEF.json SOLUTION.json, gpumode DIR FILE.py, script FILE.py"


def judge(
    paths: Annotated[list[str], typer.Argument(help=USAGE)],
    seconds: Annotated[float, typer.Option(help="Try odd inputs for so long, after the ordinary ones.")] = 30.0,
    seed: Annotated[int, typer.Option(help="The seed of the inputs.")] = 0,
    backend: BackendName = "auto",
    json: Json = False,
) -> int:
    """Say whether a solution of a problem is right, wrong, or a cheat."""
    # It imports Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.judge.command import judge_paths, judge_script

    if not seconds >= 0:
        raise UsageError(f"--seconds must not be negative, and is {seconds:g}")
    if paths[0] == SCRIPT and len(paths) == 2:
        judgements = judge_script(Path(paths[1]), backend)
    else:
        named = paths[0] in FORMATS and len(paths) == 3
        if not named and len(paths) != 2:
            raise UsageError(f"fuzz judge takes {USAGE}")
        format, problem, solution = paths if named else (KERNELBENCH, *paths)
        judgements = judge_paths(format, Path(problem), Path(solution), backend, seconds, seed, errors.print)
    found = list(judgements)
    if json:
        values = [judgement_json(one) for one in found]
        put_json(values[0] if len(values) == 1 else values)
    else:
        put("\n\n".join(map(format_judgement, found)))
    return max(one.exit_code for one in found)
