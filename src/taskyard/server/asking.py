"""What routes of people ask for: the desk of their app, and who asks."""

import asyncio
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from taskyard.server.auth import Denial
from taskyard.server.callers import Caller
from taskyard.server.desk import Desk, bearer


async def desk_of(request: Request) -> Desk:
    """Give the desk of the app."""
    desk: Desk = request.app.state.desk
    return desk


async def caller_of(request: Request, desk: Annotated[Desk, Depends(desk_of)]) -> Caller:
    """Say who asks, or refuse."""
    text = token_of(request)
    found: Caller | Denial | None = desk.auth.caller(None) if text is None else desk.auth.remembered(text)
    if found is None:
        found = await asyncio.to_thread(desk.auth.caller, text)
    if isinstance(found, Denial):
        raise desk.deny(found, f"{request.method} {request.url.path}")
    return found


def token_of(request: Request) -> str | None:
    """Read the token that a request shows."""
    return bearer(request.headers.get("authorization", ""))


TheDesk = Annotated[Desk, Depends(desk_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
