"""The route of the counts of pools over time."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from taskyard.core.durations import DAY_MS, HOUR_MS, MINUTE_MS
from taskyard.core.graph.model import DIMENSION_VALUE_MAX
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.responses import reply
from taskyard.server.routes.graphs import clean
from taskyard.server.tokens import READ
from taskyard.views.stats import STEPS_MAX, pool_stats
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["fleet"])
#: Counts are kept for as long.
SPAN_MAX_MS: Final = 7 * DAY_MS


@routes.get("/stats", response_model=api.PoolsStats)
async def show_stats(
    context: Context,
    caller: CurrentCaller,
    pool: Annotated[str, Query(max_length=DIMENSION_VALUE_MAX, description="Only of this pool.")] = "",
    span_ms: Annotated[int, Query(ge=MINUTE_MS, le=SPAN_MAX_MS, description="How far back, in whole steps.")] = HOUR_MS,
) -> Response:
    """Count what was submitted, started and ended in each pool over time, in steps of some minutes."""
    pools = context.readable_pools(caller, READ, "count tasks over time")
    if clean(pool, "pool"):
        pools = frozenset({pool}) if pools is None else pools & {pool}
    now, step_ms = context.engine.clock.now(), step_of(span_ms)
    return reply(await context.read(lambda repo: pool_stats(repo, pools, now, span_ms, step_ms)))


def step_of(span_ms: int) -> int:
    """Return the shortest step, in whole minutes, with which a span has no more steps than one answer."""
    return -(-span_ms // (STEPS_MAX * MINUTE_MS)) * MINUTE_MS
