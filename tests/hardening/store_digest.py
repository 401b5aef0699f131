"""A digest of a whole database: every row of every table, except those that a refusal may change.

It reads the database directly, not through the code under test.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TypeAlias

import psycopg
from psycopg import sql

from taskyard.engine.engine import Engine
from taskyard.store.schema import metadata
from tests.cli.waiting import until

#: How many digests are compared until two are the same.
TRIES_MAX = 1_000
Digest: TypeAlias = Callable[[], dict[str, str]]
#: A denial leaves a row in the audit. The others are tables of the server itself: the lock of the pass, the heartbeat,
#: the tasks that the next pass should look at, that somebody follows events, and counts that a thread writes later.
IGNORED = frozenset({"audit", "admission_dirty", "admission_lock", "event_stream", "pool_minute", "server", "service"})
TABLES = sorted(set(metadata.tables) - IGNORED)


def settled(engine: Engine, url: str) -> dict[str, str]:
    """Return the digest of a database, once the server has no work left."""
    until(lambda: _are_schedules_planned(engine), "the plans of all schedules")
    last: dict[str, str] = {}
    for _ in range(TRIES_MAX):
        engine.transact(lambda _: None)
        engine.relay.run_once()  # another test may have followed events a while ago
        passed = engine.schedule()
        now = digest_of(url)
        if passed.ran and not (passed.admitted or passed.held or passed.more) and now == last:
            return now
        last = now
    raise AssertionError("the server always has work left")


def _are_schedules_planned(engine: Engine) -> bool:
    """Tell whether no schedule is still to be planned, or its plan forgotten: a job does so after the commit."""
    with engine.store.read() as repo:
        return not repo.schedules.unplanned(1) and not repo.schedules.lost(1)


def digest_of(url: str) -> dict[str, str]:
    """Return a digest for each table, so that a difference names the table."""
    look = _sqlite if url.startswith("sqlite") else _postgres
    return {table: hashlib.sha256(repr(rows).encode()).hexdigest()[:16] for table, rows in look(url)}


def _sqlite(url: str) -> Iterator[tuple[str, list[str]]]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.execute("BEGIN")
        for table in TABLES:
            yield table, _sorted(connection.execute(f'SELECT * FROM "{table}"'))  # noqa: S608 - the names are our own


def _postgres(url: str) -> Iterator[tuple[str, list[str]]]:
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for table in TABLES:
            yield table, _sorted(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))))


def _sorted(rows: Iterable[object]) -> list[str]:
    return sorted(map(repr, rows))
