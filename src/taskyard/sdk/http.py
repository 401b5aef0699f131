"""Requests over HTTP, one thread at a time on each connection, and again where that is safe.

Connections are kept and shared by all threads of a program. A request that the server put off is repeated; one
that was cut off only if it may be: reading, and whatever the server knows again by its key. Redirects are not
followed and proxies not used: a token goes to the server that was named, and nowhere else. What an answer means is not
judged here.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from taskyard.sdk.backoff import backoff_s, retry_after_s
from taskyard.sdk.errors import Unreachable, Unreadable, Unset

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

#: How often a request is made at most; with the waits between, it takes some three seconds to give up.
TRIES_MAX: Final = 5
#: The longest wait before the second try; each further wait may be twice as long, up to the last of these.
WAIT_SECONDS: Final = 0.2
WAIT_SECONDS_MAX: Final = 5.0
#: What a server asks for beyond this is not waited for in one piece.
RETRY_AFTER_SECONDS_MAX: Final = 30.0
#: More than the longest output that is kept, and than the names of the largest graph.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
#: Connections that are kept for the next request; a program with more threads than that makes some anew.
IDLE_MAX: Final = 8
#: How much of a stream is asked for at once.
CHUNK_BYTES: Final = 65_536

_PORTS: Final = {"http": 80, "https": 443}


class InsecureWarning(UserWarning):
    """A token goes where others can read it on its way."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is asked. `repeatable`: doing it twice is the same as doing it once."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back."""

    status: int
    headers: Mapping[str, str]  # names in small letters
    body: bytes


class Transport:
    """The way to one server. Any thread may use it."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float, ca_file: str | None = None) -> None:
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()
        self.url = url.rstrip("/")
        self._scheme, self._host, self._port, self._prefix = _split_url(self.url)
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._tls = tls_context(ca_file) if ca_file and self._scheme == "https" else None

    def ask(self, request: HttpRequest) -> HttpResponse:
        """Ask until there is an answer; raise `Unreachable` when nobody gives one."""
        for number in range(1, TRIES_MAX):
            try:
                answer = self._try_once(request)
            except _ConnectionLost as lost:
                if not (request.repeatable or lost.unsent):
                    raise Unreachable(self.url, lost.why) from lost
                time.sleep(backoff_s(number - 1, WAIT_SECONDS, WAIT_SECONDS_MAX))
                continue
            if not _should_retry(answer, request):
                return answer
            time.sleep(_requested_pause(answer) or backoff_s(number - 1, WAIT_SECONDS, WAIT_SECONDS_MAX))
        try:
            return self._try_once(request)
        except _ConnectionLost as lost:
            raise Unreachable(self.url, lost.why) from lost

    def stream(self, request: HttpRequest) -> Iterator[HttpResponse | bytes]:
        """Ask once; give the answer without its body, then the body piece by piece as it comes.

        An answer that is no success comes with its body, and ends the stream. `Unreachable` says that it was cut.
        """
        # A stream ends with its connection: nothing of it may be left over for the next request.
        with closing(self._connection()) as connection:
            try:
                response = self._send(connection, request)
                if response.status >= 300:
                    yield _read_response(response, self.url)
                    return
                yield HttpResponse(response.status, _headers_of(response), b"")
                while piece := response.read1(CHUNK_BYTES):
                    yield piece
            except _network_errors() as error:
                raise Unreachable(self.url, _reason(error)) from error

    def close(self) -> None:
        """Hang up. Whatever is asked later makes a new connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        # Many a short program makes a client and never closes it: nobody has to hear of that.
        self.close()

    def _try_once(self, request: HttpRequest) -> HttpResponse:
        # A server closes what was idle for long: only a new connection tells whether it is there. What may not be asked
        # twice gets a new one at once.
        connection = self._take_idle() if request.repeatable else None
        if connection is not None:
            with suppress(_ConnectionLost):
                return self._exchange(connection, request)
        return self._exchange(self._new_connection(), request)

    def _take_idle(self) -> "HTTPConnection | None":
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _new_connection(self) -> "HTTPConnection":
        connection = self._connection()
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise _ConnectionLost(_reason(error), unsent=True) from error
        return connection

    def _exchange(self, connection: "HTTPConnection", request: HttpRequest) -> HttpResponse:
        """Make one request on one connection, and keep the connection if the answer is whole."""
        try:
            response = self._send(connection, request)
            answer = _read_response(response, self.url)
        except _network_errors() as error:
            connection.close()
            raise _ConnectionLost(_reason(error)) from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection, response)
        return answer

    def _send(self, connection: "HTTPConnection", request: HttpRequest) -> "HTTPResponse":
        headers = {**self._headers, **(request.headers or {})}
        connection.request(request.method, self._prefix + request.path, request.body, headers)
        return connection.getresponse()

    def _keep(self, connection: "HTTPConnection", response: "HTTPResponse") -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _connection(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - it costs time to load

        if self._scheme == "https":
            return HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def tls_context(ca_file: str) -> "SSLContext":
    """Make what believes the certificates that an authority in a file has signed, and no others."""
    from ssl import SSLError, create_default_context  # noqa: PLC0415 - it costs time to load

    try:
        return create_default_context(cafile=ca_file)
    except SSLError as error:
        raise Unset(f"{ca_file} has no certificate of an authority in PEM form: {error.reason or error}") from error
    except OSError as error:
        raise Unset(f"cannot read the CA file {ca_file}: {error.strerror}") from error


def plaintext_token_warning(url: str, token: str | None) -> str | None:
    """Say what is wrong with sending a token there; None if nothing is."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not token or parts.scheme != "http" or host in ("localhost", "::1") or host.startswith("127."):
        return None
    return f"the token goes to {host} over plain HTTP, where others on the way can read it: use https://"


class _ConnectionLost(Exception):
    """A request was cut off; `unsent` says that nothing of it can have arrived."""

    def __init__(self, why: str, *, unsent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.unsent = unsent


def _split_url(url: str) -> tuple[str, str, int, str]:
    """Take an address apart: scheme, host, port, and what comes before every path."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        raise Unset(f"{url!r} is no address of a server: it looks like http://127.0.0.1:8420") from None
    if not parts.hostname or parts.query or parts.fragment or parts.username or not url.isascii():
        raise Unset(f"{url!r} is no address of a server: it looks like http://127.0.0.1:8420")
    return parts.scheme, parts.hostname, port, parts.path


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
    """Tell whether to ask again later: 429 says that nothing was done; others that it may be, or cannot be done yet."""
    return answer.status == 429 or (
        request.repeatable and (answer.status == 503 or (answer.status == 409 and "retry-after" in answer.headers))
    )


def _requested_pause(answer: HttpResponse) -> float | None:
    """How long the server asked to be left alone, and a chosen bit longer: those who were asked together part."""
    asked = retry_after_s(answer.headers.get("retry-after"), RETRY_AFTER_SECONDS_MAX)
    return None if asked is None else asked * random.uniform(1, 1.5)  # noqa: S311
