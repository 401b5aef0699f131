"""Routes of webhooks: set, list, try and delete them, and send again what was given up. No answer has a secret."""

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.bus.webhooks import SECRET_MAX, SECRET_MIN, SECRET_PREFIX, URL_MAX, secret_fault, url_fault
from taskyard.core import ids
from taskyard.core.events import KINDS
from taskyard.core.graph.model import DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.ids import Key, text_of
from taskyard.engine.webhooks import WebhookSpec
from taskyard.lifecycle.webhooks import target_of
from taskyard.server import requests
from taskyard.server.auth import Caller
from taskyard.server.context import AppContext, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field, not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.tokens import ADMIN
from taskyard.store.connection import Repo
from taskyard.store.repo.webhooks import WebhookRow
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["webhooks"])
#: How many deliveries one request names to be sent again.
AGAIN_MAX: Final = 1_000
_ID_MAX: Final = 64
_SECRET_TEXT_MAX: Final = 200
_SECRET: Final = f"{SECRET_PREFIX} and {SECRET_MIN} to {SECRET_MAX} bytes in base64"
_WEBHOOK: Final = body(
    f"Where to send, and which events. A secret is {_SECRET}; without one, that of the webhook stays.",
    {
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "maxLength": URL_MAX},
            "secret": {"type": "string", "maxLength": _SECRET_TEXT_MAX},
            "pool": {"type": ["string", "null"], "maxLength": DIMENSION_VALUE_MAX},
            "graph": {"type": ["string", "null"], "maxLength": ids.KEY_DIGITS},
            "kinds": {"type": "array", "maxItems": len(KINDS), "items": {"enum": list(KINDS)}},
            "paused": {"type": "boolean", "default": False},
        },
    },
    example={"url": "https://ci.example.org/hook", "pool": "lab", "kinds": ["graph.finished"]},
)
_AGAIN: Final = body(
    "Which deliveries to send again; without any, all.",
    {"type": "object", "properties": {"ids": {"type": "array", "maxItems": AGAIN_MAX, "items": {"type": "string"}}}},
    required=False,
)


@routes.get("/webhooks", response_model=api.Webhooks)
async def list_webhooks(context: Context, caller: CurrentCaller) -> Response:
    """List webhooks, with what waits and what was given up. Needs `admin` of a pool, and shows those of such pools."""
    mine = context.readable_pools(caller, ADMIN, "list webhooks")
    found = await context.read(_views)
    return reply(api.Webhooks([one for one in found if mine is None or one.pool in mine]))


@routes.put("/webhooks/{name}", response_model=api.WebhookView, openapi_extra=_WEBHOOK)
async def set_webhook(
    name: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Create a webhook, or change it: what is left out gets its default. Needs `admin` of its pool.

    A webhook of all pools needs `admin` itself. A new one gets the events from then on.
    """
    known = await _known(context, caller, name)
    spec = _read_spec(name, Fields(await requests.read_object(request)), is_new=known is None)
    _require(context, caller, spec.pool, f"set webhook {name}")
    save, scoped = context.engine.webhooks.save, caller_key(caller, key)
    unwrap(await asyncio.to_thread(save, spec, actor=caller.actor, key=scoped))
    return reply(next(one for one in await context.read(_views) if one.name == name))


@routes.delete("/webhooks/{name}", status_code=204)
async def delete_webhook(name: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Delete a webhook, with what was given up. Needs `admin` of its pool."""
    scoped = caller_key(caller, key)
    if not scoped or not await context.read(lambda repo: bool(repo.events.answers([scoped]))):
        await _existing(context, caller, name)
    unwrap(await asyncio.to_thread(context.engine.webhooks.delete, name, actor=caller.actor, key=scoped))
    return Response(status_code=204)


@routes.post("/webhooks/{name}/test", response_model=api.WebhookTest)
async def test_webhook(name: str, context: Context, caller: CurrentCaller) -> Response:
    """Send an event that never was, once, and say what the receiver answers. Needs `admin` of the pool."""
    await _existing(context, caller, name)
    tried = unwrap(await asyncio.to_thread(context.engine.webhooks.try_out, name))
    return reply(api.WebhookTest(not tried.error, tried.status, tried.error))


@routes.get("/webhooks/{name}/dead", response_model=api.DeadDeliveries)
async def list_dead_deliveries(name: str, context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List the deliveries that were given up. Needs `admin` of the pool."""
    await _existing(context, caller, name)
    after, limit = requests.cursor_name(page.cursor, ""), page.limit
    found = await context.read(lambda repo: repo.webhooks.dead(name, after, limit + 1))
    items = [api.DeadDelivery(one.id, one.died_ms, one.error, bool(one.again)) for one in found[:limit]]
    return reply(api.DeadDeliveries(items, requests.encode_cursor(items[-1].id if len(found) > limit else None)))


@routes.post("/webhooks/{name}/dead/send", response_model=api.SentAgain, openapi_extra=_AGAIN)
async def send_again(name: str, request: Request, context: Context, caller: CurrentCaller) -> Response:
    """Send deliveries again that were given up, each once. Needs `admin` of the pool."""
    await _existing(context, caller, name)
    fields = Fields(await requests.read_object(request, optional=True))
    named = fields.names("ids", AGAIN_MAX, lambda id: name_fault(id, _ID_MAX))
    fields.check()
    send = context.engine.webhooks.send_again
    return reply(api.SentAgain(unwrap(await asyncio.to_thread(send, name, named, actor=caller.actor))))


def _read_spec(name: str, fields: Fields, is_new: bool) -> WebhookSpec:
    """Read a webhook; refuse it with all its faults."""
    url = fields.text("url", None, URL_MAX) if fields.has("url") else None
    if not fields.has("url"):
        fields.add_fault("url", "is missing")
    elif url is not None and (fault := url_fault(url)):
        fields.add_fault("url", fault)
    secret = fields.text("secret", None, _SECRET_TEXT_MAX) if fields.is_given("secret") else None
    if secret is not None and (fault := secret_fault(secret)):
        fields.add_fault("secret", fault)
    if is_new and secret is None:
        fields.add_fault("secret", f"is missing: {_SECRET}")
    pool = fields.text("pool", None, DIMENSION_VALUE_MAX) if fields.is_given("pool") else None
    if pool is not None and (fault := name_fault(pool, DIMENSION_VALUE_MAX)):
        fields.add_fault("pool", fault)
    graph = _read_graph(fields)
    kinds = fields.names("kinds", len(KINDS), lambda kind: None if kind in KINDS else "is not a kind of event")
    paused = fields.flag("paused", False)
    fields.check()
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")
    if url is None:
        raise invalid_field("must be a URL", "url")
    return WebhookSpec(name, url, pool, graph, tuple(dict.fromkeys(kinds)), paused, secret)


def _read_graph(fields: Fields) -> int | None:
    text = fields.text("graph", None, ids.KEY_DIGITS) if fields.is_given("graph") else None
    try:
        return None if text is None else ids.key_of(text)
    except ValueError as fault:
        fields.add_fault("graph", str(fault))
        return None


async def _known(context: AppContext, caller: Caller, name: str) -> WebhookRow | None:
    """Return a webhook, if there is one; refuse a caller who is no admin of its pool, or of any."""
    context.readable_pools(caller, ADMIN, f"use webhook {name}")
    rows = await context.read(lambda repo: repo.webhooks.all())
    row = next((one for one in rows if one.name == name), None)
    if row is not None:
        _require(context, caller, row.pool, f"use webhook {name}")
    return row


async def _existing(context: AppContext, caller: Caller, name: str) -> WebhookRow:
    row = await _known(context, caller, name)
    if row is None:
        raise not_found("webhook", name)
    return row


def _require(context: AppContext, caller: Caller, pool: str | None, what: str) -> None:
    if pool is None:
        context.require_admin(caller, what)
    else:
        context.require(caller, ADMIN, frozenset({pool}), what)


def _views(repo: Repo) -> list[api.WebhookView]:
    positions = {one.name: one.position for one in repo.targets.all()}
    last = repo.stream.read().last
    return [_view(one, last - positions.get(target_of(one.name), last)) for one in repo.webhooks.all()]


def _view(one: WebhookRow, backlog: int) -> api.WebhookView:
    graph = None if one.graph is None else text_of(Key(one.graph))
    kinds = one.kinds.split("\n") if one.kinds else []
    return api.WebhookView(
        name=one.name,
        url=one.url,
        pool=one.pool,
        graph=graph,
        kinds=kinds,
        paused=bool(one.paused),
        changed_ms=one.changed_ms,
        changed_by=one.changed_by,
        failing_since_ms=one.failing_since_ms,
        error=one.error,
        backlog=backlog,
        dead=one.dead,
    )
