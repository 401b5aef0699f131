"""ASGI middleware: limits on concurrent requests, HEAD answered as GET, and the access log.

Plain ASGI, so that a request that waits still notices that its client has gone.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskyard.server.errors import RETRY_OVERLOADED_S, problem_response, refused
from taskyard.server.logs import log
from taskyard.server.metrics import ServerMetrics
from taskyard.server.settings import Settings

#: Whoever watches the server gets in, also when it is full.
UNLIMITED_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
#: What is no route, for whoever counts: a stranger must not fill the memory with names.
NO_ROUTE: Final = "(none)"
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_READ_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Where a request keeps its place.
SLOT: Final = "taskyard.seat"
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ACCESS_LOG = log("taskyard.server")


class ConcurrencyLimit:
    """Lets so many in at once, of one caller no more than half of them, and asks the others to come again.

    While too much waits for the writer, who only looks comes in, and who wants something done does not.
    """

    def __init__(self, app: ASGIApp, bounds: Settings, queued: Callable[[], int] = int) -> None:
        self._app = app
        self._bounds = bounds
        self._queued = queued
        self._inside = 0
        self._per_token: Counter[bytes] = Counter()  # of those inside, by the token that they show
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        token = _authorization(scope)
        if why := self._full(scope, token):
            retry = {"Retry-After": str(RETRY_OVERLOADED_S)}
            await problem_response(refused(429, "overloaded", why, headers=retry))(scope, receive, send)
            return
        slot = scope[SLOT] = Slot(self, token)
        try:
            await self._app(scope, receive, send)
        finally:
            slot.leave()

    def take(self, token: bytes) -> None:
        """Count somebody who came in."""
        self._inside += 1
        self._per_token[token] += 1

    def give(self, token: bytes) -> None:
        """Count somebody who left."""
        self._inside -= 1
        self._per_token[token] -= 1
        if not self._per_token[token]:
            del self._per_token[token]

    @contextmanager
    def waiting(self, slot: "Slot") -> Iterator[None]:
        """Let somebody wait outside, as long as there is room for that."""
        if self._waiting >= self._bounds.waiting_max:
            yield
            return
        slot.leave()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _full(self, scope: Scope, token: bytes) -> str | None:
        """Say why somebody cannot come in now."""
        most = self._bounds.in_flight_max
        if self._inside >= most:
            return f"{most} requests are under way already"
        if token and self._per_token[token] >= max(1, most // 2):
            return f"{max(1, most // 2)} requests with this token are under way already"
        if scope["method"] not in _READ_METHODS and self._queued() >= self._bounds.queue_max:
            return f"{self._bounds.queue_max} commands wait to be carried out already"
        return None


class Slot:
    """Somebody's place inside."""

    def __init__(self, limit: ConcurrencyLimit, token: bytes) -> None:
        self._limit = limit
        self._token = token
        self._taken = True
        limit.take(token)

    def released_while_waiting(self) -> AbstractContextManager[None]:
        """Do nothing but wait, and leave the place to others; who has waited may finish without one."""
        return self._limit.waiting(self)

    def leave(self) -> None:
        """Give the place back, once."""
        if self._taken:
            self._taken = False
            self._limit.give(self._token)


def slot_of(request: Request) -> Slot:
    """Give the place of somebody who is inside."""
    slot: Slot = request.scope[SLOT]
    return slot


class HeadAsGet:
    """Answers HEAD as GET is answered, with the headers alone; a stream learns that its reader has gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        await self._app({**scope, "method": "GET"}, receive, headers_only)


class AccessLog:
    """Gives each request an id, and notes how it went: never what it said, and never who said it."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._meters = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, id = time.monotonic(), _id(scope)
        status = 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", id))
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            self._note(scope, id.decode(), status, time.monotonic() - began)

    def _note(self, scope: Scope, id: str, status: int, took: float) -> None:
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        method = scope["method"] if scope["method"] in _METHODS else NO_ROUTE
        self._meters.count(method, route, status, took)
        if scope["path"] not in UNLIMITED_PATHS:
            took_ms = round(took * 1000, 1)
            _ACCESS_LOG.info("request", request_id=id, method=method, route=route, status=status, duration_ms=took_ms)


def _id(scope: Scope) -> bytes:
    """Give the id that a request came with, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()


def _authorization(scope: Scope) -> bytes:
    """Give what somebody shows as a token, good or not."""
    return next((bytes(value) for name, value in scope["headers"] if name == b"authorization"), b"")
