"""A fingerprint of a whole store: every row of every table, but for what a refusal may leave.

It looks at the database itself, never through the code that is tried.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

import psycopg
from psycopg import sql

from taskyard.store.schema import metadata

#: A denial leaves a line in the audit; whoever holds the lock of passes, and until when, is told by the clock alone.
BESIDE = frozenset({"audit", "pass_lock", "service"})
TABLES = sorted(set(metadata.tables) - BESIDE)


def fingerprint(url: str) -> str:
    """Say what a store holds, in one word."""
    found = hashlib.sha256()
    for row in _sqlite(url) if url.startswith("sqlite") else _postgres(url):
        found.update(repr(row).encode())
    return found.hexdigest()


def _sqlite(url: str) -> Iterator[object]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as line:
        line.execute("BEGIN")
        for table in TABLES:
            yield table
            yield from _sorted(line.execute(f'SELECT * FROM "{table}"'))  # noqa: S608 - the names are our own


def _postgres(url: str) -> Iterator[object]:
    with psycopg.connect(url) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for table in TABLES:
            yield table
            yield from _sorted(line.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))))


def _sorted(rows: Iterable[object]) -> list[str]:
    return sorted(map(repr, rows))
