"""Connections of clients: deadlines, size limits and checks of request heads, on top of uvicorn's HTTP protocol.

Uvicorn waits without limit for a request head, a body or a reader. `ClientConnection` gives each connection a deadline
instead. One check a second closes late connections, so that no request pays for a timer.
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

#: The size limit of a request line with its headers: eight times what browsers send. It also limits the bytes of a
#: chunked body that are not content: chunk extensions and trailers, which are dropped.
HEAD_BYTES_MAX: Final = 65_536
#: How long a request head may take from its first byte, and how long a new connection may take to send one.
HEAD_MAX_S: Final = 20
#: How long a body may take on routes without a limit of their own; longer than theirs, so that those answer first.
BODY_MAX_S: Final = BODY_READ_MAX_S + 5
#: How long a client may read nothing of an answer that is waiting for it.
READ_MAX_S: Final = 60
#: How many open connections may have sent no request yet; above that the oldest is closed. It is more than the
#: backlog, so that a whole fleet can reconnect at once.
NEW_CONNECTIONS_MAX: Final = 4_096
#: How many pipelined requests may wait on one connection: more than any client sends ahead.
PIPELINE_MAX: Final = 64
#: A valid `Host` header (RFC 9110, 7.2): a name or an address, and a port. It may be empty.
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?", re.ASCII)


#: Logs errors only: clients that send invalid HTTP must not fill the log.
_LOG: Final = logging.getLogger("uvicorn.error.connections")
_LOG.setLevel(logging.ERROR)


class OpenConnections:
    """The open connections of one server: new (no request yet), busy (being answered) and idle (between requests).

    It keeps the server below the number of files that its process may open: a new connection is always accepted, and
    the one that has been quiet for longest is closed. A connection with a request in progress is closed for it only if
    its client does not read the answer.
    """

    def __init__(self, files: int) -> None:
        self._open_max = files * 3 // 4  # the rest is for the database, and for bursts of connections
        self._new_max = min(NEW_CONNECTIONS_MAX, self._open_max // 2)
        self._open = 0
        self._new: dict[ClientConnection, None] = {}
        self._idle: dict[ClientConnection, None] = {}  # in the order in which they became idle
        self._busy: dict[ClientConnection, None] = {}  # in the order in which they became busy

    def add(self, one: "ClientConnection") -> None:
        """Add a connection; close another if that is one too many."""
        self._open += 1
        self._new[one] = None
        if len(self._new) > self._new_max:
            next(iter(self._new)).drop()
        elif self._open > self._open_max:
            self._longest_quiet().drop()

    def mark_busy(self, one: "ClientConnection") -> None:
        """Record that a request has arrived on a connection."""
        self._new.pop(one, None)
        self._idle.pop(one, None)
        self._busy[one] = None

    def mark_idle(self, one: "ClientConnection") -> None:
        """Record that every request on a connection was answered."""
        self._busy.pop(one, None)
        self._idle[one] = None

    def remove(self, one: "ClientConnection") -> None:
        """Remove a closed connection."""
        self._open -= 1
        self.forget(one)

    def forget(self, one: "ClientConnection") -> None:
        """Forget the state of a connection that is still open."""
        for group in (self._new, self._idle, self._busy):
            group.pop(one, None)

    def _longest_quiet(self) -> "ClientConnection":
        """Choose a connection to close: an idle one, else one with an unread answer, else one without a request."""
        if self._idle:
            return next(iter(self._idle))
        unread = (one for one in self._busy if one.transport.get_write_buffer_size())
        return next(unread, None) or next(iter(self._new))


class ClientConnection(HttpToolsProtocol):
    """One connection of a client. `deadline` is when the client must be done; infinite while the server works."""

    def __init__(self, *, connections: OpenConnections, **options: Any) -> None:
        super().__init__(**options)
        self.logger = _LOG
        self._open_connections = connections
        self.deadline = inf
        self._in_head = True
        self._overhead = 0  # bytes received since the last byte of a body or the end of the last head
        self._has_own_cycle = False  # whether `cycle` belongs to the request being read, not to an earlier one
        self._fault = ""  # what is wrong with the last head
        self._final_response: bytes | None = None  # a refusal to send after the answers to earlier requests
        self._unread_bytes = 0  # how much of an answer the client had not read at the last check
        self._read_by = inf

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.deadline = self.loop.time() + HEAD_MAX_S
        self._open_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.remove(self)
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
        if self._in_head:  # else it is a trailer: those are dropped, and must not pass for headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._open_connections.mark_busy(self)
        # A head that arrived in one piece was not counted on its way.
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
            # Upgrades are not supported: the request is answered normally, and the connection is closed after it.
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
            # Uvicorn's own keep-alive timer is cancelled by blank lines, which are no request.
            self.deadline = self.loop.time() + KEEP_ALIVE_S + HEAD_MAX_S
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._final_response is not None and not self.transport.is_closing():
            self.transport.write(self._final_response)
            self.transport.close()
        elif is_last and not self.transport.is_closing():
            self._open_connections.mark_idle(self)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - our message says more
        """Answer invalid HTTP with a problem document, then close the connection."""
        if self._fault:
            self._refuse(400, "invalid", self._fault)
        elif self.headers and _size(self.url, self.headers) > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._refuse(400, "invalid", "this is not a valid HTTP request")

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: clients must not be able to fill the log."""

    def check_deadlines(self, now: float) -> None:
        """Close this connection if its client is late. A client that the server does not read from is not late."""
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
        """Close the connection at once."""
        self._open_connections.forget(self)
        self.transport.abort()

    def _refuse_late(self) -> None:
        """Answer that the request came too slowly, if one has begun and is not being answered; then close."""
        begun = self._overhead > 0 or not self._in_head
        if begun and (self._in_head or not self.cycle.response_started):
            self._refuse(408, "too_slow", "the request did not arrive in time")
        else:
            self.drop()

    def _refuse_head(self) -> None:
        if self._in_head or not self._has_own_cycle:
            self._refuse(431, "too_large", f"the head of a request may have at most {HEAD_BYTES_MAX} bytes")
        else:
            text = f"a body may have at most {HEAD_BYTES_MAX} bytes of trailers and chunk extensions"
            self._refuse(431, "too_large", text)

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer the request being read with a problem, after the answers to earlier requests; then close."""
        body = msgspec.json.encode(refused(status, code, detail).problem)
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        if self._must_wait_its_turn():
            self._final_response = STATUS_LINE[status] + head + body
            self.flow.pause_reading()
            return
        if self._has_own_cycle:
            self.cycle.disconnected = True  # nothing that the route still sends may follow the refusal
        if not (self._has_own_cycle and self.cycle.response_started):
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _must_wait_its_turn(self) -> bool:
        """Whether earlier requests are still to be answered; drop the one being read if it is queued."""
        if not self._has_own_cycle:
            before: Any = self.cycle  # None before the first request
            return before is not None and not before.response_complete
        if self.pipeline:
            self.pipeline.popleft()
            return True
        return False


class _BadHead(Exception):
    """The server does not accept this request head."""


def close_late_connections(connections: Iterable[Any], now: float) -> None:
    """Close every connection that is past its deadline."""
    for one in list(connections):
        one.check_deadlines(now)


def _size(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _fault_of(version: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return what is wrong with a head that a proxy could understand differently than this server."""
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if version not in ("1.1", "1.0"):
        return "the supported HTTP versions are 1.0 and 1.1"
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        return f"a request needs one Host header, not {len(hosts)}"
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return "the only supported Transfer-Encoding is chunked, in HTTP/1.1"
    return _target_fault(url, hosts)


def _target_fault(url: bytes, hosts: Collection[bytes]) -> str:
    """Return what is wrong with the target and the host of a request."""
    if any(_HOST.fullmatch(host) is None for host in hosts):
        return "the Host header is not a valid host"
    if url[:1] != b"/" and not _is_own_address(url, hosts):
        return "the target of a request must be a path, or an address of this server"
    return "the target of a request must not have a fragment" if b"#" in url else ""


def _is_own_address(url: bytes, hosts: Collection[bytes]) -> bool:
    """Whether a target is an absolute address with the host of the Host header."""
    scheme, is_absolute, rest = url.partition(b"://")
    authority, is_path, _ = rest.partition(b"/")
    is_address = is_absolute and is_path and scheme.lower() in (b"http", b"https")
    return bool(is_address) and authority.lower() in [host.lower() for host in hosts]
