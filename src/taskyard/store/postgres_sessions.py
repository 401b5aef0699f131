"""Sessions of PostgreSQL: how each connection is set up and limited, and those that a server has beside its pool.

A server has two connections of its own: one holds the lock that proves that it lives, the other sends hints to the
other servers of the database and listens for theirs. Both need a session that no other client shares, and so do the
settings of every connection: a pooler that gives one session to several clients is refused at the start.
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import blake2b
from itertools import count
from select import POLLIN, POLLOUT, poll
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg import conninfo, errors, pq

from taskyard.store.queries import (
    DuplicateKey,
    PoolerInTheWay,
    StoreFull,
    StoreUnavailable,
    TransactionConflict,
)

#: How long a transaction waits for a connection before the database counts as unavailable.
CONNECT_MAX_S: Final = 5
#: A longer statement, wait for a lock or idle transaction is an error and must not stop other transactions.
STATEMENT_MAX_MS: Final = 30_000
LOCK_MAX_MS: Final = 10_000
IDLE_MAX_MS: Final = 10_000
#: How long to wait for an answer of the database whose own time-outs are shorter: then its machine or the network is
#: gone without a word.
READ_MAX_S: Final = 40.0
#: The same for a write. No write takes so long, and leases must not end meanwhile.
WRITE_MAX_MS: Final = 20_000
#: A session whose other side is gone without a word is given up after some 20 s, by either side.
_KEEPALIVE: Final[Mapping[str, int]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_ALL_SESSIONS: Final[Mapping[str, str | int]] = {
    "statement_timeout": STATEMENT_MAX_MS,
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 3,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "idle_session_timeout": 0,
}
#: The settings of sessions that run transactions.
TRANSACTION_SETTINGS: Final[Mapping[str, str | int]] = {
    **_ALL_SESSIONS,
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "lock_timeout": LOCK_MAX_MS,
    "idle_in_transaction_session_timeout": IDLE_MAX_MS,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}

_CONFLICTS: Final = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
#: The database cannot be used now: the connection is lost, also if the database closed it because a transaction was
#: idle for too long; or it leads to a standby, which another server may replace.
_UNAVAILABLE: Final = (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout, errors.ReadOnlySqlTransaction)


class Connection(psycopg.Connection[Any]):
    """A connection on which no wait for the database is without a limit."""

    wait_max_s = READ_MAX_S

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for the database; close the connection if it does not answer any more."""
        try:
            return super().wait(gen, interval, self.wait_max_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # an answer may still come, and would be taken for that to the next question
            raise psycopg.OperationalError("the database does not answer any more") from error


def address_options(url: str) -> dict[str, Any]:
    """Return what is said about a connection beyond its address, as far as the address leaves it open.

    A standby is refused: of several hosts, the one that can be written to is used.
    """
    said = conninfo.conninfo_to_dict(url)
    wanted = {
        **_KEEPALIVE,
        "connect_timeout": CONNECT_MAX_S,
        "application_name": "taskyard",
        "target_session_attrs": "read-write",
    }
    return {name: option for name, option in wanted.items() if name not in said}


def connection_options(url: str) -> dict[str, Any]:
    """Return the options of a connection to an address."""
    return {"autocommit": True, "cursor_factory": psycopg.RawCursor, **address_options(url)}


def set_up(connection: psycopg.Connection[Any], settings: Mapping[str, str | int] = TRANSACTION_SETTINGS) -> None:
    """Give a session its settings: by a statement and not with its start, because poolers pass no options on."""
    calls = ", ".join(f"set_config('{name}', '{setting}', false)" for name, setting in settings.items())
    connection.execute(f"SELECT {calls}", prepare=False)


def connect(url: str, settings: Mapping[str, str | int] = _ALL_SESSIONS) -> Connection:
    """Open a connection beside the pool."""
    connection = Connection.connect(url, **connection_options(url))
    try:
        set_up(connection, settings)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of PostgreSQL; errors in our own code stay as they are."""
    try:
        yield
    except _CONFLICTS as error:
        raise TransactionConflict(str(error)) from error
    except errors.DivisionByZero as error:
        raise TransactionConflict("rows have changed in the meantime") from error
    except errors.UniqueViolation as error:
        raise DuplicateKey(str(error)) from error
    except errors.DiskFull as error:
        raise StoreFull(str(error)) from error
    except _UNAVAILABLE as error:
        raise StoreUnavailable(str(error)) from error


# Poolers.


#: How often two clients compare their sessions: a pooler may use several sessions in turn.
COMPARED: Final = 4
#: How long a comparison waits for a session of a pooler.
COMPARE_MAX_S: Final = 10.0


def refuse_shared_sessions(url: str) -> None:
    """Raise `PoolerInTheWay` if several clients share a session: a pooler such as pgbouncer in transaction mode.

    Without a pooler, the session has the process that it was opened with, and one round trip shows that. A pooler is
    judged by what it does: while one client is in a transaction, another one must keep its own session.
    """
    with translated_errors(), ExitStack() as stack:
        one = stack.enter_context(_plain_connection(url))
        own = _backend(one)
        if own == one.pgconn.backend_pid:
            return
        other = stack.enter_context(_plain_connection(url))
        for _ in range(COMPARED):
            if _is_shared(one, other, own):
                raise PoolerInTheWay


def _is_shared(one: Connection, other: Connection, own: int) -> bool:
    try:
        with other.transaction():
            return _backend(other) == own or _backend(one) != own
    except errors.ProtocolViolation:  # in statement mode there are no transactions at all
        return True


def _plain_connection(url: str) -> Connection:
    connection: Connection = Connection.connect(url, **connection_options(url))
    connection.wait_max_s = COMPARE_MAX_S
    return connection


def _backend(connection: Connection) -> int:
    (row,) = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchall()
    return int(row[0])


# The lock of a server.


class PostgresServerLock:
    """A session advisory lock on a connection of its own: PostgreSQL releases it when this process ends.

    The connection must reach PostgreSQL itself, or a pooler in session mode.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._names = (name if number == 0 else f"{name}/{number}" for number in count())
        self._name = ""
        self._connection: psycopg.Connection[Any] | None = None
        self._mutex = Lock()  # several threads may start an admission pass

    def hold(self) -> str:
        """Take the lock, if it is not held already; return its name.

        A new connection takes a new name, because the database may not know yet that the connection before is lost.
        """
        with self._mutex, translated_errors():
            self._connected()
            return self._name

    def is_dead(self, name: str) -> bool:
        """Whether no process holds the lock of this name, so that its server has died."""
        with self._mutex, translated_errors():
            connection = self._connected()
            if name == self._name:
                return False  # a session could take its own lock again
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
            self._connection = connect(self._url)
            self._name = next(self._names)
            _lock(self._connection, _lock_key(self._name))
        return self._connection


def _lock(connection: psycopg.Connection[Any], key: int) -> bool:
    (row,) = connection.execute("SELECT pg_try_advisory_lock($1)", [key]).fetchall()
    return bool(row[0])


def _lock_key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _is_open(connection: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection is open; it sends a query only if the database has sent something."""
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


# Hints.


#: The channel of hints.
CHANNEL: Final = "taskyard_hints"
#: Hints need not be durable, so their commits need not wait for a disk.
_HINT_SETTINGS: Final[Mapping[str, str | int]] = {**_ALL_SESSIONS, "synchronous_commit": "off"}
#: How long the database may say nothing while a notification is sent; then the connection counts as lost.
SEND_MAX_MS: Final = 5_000


class PostgresHintChannel:
    """A connection that listens for the hints of other servers, and sends those of this one.

    One thread uses it; only `wake` is for others.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._wakes: tuple[socket.socket, socket.socket] | None = None  # what is sent to one end wakes the other
        self._arrived: list[str] = []

    def open(self) -> None:
        """Connect and listen; raise `StoreUnavailable` if that is not possible."""
        with translated_errors():
            self._connection = connect(self._url, _HINT_SETTINGS)
            self._connection.execute(f"LISTEN {CHANNEL}")
            self._connection.pgconn.nonblocking = 1
            self._wakes = socket.socketpair()
            for end in self._wakes:
                end.setblocking(False)

    def send(self, text: str) -> None:
        """Send a hint to all servers but this one; raise `StoreUnavailable` if the connection is lost."""
        assert self._connection is not None, "open it first"
        with translated_errors():
            pgconn = self._connection.pgconn
            pgconn.send_query_params(b"SELECT pg_notify($1, $2)", [CHANNEL.encode(), text.encode()])
            while pgconn.flush():
                _await_answer(pgconn, POLLIN | POLLOUT)
                self._read(pgconn)
            while pgconn.is_busy():
                _await_answer(pgconn, POLLIN)
                self._read(pgconn)
            while (result := pgconn.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    raise errors.error_from_result(result)

    def receive(self, wait_s: float) -> Sequence[str]:
        """Wait until hints arrive, `wake` is called, or the time is over; return the hints of other servers."""
        assert self._connection is not None, "open it first"
        with translated_errors():
            if not self._arrived:
                self._wait(self._connection.pgconn, wait_s)
            arrived, self._arrived = self._arrived, []
            return arrived

    def wake(self) -> None:
        """End a `receive`, or the next one; any thread may call this."""
        if self._wakes is not None:
            with suppress(OSError):  # it is woken already, or was closed meanwhile
                self._wakes[0].send(b"!")

    def close(self) -> None:
        """Close the connection; `open` opens another one."""
        wakes, self._wakes, self._arrived = self._wakes, None, []
        for end in wakes or ():
            end.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wait(self, pgconn: pq.abc.PGconn, wait_s: float) -> None:
        assert self._wakes is not None, "they are open with the connection"
        woken = self._wakes[1]
        sockets = poll()
        sockets.register(pgconn.socket, POLLIN)
        sockets.register(woken, POLLIN)
        for file, _ in sockets.poll(wait_s * 1000):
            if file == pgconn.socket:
                self._read(pgconn)
            else:
                with suppress(BlockingIOError):
                    while woken.recv(4_096):
                        pass

    def _read(self, pgconn: pq.abc.PGconn) -> None:
        """Read what the database has sent."""
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            if notice.be_pid != pgconn.backend_pid:
                self._arrived.append(notice.extra.decode(errors="replace"))


def _await_answer(pgconn: pq.abc.PGconn, events: int) -> None:
    sockets = poll()
    sockets.register(pgconn.socket, events)
    if not sockets.poll(SEND_MAX_MS):
        raise psycopg.OperationalError("the database does not answer any more")


# Replication.


def standbys(url: str) -> tuple[int, bool]:
    """Return how many standbys are connected, and whether commits wait for one."""
    with translated_errors(), closing(connect(url)) as connection:
        (row,) = connection.execute(
            "SELECT (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names')"
        ).fetchall()
        return row[0], bool(row[1].strip())
