"""The client's HTTP transport: pooled connections, and retries where they are safe.

All threads of a program share the connections. A request that the server put off is sent again; one that was
interrupted only if repeating it is harmless: reads, and changes that the server recognises by their key. Redirects
and proxies are not used: a token goes to the named server only.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from taskyard.sdk.backoff import backoff_s, retry_after_s
from taskyard.sdk.errors import Unreachable, Unreadable, Unset
from taskyard.sdk.servers import AWAY, ServerList

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

#: How often a request is tried at most; with the pauses, giving up takes about three seconds.
TRIES_MAX: Final = 5
#: The longest pause before the second try; each further pause may be twice as long, up to the maximum.
WAIT_SECONDS: Final = 0.2
WAIT_SECONDS_MAX: Final = 5.0
#: The longest pause that a server's Retry-After can ask for.
RETRY_AFTER_SECONDS_MAX: Final = 30.0
#: Larger than the longest stored output, and than the names of the largest graph.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
#: How many idle connections are kept; a program with more threads opens some anew.
IDLE_MAX: Final = 8
#: How much of a stream is read at once.
CHUNK_BYTES: Final = 65_536

_PORTS: Final = {"http": 80, "https": 443}


class InsecureWarning(UserWarning):
    """A token is sent where others can read it."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. `repeatable`: sending it twice has the same effect as sending it once."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class _Address(NamedTuple):
    """The parts of the address of a server."""

    scheme: str
    host: str
    port: int
    prefix: str  # comes before every path


class Transport:
    """Sends requests to a server, or to another one of the same database. Any thread may use it."""

    def __init__(
        self,
        servers: str | ServerList,
        headers: Mapping[str, str],
        timeout_s: float,
        ca_file: str | None = None,
        tls: "SSLContext | None" = None,
    ) -> None:
        self._idle: dict[str, list[HTTPConnection]] = {}  # by server
        self._lock = Lock()
        self._servers = ServerList(servers) if isinstance(servers, str) else servers
        self.url = ",".join(self._servers.urls)
        self._addresses = {url: _split_url(url) for url in self._servers.urls}
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        is_secure = any(address.scheme == "https" for address in self._addresses.values())
        self._tls = tls or (tls_context(ca_file) if ca_file and is_secure else None)

    def ask(self, request: HttpRequest) -> HttpResponse:
        """Send a request until there is an answer; raise `Unreachable` if there is none.

        Every server is asked once before a pause.
        """
        tries = 0
        while True:
            server = self._servers.current
            answer, lost = self._answer_or_loss(server, request)
            if answer is not None and not _should_retry(answer, request):
                self._servers.answered()
                return answer
            if lost is not None and not (request.repeatable or lost.unsent):
                raise Unreachable(self.url, lost.why) from lost
            if (answer is None or answer.status in AWAY) and self._servers.move_on(server):
                continue
            tries += 1
            if tries == TRIES_MAX and answer is not None:
                return answer
            if tries == TRIES_MAX and lost is not None:
                raise Unreachable(self.url, lost.why) from lost
            asked = None if answer is None else _requested_pause(answer)
            time.sleep(asked or backoff_s(tries - 1, WAIT_SECONDS, WAIT_SECONDS_MAX))

    def _answer_or_loss(
        self, server: str, request: HttpRequest
    ) -> "tuple[HttpResponse | None, _ConnectionLost | None]":
        try:
            return self._try_once(server, request), None
        except _ConnectionLost as lost:
            return None, lost

    def stream(self, request: HttpRequest) -> Iterator[HttpResponse | bytes]:
        """Send a request once; yield the answer without its body, then the body piece by piece as it arrives.

        An answer that is not a success has its body, and ends the stream. `Unreachable` means that it was interrupted.
        """
        server = self._servers.current
        # The connection ends with the stream: a rest of the stream must not be read as the next answer.
        with closing(self._connection(server)) as connection:
            try:
                response = self._send(server, connection, request)
                if response.status in AWAY:
                    self._servers.move_on(server)
                if response.status >= 300:
                    yield _read_response(response, self.url)
                    return
                self._servers.answered()
                yield HttpResponse(response.status, _headers_of(response), b"")
                while piece := response.read1(CHUNK_BYTES):
                    yield piece
            except _network_errors() as error:
                self._servers.move_on(server)
                raise Unreachable(self.url, _reason(error)) from error

    def close(self) -> None:
        """Close idle connections; later requests open new ones."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def __del__(self) -> None:
        # Short programs often do not close their client; that must not cause a warning.
        self.close()

    def _try_once(self, server: str, request: HttpRequest) -> HttpResponse:
        # The server closes connections that are idle for long, so a kept connection may fail:
        # try a new one. A request that is not repeatable gets a new one from the start.
        connection = self._take_idle(server) if request.repeatable else None
        if connection is not None:
            with suppress(_ConnectionLost):
                return self._exchange(server, connection, request)
        return self._exchange(server, self._new_connection(server), request)

    def _take_idle(self, server: str) -> "HTTPConnection | None":
        with self._lock:
            idle = self._idle.get(server)
            return idle.pop() if idle else None

    def _new_connection(self, server: str) -> "HTTPConnection":
        connection = self._connection(server)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise _ConnectionLost(_reason(error), unsent=True) from error
        return connection

    def _exchange(self, server: str, connection: "HTTPConnection", request: HttpRequest) -> HttpResponse:
        """Send a request on a connection, and keep the connection if the answer is complete."""
        try:
            response = self._send(server, connection, request)
            answer = _read_response(response, self.url)
        except _network_errors() as error:
            connection.close()
            raise _ConnectionLost(_reason(error)) from error
        except BaseException:
            connection.close()
            raise
        self._keep(server, connection, response)
        return answer

    def _send(self, server: str, connection: "HTTPConnection", request: HttpRequest) -> "HTTPResponse":
        headers = {**self._headers, **(request.headers or {})}
        connection.request(request.method, self._addresses[server].prefix + request.path, request.body, headers)
        return connection.getresponse()

    def _keep(self, server: str, connection: "HTTPConnection", response: "HTTPResponse") -> None:
        with self._lock:
            idle = self._idle.setdefault(server, [])
            if not response.will_close and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.close()

    def _connection(self, server: str) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - slow to load

        address = self._addresses[server]
        if address.scheme == "https":
            return HTTPSConnection(address.host, address.port, timeout=self._timeout_s, context=self._tls)
        return HTTPConnection(address.host, address.port, timeout=self._timeout_s)


def tls_context(ca_file: str) -> "SSLContext":
    """Make a TLS context that trusts only the authorities in a file."""
    from ssl import SSLError, create_default_context  # noqa: PLC0415 - slow to load

    try:
        return create_default_context(cafile=ca_file)
    except SSLError as error:
        raise Unset(f"{ca_file} has no certificate of an authority in PEM form: {error.reason or error}") from error
    except OSError as error:
        raise Unset(f"cannot read the CA file {ca_file}: {error.strerror}") from error


def plaintext_token_warning(urls: str, token: str | None) -> str | None:
    """Say why a token should not be sent to one or several addresses; None if it may be."""
    for url in urls.split(",") if token else ():
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        if parts.scheme == "http" and host not in ("localhost", "::1") and not host.startswith("127."):
            return f"the token goes to {host} over plain HTTP, where others on the way can read it: use https://"
    return None


class _ConnectionLost(Exception):
    """The connection failed during a request; `unsent` means that nothing can have arrived."""

    def __init__(self, why: str, *, unsent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.unsent = unsent


def _split_url(url: str) -> _Address:
    """Split an address into its parts."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        raise Unset(f"{url!r} is not the address of a server: it looks like http://127.0.0.1:8420") from None
    if not parts.hostname or parts.query or parts.fragment or parts.username or not url.isascii():
        raise Unset(f"{url!r} is not the address of a server: it looks like http://127.0.0.1:8420")
    return _Address(parts.scheme, parts.hostname, port, parts.path)


def _network_errors() -> tuple[type[Exception], ...]:
    from http.client import HTTPException  # noqa: PLC0415

    return (OSError, HTTPException)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _read_response(response: "HTTPResponse", url: str) -> HttpResponse:
    body = response.read(ANSWER_BYTES_MAX + 1)
    if len(body) > ANSWER_BYTES_MAX:
        raise Unreadable(url, f"it has more than {ANSWER_BYTES_MAX} bytes")
    if response.length:
        raise ConnectionResetError(f"{response.length} bytes of the answer are missing")
    return HttpResponse(response.status, _headers_of(response), body)


def _headers_of(response: "HTTPResponse") -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _should_retry(answer: HttpResponse, request: HttpRequest) -> bool:
    """Whether to try again later: 429 means that nothing was done; the others need a repeatable request."""
    return answer.status == 429 or (
        request.repeatable and (answer.status in AWAY or (answer.status == 409 and "retry-after" in answer.headers))
    )


def _requested_pause(answer: HttpResponse) -> float | None:
    """Return the pause that the server asked for, with a random part, so that clients do not all return at once."""
    asked = retry_after_s(answer.headers.get("retry-after"), RETRY_AFTER_SECONDS_MAX)
    return None if asked is None else asked * random.uniform(1, 1.5)  # noqa: S311
