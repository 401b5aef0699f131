"""One HTTP/1.1 connection that asks and waits for the answer: kept open, opened again when it is gone.

It is what a bot needs and no more: one exchange at a time, JSON both ways, every size and wait bounded. It follows no
redirect, keeps no cookie, goes through no proxy, and never repeats a request that may have been carried out: whoever
asks knows whether that is harmless. The one exception is a kept connection that the other side had closed meanwhile.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

#: More than any answer of a server takes; a stranger on that port cannot fill the memory.
BODY_MAX: Final = 134_217_728
#: What all headers of an answer may take.
HEADERS_MAX: Final = 65_536
#: How much is read at once.
READ_BYTES: Final = 65_536
#: How long the other side may take to accept a connection, TLS included.
CONNECT_SECONDS_MAX: Final = 10.0


class ConnectionFailed(OSError):
    """There was no answer: no connection, none in time, or nothing that can be read."""


class _ClosedWhileIdle(ConnectionFailed):
    """A connection that was kept had been closed by the other side before it was used again."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back; the names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    secure: bool
    prefix: str  # what stands before every path
    authority: str = field(default="")

    @staticmethod
    def of(url: str) -> "Address":
        """Read an address such as `https://yard.example:8443/base`; a text that is none raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address; write http://HOST:PORT or https://HOST:PORT")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return Address(parts.hostname, port, secure, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2])


class ServerConnection:
    """Asks one thing after another, over one connection."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._address = Address.of(url)
        self._tls = (tls or ssl.create_default_context()) if self._address.secure else None
        given = {"host": self._address.authority, **(headers or {})}
        self._head = "".join(f"{name}: {_header_value(value)}\r\n" for name, value in given.items())
        self._protocol: _HttpProtocol | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Ask, and give the answer, whatever its status; ConnectionFailed when there is none."""
        own = "".join(f"{name}: {_header_value(value)}\r\n" for name, value in (headers or {}).items())
        request = (
            f"{method} {self._address.prefix}{_header_value(path)} HTTP/1.1\r\n{self._head}{own}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        try:
            return await (await self._open()).exchange(request, timeout_s)
        except _ClosedWhileIdle:
            return await (await self._open()).exchange(request, timeout_s)

    def close(self) -> None:
        """Hang up; the next question opens a new connection."""
        if self._protocol is not None:
            self._protocol.hang_up()
            self._protocol = None

    async def _open(self) -> "_HttpProtocol":
        if self._protocol is not None and self._protocol.usable:
            return self._protocol
        self.close()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, protocol = await loop.create_connection(
                    lambda: _HttpProtocol(loop), self._address.host, self._address.port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(
                f"{self._address.authority} does not answer: {str(error) or 'no connection in time'}"
            ) from error
        self._protocol = protocol
        return protocol


class _HttpProtocol(asyncio.BufferedProtocol):
    """One connection and the answer that it waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._used = False  # an exchange has been completed on it
        self._answer_begun = False  # something of the answer has come
        self._headers: dict[str, str] = {}
        self._headers_size = 0
        self._body: list[bytes] = []
        self._size = 0

    @property
    def usable(self) -> bool:
        """Whether another question may go over it."""
        return self._transport is not None and not self._transport.is_closing() and self._waiting is None

    async def exchange(self, request: bytes, timeout_s: float) -> HttpResponse:
        """Send a request and wait for its answer; a time-out ends the connection, for the answer may come later."""
        if self._transport is None:
            raise _ClosedWhileIdle("the connection was closed")
        waiting: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._waiting = waiting
        self._answer_begun = False
        self._transport.write(request)
        timer = self._loop.call_later(timeout_s, self._fail, "no answer in time")
        try:
            return await waiting
        except asyncio.CancelledError:
            self.hang_up()
            raise
        finally:
            timer.cancel()
            self._waiting = None

    def hang_up(self) -> None:
        """End the connection, and with it whatever waits."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size is ours to choose
        """Say where to put what comes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read on."""
        if self._waiting is None:
            self.hang_up()  # nobody asked
            return
        self._answer_begun = True
        with contextlib.suppress(_TooLarge):
            try:
                self._parser.feed_data(self._buffer[:nbytes])
            except httptools.HttpParserError as error:
                self._fail(f"the answer is no HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits: its answer cannot come any more."""
        self._transport = None
        self._fail(f"the connection was lost: {error}" if error else "the connection was closed before the answer")

    # What the parser says.

    def on_message_begin(self) -> None:
        """An answer begins."""
        self._headers, self._headers_size, self._body, self._size = {}, 0, [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        self._headers_size += len(name) + len(value)
        self._check_size(self._headers_size, HEADERS_MAX)
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Note a part of the body."""
        self._size += len(body)
        self._check_size(self._size, BODY_MAX)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand over the answer; a provisional one (100 to 199) is followed by the true one."""
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
            self._fail(f"the answer is larger than {size_max} bytes")
            raise _TooLarge

    def _fail(self, why: str) -> None:
        self.hang_up()
        if self._waiting is not None and not self._waiting.done():
            stale = self._used and not self._answer_begun and "closed" in why
            self._waiting.set_exception(_ClosedWhileIdle(why) if stale else ConnectionFailed(why))


class _TooLarge(Exception):
    """Leaves the parser, once an answer has grown too large."""


def _header_value(text: str) -> str:
    """Refuse what would end a header and begin another."""
    if "\r" in text or "\n" in text:
        raise ValueError("a header is one line")
    return text
