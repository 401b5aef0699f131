"""Routes for monitoring: liveness, readiness and metrics. They need no token."""

import asyncio
from typing import Final

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from taskyard.engine.errors import Unavailable
from taskyard.server.auth import Denial
from taskyard.server.context import AppContext
from taskyard.server.dependencies import Context, token_of
from taskyard.server.errors import RETRY_UNAVAILABLE_S, refused
from taskyard.server.tokens import READ

routes = APIRouter(tags=["health"])
#: How long the database may take to answer.
READY_MAX_S: Final = 2.0
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_OK: Final = {200: {"description": "OK.", "content": _TEXT}}


@routes.get("/healthz", response_class=Response, responses=_OK)  # type: ignore[arg-type]
async def healthz() -> Response:
    """Confirm that the process is alive."""
    return Response("ok\n", media_type="text/plain")


@routes.get("/readyz", response_class=Response, responses=_OK)  # type: ignore[arg-type]
async def readyz(context: Context) -> Response:
    """Check whether the database answers."""
    try:
        async with asyncio.timeout(READY_MAX_S):
            await context.read(lambda repo: repo.servers.all())
    except (TimeoutError, Unavailable):
        retry = {"Retry-After": str(RETRY_UNAVAILABLE_S)}
        raise refused(503, "unavailable", "the database does not answer", headers=retry) from None
    return Response("ok\n", media_type="text/plain")


@routes.get("/metrics", response_class=Response, responses=_OK)  # type: ignore[arg-type]
async def metrics(context: Context, request: Request) -> Response:
    """Return the server's metrics in the text format of Prometheus; the demand, to who may read every pool."""
    token = token_of(request)
    text = await asyncio.to_thread(lambda: context.metrics.text(_reads_all_pools(context, token)))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _reads_all_pools(context: AppContext, token: str | None) -> bool:
    """Whether the caller may see the demand: it names pools, and what their tasks need."""
    try:
        caller = context.auth.authenticate(token)
    except Unavailable:
        return False
    return not isinstance(caller, Denial) and caller.run is None and caller.rights.pools_with(READ) is None
