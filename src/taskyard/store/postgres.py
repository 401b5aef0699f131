"""PostgreSQL as a store: any number of servers on one database.

Every transaction is Read Committed, and rows are locked before they are judged. Plans are made once: tables are small
when a server starts, and a plan that scans an empty table would stay with it for ever.

What is written is sent ahead: nobody waits for it before the next look or the end, and the server is at work meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from select import POLLIN, POLLOUT, poll
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer
from psycopg_pool import ConnectionPool

from taskyard.store.connection import Repo
from taskyard.store.queries import (
    POSTGRES,
    DuplicateKey,
    Row,
    StoreUnavailable,
    TransactionConflict,
    for_postgres,
    statements,
    without_locks,
)

# One connection to PostgreSQL on which questions are sent without waiting for the answers to those before.
#
# The driver can do this, too, but thinks for longer about each statement than the server takes to carry it out. Here a
# statement is prepared once for each connection and is then a name and its values. Nothing is known here about
# transactions, or about what statements mean.


#: Nothing takes longer: the server is told to give up before that.
WAIT_MAX_MS: Final = 60_000

_FAILED: Final = pq.ExecStatus.FATAL_ERROR
_SKIPPED: Final = pq.ExecStatus.PIPELINE_ABORTED
_BAD: Final = frozenset({_FAILED, _SKIPPED})
_SYNC: Final = pq.ExecStatus.PIPELINE_SYNC


class Answer:
    """What the server will say to one statement; it is known once the pipeline was collected."""

    __slots__ = ("prepares", "result")

    def __init__(self, prepares: str = "") -> None:
        self.prepares = prepares  # the name of what it prepares, and nothing else
        self.result: pq.abc.PGresult | None = None

    @property
    def changed(self) -> int:
        """Say how many rows a statement changed."""
        assert self.result is not None, "this was not collected yet"
        return self.result.command_tuples or 0


class Pipeline:
    """A connection, and what is under way on it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepared: set[str] = set()
        self._pending: list[Answer] = []
        self._poll = poll()
        self._poll.register(self._pgconn.socket, POLLIN)

    def open(self) -> None:
        """Begin to send ahead; nobody else uses the connection from here on."""
        self._pending = []
        self._pgconn.enter_pipeline_mode()

    def close(self) -> None:
        """Give the connection back, with nothing under way on it."""
        if self._pending:
            self.collect()
        self._pgconn.exit_pipeline_mode()

    def say(self, text: str) -> Answer:
        """Send a statement without parameters, as it is."""
        self._pgconn.send_query_params(text.encode(), None)
        return self._await(Answer())

    def send(self, name: str, text: str, values: Sequence[bytes | None]) -> Answer:
        """Send a statement that is known by a name."""
        if any(value is not None and b"\0" in value for value in values):
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")  # it would be cut there
        label = name.encode()
        if name not in self._prepared:
            self._pgconn.send_prepare(label, text.encode())
            self._prepared.add(name)
            self._await(Answer(prepares=name))
        self._pgconn.send_query_prepared(label, values)
        return self._await(Answer())

    def rows(self, answer: Answer) -> list[Row]:
        """Wait for an answer, and for all before it; give its rows."""
        if answer.result is None:
            self.collect()
        result = answer.result
        assert result is not None, "this was skipped, and that is raised"
        self._transformer.set_pgresult(result)
        found: list[Row] = self._transformer.load_rows(0, result.ntuples, tuple)
        return found

    def collect(self) -> None:
        """Wait for every answer; raise the first fault there is."""
        pending, self._pending = self._pending, []
        self._pgconn.pipeline_sync()
        self._send_all()
        fault = None
        for answer in pending:
            result = self._next()
            # A statement's answer ends with nothing; after a fault, each of those behind it says that it was skipped.
            while result is not None:
                answer.result = result
                result = self._next()
            found = self._judged(answer)
            fault = fault or found
        end = self._next()
        assert end is not None, "a sync is answered"
        assert end.status == _SYNC, "every question has one answer"
        if fault is not None:
            raise fault

    def _await(self, answer: Answer) -> Answer:
        self._pending.append(answer)
        return answer

    def _judged(self, answer: Answer) -> Exception | None:
        result = answer.result
        if result is not None and result.status not in _BAD:
            return None
        self._prepared.discard(answer.prepares)
        answer.result = None
        return errors.error_from_result(result) if result is not None and result.status == _FAILED else None

    def _next(self) -> "pq.abc.PGresult | None":
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait()
            pgconn.consume_input()
        return pgconn.get_result()

    def _send_all(self) -> None:
        """Send what is still here. The server may say so much meanwhile that it would wait for us: so that is heard."""
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
        ready = self._poll.poll(WAIT_MAX_MS)
        if not ready:
            raise psycopg.OperationalError("the database says nothing any more")
        return ready[0][1]


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
_LOCK_OPTIONS = f"-c statement_timeout={STATEMENT_MAX_MS} -c idle_session_timeout=0"
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
#: The connection is lost: also when the server closed it because nothing was heard in a transaction for too long.
_GONE = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout)


class PostgresStore:
    """One database on a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pipelines: WeakKeyDictionary[psycopg.Connection[Any], Pipeline] = WeakKeyDictionary()
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
    def write(self) -> Iterator[Repo]:
        """One transaction; it is durable when the block ends, and undone if the block fails."""
        with _faults(), self._pool.connection() as connection, self._pipeline(connection) as pipeline:
            session = PipelineSession(pipeline)
            pipeline.say("BEGIN")
            try:
                yield Repo(session)
                pipeline.say("COMMIT")
                pipeline.collect()
            except BaseException:
                with suppress(psycopg.Error):  # if the connection is lost, so is the transaction
                    pipeline.say("ROLLBACK")
                    pipeline.collect()
                raise

    @contextmanager
    def _pipeline(self, connection: psycopg.Connection[Any]) -> Iterator[Pipeline]:
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
                connection.close()  # nobody knows what is still under way on it

    @contextmanager
    def read(self) -> Iterator[Repo]:
        """One consistent look at everything."""
        with _faults(), self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield Repo(PostgresSession(connection, _LOCKLESS))

    def close(self) -> None:
        """Close every connection. No thread may be at work any more."""
        self._pool.close()


class PostgresServerLock:
    """A session advisory lock on a connection of its own: PostgreSQL releases it when the server's process ends.

    The connection has to reach PostgreSQL itself, or a pooler that leaves a session to one client.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._names = (name if number == 0 else f"{name}/{number}" for number in count())
        self._name = ""
        self._connection: psycopg.Connection[Any] | None = None
        self._mutex = Lock()  # a pass may be asked for in several threads

    def hold(self) -> str:
        """Hold the lock, if it is not held already; say under which name.

        A new connection has a new name: the database may not know yet that the one before is lost.
        """
        with self._mutex, _faults():
            self._connected()
            return self._name

    def is_dead(self, name: str) -> bool:
        """Tell whether nobody holds the lock of that name: then the server that did has died."""
        with self._mutex, _faults():
            connection = self._connected()
            if name == self._name:
                return False  # a session may take its own lock again
            key = _lock_key(name)
            if not _lock(connection, key):
                return False
            connection.execute("SELECT pg_advisory_unlock($1)", [key])
            return True

    def close(self) -> None:
        """Release the lock."""
        with self._mutex:
            if self._connection is not None:
                self._connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or not _is_open(self._connection):
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_MAX_S,
                options=_LOCK_OPTIONS,
                cursor_factory=psycopg.RawCursor,
            )
            self._name = next(self._names)
            _lock(self._connection, _lock_key(self._name))
        return self._connection


def _lock(connection: psycopg.Connection[Any], key: int) -> bool:
    (row,) = connection.execute("SELECT pg_try_advisory_lock($1)", [key]).fetchall()
    return bool(row[0])


def _lock_key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _is_open(connection: psycopg.Connection[Any]) -> bool:
    """Whether a connection on which nobody waits for anything is there; the database is only asked if it spoke."""
    if connection.closed:
        return False
    sockets = poll()
    sockets.register(connection.fileno(), POLLIN)
    if not sockets.poll(0):
        return True
    with suppress(psycopg.Error):
        connection.execute("SELECT 1")
        return True
    connection.close()
    return False


class PostgresSession:
    """One open transaction."""

    __slots__ = ("_connection", "_texts")

    def __init__(self, connection: psycopg.Connection[Any], texts: Mapping[str, "_Text"]) -> None:
        self._connection = connection
        self._texts = texts

    def fetch(self, name: str, *values: object) -> list[Row]:
        statement = self._texts[name]
        return self._connection.execute(statement.text, statement.bound(values)).fetchall()

    def prefetch(self, name: str, *values: object) -> None:
        """Do nothing: whoever only looks is in no hurry."""

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
            raise TransactionConflict(f"{name}: {len(rows) - changed} of {len(rows)} were changed meanwhile")


class PipelineSession:
    """One open transaction in which what is written is sent ahead: a fault is noticed by whoever waits next."""

    __slots__ = ("_foreseen", "_pipeline")

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._foreseen: dict[tuple[str, *tuple[bytes | None, ...]], Answer] = {}

    def fetch(self, name: str, *values: object) -> list[Row]:
        spelled = _TEXTS[name].spelled(values)
        answer = self._foreseen.pop((name, *spelled), None) if self._foreseen else None
        return self._pipeline.rows(answer or self._pipeline.send(name, _TEXTS[name].text, spelled))

    def prefetch(self, name: str, *values: object) -> None:
        spelled = _TEXTS[name].spelled(values)
        self._foreseen[name, *spelled] = self._pipeline.send(name, _TEXTS[name].text, spelled)

    def execute(self, name: str, *values: object) -> int:
        answer = self._pipeline.send(name, _TEXTS[name].text, _TEXTS[name].spelled(values))
        self._pipeline.collect()
        return answer.changed

    def execute_many(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = _TEXTS[name]
            self._pipeline.send(name, statement.text, [column.encode() for column in statement.columns(rows)])

    def update_all(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            statement = _TEXTS[name]
            columns = [column.encode() for column in statement.columns(rows)]
            self._pipeline.send(f"every {name}", statement.checked, [*columns, str(len(rows)).encode()])


@contextmanager
def _faults() -> Iterator[None]:
    """Turn the database's complaints into ours; bugs stay what they are."""
    try:
        yield
    except _AGAIN as error:
        raise TransactionConflict(str(error)) from error
    except errors.DivisionByZero as error:
        raise TransactionConflict("something was changed meanwhile") from error
    except errors.UniqueViolation as error:
        raise DuplicateKey(str(error)) from error
    except _GONE as error:
        raise StoreUnavailable(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement for PostgreSQL, and how to spell what it takes.

    Arrays are spelled here: the driver looks at every item for its type, which takes longer than the statement.
    """

    text: str
    types: tuple[str, ...]
    lists: tuple[int, ...]

    @property
    def checked(self) -> str:
        """The text, but one more parameter says how many rows it has to change: otherwise it fails."""
        counted = f"CASE WHEN COUNT(*) = ${len(self.types) + 1}::bigint THEN 1 ELSE 0 END"
        return f"WITH changed AS ({self.text} RETURNING 1) SELECT 1 / {counted} FROM changed"  # noqa: S608 - our own texts

    def bound(self, values: tuple[Any, ...]) -> Sequence[object]:
        """Spell the lists among values."""
        if not self.lists:
            return values
        bound = list(values)
        for place in self.lists:
            # In order, so that the same question is spelled in the same way.
            bound[place] = _array(self.types[place].removesuffix("s"), sorted(values[place]))
        return bound

    def spelled(self, values: tuple[Any, ...]) -> list[bytes | None]:
        """Spell values as they are sent."""
        return [_spelled(value) for value in self.bound(values)]

    def columns(self, rows: Sequence[Row]) -> list[str]:
        """Spell rows as one array for each parameter."""
        columns = zip(*rows, strict=True)
        return [_array(type_, column) for type_, column in zip(self.types, columns, strict=True)]


def _spelled(value: object) -> bytes | None:
    """Spell a value as the database reads it."""
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
#: A look locks nothing.
_LOCKLESS = {name: replace(one, text=without_locks(one.text)) for name, one in _TEXTS.items()}
