"""Opens a database and brings its tables up to date. A database of a newer version is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.schema import CreateColumn

from fuzz.campaign.store.tables import metadata
from fuzz.errors import RefusedWrite, StoreError, UsageError, one_line, os_errors_as

SCHEMA = 6
"""The version of the tables: another one with each change of a record. What is new is added to older databases."""
VERSION = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
"""Holds the version of a database's tables, where alembic would look for it."""
WRITER_WAIT = 30.0
"""Seconds that one writer waits for another one."""
CONNECT_OPTIONS = {"connect_timeout": 10, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Seconds after which a server that does not answer counts as gone."""
SCHEMA_LOCK = 0x66757A7A
"""Key of the lock that lets one process at a time change a PostgreSQL schema."""
DAMAGED = ("malformed", "is not a database", "Could not decode to UTF-8")
"""What databases say of a file that something else has written to."""
DAMAGED_HELP = "it is damaged: move it away, and fuzz store rebuild makes its findings again"
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


@contextmanager
def database_errors(name: str) -> Iterator[None]:
    """Raises what a database or its driver raises as a StoreError: as RefusedWrite where it cannot hold a value."""
    try:
        yield
    except (DataError, IntegrityError) as error:
        raise RefusedWrite(f"store {name}: {describe_error(error)}") from None
    except (OverflowError, UnicodeEncodeError) as error:
        # SQLite's driver says so of numbers of more than 64 bits.
        raise RefusedWrite(f"store {name}: {one_line(error)}") from None
    except (DBAPIError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"store {name}: {describe_error(error)}") from None


def connect(url: str) -> sa.Engine:
    """The engine of a database, with its tables up to date. StoreError says in one line what is wrong with it."""
    parsed = parse_url(url)
    engine = _create_engine(parsed)
    try:
        with database_errors(display_url(parsed)), engine.connect() as connection:
            upgrade(connection, display_url(parsed))
    except StoreError:
        engine.dispose()
        raise
    return engine


def parse_url(url: str) -> URL:
    """The checked URL of a store: ``sqlite:///path`` or ``postgresql://..``."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise UsageError(f"store {url!r} is no URL; sqlite:///store.sqlite and postgresql://host/name are") from None
    name = DIALECTS.get(parsed.drivername)
    if name is None:
        raise UsageError(f"store {display_url(parsed)}: {parsed.drivername} is not known; sqlite and postgresql are")
    return parsed.set(drivername=name)


def display_url(url: URL) -> str:
    """The URL without its password."""
    return url.render_as_string(hide_password=True).replace("+psycopg", "")


def _create_engine(url: URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise UsageError("store: a campaign and its readers are several processes, so that a file is needed")
        with os_errors_as(StoreError, f"store {display_url(url)}"):
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(url, connect_args={"timeout": WRITER_WAIT})
        sa.event.listen(engine, "connect", _configure)
        sa.event.listen(engine, "begin", _begin)
        return engine
    try:
        return sa.create_engine(url, pool_pre_ping=True, connect_args=CONNECT_OPTIONS)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise UsageError("a PostgreSQL store needs psycopg: install the extra [postgres]") from None


def _configure(connection: sqlite3.Connection, _: Any) -> None:
    """Readers and one writer at a time, every commit on disk; transactions are begun by `_begin`, not by the driver."""
    connection.isolation_level = None
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin(connection: sa.Connection) -> None:
    """A writer takes SQLite's lock at once: one that began as a reader fails where another one wrote meanwhile."""
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def upgrade(connection: sa.Connection, name: str) -> None:
    """Adds the tables and columns that the records have and the database has not; one process at a time does."""
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
        present = set(sa.inspect(connection).get_table_names())
        # A server's database may well be shared with others; a file is one program's.
        if connection.dialect.name == "sqlite" and present and not present & {VERSION.name, *metadata.tables}:
            raise StoreError(f"store {name} is the database of another program; name another file")
        VERSION.metadata.create_all(connection)
        versions, inspector = connection.execute(sa.select(VERSION)).scalars().all(), sa.inspect(connection)
        if versions == [str(SCHEMA)]:
            return
        if len(versions) > 1 or not versions and inspector.has_table("campaigns"):
            raise StoreError(f"store {name}: its schema has no version; {DAMAGED_HELP}")
        for newer in (version for version in versions if not version.isdecimal() or int(version) > SCHEMA):
            raise StoreError(f"store {name} has the schema {newer!r} of a newer version of fuzz; use that version")
        metadata.create_all(connection)
        for table in metadata.sorted_tables:
            known = {column["name"] for column in inspector.get_columns(table.name)}
            for column in (CreateColumn(column) for column in table.columns if column.name not in known):
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column.compile(connection)}"))
        connection.execute(sa.delete(VERSION))
        connection.execute(sa.insert(VERSION).values(version_num=str(SCHEMA)))


def describe_error(error: Exception) -> str:
    """What a database's error says, on one line."""
    cause: Any = error.orig if isinstance(error, DBAPIError) and error.orig else error
    if isinstance(cause, sqlite3.OperationalError | OperationalError) and "disk is full" in str(cause):
        return "the disk is full"
    text = " ".join(str(cause).split()) or type(cause).__name__
    damaged = isinstance(cause, UnicodeDecodeError) or any(words in text for words in DAMAGED)
    return f"{text}; {DAMAGED_HELP}" if damaged else text
