"""Services that some tests need: a PostgreSQL server, a Ray cluster. Where what they need is missing, tests say so."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

REQUIRED = "FUZZ_REQUIRE_SERVICES"
"""With this variable set to 1 a service that is missing fails its tests."""
USERS = ("postgres", "nobody")


def missing(what: str) -> NoReturn:
    """Skips the test by name, or fails it where services are required."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{what}, and {REQUIRED}=1")
    pytest.skip(what)


def program(name: str) -> str:
    """A program of PostgreSQL, on the path or where Debian puts it."""
    places = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True))]
    found = next((place for place in places if place), None)
    return str(Path(found).resolve()) if found else missing(f"PostgreSQL's {name} is not installed")


def wait_until_answered(address: str) -> None:
    """Waits for a service that has said its address: the line comes before it takes connections."""
    until = time.monotonic() + 120
    while True:
        try:
            urlopen(f"{address}/", timeout=60).close()
        except HTTPError:
            return
        except OSError:
            assert time.monotonic() < until, f"{address} does not answer"
            time.sleep(0.2)
        else:
            return


@dataclass
class Postgres:
    """A server in a folder of its own, reached by a socket in it."""

    folder: Path
    user: tuple[int, int] | None
    process: subprocess.Popen[bytes] | None = None
    names: Iterator[int] = field(default_factory=count)

    def run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, **self._as())  # type: ignore[call-overload]

    def _as(self) -> dict[str, object]:
        """The server refuses to run as root."""
        return {"user": self.user[0], "group": self.user[1], "extra_groups": []} if self.user else {}

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        options = ("fsync=off", "listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=40")
        command = [program("postgres"), "-D", str(self.folder / "data"), *(f"-c{option}" for option in options)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self._as())  # type: ignore[call-overload]
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if self._answers():
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text())

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn("postgres"), autocommit=True).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Ends the server at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
            self.process = None

    def dsn(self, database: str) -> str:
        return f"host={self.folder} user=postgres dbname={database}"

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        name = f"store{next(self.names)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that ends with the block."""
    initdb = program("initdb")
    # Not pytest's folder: a socket's path may have 107 characters, and another user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="fuzz-postgres-"))
    server = Postgres(folder, _user() if os.getuid() == 0 else None)
    try:
        if server.user:
            os.chown(folder, *server.user)
        server.run(initdb, "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> tuple[int, int]:
    for name in USERS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    missing("neither the user postgres nor nobody exists, and PostgreSQL refuses to run as root")


@dataclass
class Nodes:
    """A Ray cluster: its head, on which no worker runs, and nodes with room for so many workers each."""

    cluster: Any
    there: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, room: int) -> None:
        self.there.append(self.cluster.add_node(num_cpus=room))

    def kill(self, index: int) -> None:
        """Ends a node's processes as `kill -9` does."""
        self.cluster.remove_node(self.there.pop(index), allow_graceful=False)


@contextmanager
def nodes(*rooms: int) -> Iterator[Nodes]:
    """A Ray cluster of processes of this machine, which ends with the block."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        from ray.cluster_utils import Cluster
    except ModuleNotFoundError:
        pytest.skip("Ray is not installed: make cluster")
    made = Nodes(Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}))
    try:
        for room in rooms:
            made.add(room)
        yield made
    finally:
        made.cluster.shutdown()
