"""Routes of the sessions of the page: sign in with a token or a link, sign out."""

import asyncio
import secrets
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.durations import DAY_MS, MINUTE_MS
from taskyard.core.ids import LAST_MS
from taskyard.core.states import Millis
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import requests, tokens
from taskyard.server.auth import (
    BROWSER,
    COOKIE,
    LINK,
    NO_SESSION,
    Caller,
    Denial,
    actor_of,
    digest_of,
    header_token,
)
from taskyard.server.context import AppContext
from taskyard.server.dependencies import Context, CurrentCaller, session_of
from taskyard.server.requests import Fields
from taskyard.server.responses import body, reply
from taskyard.server.routes.about import scopes_of
from taskyard.wire.api import SessionView, SignInLink

routes = APIRouter(prefix="/api/v1", tags=["access"])
#: How long a session lasts, and how long a link can be used: a person opens it at once.
SESSION_MS: Final = 7 * DAY_MS
LINK_MS: Final = 10 * MINUTE_MS
#: How many sessions and links one token has; the oldest give way.
SESSIONS_MAX: Final = 100
#: Longer texts are neither tokens nor codes.
SECRET_MAX: Final = 256
_SIGN_IN = body(
    "A token, or the code of a link.",
    {
        "type": "object",
        "properties": {
            "token": {"type": ["string", "null"], "minLength": 1, "maxLength": SECRET_MAX},
            "code": {"type": ["string", "null"], "minLength": 1, "maxLength": SECRET_MAX},
        },
    },
)
_UNKNOWN_CODE: Final = Denial(401, "bad_token", "this link was used before or is too old: ask for a new one")
_NOT_A_USER: Final = "only the token of a user can sign in"


@routes.post("/session", status_code=201, response_model=SessionView, openapi_extra=_SIGN_IN)
async def sign_in(request: Request, context: Context) -> Response:
    """Begin a session of the page, with a token in the body or with the code of a link."""
    fields = Fields(await requests.read_object(request))
    token, code = fields.text("token", None, SECRET_MAX), fields.text("code", None, SECRET_MAX)
    if (token is None) == (code is None):
        fields.add_fault("token", "give either a token or a code")
    fields.check()
    secret = secrets.token_urlsafe(32)
    if code is not None:
        token_id: str | None = await asyncio.to_thread(
            context.engine.transact, lambda one: _exchange(one, code, secret)
        )
        if token_id is None:
            raise context.deny(_UNKNOWN_CODE, "sign in with a link")
    else:
        caller = await asyncio.to_thread(context.auth.authenticate, token)
        if isinstance(caller, Denial):
            raise context.deny(caller, "sign in")
        _require_user(context, caller, "sign in")
        await asyncio.to_thread(context.engine.transact, lambda one: _sign_in(one, caller.id, caller.actor, secret))
    return await _signed_in(request, context, secret)


@routes.get("/session", response_model=SessionView)
async def show_session(request: Request, context: Context) -> Response:
    """Show the session whose cookie the request has, to the page that was loaded anew."""
    if not context.auth.enabled:
        return reply(SessionView("", "anyone", [tokens.ADMIN], None))
    return reply(await _view(context, session_of(request) or ""))


@routes.delete("/session", status_code=204)
async def sign_out(request: Request, context: Context, caller: CurrentCaller) -> Response:
    """End the session whose cookie the request has."""
    secret = session_of(request)
    if secret is None:
        raise context.deny(Denial(401, "no_session", "there is no session", caller.actor), "sign out")
    digest = digest_of(secret)
    await asyncio.to_thread(context.engine.transact, lambda one: one.repo.tokens.end_session(digest, BROWSER))
    context.auth.forget_session(secret)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/api", httponly=True, samesite="strict")
    return answer


@routes.post("/session/links", status_code=201, response_model=SignInLink)
async def make_link(context: Context, caller: CurrentCaller) -> Response:
    """Make a link that signs in once, with the rights of the user's own token."""
    _require_user(context, caller, "make a link to sign in")
    code = secrets.token_urlsafe(32)
    until = await asyncio.to_thread(context.engine.transact, lambda one: _begin(one, caller.id, LINK, code, LINK_MS))
    return reply(SignInLink(code, until), 201)


def _require_user(context: AppContext, caller: Caller, what: str) -> None:
    if caller.kind != tokens.USER or not caller.id:
        raise context.deny(Denial(403, "forbidden", _NOT_A_USER, caller.actor), what)


async def _signed_in(request: Request, context: AppContext, secret: str) -> Response:
    answer = reply(await _view(context, secret), 201)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=SESSION_MS // 1_000,
        path="/api",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


async def _view(context: AppContext, secret: str) -> SessionView:
    caller = await asyncio.to_thread(context.auth.authenticate_session, secret) if secret else NO_SESSION
    found = await context.read(lambda repo: repo.tokens.session(digest_of(secret), BROWSER))
    if isinstance(caller, Denial) or found is None:
        raise context.deny(NO_SESSION, "show the session")
    return SessionView(header_token(secret), caller.actor, scopes_of(caller), found[1])


def _sign_in(transaction: Transaction, token: str, actor: str, secret: str) -> None:
    _begin(transaction, token, BROWSER, secret, SESSION_MS)
    transaction.audit(actor, "sign_in", NO_SUBJECT, "")


def _begin(transaction: Transaction, token: str, kind: str, secret: str, span_ms: int) -> int:
    """Store a session; return when it ends. The writer may run this again, and then it is there already."""
    known = transaction.repo.tokens.session(digest_of(secret), kind)
    if known is not None:
        return known[1]
    until = min(transaction.now + span_ms, LAST_MS)
    transaction.repo.tokens.trim_sessions(token, transaction.now, SESSIONS_MAX - 1)
    transaction.repo.tokens.add_session(digest_of(secret), kind, token, transaction.now, until)
    return until


def _exchange(transaction: Transaction, code: str, secret: str) -> str | None:
    """Replace a link by a session; return its token, None if there is no such link or its token is not valid."""
    access = transaction.repo.tokens
    if (done := access.session(digest_of(secret), BROWSER)) is not None:
        return done[0]
    found = access.session(digest_of(code), LINK)
    if found is None or not access.end_session(digest_of(code), LINK):
        return None
    row = access.find([found[0]]).get(found[0])
    if row is None or found[1] <= transaction.now or not tokens.is_valid(row, Millis(transaction.now)):
        return None
    _sign_in(transaction, row.id, actor_of(row), secret)
    return row.id
