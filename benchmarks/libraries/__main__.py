"""liger-kernel and fla-core through their own launchers on CPU tensors, forward and backward.

python -m benchmarks.libraries [--library NAME]... [--write FILE]

Sweeps every operation of `liger*.py` and `fla*.py` in two processes with an empty Triton cache, then again with that
cache; runs some of them on Triton's interpreter; prints a table. With `--write` the table takes the place of what
stands between the marks in FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.libraries.table import headline, timings, written

PACKAGES = {"liger": "liger-kernel", "fla": "fla-core"}
MEASURE = [sys.executable, "-m", "benchmarks.libraries.measure"]
PROCESSES = 2
TIMED = {
    "liger": ("rms_norm", "layer_norm", "softmax", "swiglu", "rope", "cross_entropy", "jsd", "kl_div"),
    "fla": ("l2_norm", "swish", "causal_convolution", "retention_chunk", "gla_chunk", "delta_rule_recurrent"),
}
"""Operations whose speed is compared with the interpreter's."""
Found = dict[str, Any]


def sweep(library: str, folder: Path, cache: Path, *arguments: str, processes: int = 1, **extra: str) -> list[Found]:
    """What `measure.py` found, in as many processes; the last lines hold the seconds of each."""
    # Functions that the library gives to torch.compile are no Triton kernels of its own.
    environment = os.environ | {"TRITON_CACHE_DIR": str(cache), "TORCH_COMPILE_DISABLE": "1"} | extra
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.libraries.measure",
                library,
                str(folder),
                "--part",
                f"{part}/{processes}",
            ]
            + list(arguments),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(processes)
    ]
    found = []
    for process in started:
        out, errors = process.communicate()
        if process.returncode:
            sys.exit(f"the sweep of {library} ended with {process.returncode}:\n{errors[-3000:]}")
        found += [json.loads(line) for line in out.splitlines()]
    return found


def measured(library: str) -> tuple[str, str]:
    """The lines above the table and the table of one library."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, cache = Path(temporary), Path(temporary, "cache")
        cold = sweep(library, folder, cache, processes=PROCESSES)
        warm = sweep(library, folder, cache, processes=PROCESSES)
        halves = sweep(library, folder, cache, "--dtypes", "float16", "--shapes", "1", processes=PROCESSES)
        timed = [word for name in TIMED[library] for word in ("--only", name)]
        alone = ("--dtypes", "float32", "--shapes", "1")
        fast = sweep(library, folder, cache, *timed, *alone, "--repeat", "101")
        slow = sweep(library, folder, cache, *timed, *alone, "--repeat", "3", TRITON_INTERPRET="1")
        sweep(library, folder, cache, *alone, "--limit", "20", processes=PROCESSES, TRITON_INTERPRET="1")
        title = f"{PACKAGES[library]} {version(PACKAGES[library])}"
        return headline(title, cold, warm), written(cold + halves, folder) + "\n\n" + timings(fast, slow)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", action="append", choices=PACKAGES)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    texts = []
    for library in options.library or PACKAGES:
        head, body = measured(library)
        print(head, body, sep="\n\n", flush=True)
        texts.append(f"{head}\n\n{body}")
    if options.write:
        replace_between_marks(options.write, "libraries", "\n\n".join(texts))


if __name__ == "__main__":
    main()
