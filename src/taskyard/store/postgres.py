"""The PostgreSQL store: any number of Taskyard servers share one database.

Transactions are Read Committed, and lock rows before deciding anything about them. Statements are planned once per
connection; sequential scans are off, because a plan made while a table is empty would scan it for ever.

Writes are pipelined: the transaction sends them and goes on, and waits only for its next query or its end.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from select import POLLIN, POLLOUT, poll
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer
from psycopg_pool import ConnectionPool

from taskyard.store.connection import Repo
from taskyard.store.postgres_sessions import (
    CONNECT_MAX_S,
    WRITE_MAX_MS,
    Connection,
    connection_options,
    set_up,
    translated_errors,
)
from taskyard.store.queries import POSTGRES, Row, TransactionConflict, for_postgres, statements, without_locks
from taskyard.store.row_cache import CACHED_MAX, Block, RowCache

_FAILED: Final = pq.ExecStatus.FATAL_ERROR
_SKIPPED: Final = pq.ExecStatus.PIPELINE_ABORTED
_BAD: Final = frozenset({_FAILED, _SKIPPED})
_SYNC: Final = pq.ExecStatus.PIPELINE_SYNC


class PendingResult:
    """The result of one statement; it is there once the pipeline was collected."""

    __slots__ = ("prepares", "result")

    def __init__(self, prepares: str = "") -> None:
        self.prepares = prepares  # the name of the statement that this prepares, if any
        self.result: pq.abc.PGresult | None = None

    @property
    def changed(self) -> int:
        """How many rows the statement changed."""
        assert self.result is not None, "not collected yet"
        return self.result.command_tuples or 0


class Pipeline:
    """Statements sent on one connection without waiting for the results of those before.

    psycopg has a pipeline mode, too, but spends more time on each statement than the database needs to run it. Here a
    statement is prepared once per connection; after that only its name and its values are sent.
    """

    def __init__(self, connection: Connection) -> None:
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepared: set[str] = set()
        self._pending: list[PendingResult] = []
        self._poll = poll()
        self._poll.register(self._pgconn.socket, POLLIN)

    def open(self) -> None:
        """Enter pipeline mode; the connection belongs to the pipeline until `close`."""
        self._pending = []
        self._pgconn.enter_pipeline_mode()

    def close(self) -> None:
        """Wait for all results and leave pipeline mode."""
        if self._pending:
            self.collect()
        self._pgconn.exit_pipeline_mode()

    def send_text(self, text: str) -> PendingResult:
        """Send a statement that has no parameters and is not prepared."""
        self._pgconn.send_query_params(text.encode(), None)
        return self._enqueue(PendingResult())

    def send(self, name: str, text: str, values: Sequence[bytes | None]) -> PendingResult:
        """Send a prepared statement; prepare it first if this connection has not."""
        if any(value is not None and b"\0" in value for value in values):
            # libpq would cut the text there.
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        label = name.encode()
        if name not in self._prepared:
            self._pgconn.send_prepare(label, text.encode())
            self._prepared.add(name)
            self._enqueue(PendingResult(prepares=name))
        self._pgconn.send_query_prepared(label, values)
        return self._enqueue(PendingResult())

    def rows(self, pending: PendingResult) -> list[Row]:
        """Wait for a result and for all before it; return its rows."""
        if pending.result is None:
            self.collect()
        result = pending.result
        assert result is not None, "a skipped statement raises"
        self._transformer.set_pgresult(result)
        found: list[Row] = self._transformer.load_rows(0, result.ntuples, tuple)
        return found

    def collect(self) -> None:
        """Wait for all results; raise the first error."""
        sent, self._pending = self._pending, []
        self._pgconn.pipeline_sync()
        self._send_all()
        fault = None
        for pending in sent:
            result = self._next()
            # None ends the results of a statement. After an error, each later statement returns "pipeline aborted".
            while result is not None:
                pending.result = result
                result = self._next()
            error = self._error_of(pending)
            fault = fault or error
        end = self._next()
        assert end is not None, "a sync has a result"
        assert end.status == _SYNC, "each statement has one result"
        if fault is not None:
            raise fault

    def _enqueue(self, pending: PendingResult) -> PendingResult:
        self._pending.append(pending)
        return pending

    def _error_of(self, pending: PendingResult) -> Exception | None:
        result = pending.result
        if result is not None and result.status not in _BAD:
            return None
        self._prepared.discard(pending.prepares)
        pending.result = None
        return errors.error_from_result(result) if result is not None and result.status == _FAILED else None

    def _next(self) -> "pq.abc.PGresult | None":
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait()
            pgconn.consume_input()
        return pgconn.get_result()

    def _send_all(self) -> None:
        """Send what is buffered, and read results meanwhile: a database whose own buffer is full would wait for us."""
        if not self._pgconn.flush():
            return
        self._poll.modify(self._pgconn.socket, POLLIN | POLLOUT)
        try:
            while self._pgconn.flush():
                if self._wait() & POLLIN:
                    self._pgconn.consume_input()
        finally:
            self._poll.modify(self._pgconn.socket, POLLIN)

    def _wait(self) -> int:
        ready = self._poll.poll(WRITE_MAX_MS)
        if not ready:
            raise psycopg.OperationalError("the database does not answer any more")
        return ready[0][1]


#: Each writer uses a connection; readers share the others.
CONNECTIONS_MAX: Final = 16
#: How long the pool tries to connect before the next transaction that needs a connection has it try again.
RECONNECT_MAX_S: Final = 5


class PostgresStore:
    """One database on a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pipelines: WeakKeyDictionary[Connection, Pipeline] = WeakKeyDictionary()
        self._writers: deque[Connection] = deque()  # the connection that wrote last, while it is free
        self._known_blocks: set[Block] = set()
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            open=True,
            timeout=CONNECT_MAX_S,
            reconnect_timeout=RECONNECT_MAX_S,
            connection_class=Connection,
            configure=set_up,
            kwargs={**connection_options(url), "prepare_threshold": 1},
        )

    @contextmanager
    def write(self) -> Iterator[Repo]:
        """Open a write transaction; it is durable when the block ends, and rolled back if the block fails."""
        with translated_errors(), self._writer() as connection, self._pipeline(connection) as pipeline:
            cache = RowCache(known_blocks=self._known_blocks)
            pipeline.send_text("BEGIN")
            try:
                yield Repo(PipelineSession(pipeline), cache)
                pipeline.send_text("COMMIT")
                pipeline.collect()
                self._keep_blocks(cache.known_blocks)
            except BaseException as error:
                with suppress(psycopg.Error):  # a lost connection has rolled back already
                    pipeline.send_text("ROLLBACK")
                    pipeline.collect()
                if isinstance(error, errors.ReadOnlySqlTransaction):
                    connection.close()  # another one may lead to a server that can be written to
                raise

    def _keep_blocks(self, stored: set[Block]) -> None:
        """Remember blocks that are stored, so that they are not inserted again by each claim."""
        if len(self._known_blocks) > CACHED_MAX:
            self._known_blocks = set()
        self._known_blocks |= stored

    @contextmanager
    def _writer(self) -> Iterator[Connection]:
        """Borrow a connection to write with: the one that wrote last, if it is free.

        Its server process has prepared all statements, and has what they read in its caches. The pool would hand out
        its connections in turn (`benchmarks.endtoend`, chain on PostgreSQL).
        """
        try:
            connection = self._writers.pop()  # safe between threads: each gets another connection
        except IndexError:
            connection = self._pool.getconn()
        try:
            yield connection
        finally:
            if connection.pgconn.transaction_status == pq.TransactionStatus.IDLE and not self._writers:
                self._writers.append(connection)
            else:
                self._pool.putconn(connection)  # replaces it if it is broken

    @contextmanager
    def _pipeline(self, connection: Connection) -> Iterator[Pipeline]:
        pipeline = self._pipelines.get(connection)
        if pipeline is None:
            pipeline = self._pipelines[connection] = Pipeline(connection)
        pipeline.open()
        try:
            yield pipeline
        finally:
            try:
                pipeline.close()
            except psycopg.Error:
                connection.close()  # statements may still be under way on it

    @contextmanager
    def read(self) -> Iterator[Repo]:
        """Open a read-only transaction on one consistent snapshot."""
        with translated_errors(), self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield Repo(PostgresSession(connection, _TEXTS_WITHOUT_LOCKS))

    def close(self) -> None:
        """Close all connections. No thread may use the store any more."""
        while self._writers:
            self._pool.putconn(self._writers.pop())
        self._pool.close()


class PostgresSession:
    """One open transaction."""

    __slots__ = ("_connection", "_texts")

    def __init__(self, connection: "Connection | _RawConnection", texts: Mapping[str, "_Text"]) -> None:
        self._connection = connection
        self._texts = texts

    def fetch(self, name: str, *values: object) -> list[Row]:
        statement = self._texts[name]
        return self._connection.execute(statement.text, statement.bound(values)).fetchall()

    def prefetch(self, name: str, *values: object) -> None:
        """Do nothing: read-only transactions need not save round trips."""

    def execute(self, name: str, *values: object) -> int:
        statement = self._texts[name]
        return self._connection.execute(statement.text, statement.bound(values)).rowcount

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = self._texts[name]
            self._connection.execute(statement.text, statement.columns(rows))

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        if not rows:
            return
        statement = self._texts[name]
        changed = self._connection.execute(statement.text, statement.columns(rows)).rowcount
        if changed != len(rows):
            raise TransactionConflict(f"{name}: {len(rows) - changed} of {len(rows)} have changed in the meantime")


class _RawConnection:
    """Executes the statements of the store, with parameters such as `$1`, on any connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, text: str, values: Sequence[object]) -> psycopg.RawCursor[Any]:
        return psycopg.RawCursor(self._connection).execute(text.encode(), values)


def session_on(connection: psycopg.Connection[Any]) -> PostgresSession:
    """Return a session in the transaction of a connection that is not of a store."""
    return PostgresSession(_RawConnection(connection), _TEXTS)


class PipelineSession:
    """One open write transaction; writes are pipelined, and the next wait raises their errors."""

    __slots__ = ("_pipeline", "_prefetched")

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._prefetched: dict[tuple[str, *tuple[bytes | None, ...]], PendingResult] = {}

    def fetch(self, name: str, *values: object) -> list[Row]:
        encoded = _TEXTS[name].encoded(values)
        pending = self._prefetched.pop((name, *encoded), None) if self._prefetched else None
        return self._pipeline.rows(pending or self._pipeline.send(name, _TEXTS[name].text, encoded))

    def prefetch(self, name: str, *values: object) -> None:
        encoded = _TEXTS[name].encoded(values)
        self._prefetched[name, *encoded] = self._pipeline.send(name, _TEXTS[name].text, encoded)

    def execute(self, name: str, *values: object) -> int:
        pending = self._pipeline.send(name, _TEXTS[name].text, _TEXTS[name].encoded(values))
        self._pipeline.collect()
        return pending.changed

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = _TEXTS[name]
            self._pipeline.send(name, statement.text, [column.encode() for column in statement.columns(rows)])

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = _TEXTS[name]
            columns = [column.encode() for column in statement.columns(rows)]
            self._pipeline.send(f"every {name}", statement.checked, [*columns, str(len(rows)).encode()])


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement for PostgreSQL, and how to encode its parameters.

    Arrays are encoded here, because psycopg looks up the type of every item, which takes longer than the statement.
    """

    text: str
    types: tuple[str, ...]
    lists: tuple[int, ...]

    @property
    def checked(self) -> str:
        """The text with one more parameter: the number of rows it must change, or it fails with a division by zero."""
        counted = f"CASE WHEN COUNT(*) = ${len(self.types) + 1}::bigint THEN 1 ELSE 0 END"
        return f"WITH changed AS ({self.text} RETURNING 1) SELECT 1 / {counted} FROM changed"  # noqa: S608 - our own SQL

    def bound(self, values: tuple[Any, ...]) -> Sequence[object]:
        """Encode the lists among values."""
        if not self.lists:
            return values
        bound = list(values)
        for place in self.lists:
            # Sorted, so that equal queries have equal parameters and match their prefetch.
            bound[place] = _array(self.types[place].removesuffix("s"), sorted(values[place]))
        return bound

    def encoded(self, values: tuple[Any, ...]) -> list[bytes | None]:
        """Encode values for the wire."""
        return [_encoded(value) for value in self.bound(values)]

    def columns(self, rows: Sequence[Row]) -> list[str]:
        """Encode rows as one array per parameter."""
        columns = zip(*rows, strict=True)
        return [_array(type_, column) for type_, column in zip(self.types, columns, strict=True)]


def _encoded(value: object) -> bytes | None:
    """Encode one value."""
    if value is None or isinstance(value, bytes):
        return None if value is None else b"\\x" + value.hex().encode()
    return str(value).encode()


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
#: For read-only transactions.
_TEXTS_WITHOUT_LOCKS = {name: replace(one, text=without_locks(one.text)) for name, one in _TEXTS.items()}
