"""Stores that are damaged, foreign, newer, locked or no files, by the commands that open them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.attacks.attack import ONE_LINE, Kind, NotPossibleError
from benchmarks.attacks.kinds.campaign_files import GOOD
from benchmarks.attacks.kinds.entry_texts import BASE
from benchmarks.attacks.kinds.service_process import Service
from benchmarks.attacks.kinds.target_files import TARGET
from benchmarks.attacks.trial import Trial, require

KIND = Kind("stores")
NAME = "store.sqlite"


def change(statement: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(statement)
            connection.commit()

    return run


def overwrite(start: int, data: bytes) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(data)

    return run


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def make_other_program(path: Path) -> None:
    path.unlink()
    change("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT); INSERT INTO notes VALUES (1, 'kept')")(path)


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda path: path.write_bytes(bytes(range(256)) * 64), "is every byte"),
    "head_only": (lambda path: os.truncate(path, 100), "has lost all but its head"),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), "has lost its second half"),
    "zeros_in_it": (overwrite(4096, bytes(8192)), "has zeros in its second and third page"),
    "other_program": (make_other_program, "belongs to another program"),
    "folder": (replace_by_folder, "is a folder"),
    "pipe": (replace_by_pipe, "is a pipe"),
    "link_to_itself": (replace_by_loop, "is a link to itself"),
    "table_missing": (change("DROP TABLE findings"), "has lost a table"),
    "column_missing": (change("ALTER TABLE findings RENAME COLUMN message TO other"), "has another column"),
    "view_for_a_table": (
        change("ALTER TABLE findings RENAME TO hidden; CREATE VIEW findings AS SELECT * FROM hidden"),
        "has a view for a table"
    ),
    "newer": (change("UPDATE alembic_version SET version_num = '9999'"), "was written by a newer version"),
    "version_with_escapes": (
        change("UPDATE alembic_version SET version_num = char(27) || '[2J' || char(10)"),
        "names its version by escape sequences"
    ),
    "trigger_that_fails": (
        change("CREATE TRIGGER t BEFORE INSERT ON findings BEGIN SELECT RAISE(ABORT, 'no'); END"),
        "refuses every finding"
    ),
}  # fmt: skip
"""Name -> (what is done to a good store, what it is then)."""
ORDINARY = {"view_for_a_table", "trigger_that_fails"}
"""Stores that some command may read."""


def make_store(trial: Trial) -> Path:
    """A good store with one finding."""
    trial.write("corpus/gelu_bw/dx-sign-b5936751.yaml", BASE)
    answer = trial.fuzz("store", "rebuild", "--store", f"sqlite:///{NAME}", "--corpus", "corpus")
    require(answer.code == 0, f"no good store: {answer.err[-300:]!a}")
    for ending in ("-wal", "-shm"):
        (trial.work / (NAME + ending)).unlink(missing_ok=True)
    return trial.work / NAME


def open_damaged(trial: Trial, name: str) -> None:
    try:
        DAMAGED[name][0](make_store(trial))
    except sqlite3.OperationalError as error:
        raise NotPossibleError(f"the store cannot be damaged so: {error}") from None
    trial.write("targets.py", TARGET)
    trial.write("c.yaml", GOOD)
    commands = (
        ("store", "rebuild", "--store", f"sqlite:///{NAME}", "--corpus", "corpus"), ("campaign", "c.yaml"),
        ("report", "1", "--store", f"sqlite:///{NAME}", "--out", "out.html"),
    )  # fmt: skip
    for command in commands:
        if name in ORDINARY:
            answer = trial.fuzz(*command)
            require(
                answer.code in (0, 1) or answer.complaints,
                f"{command[0]}: exit code {answer.code}: {answer.err[-300:]!a}",
            )
        else:
            trial.refused(*command)


for _name, (_, _what) in DAMAGED.items():
    _holds = f"{ONE_LINE} for each" if _name not in ORDINARY else f"an answer, or {ONE_LINE}, for each"
    _does = f"Rebuilds, runs a campaign on and reports from a store that {_what}."
    KIND.add(f"store_{_name}", _does, _holds, partial(open_damaged, name=_name))


@KIND.attack(f"{ONE_LINE}, about half a minute later")
def store_that_is_locked(trial: Trial) -> None:
    """Starts a campaign on a store that another program has locked and does not give back."""
    path = make_store(trial)
    trial.write("targets.py", TARGET)
    trial.write("c.yaml", GOOD)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        trial.refused("campaign", "c.yaml")


@KIND.attack(f"{ONE_LINE}, and the other program's table is as it was")
def store_of_another_program(trial: Trial) -> None:
    """Rebuilds a store in another program's database."""
    path = make_store(trial)
    make_other_program(path)
    trial.refused("store", "rebuild", "--store", f"sqlite:///{NAME}", "--corpus", "corpus")
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        require(tables == ["notes"], f"the other program's database has {tables}")


@KIND.attack("a store with the three that can be read, and a list of the three that cannot")
def store_rebuilt_of_hostile_entries(trial: Trial) -> None:
    """Rebuilds a store of three entries, two with texts that no database holds, garbage, a pipe and a device."""
    path = trial.write("corpus/gelu_bw/good.yaml", BASE)
    for number, text in enumerate(
        ("x", BASE.replace('why: ""', 'why: "\\0"'), BASE.replace('why: ""', 'why: "\\ud800"'))
    ):
        trial.write(f"corpus/gelu_bw/{number}.yaml", text)
    os.mkfifo(path.with_name("pipe.yaml"))
    path.with_name("zero.yaml").symlink_to("/dev/zero")
    answer = trial.fuzz("store", "rebuild", "--store", f"sqlite:///{NAME}", "--corpus", "corpus", "--json")
    require(answer.json["findings"] == 3 and len(answer.json["unreadable"]) == 3, f"{answer.out[-200:]!a}")


@KIND.attack(f"{ONE_LINE} or a service that goes on; no traceback and no process is left")
def store_that_is_damaged_under_a_service(trial: Trial) -> None:
    """Starts a service, damages its store, asks for pages, and ends it."""
    with Service(trial) as service:
        path = trial.work / NAME
        path.write_bytes(os.urandom(path.stat().st_size or 4096))
        time.sleep(1.0)
        for page in ("/", "/findings", "/metrics", "/api/campaigns"):
            service.ask("GET", page, allowed=(200, 500, 503))
