"""Bring a database to the newest version of the schema.

A server that starts looks at the version first, without Alembic and SQLAlchemy: their imports take a third of the time
of a start. Only a database that is older, or an empty one in PostgreSQL, is migrated by them (`migrations.apply`); an
empty SQLite file gets its tables from `blank.sql`. An upgrade is one transaction, so it is complete or absent. There
are no downgrades: restore a backup instead.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from taskyard.store import blank
from taskyard.store.queries import StoreUnavailable
from taskyard.store.sqlite import make_private

if TYPE_CHECKING:
    import psycopg

#: The newest version of the schema: that of the last migration.
NEWEST: Final = "0001"
#: The prefix of the address of an SQLite file; other addresses are those of PostgreSQL.
FILE: Final = "sqlite:///"
#: How long to wait while another server migrates, before giving up with an error.
WAIT_S: Final = 60
#: How long to wait for a locked file before logging that.
QUIET_S: Final = 1
#: The oldest major version of PostgreSQL that is accepted; older versions are out of support.
POSTGRES_MIN: Final = 15
#: Reads the version of the schema; there is no row before the first migration.
_VERSION: Final = "SELECT version_num FROM alembic_version"

_LOG: Final = logging.getLogger(__name__)


class TooOld(Exception):
    """The PostgreSQL server is too old."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the server is PostgreSQL {found} and Taskyard needs PostgreSQL {POSTGRES_MIN} or newer: "
            "upgrade the server, or use a file of SQLite"
        )


class TooNew(Exception):
    """The database was upgraded by a newer taskyard."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the database has version {found} of the schema and this program knows versions up to {NEWEST}: "
            "run the newer taskyard that made it, or restore a backup from before it"
        )


class NotEmpty(Exception):
    """The database that is to be made has tables already."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{database_name(url)} is not empty: name one that does not exist yet, or has no tables")


def upgrade(url: str) -> None:
    """Bring the database at `url` to the newest version, if it is older. Servers that start together take turns."""
    if file := file_of(url):
        make_private(Path(file))
        is_newest = _is_newest_file(url, file)
    else:
        is_newest = current_version(url) == NEWEST
    if not is_newest:
        from taskyard.store.migrations.apply import migrate  # noqa: PLC0415 - it imports Alembic

        migrate(url)


def current_version(url: str) -> str | None:
    """Return the version of the database at `url`; None if it is empty or does not exist."""
    file = file_of(url)
    if file and not Path(file).exists():
        return None  # looking must not create the file
    with explained_errors(url):
        if not file:
            return _version_of_server(url)
        with closing(_open_file(file)) as connection:
            return _version_of_file(connection)


def check_server_version(version: int) -> None:
    """Raise `TooOld` for an old PostgreSQL server; its version 14.11 is the number 140011."""
    major, minor = divmod(version, 10_000)
    if major < POSTGRES_MIN:
        raise TooOld(f"{major}.{minor}")


def connect(url: str) -> "psycopg.Connection":
    """Connect to a PostgreSQL server that is new enough."""
    import psycopg  # noqa: PLC0415 - a server with a file does not need it

    from taskyard.store.postgres_sessions import address_options  # noqa: PLC0415

    connection = psycopg.connect(url, **address_options(url))
    try:
        check_server_version(connection.info.server_version)
    except TooOld:
        connection.close()
        raise
    return connection


def lock_file(connection: sqlite3.Connection, file: str, begin: str = "BEGIN IMMEDIATE") -> None:
    """Begin a transaction in an SQLite file; if another program has locked the file, say so and wait."""
    try:
        connection.execute(begin)
    except sqlite3.OperationalError as fault:
        if getattr(fault, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        _LOG.warning("another program has locked the database %s: waiting for it, up to %s s", file, WAIT_S)
        connection.execute(f"PRAGMA busy_timeout = {WAIT_S * 1_000}")
        connection.execute(begin)


@contextmanager
def explained_errors(url: str) -> Iterator[None]:
    """Raise errors of the database drivers as `StoreUnavailable` with the name of the database."""
    try:
        yield
    except _driver_errors(url) as fault:
        raise StoreUnavailable(f"{database_name(url)} cannot be used: {fault}") from fault


def database_name(url: str) -> str:
    """Describe a database in messages: its file, or its address without the password."""
    if file := file_of(url):
        return f"the database {file}"
    parts = urlsplit(url)
    return f"the database {parts.path.lstrip('/')} at {parts.netloc.rpartition('@')[2] or 'this machine'}"


def file_of(url: str) -> str | None:
    """Return the path of an SQLite file; None for a PostgreSQL server."""
    return url.removeprefix(FILE) if url.startswith(FILE) else None


def _is_newest_file(url: str, file: str) -> bool:
    """Whether an SQLite file has the newest version, if need be because it was empty and has got all tables now."""
    with explained_errors(url), closing(_open_file(file)) as connection:
        lock_file(connection, file)
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            blank.fill(connection)
        found = _version_of_file(connection)
        connection.execute("COMMIT")
    return found == NEWEST


def _open_file(file: str) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=QUIET_S, isolation_level=None)


def _version_of_file(connection: sqlite3.Connection) -> str | None:
    table = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = connection.execute(_VERSION).fetchone() if table[0] else None
    return None if row is None else str(row[0])


def _version_of_server(url: str) -> str | None:
    with closing(connect(url)) as connection:
        table = connection.execute("SELECT to_regclass('alembic_version')").fetchone()
        row = connection.execute(_VERSION).fetchone() if table and table[0] else None
        return None if row is None else str(row[0])


def _driver_errors(url: str) -> type[Exception]:
    if file_of(url):
        return sqlite3.Error
    import psycopg  # noqa: PLC0415 - as above

    return psycopg.Error
