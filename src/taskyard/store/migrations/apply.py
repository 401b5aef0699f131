"""Apply the migrations with Alembic.

Only this module, the migrations and `schema` import Alembic and SQLAlchemy, because the imports are slow.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError

from taskyard.store.migrate import (
    QUIET_S,
    WAIT_S,
    NotEmpty,
    TooNew,
    connect,
    database_name,
    explained_errors,
    file_of,
    lock_file,
)
from taskyard.store.queries import StoreUnavailable

#: The advisory lock that one migrating server holds in PostgreSQL: the letters "taskyard".
LOCK: Final = int.from_bytes(b"taskyard")

_LOG: Final = logging.getLogger(__name__)
# Alembic keeps its state in globals, so one process migrates one database at a time.
_ONE_AT_A_TIME: Final = threading.Lock()


def migrate(url: str) -> None:
    """Apply what is missing of the migrations; refuse a database of a newer program."""
    with _ONE_AT_A_TIME, _connected(url) as connection, connection.begin():
        _take_turn(connection)
        _refuse_too_new(MigrationContext.configure(connection).get_current_revision())
        settings = alembic_settings()
        settings.attributes["connection"] = connection
        command.upgrade(settings, "head")


@contextmanager
def new_schema(url: str, version: str) -> Iterator[Any]:
    """Make the tables of a version in an empty database, and yield the connection of the driver to fill them.

    One transaction does all of that, and the upgrade to the newest version at the end: after an error there is nothing.
    """
    with _ONE_AT_A_TIME, _connected(url) as connection, connection.begin():
        _take_turn(connection)
        _refuse_too_new(version)
        if inspect(connection).get_table_names():
            raise NotEmpty(url)
        settings = alembic_settings()
        settings.attributes["connection"] = connection
        command.upgrade(settings, version)
        yield connection.connection.driver_connection
        command.upgrade(settings, "head")


def alembic_settings() -> Config:
    """Return the settings that tell Alembic where the migrations are."""
    settings = Config()
    settings.set_main_option("script_location", "taskyard.store:migrations")
    settings.set_main_option("path_separator", "os")
    return settings


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = _sqlite(file) if (file := file_of(url)) else _postgres(url)
    try:
        with explained_errors(url), engine.connect() as connection:
            yield connection
    except DatabaseError as fault:
        raise StoreUnavailable(f"{database_name(url)} cannot be used: {fault.orig}") from fault


def _sqlite(file: str) -> Engine:
    def begin(connection: Connection) -> None:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        lock_file(raw, file)

    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(file, timeout=QUIET_S, isolation_level=None), poolclass=NullPool
    )
    # The driver alone would create tables outside of the transaction.
    event.listen(engine, "begin", begin)
    return engine


def _postgres(url: str) -> Engine:
    # psycopg parses the address, so that it means the same here as in the store.
    return create_engine("postgresql+psycopg://", creator=lambda: connect(url), poolclass=NullPool)


def _take_turn(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{WAIT_S}s'"))
        if not connection.execute(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": LOCK}).scalar():
            _LOG.warning("another server upgrades the database: waiting for it, up to %s s", WAIT_S)
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


def _refuse_too_new(found: str | None) -> None:
    known = {one.revision for one in ScriptDirectory.from_config(alembic_settings()).walk_revisions()}
    if found is not None and found not in known:
        raise TooNew(found)
