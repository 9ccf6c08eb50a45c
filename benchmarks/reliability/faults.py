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
import runpy
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import neighbour  # noqa: E402
import pytest  # noqa: E402
from services import Nodes, Postgres, nodes, postgres  # noqa: E402

from fuzz import corpus  # noqa: E402
from fuzz.backends import BACKENDS  # noqa: E402
from fuzz.campaign.store import Campaign, Job, Store  # noqa: E402
from fuzz.errors import CorpusError  # noqa: E402

FUZZ = str(Path(sys.executable).with_name("fuzz"))
CASES, MORE, ENOUGH = 2000, 1000, 150
"""Cases of a campaign; by how many its budget grows, until each job has run enough of them."""
LONGEST = 400.0
"""Seconds that an undisturbed rest of a campaign may take."""
FUNCTIONS = (
    "above_four", "below_minus_three", "zero_is_nan", "threes", "over_sixty_four", "sevens", "overwrites",
    "large_is_kept",
)  # fmt: skip
"""The functions of `broken.py`."""
MARKS = "<!-- faults -->", "<!-- /faults -->"
DISK = 24 << 20
ADDRESS_SPACE = 4 << 30
GROUP_MEMORY = 1400 << 20
"""The memory of a control group that a campaign's processes share: less than one of its workers may have."""
HOSTILE_CASES = 60 * 19
"""Cases of the campaign over hostile launchers: enough for each to get one element several times."""
ATTACKS = 30 * 45
"""Attacks on workers: 30 rounds of the tests that make them."""
NEIGHBOUR_RUNS = 6
"""Runs side by side beside the neighbour that fills the GPU."""
MARK = "FUZZ_FAULTS_MARK"
"""The variable by which processes of a campaign are known that have left it."""
KINDS = (
    "campaign", "host", "worker", "database",
    "locked store", "full disk", "file size limit", "address space", "memory limit", "clock",
    "two campaigns", "kernels", "hostile", "attacks", "node", "neighbour",
)  # fmt: skip
NAMES = {
    "campaign": "`kill -9` of the campaign, then `--resume`",
    "host": "`kill -9` of a host, the process of a slice",
    "worker": "`kill -9` of a worker, in which kernels run",
    "database": "PostgreSQL stopped for a moment, or its connections ended",
    "locked store": "another process holds the store (SQLite) for up to 20 s",
    "full disk": "a full disk (tmpfs), then room again and `--resume`",
    "file size limit": "no file can grow (RLIMIT_FSIZE), then it can and `--resume`",
    "address space": "4 GiB of address space for each process (RLIMIT_AS)",
    "memory limit": "1.4 GiB of memory for all of a campaign (a control group), of which one function takes all",
    "clock": "the wall clock jumps by up to 30 years at each look, both ways",
    "two campaigns": "two campaigns on one corpus, at once",
    "node": "`kill -9` of a Ray node, on which the campaign's workers run; another one comes",
    "kernels": "kernels that segfault, leave, hang, fill memory or assert, one of each",
    "hostile": "a campaign over launchers that attack their process, one of each",
    "attacks": "attacks on a worker, its channel and its parents (tests/worker)",
    "neighbour": "a neighbour that fills the GPU beside `fuzz run --backend cuda`",
}


@dataclass
class FaultCounts:
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
class Trial:
    """One campaign in a folder of its own."""

    folder: Path
    store: str
    rng: random.Random
    name: str = "faults"
    targets: tuple[str, ...] = ("broken.py",)
    target_count: int = len(FUNCTIONS)
    cases: int = CASES
    more: dict[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.configure()

    def configure(self) -> None:
        keys = {
            "targets": [str(HERE / each) for each in self.targets],
            # On a GPU so few cases are of one or two shapes, of which some show nothing.
            "backends": ["cpu"],
            "budget": {"cases": self.cases},
            "slice": "10s",
            **self.more,
        }
        paths = {"corpus": str(self.corpus), "store": self.store, "folder": str(self.folder / "state")}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps({**keys, **paths, "name": self.name, "workers": 2, "memory": "1500MiB"}))

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
        """The cases of the job that has run the fewest; 0 where the campaign could not begin."""
        with Store(self.store) as store:
            campaigns = store.read(Campaign, name=self.name)
            return min(job.cases for job in store.read(Job, campaign=campaigns[0].id)) if campaigns else 0

    def count(self, counts: FaultCounts) -> None:
        """Counts what is there at the end."""
        targets = [path.parent.name for path in corpus.entry_files([self.corpus])] if self.corpus.is_dir() else []
        lost, doubled = self.target_count - len(set(targets)), len(targets) - len(set(targets))
        counts.rounds += 1
        counts.findings += len(set(targets))
        counts.lost += lost
        counts.doubled += doubled
        counts.torn += self.torn()
        if lost or doubled or self.running:
            kept = Path(tempfile.mkdtemp(prefix="fuzz-faults-kept-"))
            shutil.copytree(self.folder, kept, dirs_exist_ok=True)
            counts.notes.append(f"{lost} lost, {doubled} doubled, still running: {self.running}; kept in {kept}")

    def end(self, counts: FaultCounts) -> None:
        """Lets the campaign end undisturbed, with as much more budget as faults took from some jobs, and counts."""
        if not self.running and self.process is not None and self.process.returncode not in (0, 1):
            self.start()
        enough = min(ENOUGH, self.cases // (2 * self.target_count))
        for _ in range(3):
            if self.wait(LONGEST) or self.least >= enough:
                break
            self.cases += MORE
            self.configure()
            self.start()
        self.wait(LONGEST)
        self.count(counts)
        if self.running:
            self.kill()


def children(pid: int) -> list[int]:
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                pids.append(int(stat.parent.name))
    return pids


def descendants(pid: int) -> list[int]:
    """Every process that a process has started, and so on."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def hosts(pid: int) -> list[int]:
    name = b"fuzz.campaign.hosts.host_process"
    return [child for child in children(pid) if name in Path(f"/proc/{child}/cmdline").read_bytes()]


def workers(pid: int) -> list[int]:
    """What is below the hosts and has no process below itself."""
    return [leaf for host in hosts(pid) for leaf in descendants(host) if not children(leaf)]


def kill_process(find: Callable[[int], list[int]]) -> Callable[[Trial], bool]:
    def inject(trial: Trial) -> bool:
        assert trial.process is not None
        pids = find(trial.process.pid)
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(trial.rng.choice(pids), signal.SIGKILL)
        return True

    return inject


def kill_campaign(trial: Trial) -> bool:
    trial.kill()
    trial.start()
    return True


def inject_faults(
    trial: Trial, counts: FaultCounts, times: int, inject: Callable[[Trial], bool], pause: tuple[float, float]
) -> None:
    """Injects faults at random moments until so many are done or the campaign ends."""
    trial.start()
    done = 0
    while done < times and trial.wait(trial.rng.uniform(*pause)):
        if inject(trial):
            done += 1
            counts.torn += trial.torn()
    counts.times += done
    trial.end(counts)


def kill_node(cluster: Nodes) -> Callable[[Trial], bool]:
    def inject(trial: Trial) -> bool:
        cluster.kill(trial.rng.randrange(len(cluster.there)))
        cluster.add(1)
        return True

    return inject


def interrupt_database(server: Postgres) -> Callable[[Trial], bool]:
    import psycopg

    def inject(trial: Trial) -> bool:
        if trial.rng.random() < 0.5:
            server.stop()
            time.sleep(trial.rng.uniform(0.2, 4.0))
            server.start()
        else:
            with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
                others = "pid <> pg_backend_pid() AND usename = 'postgres'"
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}".encode())
        return True

    return inject


def fill_disk(trial: Trial, counts: FaultCounts) -> None:
    """Fills the file system that corpus, store and journals are on, then makes room again."""
    ballast = trial.folder / "ballast"
    trial.start()
    trial.wait(trial.rng.uniform(3, 25))
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    counts.times += 1
    running = trial.wait(60)
    counts.silent += not running and "o space" not in log_text(trial) and "isk is full" not in log_text(trial)
    counts.torn += trial.torn()
    if running:
        trial.kill()
    ballast.unlink()
    trial.start()
    trial.end(counts)


def forbid_file_growth(trial: Trial, counts: FaultCounts) -> None:
    """Keeps every process of the campaign from writing to any file, then lets them."""
    trial.start()
    trial.wait(trial.rng.uniform(3, 25))
    assert trial.process is not None
    for pid in (trial.process.pid, *descendants(trial.process.pid)):
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    counts.times += 1
    running = trial.wait(60)
    counts.torn += trial.torn()
    if running:
        trial.kill()
    trial.start()
    trial.end(counts)


def log_text(trial: Trial) -> str:
    return (trial.folder / f"{trial.name}.log").read_text(errors="replace")


def run_with_jumping_clock(trial: Trial, counts: FaultCounts) -> None:
    trial.start(sys.executable, str(Path(__file__)), "--jumping", str(trial.config))
    counts.times += 1
    trial.end(counts)


def run_in_little_address_space(trial: Trial, counts: FaultCounts) -> None:
    trial.start("prlimit", f"--as={ADDRESS_SPACE}", FUZZ, "campaign", str(trial.config), "--resume")
    counts.times += 1
    trial.end(counts)


def run_in_little_memory(trial: Trial, counts: FaultCounts) -> None:
    """Runs all processes of the campaign in a control group; it finds the function that takes all memory, too."""
    trial.targets, trial.target_count = (*trial.targets, "deadly.py:fills"), trial.target_count + 1
    trial.configure()
    with control_group(GROUP_MEMORY) as processes:
        enter = f'echo $$ > {processes} && exec "$@"'
        trial.start("sh", "-c", enter, "sh", FUZZ, "campaign", str(trial.config), "--resume")
        counts.times += 1
        trial.end(counts)


@contextmanager
def control_group(memory: int) -> Iterator[Path]:
    """The file that takes the processes of a new control group with so many bytes. OSError where none can be made."""
    groups = Path("/sys/fs/cgroup")
    parent, limit = groups / "memory", "memory.limit_in_bytes"
    if not parent.is_dir():
        parent, limit = groups, "memory.max"
    group = parent / f"fuzz-faults-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(memory))
        yield group / "cgroup.procs"
    finally:
        end = time.monotonic() + 60.0
        while (group / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.1)
        group.rmdir()


def lock_store(trial: Trial) -> bool:
    """Holds the store for some seconds, as another writer does."""
    store = trial.folder / "store.sqlite"
    if not store.exists():
        return False
    with closing(sqlite3.connect(store, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(trial.rng.uniform(1, 20))
        connection.execute("ROLLBACK")
    return True


def run_two_campaigns(trial: Trial, counts: FaultCounts) -> None:
    other = replace(trial, name="other")
    trial.start()
    other.start()
    counts.times += 1
    other.wait(LONGEST)
    trial.end(counts)


def run_deadly_kernels(trial: Trial, counts: FaultCounts) -> None:
    deadly = Trial(trial.folder, trial.store, trial.rng, "kernels", ("deadly.py",), 5, 200)
    deadly.start()
    counts.times += deadly.target_count
    deadly.end(counts)


class HostileTrial(Trial):
    """A campaign over `hostile.py`, which is to find what that expects and to leave no process behind."""

    def count(self, counts: FaultCounts) -> None:
        expected = {(name, symptom) for name, symptom in runpy.run_path(str(HERE / "hostile.py"))["EXPECTED"].items()}
        wanted = sorted((name, symptom) for name, symptom in expected if symptom)
        entries = [corpus.read(path) for path in corpus.entry_files([self.corpus])]
        found = sorted((entry.case.target, entry.finding.symptom) for entry in entries)
        end = time.monotonic() + 60.0
        while (left := marked_processes(f"{MARK}={self.folder}".encode())) and time.monotonic() < end:
            time.sleep(1.0)
        counts.rounds += 1
        counts.findings += len(set(found) & set(wanted))
        counts.lost += len(set(wanted) - set(found))
        counts.doubled += len(found) - len(set(found) & set(wanted))
        if found != wanted or left:
            missing, invented = set(wanted) - set(found), set(found) - set(wanted)
            counts.notes.append(f"missing {missing}, invented {invented}, of {found}; processes left: {left}")
            counts.torn += len(left)


def marked_processes(mark: bytes) -> list[int]:
    """The processes that were started with a variable, and those that they have forked."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def run_hostile_launchers(trial: Trial, counts: FaultCounts) -> None:
    expected = runpy.run_path(str(HERE / "hostile.py"))["EXPECTED"]
    hostile = HostileTrial(
        trial.folder, trial.store, trial.rng, "hostile", ("hostile.py",), len(expected), HOSTILE_CASES, {"slice": "60s"}
    )
    os.environ[MARK] = str(trial.folder)
    hostile.start()
    del os.environ[MARK]
    counts.times += len(expected)
    hostile.end(counts)


def run_beside_neighbour(trial: Trial, counts: FaultCounts) -> None:
    """Runs on a GPU that a neighbour fills; a finding that is none of the kernel's counts as doubled."""
    if reason := BACKENDS["cuda"].unavailable_reason():
        pytest.skip(reason)
    seed = trial.rng.randrange(1 << 16)
    with neighbour.neighbour(seed) as beside:
        for run in neighbour.run_all(NEIGHBOUR_RUNS, NEIGHBOUR_RUNS, seed, beside):
            counts.times += 1
            counts.findings += len(run.findings)
            counts.lost += run.is_lost
            counts.doubled += run.invented
            if run.is_lost or run.invented:
                counts.notes.append(str(run))


def run_attacks(trial: Trial, counts: FaultCounts) -> None:
    """One round of the tests that attack workers; what fails is counted as lost."""
    tests = [str(path) for path in sorted((ROOT / "tests/worker").glob("test_hostile_*.py"))]
    report = trial.folder / "attacks.xml"
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "--tb=line", f"--junitxml={report}", *tests)
    with (trial.folder / "attacks.log").open("wb") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False)
    suite = ElementTree.parse(report).getroot()[0]
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    counts.times += int(suite.get("tests", 0))
    counts.lost += failed
    if failed:
        names = [case.get("name") for case in suite.iter("testcase") if len(case)]
        counts.notes.append(f"failed: {names}")


def run_jumping(config: Path) -> None:
    """A campaign under a wall clock that jumps."""
    from fuzz.campaign.config import load_config
    from fuzz.campaign.runner import run_campaign
    from fuzz.clock import Clock

    class Jumping(Clock):
        def wall(self) -> float:
            return time.time() + random.uniform(-1e9, 1e9)

    state, outcome = run_campaign(load_config(config), resume=True, say=print, clock=Jumping())
    print(outcome, state.campaign.seconds)


def run_trials(
    kind: str, times: int, rng: random.Random, counts: FaultCounts, functions: int = len(FUNCTIONS), cases: int = CASES
) -> Iterator[None]:
    """Rounds of one kind of fault, each over so many functions by so many cases, until it was tried so many times."""
    while counts.times < times:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-faults-")))
            if kind == "full disk":
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
                stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
            server = stack.enter_context(postgres()) if kind == "database" else None
            store = server.database() if server else f"sqlite:///{folder / 'store.sqlite'}"
            targets = tuple(f"broken.py:{name}" for name in rng.sample(FUNCTIONS, functions))
            trial = Trial(folder, store, rng, targets=targets, target_count=functions, cases=cases)
            if kind == "node":
                cluster = stack.enter_context(nodes(1, 1))
                trial.more = {"cluster": "ray", "address": cluster.address}
                trial.configure()
                inject_faults(trial, counts, times - counts.times, kill_node(cluster), (8, 20))
            else:
                inject_kind(kind, trial, counts, times - counts.times, server)
        yield


def inject_kind(kind: str, trial: Trial, counts: FaultCounts, left: int, server: Postgres | None) -> None:
    if kind == "campaign":
        inject_faults(trial, counts, left, kill_campaign, (0.5, 20))
    elif kind == "host":
        inject_faults(trial, counts, left, kill_process(hosts), (1, 12))
    elif kind == "worker":
        inject_faults(trial, counts, left, kill_process(workers), (0.5, 3))
    elif kind == "locked store":
        inject_faults(trial, counts, left, lock_store, (1, 8))
    elif server is not None:
        inject_faults(trial, counts, left, interrupt_database(server), (1, 6))
    else:
        others = {
            "full disk": fill_disk,
            "file size limit": forbid_file_growth,
            "address space": run_in_little_address_space,
            "memory limit": run_in_little_memory,
            "clock": run_with_jumping_clock,
            "two campaigns": run_two_campaigns,
        }
        others |= {"kernels": run_deadly_kernels, "hostile": run_hostile_launchers, "attacks": run_attacks}
        others |= {"neighbour": run_beside_neighbour}
        others[kind](trial, counts)


def times_by_kind(times: int) -> dict[str, int]:
    """How often each kind is tried: kills share `times`, the others are tried a few times each."""
    few = max(times // 25, 1)
    return {
        "campaign": times * 2 // 5,
        "host": times // 5,
        "worker": times // 5,
        "database": times // 5,
    } | {**dict.fromkeys(KINDS[4:], few), "attacks": ATTACKS * times // 100, "neighbour": 30 * times // 100}


def line(kind: str, counts: FaultCounts) -> str:
    numbers = counts.times, counts.rounds, counts.findings, counts.lost, counts.doubled, counts.torn
    return f"| {NAMES[kind]} | " + " | ".join(map(str, numbers)) + " |"


def write(path: Path, counts_by_kind: dict[str, FaultCounts]) -> None:
    """Puts the lines into the document's table, in the place of earlier ones of the same faults."""
    text = path.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in MARKS)
    old = {row.split(" | ")[0].removeprefix("| "): row for row in text[start:end].splitlines() if row.startswith("| ")}
    old |= {NAMES[kind]: line(kind, counts) for kind, counts in counts_by_kind.items()}
    head = "| fault | times | campaigns | findings | lost | doubled | torn |\n|---|---|---|---|---|---|---|"
    body = "\n".join(old[NAMES[kind]] for kind in KINDS if NAMES[kind] in old)
    path.write_text(f"{text[:start]}{MARKS[0]}\n{head}\n{body}\n{text[end:]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="kills in all")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--functions", type=int, default=len(FUNCTIONS), help="of broken.py, drawn for each campaign")
    parser.add_argument("--cases", type=int, default=CASES, help="of a campaign over functions of broken.py")
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    parser.add_argument("--jumping", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.jumping:
        run_jumping(arguments.jumping)
        return 0
    counts_by_kind: dict[str, FaultCounts] = {}
    for kind in arguments.kinds:
        counts = FaultCounts()
        try:
            rng, times = random.Random(f"{arguments.seed}/{kind}"), times_by_kind(arguments.times)[kind]
            for _ in run_trials(kind, times, rng, counts, arguments.functions, arguments.cases):
                print(line(kind, counts), *counts.notes, file=sys.stderr, flush=True)
        except (subprocess.CalledProcessError, OSError, pytest.skip.Exception) as error:
            print(f"{kind}: cannot be tried here: {error}", file=sys.stderr)
            continue
        counts_by_kind[kind] = counts
        if arguments.write:
            write(arguments.write, counts_by_kind)
    for kind, counts in counts_by_kind.items():
        print(line(kind, counts), *counts.notes)
    return int(any(counts.lost or counts.doubled or counts.torn for counts in counts_by_kind.values()))


if __name__ == "__main__":
    sys.exit(main())
