"""Upgrade a database to the newest schema.

Only this module, `schema` and `migrations` import Alembic and SQLAlchemy, because the imports are slow. A migration is
one transaction, so it is complete or absent. There are no downgrades: restore a backup instead.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DatabaseError

from taskyard.store.queries import StoreUnavailable
from taskyard.store.sqlite import make_private

#: The prefix of the address of an SQLite file; other addresses are those of PostgreSQL.
FILE: Final = "sqlite:///"
#: How long to wait while another server migrates, before giving up with an error.
WAIT_S: Final = 60
#: How long to wait for a locked file before logging that.
QUIET_S: Final = 1
#: The advisory lock that one migrating server holds in PostgreSQL: the letters "taskyard".
LOCK: Final = int.from_bytes(b"taskyard")

_LOG: Final = logging.getLogger(__name__)
# Alembic keeps its state in globals, so one process migrates one database at a time.
_ONE_AT_A_TIME: Final = threading.Lock()


#: The oldest major version of PostgreSQL that is accepted; older versions are out of support.
POSTGRES_MIN: Final = 15


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
            f"the database has version {found} of the schema and this program knows versions up to {newest_version()}: "
            "run the newer taskyard that made it, or restore a backup from before it"
        )


def upgrade(url: str) -> None:
    """Upgrade the database at `url` to the newest version, if it is older. Servers that start together take turns."""
    if file := _file(url):
        make_private(Path(file))
    with _ONE_AT_A_TIME, _connected(url) as connection, connection.begin():
        _take_turn(connection)
        _refuse_too_new(_version(connection))
        settings = _settings()
        settings.attributes["connection"] = connection
        command.upgrade(settings, "head")


def current_version(url: str) -> str | None:
    """Return the version of the database at `url`; None if it is empty or does not exist."""
    file = _file(url)
    if file and not Path(file).exists():
        return None  # looking must not create the file
    with _connected(url, begin="BEGIN") as connection:
        return _version(connection)


def check_server_version(version: int) -> None:
    """Raise `TooOld` for an old PostgreSQL server; its version 14.11 is the number 140011."""
    major, minor = divmod(version, 10_000)
    if major < POSTGRES_MIN:
        raise TooOld(f"{major}.{minor}")


def newest_version() -> str:
    """Return the newest version that this program knows."""
    head = ScriptDirectory.from_config(_settings()).get_current_head()
    assert head, "there is no migration"
    return head


@contextmanager
def _connected(url: str, begin: str = "BEGIN IMMEDIATE") -> Iterator[Connection]:
    engine = _sqlite(file, begin) if (file := _file(url)) else _postgres(url)
    try:
        with engine.connect() as connection:
            yield connection
    except DatabaseError as fault:
        raise StoreUnavailable(f"{database_name(url)} cannot be used: {fault.orig}") from fault
    except sqlite3.Error as fault:
        raise StoreUnavailable(f"{database_name(url)} cannot be used: {fault}") from fault


def database_name(url: str) -> str:
    """Describe a database in messages: its file, or its address without the password."""
    if file := _file(url):
        return f"the database {file}"
    parts = urlsplit(url)
    return f"the database {parts.path.lstrip('/')} at {parts.netloc.rpartition('@')[2] or 'this machine'}"


def _file(url: str) -> str | None:
    return url.removeprefix(FILE) if url.startswith(FILE) else None


def _sqlite(file: str, begin: str) -> Engine:
    def start(connection: Connection) -> None:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        try:
            raw.execute(begin)
        except sqlite3.OperationalError as fault:
            if getattr(fault, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            _LOG.warning("another program has locked the database %s: waiting for it, up to %s s", file, WAIT_S)
            raw.execute(f"PRAGMA busy_timeout = {WAIT_S * 1_000}")
            raw.execute(begin)

    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(file, timeout=QUIET_S, isolation_level=None), poolclass=NullPool
    )
    # The driver alone would create tables outside of the transaction.
    event.listen(engine, "begin", start)
    return engine


def _postgres(url: str) -> Engine:
    # psycopg parses the address, so that it means the same here as in the store.
    return create_engine("postgresql+psycopg://", creator=lambda: _connect(url), poolclass=NullPool)


def _connect(url: str) -> psycopg.Connection:
    connection = psycopg.connect(url)
    try:
        check_server_version(connection.info.server_version)
    except TooOld:
        connection.close()
        raise
    return connection


def _take_turn(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{WAIT_S}s'"))
        if not connection.execute(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": LOCK}).scalar():
            _LOG.warning("another server upgrades the database: waiting for it, up to %s s", WAIT_S)
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


def _refuse_too_new(found: str | None) -> None:
    known = {one.revision for one in ScriptDirectory.from_config(_settings()).walk_revisions()}
    if found is not None and found not in known:
        raise TooNew(found)


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _settings() -> Config:
    settings = Config()
    settings.set_main_option("script_location", "taskyard.store:migrations")
    settings.set_main_option("path_separator", "os")
    return settings
