"""Kills the whole tree of a campaign, most often while it writes, and compares what is left with an undisturbed run.

    python benchmarks/reliability/write_kills.py --times 100 [--postgres] [--seed N]

Each kill waits, four times in five, until an entry, a line of a journal or a row of the store is being written
(`slow_writes.py`). At the end each finding of the reference run must be there once, in the corpus and in the store,
and nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from faults import ROOT, FaultCounts, Trial, descendants
from services import Postgres, postgres

from fuzz import corpus
from fuzz.campaign.store import Store

PATIENCE = 300.0
"""Seconds that a write is waited for."""
Signature = tuple[str, str, str, str]


@dataclass
class WriteKills(Trial):
    """A campaign whose writes are slow; `written` counts what was being written at its kills."""

    written: Counter[str] = field(default_factory=Counter)

    def start(self, *command: str) -> None:
        self.marks.mkdir(parents=True, exist_ok=True)
        for mark in self.marks.iterdir():
            mark.unlink()
        program = str(ROOT / "benchmarks" / "reliability" / "slow_writes.py")
        super().start(*(command or (sys.executable, "-P", program, "campaign", str(self.marks), str(self.config))))

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def kill_tree(self) -> None:
        """Kills every process in a random order, most often in a write."""
        assert self.process is not None
        if self.rng.random() < 0.8:
            until = time.monotonic() + PATIENCE
            while self.running and time.monotonic() < until and not any(self.marks.iterdir()):
                time.sleep(0.002)
            time.sleep(self.rng.uniform(0, 0.3))
        pids = [self.process.pid, *descendants(self.process.pid)]
        self.rng.shuffle(pids)
        kinds = {mark.name.partition("-")[2] for mark in self.marks.iterdir()}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.written += Counter(["any write"] * bool(kinds) + sorted(kinds))

    def signatures(self) -> Counter[Signature]:
        """What the entries show, each with how many show it."""
        entries = [corpus.read(path) for path in corpus.entry_files([self.corpus])]
        found = [(entry.case.target, entry.finding) for entry in entries if entry.finding]
        return Counter((target, finding.oracle, finding.output, finding.symptom) for target, finding in found)

    def compare(self, counts: FaultCounts, reference: Counter[Signature]) -> None:
        """Counts what differs from the reference, in the corpus and in the store."""
        here, files = self.signatures(), {path.stem for path in corpus.entry_files([self.corpus])}
        with Store(self.store) as store:
            rows = [finding.id for finding in store.findings()]
        lost, more = reference - here, here - reference
        counts.lost += lost.total() + len(files - set(rows))
        counts.doubled += more.total() + len(rows) - len(files & set(rows))
        if lost or more or files != set(rows):
            counts.notes.append(f"lost {dict(lost)}, more {dict(more)}, files and rows differ: {files ^ set(rows)}")


def run_reference(seed: str) -> Counter[Signature]:
    with tempfile.TemporaryDirectory(prefix="fuzz-faults-") as folder:
        trial = Trial(Path(folder), f"sqlite:///{folder}/store.sqlite", random.Random(seed))
        trial.start()
        trial.end(FaultCounts())
        return WriteKills.signatures(trial)  # type: ignore[arg-type]


def run_round(
    folder: Path, url: str, seed: str, times: int, counts: FaultCounts, reference: Counter[Signature]
) -> Counter[str]:
    """One campaign, killed so often or until it ends; what was being written."""
    trial = WriteKills(folder, url, random.Random(seed))
    trial.start()
    done = 0
    while done < times and trial.wait(trial.rng.uniform(0.5, 6)):
        trial.kill_tree()
        counts.torn += trial.torn()
        done += 1
        trial.start()
    counts.times += done
    trial.end(counts)
    trial.compare(counts, reference)
    return trial.written


def kill_during_writes(times: int, seed: int, server: Postgres | None) -> tuple[FaultCounts, Counter[str]]:
    """Rounds until the campaigns were killed so often; what came of it, and what was being written."""
    counts, written, reference = FaultCounts(), Counter[str](), run_reference(f"{seed}/reference")
    while counts.times < times:
        with tempfile.TemporaryDirectory(prefix="fuzz-faults-") as folder:
            url = server.database() if server else f"sqlite:///{folder}/store.sqlite"
            left, name = min(times - counts.times, 25), f"{seed}/{counts.times}"
            written += run_round(Path(folder), url, name, left, counts, reference)
        print(counts, dict(written), file=sys.stderr, flush=True)
    return counts, written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="with the store in PostgreSQL")
    arguments = parser.parse_args()
    with postgres() if arguments.postgres else nullcontext() as server:
        counts, written = kill_during_writes(arguments.times, arguments.seed, server)
    print(counts, dict(written))
    return int(bool(counts.lost or counts.doubled or counts.torn))


if __name__ == "__main__":
    sys.exit(main())
