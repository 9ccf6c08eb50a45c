"""Breaks campaigns at random moments, and counts findings lost, doubled and torn. `make faults ARGS="--times 100"`.

Each round is a campaign over `broken.py`, whose eight targets have one mistake each. It is begun, disturbed by faults
of one kind until it ends, and resumed after each that ends it. A finding is lost where a target has no entry at the
end, doubled where it has two, torn where an entry cannot be read at any moment that was looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import pytest  # noqa: E402
from services import Nodes, Postgres, nodes, postgres  # noqa: E402

from fuzz import corpus  # noqa: E402
from fuzz.campaign.store import Store  # noqa: E402
from fuzz.errors import CorpusError  # noqa: E402

FUZZ = str(Path(sys.executable).with_name("fuzz"))
CASES, MORE, ENOUGH = 2000, 1000, 150
"""Cases of a campaign; by how many its budget grows, until each job has run enough of them."""
LONGEST = 400.0
"""Seconds that an undisturbed rest of a campaign may take."""
MARKS = "<!-- faults -->", "<!-- /faults -->"
DISK = 24 << 20
KINDS = (
    "campaign", "host", "worker", "database",
    "full disk", "file size limit", "clock", "two campaigns", "kernels", "node",
)  # fmt: skip
NAMES = {
    "campaign": "`kill -9` of the campaign, then `--resume`",
    "host": "`kill -9` of a host, the process of a slice",
    "worker": "`kill -9` of a worker, in which kernels run",
    "database": "PostgreSQL stopped for a moment, or its connections ended",
    "full disk": "a full disk (tmpfs), then room again and `--resume`",
    "file size limit": "no file can grow (RLIMIT_FSIZE), then it can and `--resume`",
    "clock": "the wall clock jumps by up to 30 years at each look, both ways",
    "two campaigns": "two campaigns on one corpus, at once",
    "node": "`kill -9` of a Ray node, on which the campaign's workers run; another one comes",
    "kernels": "kernels that segfault, leave, hang, fill memory or assert, one of each",
}


@dataclass
class Tally:
    """What came of one kind of fault."""

    rounds: int = 0
    times: int = 0
    findings: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    silent: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class Round:
    """One campaign in a folder of its own."""

    folder: Path
    store: str
    dice: random.Random
    name: str = "faults"
    targets: str = "broken.py"
    count: int = 8
    cases: int = CASES
    more: dict[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.configure()

    def configure(self) -> None:
        keys = {"targets": [str(HERE / self.targets)], "budget": {"cases": self.cases}, "slice": "10s", **self.more}
        places = {"corpus": str(self.corpus), "store": self.store, "folder": str(self.folder / "state")}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps({**keys, **places, "name": self.name, "workers": 2, "memory": "1500MiB"}))

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def start(self, *command: str) -> None:
        log = (self.folder / f"{self.name}.log").open("ab")
        line = command or (FUZZ, "campaign", str(self.config), "--resume")
        self.process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        log.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Waits so long; whether the campaign still runs then."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.running

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def torn(self) -> int:
        """Entries that cannot be read now; a name that goes while it is read was replaced."""
        count = 0
        for path in corpus.entry_files([self.corpus]) if self.corpus.is_dir() else ():
            try:
                corpus.read(path)
            except CorpusError:
                count += path.exists()
        return count

    @property
    def least(self) -> int:
        """The cases of the job that has run the fewest."""
        with Store(self.store) as store:
            return min(job.cases for job in store.jobs(store.campaigns(name=self.name)[0].id))

    def judge(self, tally: Tally) -> None:
        """Counts what is there at the end."""
        found = [path.parent.name for path in corpus.entry_files([self.corpus])] if self.corpus.is_dir() else []
        lost, doubled = self.count - len(set(found)), len(found) - len(set(found))
        tally.rounds, tally.findings = tally.rounds + 1, tally.findings + len(set(found))
        tally.lost, tally.doubled, tally.torn = tally.lost + lost, tally.doubled + doubled, tally.torn + self.torn()
        if lost or doubled or self.running:
            kept = Path(tempfile.mkdtemp(prefix="fuzz-faults-kept-"))
            shutil.copytree(self.folder, kept, dirs_exist_ok=True)
            tally.notes.append(f"{lost} lost, {doubled} doubled, still running: {self.running}; kept in {kept}")

    def end(self, tally: Tally) -> None:
        """Lets the campaign end undisturbed, with as much more budget as faults took from some jobs, and counts."""
        if not self.running and self.process is not None and self.process.returncode not in (0, 1):
            self.start()
        enough = min(ENOUGH, self.cases // (2 * self.count))
        for _ in range(3):
            if self.wait(LONGEST) or self.least >= enough:
                break
            self.cases += MORE
            self.configure()
            self.start()
        self.wait(LONGEST)
        self.judge(tally)
        if self.running:
            self.kill()


def children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(place.parent.name))
    return found


def below(pid: int) -> list[int]:
    """Every process below one."""
    return [each for child in children(pid) for each in (child, *below(child))]


def hosts(pid: int) -> list[int]:
    return [
        child for child in children(pid) if b"fuzz.campaign.worker_host" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def workers(pid: int) -> list[int]:
    """What is below the hosts and has no process below itself."""
    return [leaf for host in hosts(pid) for leaf in below(host) if not children(leaf)]


def killing(find: Callable[[int], list[int]]) -> Callable[[Round], bool]:
    def strike(one: Round) -> bool:
        assert one.process is not None
        found = find(one.process.pid)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(one.dice.choice(found), signal.SIGKILL)
        return True

    return strike


def end_campaign(one: Round) -> bool:
    one.kill()
    one.start()
    return True


def disturb(one: Round, tally: Tally, times: int, strike: Callable[[Round], bool], pause: tuple[float, float]) -> None:
    """Strikes at random moments until so many strikes are done or the campaign ends."""
    one.start()
    done = 0
    while done < times and one.wait(one.dice.uniform(*pause)):
        if strike(one):
            done += 1
            tally.torn += one.torn()
    tally.times += done
    one.end(tally)


def strike_node(cluster: Nodes) -> Callable[[Round], bool]:
    def strike(one: Round) -> bool:
        cluster.kill(one.dice.randrange(len(cluster.there)))
        cluster.add(1)
        return True

    return strike


def strike_database(server: Postgres) -> Callable[[Round], bool]:
    import psycopg

    def strike(one: Round) -> bool:
        if one.dice.random() < 0.5:
            server.stop()
            time.sleep(one.dice.uniform(0.2, 4.0))
            server.start()
        else:
            with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
                others = "pid <> pg_backend_pid() AND usename = 'postgres'"
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}".encode())
        return True

    return strike


def full_disk(one: Round, tally: Tally) -> None:
    """Fills the file system that corpus, store and journals are on, then makes room again."""
    ballast = one.folder / "ballast"
    one.start()
    one.wait(one.dice.uniform(3, 25))
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    tally.times += 1
    running = one.wait(60)
    tally.silent += not running and "o space" not in said(one) and "isk is full" not in said(one)
    tally.torn += one.torn()
    if running:
        one.kill()
    ballast.unlink()
    one.start()
    one.end(tally)


def no_growth(one: Round, tally: Tally) -> None:
    """Keeps every process of the campaign from writing to any file, then lets them."""
    one.start()
    one.wait(one.dice.uniform(3, 25))
    assert one.process is not None
    for pid in (one.process.pid, *below(one.process.pid)):
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    tally.times += 1
    running = one.wait(60)
    tally.torn += one.torn()
    if running:
        one.kill()
    one.start()
    one.end(tally)


def said(one: Round) -> str:
    return (one.folder / f"{one.name}.log").read_text(errors="replace")


def jumping(one: Round, tally: Tally) -> None:
    one.start(sys.executable, str(Path(__file__)), "--jumping", str(one.config))
    tally.times += 1
    one.end(tally)


def two(one: Round, tally: Tally) -> None:
    other = Round(one.folder, one.store, one.dice, "other")
    one.start()
    other.start()
    tally.times += 1
    other.wait(LONGEST)
    one.end(tally)


def kernels(one: Round, tally: Tally) -> None:
    deadly = Round(one.folder, one.store, one.dice, "kernels", "deadly.py", 5, 200)
    deadly.start()
    tally.times += deadly.count
    deadly.end(tally)


def run_jumping(config: Path) -> None:
    """A campaign under a wall clock that nobody can trust."""
    from fuzz.campaign.config import load_config
    from fuzz.campaign.launch import run_campaign
    from fuzz.worker.clock import Clock

    class Jumping(Clock):
        def wall(self) -> float:
            return time.time() + random.uniform(-1e9, 1e9)

    state, outcome = run_campaign(load_config(config), resume=True, say=print, clock=Jumping())
    print(outcome, state.campaign.seconds)


def rounds(kind: str, times: int, dice: random.Random, tally: Tally) -> Iterator[None]:
    """Rounds of one kind of fault, until it was tried so many times."""
    while tally.times < times:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-faults-")))
            if kind == "full disk":
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
                stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
            server = stack.enter_context(postgres()) if kind == "database" else None
            one = Round(folder, server.database() if server else f"sqlite:///{folder / 'store.sqlite'}", dice)
            if kind == "node":
                cluster = stack.enter_context(nodes(1, 1))
                one.more = {"cluster": "ray", "address": cluster.address}
                one.configure()
                disturb(one, tally, times - tally.times, strike_node(cluster), (8, 20))
            else:
                strike(kind, one, tally, times - tally.times, server)
        yield


def strike(kind: str, one: Round, tally: Tally, left: int, server: Postgres | None) -> None:
    if kind == "campaign":
        disturb(one, tally, left, end_campaign, (0.5, 20))
    elif kind == "host":
        disturb(one, tally, left, killing(hosts), (1, 12))
    elif kind == "worker":
        disturb(one, tally, left, killing(workers), (0.5, 3))
    elif server is not None:
        disturb(one, tally, left, strike_database(server), (1, 6))
    else:
        others = {"full disk": full_disk, "file size limit": no_growth, "clock": jumping, "two campaigns": two}
        {**others, "kernels": kernels}[kind](one, tally)


def shares(times: int) -> dict[str, int]:
    """How often each kind is tried: kills share `times`, the others are tried a few times each."""
    few = max(times // 25, 1)
    return {
        "campaign": times * 2 // 5,
        "host": times // 5,
        "worker": times // 5,
        "database": times // 5,
    } | dict.fromkeys(KINDS[4:], few)


def line(kind: str, tally: Tally) -> str:
    counts = tally.times, tally.rounds, tally.findings, tally.lost, tally.doubled, tally.torn
    return f"| {NAMES[kind]} | " + " | ".join(map(str, counts)) + " |"


def write(path: Path, tallies: dict[str, Tally]) -> None:
    """Puts the lines into the document's table, in the place of earlier ones of the same faults."""
    text = path.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in MARKS)
    old = {row.split(" | ")[0].removeprefix("| "): row for row in text[start:end].splitlines() if row.startswith("| ")}
    old |= {NAMES[kind]: line(kind, tally) for kind, tally in tallies.items()}
    head = "| fault | times | campaigns | findings | lost | doubled | torn |\n|---|---|---|---|---|---|---|"
    body = "\n".join(old[NAMES[kind]] for kind in KINDS if NAMES[kind] in old)
    path.write_text(f"{text[:start]}{MARKS[0]}\n{head}\n{body}\n{text[end:]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="kills in all")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    parser.add_argument("--jumping", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.jumping:
        run_jumping(asked.jumping)
        return 0
    tallies: dict[str, Tally] = {}
    for kind in asked.kinds:
        tally = Tally()
        try:
            for _ in rounds(kind, shares(asked.times)[kind], random.Random(f"{asked.seed}/{kind}"), tally):
                print(line(kind, tally), *tally.notes, file=sys.stderr, flush=True)
        except (subprocess.CalledProcessError, FileNotFoundError, pytest.skip.Exception) as error:
            print(f"{kind}: cannot be tried here: {error}", file=sys.stderr)
            continue
        tallies[kind] = tally
        if asked.write:
            write(asked.write, tallies)
    for kind, tally in tallies.items():
        print(line(kind, tally), *tally.notes)
    return int(any(tally.lost or tally.doubled or tally.torn for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
