"""Routes of admission: named limits, mutexes, and passes by hand."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.admission.rules import STAKE_AFTER_MAX_MS
from taskyard.core.durations import span_ms, span_text
from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.server import requests
from taskyard.server.context import Visibility, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.graphs import clean
from taskyard.server.tokens import READ, SUBMIT
from taskyard.store.repo.read import FIRST_NAME
from taskyard.views import limits as views
from taskyard.wire import api
from taskyard.wire.bot_protocol import NUMBER_MAX

routes = APIRouter(prefix="/api/v1", tags=["limits"])
#: Stands for a duration: no held task ever stakes the key.
NEVER = "never"
_LIMIT = body(
    "The size of the limit.",
    {
        "type": "object",
        "required": ["total"],
        "properties": {"total": {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}},
    },
    example={"total": 5},
)
_MUTEX = body(
    "How long a task waits for its mutexes before no younger task may pass it at this key: a duration, or `never`.",
    {
        "type": "object",
        "required": ["stake_after"],
        "properties": {"stake_after": {"type": "string", "maxLength": NAME_MAX}},
    },
    example={"stake_after": "5m"},
)


@routes.post("/schedule", response_model=api.PassView)
async def run_pass(context: Context, caller: CurrentCaller) -> Response:
    """Run an admission pass, as servers do by themselves when something changes. It may be called at any time.

    Needs `submit` in some pool.
    """
    context.readable_pools(caller, SUBMIT, "run an admission pass")
    found = await context.async_engine.schedule(wait=False)
    return reply(api.PassView(found.ran, found.admitted, found.held, found.more))


@routes.get("/limits", response_model=api.Limits)
async def list_limits(context: Context, caller: CurrentCaller) -> Response:
    """List named limits, and how much of each is in use."""
    context.readable_pools(caller, READ, "list limits")
    return reply(api.Limits(await context.read(views.limits)))


@routes.put("/limits/{name:path}", response_model=api.LimitView, openapi_extra=_LIMIT)
async def set_limit(
    name: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Create a named limit, or change its size. Needs `admin`."""
    context.require_admin(caller, f"set limit {name}")
    fields = Fields(await requests.read_object(request))
    total = fields.number("total", None, 0, NUMBER_MAX) if fields.is_given("total") else None
    if not fields.has("total"):
        fields.add_fault("total", f"is missing: an integer from 0 to {NUMBER_MAX}")
    fields.check()
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")
    assert total is not None, "the fields were checked"
    unwrap(await context.async_engine.set_limit(name, total, actor=caller.actor, key=caller_key(caller, key)))
    return reply(next(one for one in await context.read(views.limits) if one.name == name))


@routes.get("/mutexes", response_model=api.Mutexes)
async def list_mutexes(
    context: Context,
    caller: CurrentCaller,
    page: Page,
    key: Annotated[str, Query(max_length=NAME_MAX, description="Only this one.")] = "",
) -> Response:
    """List mutexes in use: which task holds each, and which tasks wait for it since when."""
    context.readable_pools(caller, READ, "list mutexes")
    wanted, after = clean(key, "key") or None, requests.cursor_name(page.cursor, FIRST_NAME)
    found, last = await context.read(
        lambda repo: views.mutexes(repo, Visibility(repo, caller), after, page.limit, wanted)
    )
    return reply(api.Mutexes(found.items, requests.encode_cursor(last), found.whole))


@routes.put("/mutexes/{key:path}", response_model=api.MutexView, openapi_extra=_MUTEX)
async def set_mutex(
    key: str, request: Request, context: Context, caller: CurrentCaller, request_key: IdempotencyKey = ""
) -> Response:
    """Set how long a task waits for its mutexes before no younger task may pass it at this key. Needs `admin`."""
    context.require_admin(caller, f"set mutex {key}")
    fields = Fields(await requests.read_object(request))
    text = fields.text("stake_after", None, NAME_MAX)
    ms = None if text is None else span_ms(text)
    if text != NEVER and (ms is None or ms > STAKE_AFTER_MAX_MS):
        fields.add_fault(
            "stake_after", f"must be never, or a duration like 5m, at most {span_text(STAKE_AFTER_MAX_MS)}"
        )
    fields.check()
    if fault := name_fault(key, NAME_MAX):
        raise invalid_field(fault, "key")
    unwrap(await context.async_engine.set_stake_after(key, ms, actor=caller.actor, key=caller_key(caller, request_key)))
    found, _ = await context.read(lambda repo: views.mutexes(repo, Visibility(repo, caller), "", 1, key))
    return reply(found.items[0])
