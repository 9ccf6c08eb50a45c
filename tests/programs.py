"""Programs of their own, each run in a process that has imported torch and triton already."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RUNNER = """
import gc, json, os, runpy, sys
import torch, triton
import torch.fx.experimental.symbolic_shapes, triton.experimental.gluon
from triton.runtime import cache
from fuzz.backends import cpu
from fuzz.worker.system import use_huge_pages
cpu.compiler()
getattr(cache, "triton_key", lambda: None)()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
gc.freeze()
use_huge_pages()
for line in sys.stdin:
    path, environment = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(os.path.dirname(path))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [path]
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        os.dup2(os.open(f"{path}.{name}", os.O_WRONLY | os.O_CREAT), stream.fileno())
    code = 3
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        print(path, repr(error), file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
"""


@dataclass(frozen=True)
class Ended:
    """Exit code and standard output of a program."""

    code: int
    out: str


@cache
def runner() -> subprocess.Popen[str]:
    """The process that has imported what programs need and forks one for each; it ends with this one."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def run_programs(folder: Path, texts: Iterable[str]) -> list[Ended]:
    """How each program ends, run in a folder; nothing but a program's own exit code may go wrong."""
    process, ended = runner(), []
    assert process.stdin and process.stdout
    for number, text in enumerate(texts):
        path = folder / f"alone-{number}.py"
        path.write_text(text, encoding="utf-8")
        print(json.dumps([str(path), dict(os.environ)]), file=process.stdin, flush=True)
        code = process.stdout.readline()
        errors = Path(f"{path}.err").read_text(encoding="utf-8")
        assert code and not errors, errors
        ended.append(Ended(int(code), Path(f"{path}.out").read_text(encoding="utf-8")))
    return ended
