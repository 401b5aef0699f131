"""Refusals as problem documents (RFC 9457) that list every fault."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from taskyard.engine.errors import EngineError, Full, Overloaded, Unavailable
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.wire.api import Fault, Problem

MEDIA_TYPE: Final = "application/problem+json"
#: The Retry-After of an overloaded server and of an unavailable database, in seconds.
RETRY_OVERLOADED_S: Final = 1
RETRY_UNAVAILABLE_S: Final = 5
#: How many faults a problem lists, and how long each text may be: answers stay small.
FAULTS_MAX: Final = 101
TEXT_MAX: Final = 1_000

_STATUS: Final[Mapping[Code, int]] = {
    Code.NOT_FOUND: 404,
    Code.INVALID: 400,
    Code.CONFLICT: 409,
    Code.LOADING: 409,
    Code.LEASE_LOST: 409,
    Code.FORBIDDEN: 403,
    Code.SESSION_REPLACED: 409,
    Code.OUTDATED: 409,
    Code.NO_SECRET: 409,
    Code.NO_SECRET_KEY: 409,
}


class RequestRefused(Exception):
    """Refuses a request; `problem` says why."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = dict(headers or {})


def refused(
    status: int, code: str, detail: str, faults: Iterable[Fault] = (), headers: Mapping[str, str] | None = None
) -> RequestRefused:
    """Make the error that refuses a request."""
    listed = [Fault(_short(one.message), _short(one.path)) for one in list(faults)[:FAULTS_MAX]]
    title = HTTPStatus(status).phrase
    return RequestRefused(Problem(f"urn:taskyard:problem:{code}", title, status, _short(detail), code, listed), headers)


def invalid(detail: str, faults: Iterable[Fault] = ()) -> RequestRefused:
    """Refuse an invalid request, with all its faults."""
    return refused(400, Code.INVALID, detail, faults)


def invalid_field(message: str, path: str) -> RequestRefused:
    """Refuse a request because of one invalid field or parameter."""
    return invalid(f"{path}: {message}", [Fault(message, path)])


def not_found(what: str, id: str) -> RequestRefused:
    """Refuse a request for something that does not exist."""
    return refused(404, Code.NOT_FOUND, f"there is no {what} {id}")


def from_refusal(refusal: Refusal) -> RequestRefused:
    """Convert a refusal of the engine."""
    headers = {"Retry-After": str(RETRY_OVERLOADED_S)} if refusal.code is Code.LOADING else {}
    faults = [Fault(one.message, one.path) for one in refusal.faults]
    return refused(_STATUS[refusal.code], refusal.code, refusal.text, faults, headers)


def from_engine_error(trouble: EngineError) -> RequestRefused:
    """Convert an error of the engine: an overload, an outage or a bug."""
    if isinstance(trouble, Overloaded):
        return refused(429, "overloaded", str(trouble), headers={"Retry-After": str(RETRY_OVERLOADED_S)})
    if isinstance(trouble, Full):
        detail = "the disk of the database is full; nothing was stored, and it goes on once there is space"
        return refused(503, "storage_full", detail, headers={"Retry-After": str(RETRY_UNAVAILABLE_S)})
    if isinstance(trouble, Unavailable):
        # The log has the database's own message.
        detail = "the database is not available; the request may or may not have been carried out"
        return refused(503, "unavailable", detail, headers={"Retry-After": str(RETRY_UNAVAILABLE_S)})
    return refused(500, "failed", "this is a bug of the server; nothing was done")


def problem_response(fault: RequestRefused) -> Response:
    """Write a refusal as an HTTP response."""
    body = msgspec.json.encode(fault.problem)
    return Response(body, fault.problem.status, fault.headers, MEDIA_TYPE)


def _short(text: str) -> str:
    """Shorten text that a client sent, and escape lone surrogates, which cannot be encoded."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
