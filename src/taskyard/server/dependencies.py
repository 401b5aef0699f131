"""FastAPI dependencies of the user API's routes: the app's context, the caller and its token."""

import asyncio
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from taskyard.server.auth import Caller, Denial
from taskyard.server.context import AppContext, bearer


async def get_context(request: Request) -> AppContext:
    """Return the app's context."""
    context: AppContext = request.app.state.context
    return context


async def get_caller(request: Request, context: Annotated[AppContext, Depends(get_context)]) -> Caller:
    """Return the caller, or refuse the request."""
    text = token_of(request)
    found: Caller | Denial | None = context.auth.authenticate(None) if text is None else context.auth.cached(text)
    if found is None:
        found = await asyncio.to_thread(context.auth.authenticate, text)
    if isinstance(found, Denial):
        raise context.deny(found, f"{request.method} {request.url.path}")
    return found


def token_of(request: Request) -> str | None:
    """Read the token of a request; None if there is none."""
    return bearer(request.headers.get("authorization", ""))


Context = Annotated[AppContext, Depends(get_context)]
CurrentCaller = Annotated[Caller, Depends(get_caller)]
