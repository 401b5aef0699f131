"""PostgreSQL as a store: any number of servers on one database.

Every transaction is Read Committed, and rows are locked before they are judged. Plans are made once: tables are small
when a server starts, and a plan that scans an empty table would stay with it for ever.

What is written is sent ahead: nobody waits for it before the next look or the end, and the server is at work meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool

from taskyard.store.sessions import Busy, Gone, Row, Taken
from taskyard.store.statements import POSTGRES, for_postgres, lockless, statements
from taskyard.store.txn import Txn

#: Each writer has a connection; readers share the others.
CONNECTIONS_MAX: Final = 16
#: How long a transaction waits for a connection before the database counts as gone.
CONNECT_MAX_S: Final = 5
#: A statement, a lock or an idle transaction that lasts longer is somebody's fault and must not stop the others.
STATEMENT_MAX_MS: Final = 30_000
LOCK_MAX_MS: Final = 10_000
IDLE_MAX_MS: Final = 10_000
_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "synchronous_commit": "on",
        "default_transaction_isolation": "read\\ committed",
        "statement_timeout": STATEMENT_MAX_MS,
        "lock_timeout": LOCK_MAX_MS,
        "idle_in_transaction_session_timeout": IDLE_MAX_MS,
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    }.items()
)
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
#: The connection is lost: also when the server closed it because nothing was heard in a transaction for too long.
_GONE = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout)


class PostgresStore:
    """One database on a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            open=True,
            timeout=CONNECT_MAX_S,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 1,
                "options": _OPTIONS,
                "cursor_factory": psycopg.RawCursor,
            },
        )

    @contextmanager
    def write(self) -> Iterator[Txn]:
        """One transaction; it is durable when the block ends, and undone if the block fails."""
        with _faults(), self._pool.connection() as connection, connection.pipeline() as pipeline:
            session = PipelineSession(connection, pipeline)
            connection.execute("BEGIN")
            try:
                yield Txn(session)
                session.settle()
                connection.execute("COMMIT")
            except BaseException:
                with suppress(psycopg.Error):  # the pool undoes the transaction; nothing may be under way then
                    session.collect()
                raise

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """One consistent look at everything."""
        with _faults(), self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield Txn(PostgresSession(connection, _LOCKLESS))

    def close(self) -> None:
        """Close every connection. No thread may be at work any more."""
        self._pool.close()


class PostgresSession:
    """One open transaction."""

    __slots__ = ("_connection", "_texts")

    def __init__(self, connection: psycopg.Connection[Any], texts: Mapping[str, "_Text"]) -> None:
        self._connection = connection
        self._texts = texts

    def rows(self, name: str, *values: object) -> list[Row]:
        statement = self._texts[name]
        return self._connection.execute(statement.text, statement.bound(values)).fetchall()

    def run(self, name: str, *values: object) -> int:
        statement = self._texts[name]
        return self._connection.execute(statement.text, statement.bound(values)).rowcount

    def each(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = self._texts[name]
            self._connection.execute(statement.text, statement.columns(rows))

    def every(self, name: str, rows: Sequence[Row]) -> None:
        if not rows:
            return
        statement = self._texts[name]
        changed = self._connection.execute(statement.text, statement.columns(rows)).rowcount
        if changed != len(rows):
            raise Busy(f"{name}: {len(rows) - changed} of {len(rows)} were changed meanwhile")


class PipelineSession(PostgresSession):
    """One open transaction in which what is written is sent ahead, and judged when it ends."""

    __slots__ = ("_expected", "_pipeline")

    def __init__(self, connection: psycopg.Connection[Any], pipeline: psycopg.Pipeline) -> None:
        super().__init__(connection, _TEXTS)
        self._pipeline = pipeline
        self._expected: list[tuple[str, int, psycopg.Cursor[Any]]] = []

    def run(self, name: str, *values: object) -> int:
        statement = self._texts[name]
        cursor = self._connection.execute(statement.text, statement.bound(values))
        self.collect()
        return cursor.rowcount

    def every(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = self._texts[name]
            cursor = self._connection.execute(statement.text, statement.columns(rows))
            self._expected.append((name, len(rows), cursor))

    def settle(self) -> None:
        """See what became of everything that was written."""
        self.collect()
        for name, count, cursor in self._expected:
            if cursor.rowcount != count:
                raise Busy(f"{name}: {count - cursor.rowcount} of {count} were changed meanwhile")

    def collect(self) -> None:
        """Wait for the server to be done with everything so far."""
        # The driver waits for answers even if a part of the question is still here: all of it has to be sent first.
        _send_all(self._connection.pgconn)
        self._pipeline.sync()


def _send_all(connection: psycopg.pq.abc.PGconn) -> None:
    if not connection.flush():
        return
    with DefaultSelector() as selector:
        selector.register(connection.socket, EVENT_READ | EVENT_WRITE)
        while connection.flush():
            ready = selector.select(STATEMENT_MAX_MS / 1000)
            if not ready:
                raise Gone("the database takes nothing any more")
            if ready[0][1] & EVENT_READ:
                connection.consume_input()


@contextmanager
def _faults() -> Iterator[None]:
    """Turn the database's complaints into ours; bugs stay what they are."""
    try:
        yield
    except _AGAIN as error:
        raise Busy(str(error)) from error
    except errors.UniqueViolation as error:
        raise Taken(str(error)) from error
    except _GONE as error:
        raise Gone(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement for PostgreSQL, and how to spell what it takes.

    Arrays are spelled here: the driver looks at every item for its type, which takes longer than the statement.
    """

    text: str
    types: tuple[str, ...]
    lists: tuple[int, ...]

    def bound(self, values: tuple[Any, ...]) -> Sequence[object]:
        """Spell the lists among values."""
        if not self.lists:
            return values
        bound = list(values)
        for place in self.lists:
            bound[place] = _array(self.types[place].removesuffix("s"), values[place])
        return bound

    def columns(self, rows: Sequence[Row]) -> list[str]:
        """Spell rows as one array for each parameter."""
        columns = zip(*rows, strict=True)
        return [_array(type_, column) for type_, column in zip(self.types, columns, strict=True)]


def _array(type_: str, items: Iterable[Any]) -> str:
    if type_ == "text":
        return "{" + ",".join(["NULL" if item is None else _quoted(item) for item in items]) + "}"
    if type_ == "bytes":
        return "{" + ",".join(["NULL" if item is None else f'"\\\\x{item.hex()}"' for item in items]) + "}"
    return "{" + ",".join(["NULL" if item is None else str(item) for item in items]) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_TEXTS = {
    name: _Text(for_postgres(one), tuple(type_ for _, type_ in one.parameters), one.lists)
    for name, one in statements(POSTGRES).items()
}
#: A look locks nothing.
_LOCKLESS = {name: replace(one, text=lockless(one.text)) for name, one in _TEXTS.items()}
