"""The SQLite store: one file, one writing connection, any number of readers.

The write-ahead log is synced at every commit, so a committed transaction survives a loss of power. Only the writing
connection writes and checkpoints: SQLite before 3.51.3 can damage a file when two connections do. Readers see the last
commit and cannot write.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from taskyard.private_files import make_file, narrow_files
from taskyard.store.connection import Repo
from taskyard.store.queries import (
    SQLITE,
    DuplicateKey,
    Row,
    Statement,
    StoreFull,
    StoreUnavailable,
    TransactionConflict,
    for_sqlite,
    for_sqlite_many,
    statements,
)
from taskyard.store.row_cache import RowCache

#: How long a transaction waits for another process, such as a backup, that has locked the file.
BUSY_MS: Final = 5_000
#: How many rows one call writes: large enough to save most of the cost of calls; few batches are smaller.
BATCHES: Final = (64, 16)
#: The files of a database that must not be replaced while it is open: the database, its log and its lock.
WATCHED: Final = ("", "-wal", ".lock")
#: Longer than one tick of the clock of any local file system: two changes within one tick look like one.
TICK_NS: Final = 20_000_000
_WHAT_TO_DO: Final = "stop the server, put the file back or restore a backup, and start it again"
#: How many compiled statements are cached: all of them, and room for more.
_CACHED_STATEMENTS = 512

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DUPLICATE = frozenset({sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE})


class SqliteStore:
    """One database file."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        whole = path.absolute()
        self._files: dict[str, tuple[int, int] | None] = dict.fromkeys(f"{whole}{end}" for end in WATCHED)
        # Deleting or replacing a file changes its folder, but not a folder with a link to it.
        self._folder = str(whole.parent) if whole == whole.resolve() else None
        self._folder_state: tuple[int, ...] | None = None  # as it was when the files were checked
        self._lost = ""  # the error of the last check of the files, if one was deleted or replaced
        make_private(path)
        self._writer = _connect(path)
        self._writer.execute("PRAGMA synchronous = FULL")
        self._writer.execute("PRAGMA foreign_keys = ON")
        self._cache = RowCache(outlives_transaction=True)
        self._repo = Repo(SqliteSession(self._writer), self._cache)
        self._version = -1  # changes when another process writes the database
        self._idle: deque[sqlite3.Connection] = deque()  # readers that are not in use
        self._check_files()

    @contextmanager
    def write(self) -> Iterator[Repo]:
        """Open a write transaction; it is durable when the block ends, and rolled back if the block fails."""
        self._run("BEGIN IMMEDIATE")
        try:
            self._refresh_cache()
            yield self._repo
            self._run("COMMIT")
            self._check_files()
        except BaseException as error:
            self._cache.clear()
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            if isinstance(error, StoreUnavailable):
                raise type(error)(f"{self._path}: {error}") from error
            raise

    @contextmanager
    def read(self) -> Iterator[Repo]:
        """Open a read-only transaction on one consistent snapshot; other threads go on writing."""
        if self._lost:
            raise StoreUnavailable(f"{self._path}: {self._lost}")
        reader = self._reader()
        reader.execute("BEGIN")
        try:
            yield Repo(SqliteSession(reader))
        except StoreUnavailable as error:
            raise type(error)(f"{self._path}: {error}") from error
        finally:
            reader.execute("ROLLBACK")
            self._idle.append(reader)

    def close(self) -> None:
        """Close all connections. No thread may use the store any more."""
        while self._idle:
            self._idle.pop().close()
        self._writer.close()

    def _check_files(self) -> None:
        """Raise `StoreUnavailable` if a file was deleted or replaced: new writes would be lost with it."""
        folder = self._read_folder()
        if folder is not None and folder == self._folder_state:
            return  # a look at each file takes 5 % of a small transaction (benchmarks/lives.py, 1 command per commit)
        self._folder_state = None
        written_ns = 0
        for path, known in self._files.items():
            try:
                found = os.stat(path)
                written_ns = max(written_ns, found.st_mtime_ns)
            except FileNotFoundError:
                now = None
            else:
                now = (found.st_dev, found.st_ino)
            if known is None:
                self._files[path] = now
            elif now != known:
                how = "deleted" if now is None else "replaced"
                self._lost = f"{path} was {how} while it was in use, so nothing is stored any more: {_WHAT_TO_DO}"
                raise StoreUnavailable(self._lost)
        self._lost = ""
        # Each commit writes the log, so its time says how old the last change of the folder is at least.
        if folder is not None and written_ns - folder[-1] > TICK_NS:
            self._folder_state = folder

    def _read_folder(self) -> tuple[int, ...] | None:
        """Return what changes with any change of the folder; None if that is unknown."""
        if self._folder is None:
            return None
        try:
            found = os.stat(self._folder)
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_ctime_ns)

    def _run(self, text: str) -> None:
        try:
            self._writer.execute(text)
        except sqlite3.Error as error:
            raise _translated(error) from error

    def _refresh_cache(self) -> None:
        """Begin a transaction in the row cache; empty it first if another process has written to the database."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._cache.clear()
        self._cache.begin()

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()  # safe between threads: each gets another connection
        except IndexError:
            self._check_files()  # the file could be another database by now
            reader = _connect(self._path)
            reader.execute("PRAGMA query_only = ON")
            return reader


class SqliteSession:
    """One open transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fetch(self, name: str, *values: object) -> list[Row]:
        try:
            return self._connection.execute(*_bound(name, values)).fetchall()
        except sqlite3.Error as error:
            raise _translated(error) from error

    def prefetch(self, name: str, *values: object) -> None:
        """Do nothing: a query needs no round trip."""

    def execute(self, name: str, *values: object) -> int:
        try:
            return self._connection.execute(*_bound(name, values)).rowcount
        except sqlite3.Error as error:
            raise _translated(error) from error

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        if not rows:
            return
        try:
            self._execute_batches(_TEXTS[name], rows)
        except sqlite3.Error as error:
            raise _translated(error) from error

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        if not rows:
            return
        try:
            changed = self._execute_batches(_TEXTS[name], rows)
        except sqlite3.Error as error:
            raise _translated(error) from error
        if changed != len(rows):
            raise TransactionConflict(f"{name}: {len(rows) - changed} of {len(rows)} have changed in the meantime")

    def _execute_batches(self, statement: "_Text", rows: Sequence[Row]) -> int:
        """Run a statement for many rows per call: a tenth of `benchmarks.lives`, "64 commands per commit"."""
        if len(rows) == 1:
            return self._connection.execute(statement.text, rows[0]).rowcount
        done = changed = 0
        for count, text in statement.many:
            while len(rows) - done >= count:
                values = list(chain.from_iterable(rows[done : done + count]))
                changed += self._connection.execute(text, values).rowcount
                done += count
        if done < len(rows):
            changed += self._connection.executemany(statement.text, rows[done:]).rowcount
        return changed


def make_private(path: Path) -> None:
    """Let only the owner read a database file and the files that SQLite keeps beside it; create it if there is none.

    SQLite gives new files beside a database the mode of the database.
    """
    try:
        make_file(path)
        narrow_files(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal"))
    except OSError as fault:
        no_folder = isinstance(fault, FileNotFoundError)
        why = f"there is no folder {path.parent}: create it, or choose another" if no_folder else fault.strerror
        raise StoreUnavailable(f"the database {path} cannot be opened: {why}") from fault


def _connect(path: Path) -> sqlite3.Connection:
    try:
        # `rw` does not create the file: if it has been deleted, an empty one must not take its place.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the database {path} cannot be opened: {error}") from error
    return connection


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement for SQLite. Lists are passed as JSON.

    A list of one item is a plain value: 3 % of `benchmarks.lives`, "sqlite, 1 command per commit".
    """

    text: str
    lists: tuple[int, ...]
    single: str
    many: tuple[tuple[int, str], ...]  # the number of rows and the text for several rows at once, largest first


def _bound(name: str, values: tuple[Any, ...]) -> tuple[str, Sequence[object]]:
    """Return the text of a statement, and its values as they are bound."""
    statement = _TEXTS[name]
    if not statement.lists:
        return statement.text, values
    bound = list(values)
    if all(len(values[place]) == 1 for place in statement.lists):
        for place in statement.lists:
            (bound[place],) = values[place]
        return statement.single, bound
    for place in statement.lists:
        bound[place] = msgspec.json.encode(list(values[place])).decode()
    return statement.text, bound


def _translated(error: sqlite3.Error) -> Exception:
    """Translate an error of SQLite; an error in our own code stays as it is."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _DUPLICATE:
        return DuplicateKey(str(error))
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(str(error))
    if isinstance(error, sqlite3.OperationalError):
        return TransactionConflict(str(error)) if code & 0xFF in _BUSY else StoreUnavailable(str(error))
    return error


def _batch_texts(statement: Statement) -> tuple[tuple[int, str], ...]:
    texts = ((count, for_sqlite_many(statement, count)) for count in BATCHES)
    return tuple((count, text) for count, text in texts if text)


_TEXTS = {
    name: _Text(for_sqlite(one), one.lists, for_sqlite(one, single=True), _batch_texts(one))
    for name, one in statements(SQLITE).items()
}
