"""One run of one peer: python -m benchmarks.peers.one PEER TARGET BUG SEED SECONDS; an empty BUG is the good kernel."""

from __future__ import annotations

import sys
from importlib import import_module

from .subject import Subject


def main() -> None:
    peer, target, bug, seed, seconds = sys.argv[1:]
    subject = Subject.of(target, bug, float(seconds))
    import_module(f"benchmarks.peers.{peer}").run(subject, int(seed))
    subject.tell()


main()
