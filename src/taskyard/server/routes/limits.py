"""Routes of what tasks share: named limits and mutexes."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.admission.rules import STAKE_AFTER_MAX_MS
from taskyard.core.durations import span_ms, span_text
from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.engine.validate import NUMBER_MAX
from taskyard.server import requests
from taskyard.server.context import Sight, TheCaller, TheDesk, done
from taskyard.server.errors import wrong
from taskyard.server.requests import Fields
from taskyard.server.responses import Key, ThePage, body, own_key, reply
from taskyard.server.routes.graphs import clean
from taskyard.server.tokens import READ
from taskyard.store.repo.read import FIRST_NAME
from taskyard.views import limits as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["limits"])
#: What is said where a span could stand: no held task ever stakes the key.
NEVER = "never"
_LIMIT = body(
    "How much there is of it.",
    {
        "type": "object",
        "required": ["total"],
        "properties": {"total": {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}},
    },
    example={"total": 5},
)
_MUTEX = body(
    "How long mutexes hold a task before no younger one passes it at this key: a span, or `never`.",
    {
        "type": "object",
        "required": ["stake_after"],
        "properties": {"stake_after": {"type": "string", "maxLength": NAME_MAX}},
    },
    example={"stake_after": "5m"},
)


@routes.get("/limits", response_model=api.Limits)
async def list_limits(desk: TheDesk, caller: TheCaller) -> Response:
    """List named limits, and how much of each is in use."""
    desk.readable(caller, READ, "list limits")
    return reply(api.Limits(await desk.read(views.limits)))


@routes.put("/limits/{name:path}", response_model=api.LimitView, openapi_extra=_LIMIT)
async def set_limit(name: str, request: Request, desk: TheDesk, caller: TheCaller, key: Key = "") -> Response:
    """Make a named limit, or say how much there is of it. Needs `admin`."""
    desk.need_admin(caller, f"set limit {name}")
    said = Fields(await requests.fields(request))
    total = said.number("total", None, 0, NUMBER_MAX) if said.told("total") else None
    if not said.has("total"):
        said.add("total", f"say how much there is: an integer from 0 to {NUMBER_MAX}")
    said.close()
    if fault := name_fault(name, NAME_MAX):
        raise wrong(fault, "name")
    assert total is not None, "the fields were closed"
    done(await desk.face.set_limit(name, total, actor=caller.actor, key=own_key(caller, key)))
    return reply(next(one for one in await desk.read(views.limits) if one.name == name))


@routes.get("/mutexes", response_model=api.Mutexes)
async def list_mutexes(
    desk: TheDesk,
    caller: TheCaller,
    page: ThePage,
    key: Annotated[str, Query(max_length=NAME_MAX, description="Only this one.")] = "",
) -> Response:
    """List mutexes that somebody uses: who holds each, and who waits for it since when."""
    desk.readable(caller, READ, "list mutexes")
    wanted, after = clean(key, "key") or None, requests.name(page.cursor, FIRST_NAME)
    found, last = await desk.read(lambda repo: views.mutexes(repo, Sight(repo, caller), after, page.limit, wanted))
    return reply(api.Mutexes(found.items, requests.written(last), found.whole))


@routes.put("/mutexes/{key:path}", response_model=api.MutexView, openapi_extra=_MUTEX)
async def set_mutex(key: str, request: Request, desk: TheDesk, caller: TheCaller, request_key: Key = "") -> Response:
    """Say how long mutexes hold a task before no younger one passes it at this key. Needs `admin`."""
    desk.need_admin(caller, f"set mutex {key}")
    said = Fields(await requests.fields(request))
    text = said.text("stake_after", None, NAME_MAX)
    ms = None if text is None else span_ms(text)
    if text != NEVER and (ms is None or ms > STAKE_AFTER_MAX_MS):
        said.add("stake_after", f"is a span such as 0s or 5m, at most {span_text(STAKE_AFTER_MAX_MS)}, or never")
    said.close()
    if fault := name_fault(key, NAME_MAX):
        raise wrong(fault, "key")
    done(await desk.face.set_stake_after(key, ms, actor=caller.actor, key=own_key(caller, request_key)))
    found, _ = await desk.read(lambda repo: views.mutexes(repo, Sight(repo, caller), "", 1, key))
    return reply(found.items[0])
