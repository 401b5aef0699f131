"""Connections: what a request may look like on the wire, how large its head may be, and how long a peer may take.

Uvicorn waits for ever for a head, for a body and for a reader. Here a connection has a time by which its peer has to be
done with what it is at; a look once a second ends those that are late, so that no request pays for a timer. Nothing
here knows what a request is about.
"""

import logging
import re
from collections.abc import Collection, Iterable
from math import inf
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from taskyard.server.errors import MEDIA_TYPE, refused
from taskyard.server.requests import BODY_READ_MAX_S
from taskyard.server.settings import KEEP_ALIVE_S

#: How large the first line and the headers of a request may be together: eight times what browsers send. So much may
#: also come of a chunked body without a byte of content: extensions of a chunk, and trailers, which are dropped.
HEAD_BYTES_MAX: Final = 65_536
#: How long a request's head may take from its first byte on, and a new connection to bring one.
HEAD_MAX_S: Final = 20
#: How long a body may take on routes that do not say so themselves: those that do are to answer first.
BODY_MAX_S: Final = BODY_READ_MAX_S + 5
#: How long a reader may take nothing of an answer that is waiting for it.
READ_MAX_S: Final = 60
#: How many connections may be open that have not asked for anything yet; more than the backlog, so that a fleet that
#: comes back at once is let in. With one more, the oldest is closed.
NEW_CONNECTIONS_MAX: Final = 4_096
#: How many requests may wait on one connection for their turn: more than any client sends ahead.
PIPELINE_MAX: Final = 64
#: What a `Host` header may say (RFC 9110, 7.2): a name or an address, and a port. Empty is allowed.
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?", re.ASCII)


#: The log of connections: errors alone, for a stranger who sends what is no HTTP must not fill it.
_LOG: Final = logging.getLogger("uvicorn.error.connections")
_LOG.setLevel(logging.ERROR)


class OpenConnections:
    """The open connections: those that have not asked yet, those that are answered, and those that wait for more.

    One for each server. It keeps the server below the number of files that its process may open: a new connection
    always comes in, and the one that has been quiet for longest has to go. A request that is being answered is
    ended for it only if its peer does not read the answer.
    """

    def __init__(self, files: int) -> None:
        self._most_open = files * 3 // 4  # the rest is for the database, and for connections that come at once
        self._most = min(NEW_CONNECTIONS_MAX, self._most_open // 2)
        self._open = 0
        self._new: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}  # between two requests, the longest first
        self._busy: dict[Connection, None] = {}  # with a request that is answered, the longest first

    def enter(self, one: "Connection") -> None:
        """Let a connection in; if that is one too many, another has to go."""
        self._open += 1
        self._new[one] = None
        if len(self._new) > self._most:
            next(iter(self._new)).drop()
        elif self._open > self._most_open:
            self._longest_quiet().drop()

    def work(self, one: "Connection") -> None:
        """Note that a request has come on a connection."""
        self.forget(one)
        self._busy[one] = None

    def rest(self, one: "Connection") -> None:
        """Note that every request on a connection was answered."""
        self._busy.pop(one, None)
        self._idle[one] = None

    def leave(self, one: "Connection") -> None:
        """Forget a connection: it is closed."""
        self._open -= 1
        self.forget(one)

    def forget(self, one: "Connection") -> None:
        """Forget what a connection is at; it is still open."""
        for group in (self._new, self._idle, self._busy):
            group.pop(one, None)

    def _longest_quiet(self) -> "Connection":
        """Choose who has to go: who wants nothing, else who does not read its answer, else who has not asked yet."""
        if self._idle:
            return next(iter(self._idle))
        unread = (one for one in self._busy if one.transport.get_write_buffer_size())
        return next(unread, None) or next(iter(self._new))


class Connection(HttpToolsProtocol):
    """One connection. `deadline` is when its peer has to be done; infinite while it is our turn."""

    def __init__(self, *, connections: OpenConnections, **said: Any) -> None:
        super().__init__(**said)
        self.logger = _LOG
        self._connections = connections
        self.deadline = inf
        self._in_head = True
        self._overhead = 0  # bytes that came since the last byte of a body, or the last end of a head
        self._has_own_cycle = False  # whether `cycle` is that of the request that is being read, not of one before it
        self._fault = ""  # what is wrong with the head that was just read
        self._final_response: bytes | None = None  # a refusal that waits for the answers to earlier requests
        self._unread_bytes = 0  # how much of an answer its peer had still to read, when last looked at
        self._read_by = inf

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.deadline = self.loop.time() + HEAD_MAX_S
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._final_response is not None:
            return
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > HEAD_BYTES_MAX:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._has_own_cycle = False
        self.deadline = self.loop.time() + HEAD_MAX_S

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer: nobody reads those, and they must not pass for headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._connections.work(self)
        # A head that came in one piece was not counted on its way.
        if self._overhead > HEAD_BYTES_MAX and _size(self.url, self.headers) > HEAD_BYTES_MAX:
            raise _BadHead
        self._overhead = 0
        if fault := _fault_of(self.parser.get_http_version(), self.url, self.headers):
            self._fault = fault
            raise _BadHead
        if len(self.pipeline) >= PIPELINE_MAX:
            self._fault = f"at most {PIPELINE_MAX} requests may wait on one connection"
            raise _BadHead
        self.deadline = self.loop.time() + BODY_MAX_S
        super().on_headers_complete()
        self._has_own_cycle = True
        if self.parser.should_upgrade():
            # Nothing else is spoken here: the request is answered as if it had not asked, and nothing comes behind it.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._overhead = 0
        self.deadline = inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.deadline == inf:
            # Blank lines do not count as a request, and yet end uvicorn's own patience.
            self.deadline = self.loop.time() + KEEP_ALIVE_S + HEAD_MAX_S
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._final_response is not None and not self.transport.is_closing():
            self.transport.write(self._final_response)
            self.transport.close()
        elif is_last and not self.transport.is_closing():
            self._connections.rest(self)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says more
        """Answer what is no HTTP, or not such as we read, with a problem; then hang up."""
        if self._fault:
            self._refuse(400, "invalid", self._fault)
        elif self.headers and _size(self.url, self.headers) > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._refuse(400, "invalid", "this is no HTTP request that can be read")

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a stranger must not fill the log."""

    def look(self, now: float) -> None:
        """End this connection if its peer is late. Whoever cannot send because we do not read is not."""
        if self.flow.read_paused or self.pipeline:
            self.deadline = max(self.deadline, now + BODY_MAX_S)
        elif now > self.deadline:
            self._refuse_late()
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting != self._unread_bytes:
            self._unread_bytes, self._read_by = waiting, now + READ_MAX_S
        elif now > self._read_by:
            self.drop()

    def drop(self) -> None:
        """Hang up at once."""
        self._connections.forget(self)
        self.transport.abort()

    def _refuse_late(self) -> None:
        """Say that a request came too slowly, if it began at all and nothing was answered yet."""
        begun = self._overhead > 0 or not self._in_head
        if begun and (self._in_head or not self.cycle.response_started):
            self._refuse(408, "too_slow", "the request did not come in time")
        else:
            self.drop()

    def _refuse_head(self) -> None:
        if self._in_head or not self._has_own_cycle:
            self._refuse(431, "too_large", f"the head of a request may have at most {HEAD_BYTES_MAX} bytes")
        else:
            text = f"a body may have at most {HEAD_BYTES_MAX} bytes of trailers, or of anything else that is no content"
            self._refuse(431, "too_large", text)

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer the request that is being read with a problem, after those that came before it; then hang up."""
        body = msgspec.json.encode(refused(status, code, detail).problem)
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        if self._must_wait_its_turn():
            self._final_response = STATUS_LINE[status] + head + body
            self.flow.pause_reading()
            return
        if self._has_own_cycle:
            self.cycle.disconnected = True  # whatever a route still has to say would come behind the last word
        if not (self._has_own_cycle and self.cycle.response_started):
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _must_wait_its_turn(self) -> bool:
        """Tell whether earlier requests are still to be answered; the one that is being read waits no longer."""
        if not self._has_own_cycle:
            before: Any = self.cycle  # none before the first request
            return before is not None and not before.response_complete
        if self.pipeline:
            self.pipeline.popleft()
            return True
        return False


class _BadHead(Exception):
    """The head of a request is not such as we read."""


def close_late_connections(connections: Iterable[Any], now: float) -> None:
    """Look at every connection once."""
    for one in list(connections):
        one.look(now)


def _size(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _fault_of(version: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Say what is wrong with a head that another reader on the way here could take for something else."""
    hosts = [value for name, value in headers if name == b"host"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if version not in ("1.1", "1.0"):
        return "the versions of HTTP that are spoken here are 1.0 and 1.1"
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        return f"a request has one Host header, not {len(hosts)}"
    if hosts and not _HOST.fullmatch(hosts[0]):
        return "the Host header is no host"
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return "the only Transfer-Encoding that is read is chunked, in HTTP/1.1"
    if url[:1] != b"/" and not _names(url, hosts):
        return "the target of a request is a path, or the address of this server"
    return "the target of a request has no fragment" if b"#" in url else ""


def _names(url: bytes, hosts: Collection[bytes]) -> bool:
    """Tell whether a target is an address with the same host that the Host header says."""
    scheme, is_absolute, rest = url.partition(b"://")
    authority, is_path, _ = rest.partition(b"/")
    is_address = is_absolute and is_path and scheme.lower() in (b"http", b"https")
    return bool(is_address) and authority.lower() in [host.lower() for host in hosts]
