"""FastAPI dependencies of the user API's routes: the app's context, the caller and its token."""

import asyncio
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from taskyard.server.auth import COOKIE, Caller, Denial, forged_request
from taskyard.server.context import AppContext, bearer


async def get_context(request: Request) -> AppContext:
    """Return the app's context."""
    context: AppContext = request.app.state.context
    return context


async def get_caller(request: Request, context: Annotated[AppContext, Depends(get_context)]) -> Caller:
    """Return the caller, or refuse the request."""
    text = token_of(request)
    if text is None and (secret := session_of(request)) is not None:
        return await _session_caller(request, context, secret)
    found: Caller | Denial | None = context.auth.authenticate(None) if text is None else context.auth.cached(text)
    if found is None:
        found = await asyncio.to_thread(context.auth.authenticate, text)
    if isinstance(found, Denial):
        raise context.deny(found, f"{request.method} {request.url.path}")
    return found


async def _session_caller(request: Request, context: AppContext, secret: str) -> Caller:
    """Return the caller of a session of the page, or refuse the request."""
    found: Caller | Denial | None = context.auth.cached_session(secret)
    if found is None:
        found = await asyncio.to_thread(context.auth.authenticate_session, secret)
    if not isinstance(found, Denial) and (why := forged_request(request.scope, secret, context.origins)):
        found = Denial(403, "forbidden", f"a request of a session is refused: {why}", found.actor)
    if isinstance(found, Denial):
        raise context.deny(found, f"{request.method} {request.url.path}")
    return found


def session_of(request: Request) -> str | None:
    """Read the secret of the session of a request; None if there is none, or no authentication."""
    context: AppContext = request.app.state.context
    return request.cookies.get(COOKIE) if context.auth.enabled else None


def token_of(request: Request) -> str | None:
    """Read the token of a request; None if there is none."""
    return bearer(request.headers.get("authorization", ""))


Context = Annotated[AppContext, Depends(get_context)]
CurrentCaller = Annotated[Caller, Depends(get_caller)]
