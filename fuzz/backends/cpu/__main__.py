"""Runs a program with the backend active from its first line.

python -m fuzz.backends.cpu script.py arguments...
python -m fuzz.backends.cpu -m module arguments...
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from fuzz.backends.cpu.own_program import own_program
from fuzz.backends.triton_host.triton_key import keep_triton_key


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        sys.exit((__doc__ or "").strip())
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    keep_triton_key()
    with own_program():
        if is_module:
            sys.path.insert(0, "")
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
            runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
