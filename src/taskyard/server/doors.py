"""The doors: no more people inside than there is room for, and every request is noted when it leaves.

Plain ASGI, so that whoever waits still hears that a client has gone.
"""

import re
import secrets
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskyard.server.logs import log
from taskyard.server.meters import Meters
from taskyard.server.problems import RETRY_CROWD_S, refused, response

#: Whoever watches the server gets in, also when it is full.
ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
#: What is no route, for whoever counts: a stranger must not fill the memory with names.
NO_ROUTE: Final = "(none)"
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LOG = log("taskyard.server")


class Crowd:
    """Lets so many in at once, and asks the others to come again."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._inside >= self._most:
            retry = {"Retry-After": str(RETRY_CROWD_S)}
            full = refused(429, "overloaded", f"{self._most} requests are under way already", headers=retry)
            await response(full)(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1


class Watch:
    """Gives each request an id, and notes how it went: never what it said, and never who said it."""

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app = app
        self._meters = meters

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
        if scope["path"] not in ALWAYS:
            took_ms = round(took * 1000, 1)
            _LOG.info("request", request_id=id, method=method, route=route, status=status, duration_ms=took_ms)


def _id(scope: Scope) -> bytes:
    """Give the id that a request came with, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
