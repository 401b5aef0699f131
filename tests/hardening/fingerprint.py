"""A fingerprint of a whole store: every row of every table, but for what a refusal may leave.

It looks at the database itself, never through the code that is tried.
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

#: How often one looks whether the server has come to rest.
TRIES_MAX = 1_000
Look: TypeAlias = Callable[[], dict[str, str]]
#: A denial leaves a line in the audit. The others are of the server itself: who may make a pass and until when, how
#: long it has been there, and what the next pass should look at, which is taken away when it does.
BESIDE = frozenset({"audit", "admission_dirty", "admission_lock", "server", "service"})
TABLES = sorted(set(metadata.tables) - BESIDE)


def settled(engine: Engine, url: str) -> dict[str, str]:
    """Say what a store holds, once the server has done by itself whatever there was to do."""
    last: dict[str, str] = {}
    for _ in range(TRIES_MAX):
        engine.transact(lambda _: None)
        passed = engine.schedule()
        now = fingerprint(url)
        if passed.ran and not (passed.admitted or passed.held or passed.more) and now == last:
            return now
        last = now
    raise AssertionError("the server never comes to rest")


def fingerprint(url: str) -> dict[str, str]:
    """Say what a store holds: a word for each table, so that a difference names its place."""
    look = _sqlite if url.startswith("sqlite") else _postgres
    return {table: hashlib.sha256(repr(rows).encode()).hexdigest()[:16] for table, rows in look(url)}


def _sqlite(url: str) -> Iterator[tuple[str, list[str]]]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as line:
        line.execute("BEGIN")
        for table in TABLES:
            yield table, _sorted(line.execute(f'SELECT * FROM "{table}"'))  # noqa: S608 - the names are our own


def _postgres(url: str) -> Iterator[tuple[str, list[str]]]:
    with psycopg.connect(url) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for table in TABLES:
            yield table, _sorted(line.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))))


def _sorted(rows: Iterable[object]) -> list[str]:
    return sorted(map(repr, rows))
