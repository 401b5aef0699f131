"""Routes of tokens: make, list, revoke; and how a newcomer with an enrolment token becomes a bot with its own."""

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.graph.limits import DAY_MS, DIMENSION_VALUE_MAX
from taskyard.core.matching import DEFAULT_POOL
from taskyard.engine.passage import Passage
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.server import bodies, cursors, tokens
from taskyard.server.asking import TheCaller, TheDesk
from taskyard.server.desk import Desk, missing
from taskyard.server.fields import Fields
from taskyard.server.problems import unknown
from taskyard.server.replies import ThePage, body, reply
from taskyard.server.scopes import fault
from taskyard.store.verbs.access import END, TokenRow
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["access"])
#: How many scopes a token may have, how long its name and its life may be.
SCOPES_MAX: Final = 64
TOKEN_NAME_MAX: Final = 128
LIFE_MAX_MS: Final = 3_660 * DAY_MS
_NEW = body(
    "What the token should be.",
    {
        "type": "object",
        "required": ["name"],
        "properties": {
            "kind": {"enum": list(tokens.KINDS), "default": tokens.USER},
            "name": {"type": "string", "maxLength": TOKEN_NAME_MAX},
            "scopes": {"type": "array", "items": {"type": "string"}, "maxItems": SCOPES_MAX},
            "pool": {"type": ["string", "null"], "description": "Of the bots that it lets in."},
            "expires_in_ms": {"type": ["integer", "null"], "minimum": 1, "maximum": LIFE_MAX_MS},
        },
    },
    example={"name": "ann", "scopes": ["pool:default:read", "pool:default:submit"]},
)
_ENROL = body(
    "What the bot is called.",
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": TOKEN_NAME_MAX}}},
    required=False,
)


@routes.post("/tokens", status_code=201, response_model=api.NewToken, openapi_extra=_NEW)
async def make_token(request: Request, desk: TheDesk, caller: TheCaller) -> Response:
    """Make a token. Its text is told this once. Needs `admin`."""
    desk.need_admin(caller, "make a token")
    return await _made(desk, _wish(Fields(await bodies.fields(request))), caller.actor)


@routes.get("/tokens", response_model=api.Tokens)
async def list_tokens(desk: TheDesk, caller: TheCaller, page: ThePage) -> Response:
    """List tokens, the newest first, revoked ones too. Needs `admin`."""
    desk.need_admin(caller, "list tokens")
    before = cursors.moment(page.cursor, END)
    limit = page.limit
    found = await desk.read(lambda txn: txn.access.page(before, limit + 1))
    last = found[limit - 1] if len(found) > limit else None
    place = cursors.written(None) if last is None else cursors.written(last.created_ms, last.id)
    return reply(api.Tokens([tokens.view(row) for row in found[:limit]], place))


@routes.delete("/tokens/{token_id}", response_model=api.TokenView)
async def revoke_token(token_id: str, desk: TheDesk, caller: TheCaller) -> Response:
    """Make a token good for nothing, at once. Needs `admin`."""
    desk.need_admin(caller, "revoke a token")
    if not (token_id.isascii() and token_id.isalnum()):
        raise unknown("token", token_id)
    row = await asyncio.to_thread(desk.engine.transact, lambda passage: _revoke(passage, token_id, caller.actor))
    desk.auth.forget(token_id)
    if row is None:
        raise unknown("token", token_id)
    return reply(tokens.view(row))


@routes.post("/enrol", status_code=201, response_model=api.NewToken, openapi_extra=_ENROL)
async def enrol(request: Request, desk: TheDesk, caller: TheCaller) -> Response:
    """Give a newcomer the token of a bot in the pool of its enrolment token."""
    if caller.kind != tokens.ENROLMENT or caller.pool is None:
        raise desk.deny(missing(caller, "of an enrolment token"), "enrol a bot")
    said = Fields(await bodies.fields(request, optional=True))
    name = said.name("name", "bot", TOKEN_NAME_MAX)
    said.close()
    return await _made(desk, tokens.Wish(tokens.BOT, name, (), caller.pool), caller.actor)


def _wish(said: Fields) -> tokens.Wish:
    kind = said.choice("kind", tokens.USER, tokens.KINDS)
    name = said.name("name", "", TOKEN_NAME_MAX)
    scopes = said.names("scopes", SCOPES_MAX, fault)
    pool = said.name("pool", DEFAULT_POOL, DIMENSION_VALUE_MAX) if said.told("pool") else None
    span = said.number("expires_in_ms", None, 1, LIFE_MAX_MS)
    if kind == tokens.USER and pool is not None:
        said.add("pool", "is for bots; give a user scopes")
    if kind != tokens.USER and scopes:
        said.add("scopes", f"are for users; a token of kind {kind} has a pool")
    said.close()
    if kind != tokens.USER:
        pool = pool or DEFAULT_POOL
    return tokens.Wish(kind, name, scopes, pool, span)


async def _made(desk: Desk, wish: tokens.Wish, actor: str) -> Response:
    text, row = tokens.made(wish, desk.engine.clock.now())
    await asyncio.to_thread(desk.engine.transact, lambda passage: _make(passage, row, actor))
    return reply(api.NewToken(text, tokens.view(row)), 201)


def _make(passage: Passage, row: TokenRow, actor: str) -> None:
    if not passage.txn.access.find([row.id]):  # else it was made, and nobody heard of it
        passage.txn.access.add(tokens.columns([row]))
        passage.audit(actor, "make_token", NO_SUBJECT, f"{row.id}: {row.kind} {row.name}")


def _revoke(passage: Passage, id: str, actor: str) -> TokenRow | None:
    if passage.txn.access.revoke(id, passage.now):
        passage.audit(actor, "revoke_token", NO_SUBJECT, id)
    return passage.txn.access.find([id]).get(id)
