"""Judges tasks, one after another: ``python -m fuzz.judge.batch.host_process PIPE [FOLDER]``.

It receives tasks and sends judgements as JSON by a pipe, whose descriptor it inherits, and ends when the other end
does. The temporary folders of a judgement are removed before the next one. With a folder it sees no file of the
batch: those of a task come with it, and lie below the folder at the paths that they have at the batch's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.judge.batch.task import JudgeTask, decode_task, failure, moved
from fuzz.judge.command import judge_solution
from fuzz.judge.formats import OPS
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.ops.report import operations_json
from fuzz.judge.processes.requests import SERVER_MODULE
from fuzz.judge.result.report import judgement_json
from fuzz.judge.result.score import CRASHED, UNREADABLE
from fuzz.run.setup import start_worker_server
from fuzz.worker.python_process import connect_to_parent
from fuzz.worker.system import total_memory

PREFIX = "fuzz-judge-"
"""What the names of temporary folders of a judgement begin with."""


def answer(task: JudgeTask) -> Mapping[str, Any]:
    """The judgement of a task as JSON; what cannot be judged is said, never raised."""
    try:
        found = list(judge_solution(make_options(task), lambda operation: None))
        return operations_json(found) if task.options.format == OPS else judgement_json(found[0])
    except UsageError as error:
        return failure(task, one_line(error), UNREADABLE)
    except Exception as error:
        traceback.print_exc()
        return failure(task, f"the judge itself failed: {one_line(error)}", CRASHED)


def make_options(task: JudgeTask) -> JudgeOptions:
    """What is to be judged; a module of operations stands for its problem as well."""
    options, problem = task.options, task.problem or task.solution
    return JudgeOptions(
        Path(problem), Path(task.solution), options.format, options.backend, options.seconds, options.seed,
        options.memory or task.share, task.spec_path,
    )  # fmt: skip


def answer_away(task: JudgeTask, files: Mapping[str, bytes], root: Path) -> Mapping[str, Any]:
    """The same where the files of a task are not; they are written below a folder."""
    for name, content in files.items():
        path = Path(moved(name, root))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # There may be as many such processes as processors on this machine, and each has two processes.
    share = max(total_memory() // (4 * (os.cpu_count() or 1)), 1 << 30)
    return answer(replace(task.move_to(root), share=share))


def main() -> None:
    number, *folder = sys.argv[1:]
    pipe = connect_to_parent(number)
    start_worker_server(SERVER_MODULE)
    try:
        while True:
            task, files = decode_task(pipe.recv_bytes())
            found = answer_away(task, files, Path(folder[0])) if folder else answer(task)
            text = json.dumps(found, default=str)
            # Paths and messages name the batch's own paths.
            pipe.send_bytes((text.replace(folder[0], "") if folder else text).encode())
            for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main()
