"""Bring a database to the version of the schema that this program knows.

The only module, with `migrations`, that imports Alembic and SQLAlchemy: who does not migrate does not pay for them.
A migration is one transaction: it is done or it is not there. It never goes back; that is what backups are for.
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

#: How the address of a file begins; any other address is one of PostgreSQL.
FILE: Final = "sqlite:///"
#: How long to wait while another server migrates. Whoever waits longer says so and can be started again.
WAIT_S: Final = 60
#: How long to wait for a locked file before that is told.
QUIET_S: Final = 1
#: The advisory lock that one migrating server holds in PostgreSQL: the letters "taskyard".
LOCK: Final = int.from_bytes(b"taskyard")

_LOG: Final = logging.getLogger(__name__)
# Alembic keeps what it works on in globals, so one process migrates one database at a time.
_ALONE: Final = threading.Lock()


#: The oldest major version of PostgreSQL that is accepted: older ones are at the end of their support.
POSTGRES_MIN: Final = 15


class TooOld(Exception):
    """The server of the database is too old."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the server is PostgreSQL {found} and Taskyard needs PostgreSQL {POSTGRES_MIN} or newer: "
            "upgrade the server, or use a file of SQLite"
        )


class TooNew(Exception):
    """The database was made by a newer program."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the database has version {found} of the schema and this program knows versions up to {newest_version()}: "
            "run the newer taskyard that made it, or restore a backup from before it"
        )


def upgrade(url: str) -> None:
    """Bring the database at `url` to the newest version, or find it there. Servers that start at once take turns."""
    if file := _file(url):
        make_private(Path(file))
    with _ALONE, _connected(url) as connection, connection.begin():
        _take_turn(connection)
        _refuse_too_new(_version(connection))
        settings = _settings()
        settings.attributes["connection"] = connection
        command.upgrade(settings, "head")


def current_version(url: str) -> str | None:
    """Say which version the database at `url` has; none if it is empty or not there yet."""
    file = _file(url)
    if file and not Path(file).exists():
        return None  # to look must not make the file
    with _connected(url, begin="BEGIN") as connection:
        return _version(connection)


def check_server_version(version: int) -> None:
    """Refuse a server of PostgreSQL by its version as it counts it: 140011 is 14.11."""
    major, minor = divmod(version, 10_000)
    if major < POSTGRES_MIN:
        raise TooOld(f"{major}.{minor}")


def newest_version() -> str:
    """Say the newest version that this program knows."""
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
    """Name a database for people: its file, or its address without the password."""
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
    # Left to itself the driver would make tables outside of the transaction.
    event.listen(engine, "begin", start)
    return engine


def _postgres(url: str) -> Engine:
    # The driver reads the address itself, so that it means the same to a migration as to the store.
    return create_engine("postgresql+psycopg://", creator=lambda: _dialed(url), poolclass=NullPool)


def _dialed(url: str) -> psycopg.Connection:
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
