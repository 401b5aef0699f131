"""Requests to the API: JSON in both directions, pages, and refusals raised as errors."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

from taskyard.sdk.errors import Unreadable, Unset, error_for
from taskyard.sdk.http import HttpRequest, HttpResponse, Transport
from taskyard.wire.api import Problem

if TYPE_CHECKING:
    from ssl import SSLContext

    from taskyard.sdk.servers import ServerList

#: The prefix of every route.
ROOT: Final = "/api/v1"
#: How many items to request per page: the server's limit.
PAGE_MAX: Final = 200

T = TypeVar("T")
Item_co = TypeVar("Item_co", covariant=True)
Query = Mapping[str, str | int | bool | list[str] | None]


class Page(Protocol[Item_co]):
    """A page of items, and the cursor of the next one."""

    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def next(self) -> str | None: ...


class ApiSession:
    """Sends requests to the API of a server, or of another one of its database, with one token."""

    def __init__(
        self,
        servers: "str | ServerList",
        token: str,
        timeout_s: float,
        ca_file: str | None = None,
        tls: "SSLContext | None" = None,
    ) -> None:
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise Unset("the token contains characters that no token has")
        headers = {"accept": "application/json", "user-agent": "taskyard"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._transport = Transport(servers, headers, timeout_s, ca_file, tls)
        self.url = self._transport.url

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def get(self, path: str, shape: type[T], query: Query | None = None) -> T:
        """Read a value."""
        return self._read(self._send(HttpRequest("GET", ROOT + path + _query_string(query))), shape)

    def raw(self, path: str, query: Query) -> bytes:
        """Read bytes."""
        return self._send(HttpRequest("GET", ROOT + path + _query_string(query))).body

    def stream(self, path: str, query: Query) -> Iterator[bytes]:
        """Read bytes as they arrive; the first item is empty and means that the server has answered."""
        for part in self.answer_and_pieces(path, query):
            yield b"" if isinstance(part, HttpResponse) else part

    def answer_and_pieces(
        self, path: str, query: Query, headers: Mapping[str, str] | None = None
    ) -> Iterator[HttpResponse | bytes]:
        """Read bytes as they arrive, behind the server's answer without them."""
        for part in self._transport.stream(HttpRequest("GET", ROOT + path + _query_string(query), None, headers)):
            if isinstance(part, HttpResponse):
                self._check_status(part)
            yield part

    def pages(self, path: str, query: Query, shape: "type[Page[Item_co]]", limit: int | None) -> Iterator[Item_co]:
        """Read page after page, as far as they are consumed, up to `limit` items."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(left, PAGE_MAX)
            page = self.get(path, shape, {**query, "cursor": cursor, "limit": size})
            yield from page.items
            left = None if left is None else left - len(page.items)
            cursor = page.next
            if cursor is None:
                return

    def post(self, path: str, body: object, shape: type[T], *, key: str = "", repeatable: bool = True) -> T:
        """Make a change. Its key makes repetitions the same change."""
        headers = {"idempotency-key": key or os.urandom(16).hex()}
        return self._read(self._send_change("POST", path, body, headers, repeatable), shape)

    def put(self, path: str, body: object, shape: type[T]) -> T:
        """Replace a resource; a repetition has no further effect."""
        return self._read(self._send_change("PUT", path, body), shape)

    def put_raw(self, path: str, body: bytes, kind: str = "application/octet-stream") -> None:
        """Store bytes."""
        headers = {"content-type": kind}
        self._send(HttpRequest("PUT", ROOT + path, body, headers))

    def send_bytes(self, path: str, body: bytes, kind: str) -> bytes:
        """Send bytes and return the answer's; a repetition has no further effect."""
        return self._send(HttpRequest("POST", ROOT + path, body, {"content-type": kind})).body

    def patch(self, path: str, body: object, shape: type[T]) -> T:
        """Update some fields of a resource; a repetition has no further effect."""
        return self._read(self._send_change("PATCH", path, body), shape)

    def delete(self, path: str, shape: type[T]) -> T:
        """Delete or end something; a repetition has no further effect."""
        return self._read(self._send(HttpRequest("DELETE", ROOT + path)), shape)

    def remove(self, path: str) -> None:
        """Delete something. Its key makes repetitions the same change."""
        self._send(HttpRequest("DELETE", ROOT + path, None, {"idempotency-key": os.urandom(16).hex()}))

    def _send_change(
        self,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> HttpResponse:
        import msgspec  # noqa: PLC0415 - slow to load

        encoded = b"{}" if body is None and method == "POST" else msgspec.json.encode(body)
        all_headers = {"content-type": "application/json", **(headers or {})}
        return self._send(HttpRequest(method, ROOT + path, encoded, all_headers, repeatable))

    def _send(self, request: HttpRequest) -> HttpResponse:
        return self._check_status(self._transport.ask(request))

    def _check_status(self, answer: HttpResponse) -> HttpResponse:
        """Return a successful answer, or raise its error."""
        if 200 <= answer.status < 300:
            return answer
        raise error_for(self._problem(answer))

    def _problem(self, answer: HttpResponse) -> Problem:
        import msgspec  # noqa: PLC0415

        try:
            return msgspec.json.decode(answer.body, type=Problem)
        except msgspec.MsgspecError as error:
            raise Unreadable(self.url, f"status {answer.status} without a problem document") from error

    def _read(self, answer: HttpResponse, shape: type[T]) -> T:
        import msgspec  # noqa: PLC0415

        if not answer.body and shape is object:
            return shape()
        try:
            return msgspec.json.decode(answer.body, type=shape)
        except msgspec.MsgspecError as error:
            raise Unreadable(self.url, str(error)) from error


def segment(name: str) -> str:
    """Quote a name for use as one segment of a path."""
    return quote(name, safe="")


def _query_string(query: Query | None) -> str:
    pairs: dict[str, Any] = {name: _query_value(value) for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(pairs, doseq=True)}" if pairs else ""


def _query_value(value: str | int | bool | list[str] | None) -> object:
    return str(value).lower() if isinstance(value, bool) else value
