"""The stream of events: server-sent events that a follower can resume on any server.

The id of each is its number in the stream of the database (see `bus.relay`), so nothing depends on which server sends
it. There is no buffer per follower: the next page is read once the last one is sent, so a slow reader only falls
behind, and is told when what it has not read is not kept any more.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from taskyard.bus.relay import StreamPage, read_stream
from taskyard.core import ids
from taskyard.core.events import KINDS
from taskyard.core.graph.model import DIMENSION_VALUE_MAX
from taskyard.core.ids import Key, text_of
from taskyard.engine.errors import outages
from taskyard.server.asgi import Slot, slot_of
from taskyard.server.auth import Caller
from taskyard.server.context import AppContext, is_token_valid
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field
from taskyard.server.routes.graphs import clean
from taskyard.server.routes.output import FOLLOW_MAX_S, FOLLOW_PAUSE_S, counted_as_follower, refuse_more_followers
from taskyard.server.tokens import READ
from taskyard.server.wakeups import pause
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.views.events import event_views
from taskyard.wire.api import EventsLost, EventView

routes = APIRouter(prefix="/api/v1", tags=["graphs"])
#: What the followers of events wait for: there is one stream.
STREAM: Final = 0
#: How many rows of events one query reads.
EVENTS_MAX: Final = 200
#: How often a follower hears something at least: proxies close connections that are silent for a minute.
HEARTBEAT_S: Final = 15.0
#: Longer than the number of any event.
POSITION_DIGITS_MAX: Final = 18
_MEDIA: Final = "text/event-stream"
#: One event of the stream: its number, `message` or `reset`, and an event of a graph as JSON.
_MESSAGE: Final = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "Server-sent events.", "content": {_MEDIA: {"schema": _MESSAGE}}}
}
#: Nothing may keep or collect the events on their way.
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """Which events a request asks for; what is empty matches all."""

    graph: int | None
    task: int | None
    kinds: frozenset[str]
    pool: str
    follow: bool
    position: int | None  # after which event


async def get_wanted_events(
    graph: Annotated[str | None, Query(max_length=ids.KEY_DIGITS, description="Only of this graph.")] = None,
    task: Annotated[str | None, Query(max_length=ids.KEY_DIGITS, description="Only of this task.")] = None,
    kind: Annotated[list[str] | None, Query(max_length=len(KINDS), description="Only of these kinds.")] = None,
    pool: Annotated[
        str, Query(max_length=DIMENSION_VALUE_MAX, description="Only in graphs with tasks of this pool.")
    ] = "",
    follow: Annotated[bool, Query(description="Whether to wait for more events.")] = True,
    position: Annotated[
        str, Header(alias="Last-Event-ID", max_length=POSITION_DIGITS_MAX, description="The id of the last event.")
    ] = "",
) -> WantedEvents:
    """Read the parameters."""
    if unknown := sorted(set(kind or ()) - set(KINDS)):
        raise invalid_field(f"{unknown[0]!r} is not a kind of event", "kind")
    if position and not (position.isascii() and position.isdecimal()):
        raise invalid_field("is not the id of an event", "Last-Event-ID")
    return WantedEvents(
        _key(graph, "graph"),
        _key(task, "task"),
        frozenset(kind or ()),
        clean(pool, "pool"),
        follow,
        int(position) if position else None,
    )


WantedEventsQuery = Annotated[WantedEvents, Depends(get_wanted_events)]


@routes.get("/events", responses=_ANSWERS, response_class=Response)
async def stream_events(
    request: Request, context: Context, caller: CurrentCaller, wanted: WantedEventsQuery
) -> Response:
    """Follow the events of all graphs that the caller may read, from now on or after `Last-Event-ID`."""
    await _authorize(context, caller, wanted)
    refuse_more_followers(context, caller, "streams")
    newest = await _want(context)
    position = newest if wanted.position is None else wanted.position
    return StreamingResponse(_sent(context, caller, wanted, position, slot_of(request)), 200, _HEADERS, _MEDIA)


async def _authorize(context: AppContext, caller: Caller, wanted: WantedEvents) -> None:
    """Refuse a caller who may read nothing of what is wanted."""
    if wanted.graph is not None:
        await context.read_graph(caller, READ, text_of(Key(wanted.graph)), lambda _, key: key)
    if wanted.task is not None:
        await context.read_task(caller, READ, text_of(Key(wanted.task)), lambda _, one: one.id)
    if wanted.pool:
        context.require(caller, READ, frozenset({wanted.pool}), f"follow events of pool {wanted.pool}")
    if caller.run is None:
        context.readable_pools(caller, READ, "follow events")


async def _want(context: AppContext) -> int:
    """Have events numbered; return the number of the newest one."""

    def ask() -> int:
        with outages():
            return context.engine.relay.want()

    return await asyncio.to_thread(ask)


async def _sent(
    context: AppContext, caller: Caller, wanted: WantedEvents, position: int, slot: Slot
) -> AsyncIterator[bytes]:
    """Yield events as they arrive, until the token ends or the server stops."""
    loop = asyncio.get_running_loop()
    until = loop.time() + FOLLOW_MAX_S
    with (
        slot.released_while_waiting(),
        counted_as_follower(context, caller),
        context.event_waiters.registered(STREAM) as woken,
    ):
        yield _position(position)
        due = loop.time() + HEARTBEAT_S
        while loop.time() < until and not context.closing.is_set():
            found = await _look(context, caller, wanted, position)
            if found is None:
                return
            page, events = found
            if page.reset:
                yield _message(page.gone, EventsLost(page.gone), "reset")
            for number, event in events:
                yield _message(number, event)
            is_moving, position = page.after != position, page.after
            if not is_moving and not wanted.follow:
                return
            if loop.time() >= due:
                await _want(context)
                yield _position(position, ": heartbeat\n")
                due = loop.time() + HEARTBEAT_S
            if not is_moving:
                await pause(woken, FOLLOW_PAUSE_S)


async def _look(
    context: AppContext, caller: Caller, wanted: WantedEvents, position: int
) -> tuple[StreamPage, list[tuple[int, EventView]]] | None:
    """Read the next events while the caller's token is valid; None when it no longer is."""

    def look(repo: Repo) -> tuple[StreamPage, list[tuple[int, EventView]]] | None:
        if not is_token_valid(repo, caller, context.engine.clock.now()):
            return None
        page = read_stream(repo, position, EVENTS_MAX)
        chosen = _chosen(repo, caller, wanted, page.events)
        views = event_views(repo, [event for _, event in chosen])
        return page, [
            (number, view)
            for (number, _), view in zip(chosen, views, strict=True)
            if not wanted.kinds or view.kind in wanted.kinds
        ]

    return await context.read(look)


def _chosen(
    repo: Repo, caller: Caller, wanted: WantedEvents, events: list[tuple[int, EventRow]]
) -> list[tuple[int, EventRow]]:
    """Choose the events that are wanted and that the caller may see."""
    found = [
        (number, event)
        for number, event in events
        if wanted.graph in (None, event.graph) and wanted.task in (None, event.subject)
    ]
    pools = repo.graphs.pools_of(sorted({event.graph for _, event in found}))
    seen = {
        graph
        for graph, names in pools.items()
        if caller.missing_scope(READ, graph, names) is None and (not wanted.pool or wanted.pool in names)
    }
    return [(number, event) for number, event in found if event.graph in seen]


def _message(number: int, data: EventView | EventsLost, kind: str = "") -> bytes:
    name = f"event: {kind}\n" if kind else ""
    return f"id: {number}\n{name}data: ".encode() + msgspec.json.encode(data) + b"\n\n"


def _position(number: int, before: str = "") -> bytes:
    """Write a message without data: it is no event, and a follower that resumes begins behind the number."""
    return f"{before}id: {number}\n\n".encode()


def _key(text: str | None, what: str) -> int | None:
    try:
        return None if text is None else ids.key_of(text)
    except ValueError as fault:
        raise invalid_field(str(fault), what) from None
