"""Programs of their own, each run in a process that has imported torch and triton already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RUNNER = """
import os, runpy, sys
import torch, triton
import torch.fx.experimental.symbolic_shapes, triton.experimental.gluon
from triton.runtime import cache
from fuzz.backends import cpu
cpu.compiler()
getattr(cache, "triton_key", lambda: None)()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
for path in sys.argv[1:]:
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    sys.argv = [path]
    sys.stdout = open(path + ".out", "w")
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


def run_programs(folder: Path, texts: Iterable[str]) -> list[Ended]:
    """How each program ends, run in a folder; nothing but a program's own exit code may go wrong."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"alone-{number}.py")
        paths[-1].write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", RUNNER, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, check=False)
    codes = [int(line) for line in done.stdout.splitlines()]
    assert len(codes) == len(paths) and not done.stderr, done.stderr
    return [Ended(code, Path(f"{path}.out").read_text()) for code, path in zip(codes, paths, strict=True)]
