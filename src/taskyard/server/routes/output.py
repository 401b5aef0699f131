"""The output of attempts: unchanged bytes, all of them or a range, at once or followed as they arrive.

A task that reused another task's outcome has the output of that task.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from taskyard.core.ids import Key, text_of
from taskyard.server import requests
from taskyard.server.asgi import Slot, slot_of
from taskyard.server.auth import Caller
from taskyard.server.context import AppContext, is_token_valid
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import RETRY_OVERLOADED_S, RequestRefused, invalid_field, not_found, refused
from taskyard.server.requests import ByteRange
from taskyard.server.responses import Download, Page, reply
from taskyard.server.tokens import READ
from taskyard.server.wakeups import pause
from taskyard.store.connection import Repo
from taskyard.store.repo.tasks import ReusedAttempt
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks as task_views
from taskyard.views import tasks as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["tasks"])
#: How often a followed output is read if nothing says that there is more, and for how long it may be followed.
FOLLOW_PAUSE_S: Final = 0.25
FOLLOW_MAX_S: Final = 3_600
#: Longer than any output.
OFFSET_MAX: Final = 2**62
_PLAIN: Final = "text/plain; charset=utf-8"
_BODY: Final = {"content": {"text/plain": {"schema": {"type": "string", "format": "binary"}}}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The output.", **_BODY},
    206: {"description": "The range of it that `Range` asked for.", **_BODY},
}


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """Which output a request asks for."""

    attempt: int | None
    span: ByteRange
    follow: bool


async def get_wanted_output(
    attempt: Annotated[int | None, Query(ge=1, le=2**53, description="The attempt; by default the last one.")] = None,
    follow: Annotated[bool, Query(description="Continue until the attempt ends.")] = False,
    start: Annotated[int, Query(ge=0, le=OFFSET_MAX, description="The first byte.")] = 0,
    end: Annotated[int, Query(ge=0, le=OFFSET_MAX, description="The byte after the last.")] = OFFSET_MAX,
) -> WantedOutput:
    """Read the parameters."""
    if end < start:
        raise invalid_field("must not be before start", "end")
    return WantedOutput(attempt, ByteRange(start, end), follow)


WantedOutputQuery = Annotated[WantedOutput, Depends(get_wanted_output)]


@dataclass(frozen=True, slots=True)
class WantedTimes:
    """Which output times a request asks for."""

    attempt: int | None
    start: int
    since_ms: int


async def get_wanted_times(
    attempt: Annotated[int | None, Query(ge=1, le=2**53, description="The attempt; by default the last one.")] = None,
    start: Annotated[int, Query(ge=0, le=OFFSET_MAX, description="The first byte.")] = 0,
    since_ms: Annotated[int, Query(ge=0, le=2**53, description="The earliest time.")] = 0,
) -> WantedTimes:
    """Read the parameters."""
    return WantedTimes(attempt, start, since_ms)


WantedTimesQuery = Annotated[WantedTimes, Depends(get_wanted_times)]


@dataclass(frozen=True, slots=True)
class _TakenOver:
    """The attempt whose outcome a task has reused; None if it ran itself, or if the other task was deleted."""

    source: ReusedAttempt | None


@dataclass(frozen=True, slots=True)
class _Printed:
    """An attempt, the size of its output, and whether more may arrive."""

    task: int
    attempt: int
    size: int
    going: bool


@routes.get("/tasks/{task_id}/output", responses=_ANSWERS, response_class=Response)
async def show_output(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, asked: WantedOutputQuery
) -> Response:
    """Return the output of an attempt."""
    printed = await _found(context, caller, task_id, asked.attempt)
    if asked.follow:
        return _following(context, caller, printed, asked.span, slot_of(request))
    return _at_once(context, caller, printed, asked.span, request.headers.get("range"))


@routes.get("/tasks/{task_id}/output/times", response_model=api.OutputTimes)
async def show_output_times(
    task_id: str, context: Context, caller: CurrentCaller, page: Page, times: WantedTimesQuery
) -> Response:
    """List when each piece of an attempt's output arrived at the server."""
    printed = await _found(context, caller, task_id, times.attempt)
    start = requests.cursor_key(page.cursor, times.start)
    found, more = await context.read(
        lambda repo: views.output_times(repo, printed.task, printed.attempt, start, times.since_ms, page.limit)
    )
    return reply(api.OutputTimes(found, requests.encode_cursor(more)))


async def _found(context: AppContext, caller: Caller, task_id: str, attempt: int | None) -> _Printed:
    """Find an attempt of a task, or the one whose outcome the task has reused."""
    if attempt is None and (taken := await context.read_task(caller, READ, task_id, _taken_over)).source is not None:
        task_id, attempt = text_of(Key(taken.source.task)), taken.source.attempt
    printed = await context.read_task(caller, READ, task_id, lambda repo, one: _printed(repo, one, attempt))
    if attempt is not None and printed.attempt != attempt:
        raise not_found(f"attempt {attempt} of task", task_id)
    return printed


def _taken_over(repo: Repo, record: TaskRecord) -> _TakenOver:
    source = None if record.life.attempt else repo.reuse.sources([record.id]).get(record.id)
    return _TakenOver(source if source is None or task_views.find(repo, source.task) else None)


def _at_once(context: AppContext, caller: Caller, printed: _Printed, span: ByteRange, header: str | None) -> Response:
    size = printed.size
    ranged = requests.parse_range(header, size)
    if ranged is not None and ranged.start >= ranged.until:
        raise _out_of_range(size)
    span = ranged or ByteRange(min(span.start, size), max(min(span.start, size), min(span.until, size)))
    headers = {**_headers(printed), "Content-Length": str(span.until - span.start), "Accept-Ranges": "bytes"}
    if ranged is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.until - 1}/{size}"
    return Download(_pieces(context, caller, printed, span), 206 if ranged else 200, headers, _PLAIN)


def _following(context: AppContext, caller: Caller, printed: _Printed, span: ByteRange, slot: Slot) -> Response:
    refuse_more_followers(context, caller, "outputs")
    return StreamingResponse(_followed(context, caller, printed, span, slot), 200, _headers(printed), _PLAIN)


async def _pieces(context: AppContext, caller: Caller, printed: _Printed, span: ByteRange) -> AsyncIterator[bytes]:
    """Yield the output so far, as long as the token is valid."""
    at = span.start
    while at < span.until and (piece := await _piece(context, caller, printed, at, span.until)):
        yield piece
        at += len(piece)


async def _followed(
    context: AppContext, caller: Caller, printed: _Printed, span: ByteRange, slot: Slot
) -> AsyncIterator[bytes]:
    """Yield the output so far and what arrives, until the attempt has ended and all is sent, or the token ends."""
    at, loop = span.start, asyncio.get_running_loop()
    until = loop.time() + FOLLOW_MAX_S
    with (
        slot.released_while_waiting(),
        counted_as_follower(context, caller),
        context.output_waiters.registered(printed.task) as woken,
        _followed_task(context, printed.task),
    ):
        while at < span.until and loop.time() < until and not context.closing.is_set():
            # The state is read before the output: the last output of an attempt arrives before its end.
            going = await context.read(lambda repo: _is_going(repo, printed))
            while piece := await _piece(context, caller, printed, at, span.until):
                yield piece
                at += len(piece)
            if piece is None or not going:
                return
            await pause(woken, FOLLOW_PAUSE_S)


@contextmanager
def _followed_task(context: AppContext, task: int) -> Iterator[None]:
    """Have every server tell when a task prints something."""
    context.engine.followed.follow(task)
    try:
        yield
    finally:
        context.engine.followed.leave(task)


def refuse_more_followers(context: AppContext, caller: Caller, what: str) -> None:
    """Refuse a caller who follows too much already, or while all together do."""
    most, retry = context.settings.followers_max, {"Retry-After": str(RETRY_OVERLOADED_S)}
    if context.followers.total() >= most:
        raise refused(429, "overloaded", f"{most} {what} are already being followed", headers=retry)
    # One caller may use at most half of the limit, so that others can follow, too.
    if caller.id:
        share = max(1, most // 2)
        if context.followers[_name_of(caller)] >= share:
            text = f"{share} {what} are already being followed with this token"
            raise refused(429, "overloaded", text, headers=retry)


@contextmanager
def counted_as_follower(context: AppContext, caller: Caller) -> Iterator[None]:
    """Count a caller among those who follow something."""
    name = _name_of(caller)
    context.followers[name] += 1
    try:
        yield
    finally:
        context.followers[name] -= 1
        if not context.followers[name]:
            del context.followers[name]


def _name_of(caller: Caller) -> str:
    return caller.id or caller.actor


async def _piece(context: AppContext, caller: Caller, printed: _Printed, start: int, until: int) -> bytes | None:
    """Read the next piece while the caller's token is valid; None when it no longer is."""

    def look(repo: Repo) -> bytes | None:
        good = is_token_valid(repo, caller, context.engine.clock.now())
        return views.read_output(repo, printed.task, printed.attempt, start, until) if good else None

    return await context.read(look)


def _printed(repo: Repo, record: TaskRecord, attempt: int | None) -> _Printed:
    number = record.life.attempt if attempt is None or attempt > record.life.attempt else attempt
    return _Printed(record.id, number, views.output_size(repo, record.id, number), views.under_way(record, number))


def _is_going(repo: Repo, printed: _Printed) -> bool:
    record = task_views.find(repo, printed.task)
    return record is not None and views.under_way(record, printed.attempt)


def _headers(printed: _Printed) -> dict[str, str]:
    """Keep browsers from interpreting the output of a task as a page."""
    name = f"{printed.task:016x}-{printed.attempt}.log"
    return {
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Taskyard-Attempt": str(printed.attempt),
    }


def _out_of_range(size: int) -> RequestRefused:
    return refused(416, "out_of_range", f"the output has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
