"""Attacks this program on every surface, and counts the attacks that hold.

python -m benchmarks.attacks [--only TEXT ..] [--jobs N] [--list] [--write FILE]

Exit code 1 where an attack fell. The table goes between the marks of a document by --write, but not with --only.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kinds import all_attacks
from benchmarks.attacks.run_attacks import FELL, Result, make_attacks
from benchmarks.attacks.table import attack_table
from benchmarks.document import replace_between_marks
from fuzz.escaping import clean_text


def main(arguments: Sequence[str] | None = None, attacks: Sequence[Attack] | None = None) -> int:
    """Runs the command line over these attacks, all of them by default; returns the exit code."""
    options = parse(arguments)
    chosen = [attack for attack in attacks or all_attacks() if matches(attack, options.only)]
    if options.list:
        for attack in chosen:
            print(f"{attack.kind}: {attack.name}\n    does   {attack.what}\n    holds  {attack.holds}")
        return 0
    start = time.monotonic()
    results = make_attacks(chosen, options.jobs, show)
    text = attack_table(results, describe_run(time.monotonic() - start, options.jobs))
    print(text)
    if options.write and not options.only:
        replace_between_marks(options.write, "attacks", text)
    return int(any(result.state == FELL for result in results))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="TEXT", help="attacks whose name, or kind, contains a text")
    parser.add_argument("--jobs", type=int, default=2, help="attacks at once")
    parser.add_argument("--list", action="store_true", help="say what each attack does and what holds, and run none")
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    return parser.parse_args(arguments)


def matches(attack: Attack, texts: Sequence[str] | None) -> bool:
    return not texts or any(text in attack.name or text in attack.kind for text in texts)


def show(result: Result) -> None:
    why = f": {clean_text(result.why, 1000)}" if result.why else ""
    print(f"{result.state:4} {result.seconds:6.1f} s  {result.attack.kind}: {result.attack.name}{why}", flush=True)


def describe_run(seconds: float, jobs: int) -> str:
    load = os.getloadavg()[1]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load:.0f} at the end"
    return f"On {time.strftime('%Y-%m-%d')}, {jobs} at a time, in {seconds / 60:.0f} minutes ({machine})."


if __name__ == "__main__":
    sys.exit(main())
