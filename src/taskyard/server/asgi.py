"""ASGI middleware of the user API: the limit of concurrent requests, HEAD answered like GET, and the access log.

It is plain ASGI, so that a waiting route still learns that its client has disconnected.
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

#: Monitoring is answered even when the server is at its limits.
UNLIMITED_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
#: Stands for unknown routes and methods in metrics: clients must not be able to add names without limit.
NO_ROUTE: Final = "(none)"
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_CALLER_HEADERS: Final = frozenset({b"authorization", b"cookie"})
_READ_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: The key in the ASGI scope under which a request finds its slot.
SLOT: Final = "taskyard.slot"
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ACCESS_LOG = log("taskyard.server")


class ConcurrencyLimit:
    """Limits how many requests run at once, and and how many of one caller: at most half. Others get 429.

    While too many commands wait for the writer, it accepts only requests that read.
    """

    def __init__(self, app: ASGIApp, settings: Settings, queued: Callable[[], int] = int) -> None:
        self._app = app
        self._settings = settings
        self._queued = queued
        self._running = 0
        self._per_token: Counter[bytes] = Counter()  # running requests by the token they sent
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        token = _authorization(scope)
        if why := self._rejection(scope, token):
            retry = {"Retry-After": str(RETRY_OVERLOADED_S)}
            await problem_response(refused(429, "overloaded", why, headers=retry))(scope, receive, send)
            return
        slot = scope[SLOT] = Slot(self, token)
        try:
            await self._app(scope, receive, send)
        finally:
            slot.release()

    def acquire(self, token: bytes) -> None:
        """Count a request that starts."""
        self._running += 1
        self._per_token[token] += 1

    def release(self, token: bytes) -> None:
        """Count a request that has ended."""
        self._running -= 1
        self._per_token[token] -= 1
        if not self._per_token[token]:
            del self._per_token[token]

    @contextmanager
    def waiting(self, slot: "Slot") -> Iterator[None]:
        """Release the slot while a request only waits, if another one may wait."""
        if self._waiting >= self._settings.waiting_max:
            yield
            return
        slot.release()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _rejection(self, scope: Scope, token: bytes) -> str | None:
        """Return why a request cannot run now; None if it can."""
        most = self._settings.in_flight_max
        if self._running >= most:
            return f"{most} requests are already in progress"
        if token and self._per_token[token] >= max(1, most // 2):
            return f"{max(1, most // 2)} requests with this token are already in progress"
        if scope["method"] not in _READ_METHODS and self._queued() >= self._settings.queue_max:
            return f"{self._settings.queue_max} commands are already waiting"
        return None


class Slot:
    """The share of the concurrency limit that one request uses."""

    def __init__(self, limit: ConcurrencyLimit, token: bytes) -> None:
        self._limit = limit
        self._token = token
        self._held = True
        limit.acquire(token)

    def released_while_waiting(self) -> AbstractContextManager[None]:
        """Release the slot while the request waits; it then finishes without one."""
        return self._limit.waiting(self)

    def release(self) -> None:
        """Release the slot, once."""
        if self._held:
            self._held = False
            self._limit.release(self._token)


def slot_of(request: Request) -> Slot:
    """Return the slot of a request."""
    slot: Slot = request.scope[SLOT]
    return slot


class HeadAsGet:
    """Answers HEAD like GET, without the body; a streaming route learns that its client has disconnected."""

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
    """Gives each request an id, and logs and counts it: never its content, never its token."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._meters = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, id = time.monotonic(), _id(scope)
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-request-id", id))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
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
    """Return the id that the request came with, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()


def _authorization(scope: Scope) -> bytes:
    """Return the Authorization header as sent, valid or not; without one, the cookies, among which a session may be."""
    found = {name: bytes(value) for name, value in scope["headers"] if name in _CALLER_HEADERS}
    return found.get(b"authorization") or found.get(b"cookie", b"")
