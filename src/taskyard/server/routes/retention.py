"""Routes of what is kept for a time: the times of each pool, and the deletion of a graph."""

from collections.abc import Collection
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.durations import span_ms, span_text
from taskyard.core.graph.model import DIMENSION_VALUE_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.retention import ALL_POOLS, DEFAULTS, KEEP_MAX_MS, KEEP_MIN_MS, PER_POOL, Kept
from taskyard.server import requests
from taskyard.server.context import unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, body, caller_key, reply
from taskyard.server.tokens import ADMIN, READ
from taskyard.store.connection import Repo
from taskyard.wire import api
from taskyard.wire.api import DEFAULT_TIME, FOREVER

routes = APIRouter(prefix="/api/v1", tags=["retention"])
#: Longer texts are not durations.
TIME_MAX: Final = 32
_TAKES: Final = f"{FOREVER}, {DEFAULT_TIME}, or a duration from {span_text(KEEP_MIN_MS)} to {span_text(KEEP_MAX_MS)}"
_TIMES: Final = body(
    f"How long each kind is kept: {_TAKES}. What is left out stays as it is.",
    {"type": "object", "properties": {one.value: {"type": "string", "maxLength": TIME_MAX} for one in Kept}},
    example={"output": "30d", "graphs": "365d"},
)


@routes.get("/retention", response_model=api.Retention)
async def list_retention(context: Context, caller: CurrentCaller) -> Response:
    """List how long things are kept: for all pools (`*`), and for those that differ."""
    context.readable_pools(caller, READ, "list retention")
    return reply(await context.read(_view))


@routes.put("/retention/{name}", response_model=api.Retention, openapi_extra=_TIMES)
async def set_retention(
    name: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Set how long things of a pool are kept. Needs `admin` of it; of all pools (`*`), `admin` itself."""
    if name == ALL_POOLS:
        context.require_admin(caller, "set retention")
    else:
        context.require(caller, ADMIN, frozenset({name}), f"set retention of pool {name}")
    times, unset = _read_times(await requests.read_object(request), PER_POOL if name != ALL_POOLS else tuple(Kept))
    if name != ALL_POOLS and (fault := name_fault(name, DIMENSION_VALUE_MAX)):
        raise invalid_field(fault, "name")
    scoped = caller_key(caller, key)
    unwrap(await context.async_engine.set_retention(name, times, unset, actor=caller.actor, key=scoped))
    return reply(await context.read(_view))


@routes.delete("/graphs/{graph_id}", status_code=204)
async def delete_graph(graph_id: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Delete a settled graph with its tasks, attempts, output and results. Needs `admin` in all of its pools."""
    scoped = caller_key(caller, key)
    if not scoped or not await context.read(lambda repo: bool(repo.events.answers([scoped]))):
        await context.require_whole_graph(caller, ADMIN, graph_id)
    unwrap(await context.async_engine.delete_graph(graph_id, actor=caller.actor, key=scoped))
    return Response(status_code=204)


def _read_times(given: dict[str, Any], kinds: Collection[Kept]) -> tuple[dict[Kept, int | None], list[Kept]]:
    """Read the times that are set, and the kinds that get their default."""
    fields = Fields(given)
    times: dict[Kept, int | None] = {}
    unset: list[Kept] = []
    for kind in filter(fields.has, Kept):
        text = fields.text(kind, "", TIME_MAX)  # empty: its fault is noted
        if kind not in kinds:
            fields.add_fault(kind, f"has one time for all pools: set it for {ALL_POOLS}")
        elif text == DEFAULT_TIME:
            unset.append(kind)
        elif fault := text != "" and _fault(text):
            fields.add_fault(kind, fault)
        else:
            times[kind] = None if text == FOREVER else span_ms(text or "")
    fields.check()
    return times, unset


def _fault(text: str | None) -> str | None:
    if text == FOREVER:
        return None
    ms = None if text is None else span_ms(text)
    return None if ms is not None and KEEP_MIN_MS <= ms <= KEEP_MAX_MS else f"must be {_TAKES}"


def _view(repo: Repo) -> api.Retention:
    times = repo.retention.times().times
    pools = sorted({pool for pool, _ in times} - {ALL_POOLS})
    every = {kind.value: times.get((ALL_POOLS, kind), DEFAULTS[kind]) for kind in Kept}
    own = [
        api.RetentionView(pool, {kind.value: keep_ms for (name, kind), keep_ms in times.items() if name == pool})
        for pool in pools
    ]
    return api.Retention([api.RetentionView(ALL_POOLS, every), *own])
