"""Move a database to another one, such as from SQLite to PostgreSQL: every row, and nothing else changes.

No server may use it meanwhile. The new database is complete, and proven equal by count and digest of every table, or
it does not exist; the old one is left as it was.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from taskyard.core.structs import value
from taskyard.engine.backup import (
    ROWS_MAX,
    NotPossible,
    Progress,
    Said,
    SetDigest,
    digest_table,
    encode,
    pages,
    rows_said,
)
from taskyard.engine.errors import InUse, outages
from taskyard.engine.file_lock import FileLock
from taskyard.lifecycle.timeouts import OUTAGE_MS
from taskyard.store import migrate, tables
from taskyard.store.connection import open_store
from taskyard.store.queries import Row


@value
class MovedTable:
    """A table that was moved; the digest is that of both sides."""

    name: str
    rows: int
    digest: str


def move(source: str, target: str, progress: Progress) -> list[MovedTable]:
    """Copy all rows of a database that no server uses to a new one, and compare both."""
    every = tables.tables()
    with _unused(source), _locked(target), tables.snapshot(source, exclusive=True) as old:
        total, done = 2 * sum(map(old.count, every)), 0
        with tables.new_database(target, migrate.NEWEST) as new:
            moved = []
            for table in every:
                sent = SetDigest()
                new.add(
                    table,
                    _hashed(old.rows(table), sent, rows_said(progress, done, total)),
                )
                moved.append(MovedTable(table.name, sent.count, sent.text))
                done += sent.count
            for table, one in zip(every, moved, strict=True):
                found = digest_table(new, table, rows_said(progress, done, total))
                if MovedTable(table.name, found.count, found.text) != one:
                    raise NotPossible(f"table {table.name} is not the same on both sides: nothing was moved")
                done += found.count
    return moved


def _hashed(rows: Iterable[Row], digest: SetDigest, said: Said) -> Iterator[Row]:
    """Yield rows, and add them to a digest."""
    for page in pages(rows, ROWS_MAX):
        digest.add([encode(row) for row in page])
        yield from page
        said(digest.count)


@contextmanager
def _unused(url: str) -> Iterator[None]:
    """Refuse a database that a server uses. No server can use a file meanwhile, or write to PostgreSQL."""
    with _locked(url):
        if not tables.is_file(url):
            _refuse_servers(url)
        yield


@contextmanager
def _locked(url: str) -> Iterator[None]:
    """Hold the lock of a file."""
    lock = FileLock(url)
    try:
        yield
    finally:
        lock.leave()


def _refuse_servers(url: str) -> None:
    """Refuse a database of PostgreSQL that a server has used just now."""
    store = open_store(url)
    try:
        with outages(), store.read() as repo:
            now = repo.servers.database_time()
            seen = {one.name: now - one.seen_ms for one in repo.servers.all().values() if now is not None}
    finally:
        store.close()
    for name, age_ms in seen.items():
        if age_ms < OUTAGE_MS:
            raise InUse(
                f"server {name} used {migrate.database_name(url)} {max(0, age_ms) // 1_000} s ago: "
                f"stop all its servers, and try again {OUTAGE_MS // 1_000} s later"
            )
