"""Adds to the seeds of a surface those inputs of other folders that cover more of the program, the least first.

python -m benchmarks.self_fuzz.minimise codec .self-fuzz/codec/corpus
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.self_fuzz import SEEDS
from benchmarks.self_fuzz.crashes import Check, save_input
from benchmarks.self_fuzz.surfaces import SURFACES

Arc = tuple[str, int, int]
CODE = ("/fuzz/", "/yaml/")
"""Parts of the paths of the code that counts."""


def covered_arcs(check: Check, data: bytes) -> set[Arc]:
    """The pairs of lines that run one after the other."""
    arcs: set[Arc] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file, before = frame.f_code.co_filename, 0
        if not any(part in file for part in CODE):
            return None

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                arcs.add((file, before, frame.f_lineno))
                before = frame.f_lineno
            return follow

        return follow

    sys.settrace(trace)
    try:
        check(data)
    finally:
        sys.settrace(None)
    return arcs


def select(check: Check, seeds: list[bytes], inputs: list[bytes]) -> Iterator[bytes]:
    """The inputs that cover what neither the seeds nor smaller inputs do."""
    covered = set[Arc]().union(*(covered_arcs(check, data) for data in seeds))
    for data in sorted(inputs, key=len):
        arcs = covered_arcs(check, data)
        if not arcs <= covered:
            covered |= arcs
            yield data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("surface", choices=sorted(SURFACES))
    parser.add_argument("folder", type=Path, nargs="+")
    arguments = parser.parse_args()
    seeds = SEEDS / arguments.surface
    known = [path.read_bytes() for path in seeds.iterdir()]
    inputs = [path.read_bytes() for folder in arguments.folder for path in folder.iterdir()]
    for data in select(SURFACES[arguments.surface], known, inputs):
        save_input(seeds, data)
        print(f"{len(data)} bytes: {data[:70]!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
