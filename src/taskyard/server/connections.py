"""Connections: how long and how large the head of a request may be, and how long anybody may keep us waiting.

Uvicorn waits for ever for a head, for a body and for a reader. Here a connection has a time by which its peer has to be
done with what it is at; a look once a second ends those that are late, so that no request pays for a timer. Nothing
here knows what a request is about.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from taskyard.server.bodies import SENT_MAX_S
from taskyard.server.problems import MEDIA_TYPE, refused
from taskyard.server.settings import KEEP_ALIVE_S

#: How large the first line and the headers of a request may be together: eight times what browsers send.
HEAD_BYTES_MAX: Final = 65_536
#: How long a request's head may take from its first byte on, and a new connection to bring one.
HEAD_MAX_S: Final = 20
#: How long a body may take on routes that do not say so themselves: those that do are to answer first.
BODY_MAX_S: Final = SENT_MAX_S + 5
#: How long a reader may take nothing of an answer that is waiting for it.
READ_MAX_S: Final = 60
#: How many connections may be open that have not asked for anything yet; more than the backlog, so that a fleet that
#: comes back at once is let in. With one more, the oldest is closed.
NEWCOMERS_MAX: Final = 4_096


class Entrance:
    """Connections that have not asked for anything yet, the oldest first. One for each server."""

    def __init__(self, most: int = NEWCOMERS_MAX) -> None:
        self._most = most
        self._newcomers: dict[Connection, None] = {}

    def enter(self, one: "Connection") -> None:
        """Let a connection in; if that is one too many, the one that has said nothing for longest has to go."""
        self._newcomers[one] = None
        if len(self._newcomers) > self._most:
            next(iter(self._newcomers)).drop()

    def leave(self, one: "Connection") -> None:
        """Forget a connection: it has asked for something, or is gone."""
        self._newcomers.pop(one, None)


class Connection(HttpToolsProtocol):
    """One connection. `due` is when its peer has to be done; infinite while it is our turn."""

    def __init__(self, *, entrance: Entrance, **said: Any) -> None:
        super().__init__(**said)
        self._entrance = entrance
        self.due = inf
        self._in_head = True
        self._head_bytes = 0
        self._unread = 0  # how much of an answer its peer had still to read, when last looked at
        self._read_by = inf

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.due = self.loop.time() + HEAD_MAX_S
        self._entrance.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._entrance.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            self._head_bytes = 0
        elif was_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self.due = self.loop.time() + HEAD_MAX_S

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._entrance.leave(self)
        # A head that came in one piece was not counted on its way.
        if self._head_bytes > HEAD_BYTES_MAX and _size(self.url, self.headers) > HEAD_BYTES_MAX:
            raise _TooLarge
        self.due = self.loop.time() + BODY_MAX_S
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # Nothing else is spoken here: the request is answered as if it had not asked, and nothing comes behind it.
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self.due = inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.due == inf:
            # Blank lines do not count as a request, and yet end uvicorn's own patience.
            self.due = self.loop.time() + KEEP_ALIVE_S + HEAD_MAX_S
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says more
        """Answer what is no HTTP, or not such as we read, with a problem; then hang up."""
        if self.headers and _size(self.url, self.headers) > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._refuse(400, "invalid", "this is no HTTP request that can be read")

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a stranger must not fill the log."""

    def look(self, now: float) -> None:
        """End this connection if its peer is late. Whoever cannot send because we do not read is not."""
        if self.flow.read_paused or self.pipeline:
            self.due = max(self.due, now + BODY_MAX_S)
        elif now > self.due:
            self._late()
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting != self._unread:
            self._unread, self._read_by = waiting, now + READ_MAX_S
        elif now > self._read_by:
            self.drop()

    def drop(self) -> None:
        """Hang up at once."""
        self._entrance.leave(self)
        self.transport.abort()

    def _late(self) -> None:
        """Say that a request came too slowly, if it began at all and nothing was answered yet."""
        begun = self._head_bytes > 0 or not self._in_head
        if begun and (self._in_head or not self.cycle.response_started):
            self._refuse(408, "too_slow", "the request did not come in time")
        else:
            self.drop()

    def _refuse_head(self) -> None:
        self._refuse(431, "too_large", f"the head of a request may have at most {HEAD_BYTES_MAX} bytes")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        body = msgspec.json.encode(refused(status, code, detail).problem)
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        if self.cycle is not None:
            self.cycle.disconnected = True  # whatever a route still has to say would come behind the last word
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


class _TooLarge(Exception):
    """The head of a request is too large."""


def hurry(connections: Iterable[Any], now: float) -> None:
    """Look at every connection once."""
    for one in list(connections):
        one.look(now)


def _size(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
