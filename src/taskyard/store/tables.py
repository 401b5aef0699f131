"""Whole tables: read all rows of a database in one consistent snapshot, and make a new database of rows.

This is for backups and moves, which know nothing of what the rows mean. The shapes of the tables come from the schema,
so a new table is part of every backup without a change here. Each database uses a connection of its own, without the
time-outs of the store: a large table takes minutes.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql

from taskyard.core.structs import value
from taskyard.store import migrate, schema
from taskyard.store.connection import Repo
from taskyard.store.migrations.apply import new_schema
from taskyard.store.postgres import session_on
from taskyard.store.postgres_sessions import CONNECT_MAX_S
from taskyard.store.queries import Row, StoreUnavailable
from taskyard.store.sqlite import BUSY_MS, SqliteSession, make_private

#: How long a move waits for writers that have not ended.
LOCK_MAX_S: Final = 10
_POSTGRES_TYPES: Final = {"integer": "int8", "text": "text", "bytes": "bytea", "float": "float8"}
_OPTIONS: Final = f"-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c lock_timeout={LOCK_MAX_S}s"


@value
class Table:
    """The name of a table, and its columns, each with `integer`, `text`, `bytes` or `float`."""

    name: str
    columns: tuple[tuple[str, str], ...]


class Snapshot(Protocol):
    """All rows of a database, as they were at one moment."""

    def count(self, table: Table) -> int:
        """Count the rows of a table."""

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table, in any order."""


class NewDatabase(Snapshot, Protocol):
    """A database that is being made. It can read what it was given."""

    repo: Repo

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows to a table; tables come after those that they refer to."""


def tables() -> tuple[Table, ...]:
    """Return all tables of the newest schema, each after those that it refers to."""
    return tuple(Table(str(one.name), schema.column_kinds(one)) for one in schema.metadata.sorted_tables)


def is_file(url: str) -> bool:
    """Whether a database is a file of SQLite."""
    return url.startswith(migrate.FILE)


def path_of(url: str) -> Path:
    """Return the file of an SQLite database."""
    return Path(url.removeprefix(migrate.FILE))


@contextmanager
def snapshot(url: str, *, exclusive: bool = False) -> Iterator[Snapshot]:
    """Open a snapshot of a database. Others go on writing meanwhile; with `exclusive` nothing is written until the end.

    The caller of an exclusive snapshot of a file holds its lock.
    """
    with _errors(url):
        if is_file(url):
            with closing(_open_file(path_of(url))) as connection:
                connection.execute("BEGIN")
                yield _SqliteTables(connection)
        else:
            with closing(psycopg.connect(url, options=_OPTIONS, connect_timeout=CONNECT_MAX_S)) as postgres:
                postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                postgres.read_only = not exclusive
                if exclusive:
                    _refuse_servers(postgres, url)
                    names = sql.SQL(", ").join(sql.Identifier(one.name) for one in tables())
                    postgres.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(names))
                yield _PostgresTables(postgres)


@contextmanager
def copied_file(url: str, folder: Path) -> Iterator[str]:
    """Copy the database file into a folder, while it is in use, and yield the address of the copy.

    The copy is one step: it sees one commit, and holds up neither writers nor the truncation of their log for longer.
    """
    copy = folder / "copy.db"
    make_private(copy)
    try:
        with (
            _errors(url),
            closing(_open_file(path_of(url))) as source,
            closing(sqlite3.connect(copy, isolation_level=None)) as target,
        ):
            source.backup(target)
        yield f"{migrate.FILE}{copy}"
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            copy.with_name(f"{copy.name}{end}").unlink(missing_ok=True)


@contextmanager
def new_database(url: str, version: str) -> Iterator[NewDatabase]:
    """Make a database of a version of the schema and fill it; it is complete at the end, or does not exist.

    A database file has its name only when it is complete; the caller holds its lock.
    """
    with _errors(url):
        if is_file(url):
            with _new_file(path_of(url), version) as made:
                yield made
        else:
            with new_schema(url, version) as postgres:
                tables_made = _PostgresTables(postgres)
                tables_made.clear()
                yield tables_made


@contextmanager
def _new_file(path: Path, version: str) -> Iterator["_SqliteTables"]:
    if any(path.with_name(f"{path.name}{end}").exists() for end in ("", "-wal", "-journal")):
        raise migrate.NotEmpty(f"{migrate.FILE}{path}")
    part = path.with_name(f"{path.name}.part-{secrets.token_hex(4)}")
    make_private(part)
    try:
        with new_schema(f"{migrate.FILE}{part}", version) as connection:
            made = _SqliteTables(connection)
            made.clear()
            yield made
            made.check_references()
        _rename(part, path)
    finally:
        for end in ("", "-journal"):
            part.with_name(f"{part.name}{end}").unlink(missing_ok=True)


def _rename(part: Path, path: Path) -> None:
    """Give a complete file its name, durably."""
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _SqliteTables:
    """The tables of a file, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.repo = Repo(SqliteSession(connection))

    def count(self, table: Table) -> int:
        return int(self._connection.execute(f'SELECT COUNT(*) FROM "{table.name}"').fetchone()[0])  # noqa: S608 - of the schema

    def rows(self, table: Table) -> Iterator[Row]:
        yield from self._connection.execute(f'SELECT {_listed(table)} FROM "{table.name}"')  # noqa: S608 - of the schema

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        places = ", ".join("?" * len(table.columns))
        text = f'INSERT INTO "{table.name}" ({_listed(table)}) VALUES ({places})'  # noqa: S608 - of the schema
        self._connection.executemany(text, rows)

    def clear(self) -> None:
        """Delete the rows that every new database has."""
        for name in _own(self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()):
            self._connection.execute(f'DELETE FROM "{name}"')  # noqa: S608 - of the schema

    def check_references(self) -> None:
        """Raise an error if a row refers to one that is not there: foreign keys are not checked row by row here."""
        broken = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise StoreUnavailable(f"a row of table {broken[0]} refers to a row of {broken[2]} that is not there")


class _PostgresTables:
    """The tables of a database of PostgreSQL, in one transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.repo = Repo(session_on(connection))

    def count(self, table: Table) -> int:
        found = self._connection.execute(sql.SQL("SELECT COUNT(*) FROM {}").format(sql.Identifier(table.name)))
        return int(found.fetchall()[0][0])

    def rows(self, table: Table) -> Iterator[Row]:
        with self._connection.cursor() as cursor, cursor.copy(_copy(table, "TO STDOUT")) as copy:
            copy.set_types(_types(table))
            yield from copy.rows()

    def add(self, table: Table, rows: Iterable[Row]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(_copy(table, "FROM STDIN")) as copy:
            copy.set_types(_types(table))
            for row in rows:
                copy.write_row(row)
        self._set_sequences(table)

    def clear(self) -> None:
        """Delete the rows that every new database has."""
        text = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        names = sql.SQL(", ").join(map(sql.Identifier, _own(self._connection.execute(text).fetchall())))
        self._connection.execute(sql.SQL("TRUNCATE {}").format(names))

    def _set_sequences(self, table: Table) -> None:
        """Number new rows of a table from behind the highest number on."""
        found = self._connection.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = %s AND column_default LIKE 'nextval(%%'",
            [table.name],
        ).fetchall()
        for (column,) in found:
            place = (sql.Literal(table.name), sql.Literal(column), sql.Identifier(column), sql.Identifier(table.name))
            text = "SELECT setval(pg_get_serial_sequence({}, {}), (SELECT MAX({}) FROM {}))"
            self._connection.execute(sql.SQL(text).format(*place))


def _refuse_servers(connection: psycopg.Connection[Any], url: str) -> None:
    """Refuse a database in which a server holds the lock that proves that it lives; a server that is frozen does."""
    found = connection.execute(
        "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    if found[0][0]:
        raise StoreUnavailable(f"a server uses {migrate.database_name(url)}: stop all its servers first")


def _open_file(path: Path) -> sqlite3.Connection:
    """Open a database file to read it."""
    # `rw` does not create the file, and lets SQLite keep its files beside it.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_MS / 1_000, isolation_level=None
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def _listed(table: Table) -> str:
    return ", ".join(f'"{name}"' for name, _ in table.columns)


def _copy(table: Table, way: str) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
    text = "COPY {} ({}) {} (FORMAT BINARY)"
    return sql.SQL(text).format(sql.Identifier(table.name), columns, sql.SQL(way))


def _types(table: Table) -> list[str]:
    return [_POSTGRES_TYPES[kind] for _, kind in table.columns]


def _own(found: Iterable[Row]) -> list[str]:
    """Return the names of tables that are ours."""
    return [name for (name,) in found if name != "alembic_version" and not name.startswith("sqlite_")]


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """Turn errors of the drivers into `StoreUnavailable`."""
    try:
        yield
    except (sqlite3.Error, psycopg.Error) as error:
        raise StoreUnavailable(f"{migrate.database_name(url)}: {error}") from error
