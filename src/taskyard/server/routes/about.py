"""The route that describes the server and the caller's own token; any valid token may use it."""

from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from taskyard.server.auth import RUN_TOKEN_RIGHTS, Caller
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.responses import reply
from taskyard.server.tokens import ADMIN, scope
from taskyard.wire.api import About

routes = APIRouter(prefix="/api/v1", tags=["access"])


@routes.get("/about", response_model=About)
async def about(context: Context, caller: CurrentCaller) -> Response:
    """Return the server's version and time, and what the caller's own token may do."""
    found = await context.read(lambda repo: repo.tokens.find([caller.id])) if caller.id else {}
    row = found.get(caller.id)
    expires = None if row is None else row.expires_ms
    now = context.engine.clock.now()
    return reply(About(version("taskyard"), now, caller.actor, caller.kind, scopes_of(caller), caller.pool, expires))


def scopes_of(caller: Caller) -> list[str]:
    """Write the scopes of a caller."""
    if caller.run is not None:
        return [scope(pool, right) for pool in sorted(caller.run.pools) for right in sorted(RUN_TOKEN_RIGHTS)]
    admin = [ADMIN] if caller.rights.admin else []
    return admin + sorted(scope(pool, right) for right, pools in caller.rights.pools.items() for pool in pools)
