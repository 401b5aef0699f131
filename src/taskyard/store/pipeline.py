"""One connection to PostgreSQL on which questions are sent without waiting for the answers to those before.

The driver can do this, too, but thinks for longer about each statement than the server takes to carry it out. Here a
statement is prepared once for each connection and is then a name and its values. Nothing is known here about
transactions, or about what statements mean.
"""

from collections.abc import Sequence
from select import POLLIN, POLLOUT, poll
from typing import Any, Final

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer

from taskyard.store.sessions import Row

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
