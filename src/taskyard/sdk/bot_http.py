"""The HTTP/1.1 connection of a bot to its server: kept open, and reopened after a failure.

It does what a bot needs and no more: one request at a time, JSON both ways, every size and wait limited. It follows no
redirects, keeps no cookies and uses no proxies. It never repeats a request that may have been carried out, since only
the caller knows whether that is harmless; the exception is a kept connection that the server had closed while idle.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from taskyard.sdk.servers import AWAY, ServerList

#: Larger than any answer of a server; another program on that port cannot fill the memory.
BODY_MAX: Final = 134_217_728
#: The size limit of all headers of an answer.
HEADERS_MAX: Final = 65_536
#: How much is read at once.
READ_BYTES: Final = 65_536
#: How long the server may take to accept a connection, including TLS.
CONNECT_SECONDS_MAX: Final = 10.0


class ConnectionFailed(OSError):
    """There was no valid answer: no connection, no answer in time, or one that cannot be read."""


class _ClosedWhileIdle(ConnectionFailed):
    """The server had closed a kept connection before it was used again."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server."""

    host: str
    port: int
    secure: bool
    prefix: str  # comes before every path
    authority: str = field(default="")

    @staticmethod
    def of(url: str) -> "Address":
        """Parse an address such as `https://taskyard.example:8443/base`; raise ValueError if it is not valid."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an address; write http://HOST:PORT or https://HOST:PORT")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return Address(parts.hostname, port, secure, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2])


class ServerConnection:
    """Sends one request after another over one connection, to the server that the list says."""

    def __init__(
        self,
        servers: str | ServerList,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._servers = ServerList(servers) if isinstance(servers, str) else servers
        self._addresses = {url: Address.of(url) for url in self._servers.urls}
        secure = any(address.secure for address in self._addresses.values())
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._head = "".join(f"{name}: {_header_value(value)}\r\n" for name, value in (headers or {}).items())
        self._protocol: _HttpProtocol | None = None
        self._opened = ""  # the server that the connection leads to
        self.asks_at_once = False  # whether the request that failed may be sent to another server at once

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request and return the answer, whatever its status; raise ConnectionFailed if there is none.

        If the server is away, the next request goes to another one of the list.
        """
        server = self._servers.current
        try:
            answer = await self._exchange(server, method, path, body, timeout_s, headers or {})
        except ConnectionFailed:
            self.asks_at_once = self._servers.move_on(server)
            raise
        self.asks_at_once = answer.status in AWAY and self._servers.move_on(server)
        if answer.status not in AWAY:
            self._servers.answered()
        return answer

    async def _exchange(
        self, server: str, method: str, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str]
    ) -> HttpResponse:
        address = self._addresses[server]
        own = "".join(f"{name}: {_header_value(value)}\r\n" for name, value in headers.items())
        request = (
            f"{method} {address.prefix}{_header_value(path)} HTTP/1.1\r\nhost: {address.authority}\r\n{self._head}{own}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        try:
            return await (await self._open(server)).exchange(request, timeout_s)
        except _ClosedWhileIdle:
            return await (await self._open(server)).exchange(request, timeout_s)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._protocol is not None:
            self._protocol.hang_up()
            self._protocol = None

    def leave(self, server: str) -> None:
        """Fail the request that waits for a server, if one does: that server is away."""
        if self._protocol is not None and self._opened == server:
            self._protocol.fail("the server is away")

    async def _open(self, server: str) -> "_HttpProtocol":
        if self._protocol is not None and self._protocol.usable and self._opened == server:
            return self._protocol
        self.close()
        address, loop = self._addresses[server], asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, protocol = await loop.create_connection(
                    lambda: _HttpProtocol(loop), address.host, address.port, ssl=self._tls if address.secure else None
                )
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(
                f"{address.authority} does not answer: {str(error) or 'no connection in time'}"
            ) from error
        self._protocol, self._opened = protocol, server
        return protocol


class _HttpProtocol(asyncio.BufferedProtocol):
    """The protocol of one connection, with the answer that is awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._used = False  # a request was answered on it before
        self._answer_begun = False  # a part of the answer has arrived
        self._headers: dict[str, str] = {}
        self._headers_size = 0
        self._body: list[bytes] = []
        self._size = 0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._transport is not None and not self._transport.is_closing() and self._waiting is None

    async def exchange(self, request: bytes, timeout_s: float) -> HttpResponse:
        """Send a request and wait for its answer; a time-out closes the connection, since the answer may come later."""
        if self._transport is None:
            raise _ClosedWhileIdle("the connection was closed")
        waiting: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._waiting = waiting
        self._answer_begun = False
        self._transport.write(request)
        timer = self._loop.call_later(timeout_s, self.fail, "no answer in time")
        try:
            return await waiting
        except asyncio.CancelledError:
            self.hang_up()
            raise
        finally:
            timer.cancel()
            self._waiting = None

    def hang_up(self) -> None:
        """Close the connection and fail the request that waits."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer's size is fixed
        """Return the read buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what has arrived."""
        if self._waiting is None:
            self.hang_up()  # an answer without a request
            return
        self._answer_begun = True
        with contextlib.suppress(_TooLarge):
            try:
                self._parser.feed_data(self._buffer[:nbytes])
            except httptools.HttpParserError as error:
                self.fail(f"the answer is not valid HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that waits."""
        self._transport = None
        self.fail(f"the connection was lost: {error}" if error else "the connection was closed before the answer")

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        """Start a new answer."""
        self._headers, self._headers_size, self._body, self._size = {}, 0, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers_size += len(name) + len(value)
        self._check_size(self._headers_size, HEADERS_MAX)
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._size += len(body)
        self._check_size(self._size, BODY_MAX)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Complete the answer; a provisional one (100 to 199) is skipped."""
        status = self._parser.get_status_code()
        if status < 200 or self._waiting is None:
            return
        if not self._waiting.done():
            self._waiting.set_result(HttpResponse(status, self._headers, b"".join(self._body)))
        self._used = True
        if not self._parser.should_keep_alive():
            self.hang_up()

    def _check_size(self, size: int, size_max: int) -> None:
        if size > size_max:
            self.fail(f"the answer is larger than {size_max} bytes")
            raise _TooLarge

    def fail(self, why: str) -> None:
        """Hang up, and fail the request that waits."""
        self.hang_up()
        if self._waiting is not None and not self._waiting.done():
            stale = self._used and not self._answer_begun and "closed" in why
            self._waiting.set_exception(_ClosedWhileIdle(why) if stale else ConnectionFailed(why))


class _TooLarge(Exception):
    """Aborts the parser when an answer is too large."""


def _header_value(text: str) -> str:
    """Refuse line breaks, which would start another header."""
    if "\r" in text or "\n" in text:
        raise ValueError("a header must be one line")
    return text
