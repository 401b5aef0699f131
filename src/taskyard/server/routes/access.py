"""Routes of tokens: make, list, revoke and rotate them; exchange an enrolment token for a bot's token."""

import asyncio
import hashlib
import secrets
from dataclasses import asdict
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.durations import DAY_MS
from taskyard.core.graph.model import DIMENSION_VALUE_MAX
from taskyard.core.matching import DEFAULT_POOL
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.idempotency import run_once
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import requests, tokens
from taskyard.server.auth import Denial
from taskyard.server.context import AppContext, missing_scope, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import from_refusal, not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.tokens import ADMIN, KEY_BYTES, RIGHTS, scope_fault
from taskyard.store.repo.tokens import END, TokenRow
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["access"])
#: The limits of a token: how many scopes, how long its name, how long it may be valid.
SCOPES_MAX: Final = 64
TOKEN_NAME_MAX: Final = 128
LIFE_MAX_MS: Final = 3_660 * DAY_MS
#: How long a rotated token may stay valid: long enough to distribute the new one to a fleet.
KEEP_MAX_MS: Final = 30 * DAY_MS
_SCOPE: Final = f"^({ADMIN}|pool:.+:({'|'.join(RIGHTS)}))$"
_NEW = body(
    "The new token.",
    {
        "type": "object",
        "required": ["name"],
        "properties": {
            "kind": {"enum": list(tokens.KINDS), "default": tokens.USER},
            "name": {"type": "string", "minLength": 1, "maxLength": TOKEN_NAME_MAX},
            "scopes": {"type": "array", "items": {"type": "string", "pattern": _SCOPE}, "maxItems": SCOPES_MAX},
            "pool": {
                "type": ["string", "null"],
                "maxLength": DIMENSION_VALUE_MAX,
                "description": "The pool of the bots that use it.",
            },
            "expires_in_ms": {"type": ["integer", "null"], "minimum": 1, "maximum": LIFE_MAX_MS},
        },
    },
    example={"name": "ann", "scopes": ["pool:default:read", "pool:default:submit"]},
)
_ROTATE = body(
    "How long the old token stays valid.",
    {"type": "object", "properties": {"keep_ms": {"type": "integer", "minimum": 0, "maximum": KEEP_MAX_MS}}},
    required=False,
)
_RUN_KEY = body(
    "Whether tokens that were issued before stay valid.",
    {"type": "object", "properties": {"keep": {"type": "boolean", "default": True}}},
    required=False,
)
_ENROL = body(
    "The name of the bot.",
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": TOKEN_NAME_MAX}}},
    required=False,
)


@routes.post("/tokens", status_code=201, response_model=api.NewToken, openapi_extra=_NEW)
async def make_token(request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Make a token. Its text is returned only now, and to a repetition with the same key. Needs `admin`."""
    context.require_admin(caller, "make a token")
    spec = _token_spec(Fields(await requests.read_object(request)))
    scoped_key = caller_key(caller, key)
    text, row = _new_token(context, spec, scoped_key)

    def act(transaction: Transaction) -> TokenRow | Refusal | None:
        again = lambda _: transaction.repo.tokens.find([row.id]).get(row.id)  # noqa: E731
        return run_once(
            transaction,
            scoped_key,
            ("make_token", asdict(spec)),
            lambda _: _make(transaction, row, caller.actor),
            again,
        )

    return _token_reply(text, row, await asyncio.to_thread(context.engine.transact, act))


@routes.get("/tokens", response_model=api.Tokens)
async def list_tokens(context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List tokens, the newest first, including revoked ones. Needs `admin`."""
    context.require_admin(caller, "list tokens")
    before = requests.cursor_moment(page.cursor, END)
    limit = page.limit
    found = await context.read(lambda repo: repo.tokens.page(before, limit + 1))
    last = found[limit - 1] if len(found) > limit else None
    place = requests.encode_cursor(None) if last is None else requests.encode_cursor(last.created_ms, last.id)
    return reply(api.Tokens([tokens.view(row) for row in found[:limit]], place))


@routes.delete("/tokens/{token_id}", response_model=api.TokenView)
async def revoke_token(token_id: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Revoke a token at once. Needs `admin`."""
    context.require_admin(caller, "revoke a token")
    _check_id(token_id)
    scoped_key = caller_key(caller, key)

    def act(transaction: Transaction) -> TokenRow | Refusal | None:
        again = lambda _: transaction.repo.tokens.find([token_id]).get(token_id)  # noqa: E731
        operation = ("revoke_token", token_id)
        return run_once(
            transaction, scoped_key, operation, lambda _: _revoke(transaction, token_id, caller.actor), again
        )

    row = await asyncio.to_thread(context.engine.transact, act)
    context.auth.forget(token_id)
    return reply(tokens.view(_found_token(row, token_id)))


@routes.post("/tokens/{token_id}/rotate", status_code=201, response_model=api.NewToken, openapi_extra=_ROTATE)
async def rotate_token(
    token_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Make a token with the same scopes, and end the old one, at once or some time later. Needs `admin`."""
    context.require_admin(caller, "rotate a token")
    fields = Fields(await requests.read_object(request, optional=True))
    keep_ms = fields.number("keep_ms", 0, 0, KEEP_MAX_MS) or 0
    fields.check()
    _check_id(token_id)
    scoped_key = caller_key(caller, key)
    text, new = _new_token(context, tokens.TokenSpec(tokens.USER, ""), scoped_key)

    def act(transaction: Transaction) -> TokenRow | Refusal | None:
        again = lambda _: transaction.repo.tokens.find([new.id]).get(new.id)  # noqa: E731
        operation = ("rotate_token", token_id, keep_ms)
        return run_once(
            transaction,
            scoped_key,
            operation,
            lambda _: _rotate(transaction, token_id, new, keep_ms, caller.actor),
            again,
        )

    row = _found_token(await asyncio.to_thread(context.engine.transact, act), token_id)
    context.auth.forget(token_id)
    return _token_reply(tokens.with_kind(text, row.kind), new, row)


@routes.post("/run-key/rotate", response_model=api.RunKey, openapi_extra=_RUN_KEY)
async def rotate_run_key(
    request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Sign the tokens of running tasks with a new key. Needs `admin`.

    Tokens that were issued before stay valid until their attempts end, or until the key is rotated again; with `keep`
    false they end at once. Other servers of the same database follow within some seconds.
    """
    context.require_admin(caller, "rotate the key of run tokens")
    fields = Fields(await requests.read_object(request, optional=True))
    keep = fields.flag("keep", True)
    fields.check()
    scoped_key, new = caller_key(caller, key), secrets.token_bytes(KEY_BYTES)

    def act(transaction: Transaction) -> list[bytes] | Refusal:
        again = lambda _: transaction.repo.tokens.signing_keys()  # noqa: E731
        operation = ("rotate_run_key", keep)
        return run_once(
            transaction, scoped_key, operation, lambda _: _change_key(transaction, new, keep, caller.actor), again
        )

    context.signer.set_keys(unwrap(await asyncio.to_thread(context.engine.transact, act)))
    return reply(api.RunKey(keep))


@routes.post("/enrol", status_code=201, response_model=api.NewToken, openapi_extra=_ENROL)
async def enrol(request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Exchange an enrolment token, which is valid for one bot, for a bot's token in its pool.

    Repeated with the same `Idempotency-Key`, it returns the same token; otherwise a used enrolment token is refused.
    """
    if caller.kind != tokens.ENROLMENT or caller.pool is None:
        raise context.deny(missing_scope(caller, "of an enrolment token"), "enrol a bot")
    fields = Fields(await requests.read_object(request, optional=True))
    name = fields.name("name", "bot", TOKEN_NAME_MAX)
    fields.check()
    spec, now = tokens.TokenSpec(tokens.BOT, name, (), caller.pool), context.engine.clock.now()
    # The id of the bot's token follows from the enrolment token, so that there is one for each. Its secret follows from
    # the key that the bot has chosen, so that only the same bot can get it again.
    id_bytes = hashlib.sha256(f"enrolled by {caller.id}".encode()).digest()
    secret = context.signer.derive(f"enrol {caller_key(caller, key)}") if key else secrets.token_bytes(32)
    text, row = tokens.token_from_bytes(spec, now, id_bytes, secret)
    first = await asyncio.to_thread(context.engine.transact, lambda transaction: _make(transaction, row, caller.actor))
    if first.digest != row.digest:
        text = "this enrolment token was used by another bot: ask for a new one"
        raise context.deny(Denial(403, "forbidden", text, caller.actor), "enrol a bot")
    return reply(api.NewToken(text, tokens.view(first)), 201)


def _found_token(found: TokenRow | Refusal | None, id: str) -> TokenRow:
    """Return a token, or raise the refusal."""
    if found is None:
        raise not_found("token", id)
    if isinstance(found, Refusal):
        raise from_refusal(found)
    return found


def _check_id(text: str) -> None:
    if not (text.isascii() and text.isalnum()):
        raise not_found("token", text)


def _token_spec(fields: Fields) -> tokens.TokenSpec:
    kind = fields.choice("kind", tokens.USER, tokens.KINDS)
    name = fields.name("name", "", TOKEN_NAME_MAX)
    scopes = fields.names("scopes", SCOPES_MAX, scope_fault)
    pool = fields.name("pool", DEFAULT_POOL, DIMENSION_VALUE_MAX) if fields.is_given("pool") else None
    span = fields.number("expires_in_ms", None, 1, LIFE_MAX_MS)
    if kind == tokens.USER and pool is not None:
        fields.add_fault("pool", "is for bots; give a user scopes")
    if kind != tokens.USER and scopes:
        fields.add_fault("scopes", f"are for users; a token of kind {kind} has a pool")
    fields.check()
    if kind != tokens.USER:
        pool = pool or DEFAULT_POOL
    return tokens.TokenSpec(kind, name, scopes, pool, span)


def _new_token(context: AppContext, spec: tokens.TokenSpec, scoped_key: str) -> tuple[str, TokenRow]:
    """Make a token; the same key gives the same token, until the key of run tokens is rotated."""
    now = context.engine.clock.now()
    if not scoped_key:
        return tokens.new_token(spec, now)
    id = hashlib.sha256(f"token of {scoped_key}".encode()).digest()
    return tokens.token_from_bytes(spec, now, id, context.signer.derive(f"token {scoped_key}"))


def _token_reply(text: str, row: TokenRow, kept: TokenRow | Refusal | None) -> Response:
    """Answer with a token's text; refuse if another one is stored, since the key was rotated."""
    kept = _found_token(kept, row.id)
    if kept.digest != row.digest:
        gone = "this was done before, and the text of that token is not available any more: make a new one"
        raise from_refusal(Refusal(Code.CONFLICT, gone))
    return reply(api.NewToken(text, tokens.view(kept)), 201)


def _make(transaction: Transaction, row: TokenRow, actor: str) -> TokenRow:
    """Store a token, unless there is one with its id; return the stored one."""
    known = transaction.repo.tokens.find([row.id]).get(row.id)
    if known is not None:
        return known
    transaction.repo.tokens.add(tokens.columns([row]))
    transaction.audit(actor, "make_token", NO_SUBJECT, f"{row.id}: {row.kind} {row.name}")
    return row


def _revoke(transaction: Transaction, id: str, actor: str) -> TokenRow | Refusal | None:
    access = transaction.repo.tokens
    if access.valid_with_scope(ADMIN, transaction.now) == [id]:
        text = "this is the last token with the scope admin: make another one first, or rotate this one"
        return Refusal(Code.CONFLICT, text)
    if access.revoke(id, transaction.now):
        transaction.audit(actor, "revoke_token", NO_SUBJECT, id)
    return access.find([id]).get(id)


def _rotate(transaction: Transaction, id: str, new: TokenRow, keep_ms: int, actor: str) -> TokenRow | Refusal | None:
    """Make a token with the rights of another one, and end that one."""
    access = transaction.repo.tokens
    found = access.find([id, new.id])
    if new.id in found:  # this ran before, and the answer was lost
        return found[new.id]
    old = found.get(id)
    if old is None:
        return None
    if not tokens.is_valid(old, transaction.now):
        return Refusal(Code.CONFLICT, "this token is revoked or expired: make a new one")
    access.add(tokens.columns([tokens.successor(old, new)]))
    if keep_ms:
        access.expire(id, transaction.now + keep_ms)
    else:
        access.revoke(id, transaction.now)
    transaction.audit(actor, "rotate_token", NO_SUBJECT, f"{id} is followed by {new.id}")
    return access.find([new.id])[new.id]


def _change_key(transaction: Transaction, key: bytes, keep: bool, actor: str) -> list[bytes]:
    access = transaction.repo.tokens
    known = access.signing_keys()
    if known[0] != key:  # else this ran before, and the answer was lost
        access.set_signing_keys([key, known[0]] if keep else [key])
        kept = "tokens of the old key stay good" if keep else "tokens of the old key are good for nothing"
        transaction.audit(actor, "rotate_run_key", NO_SUBJECT, kept)
    return access.signing_keys()
