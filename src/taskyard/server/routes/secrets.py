"""Routes of secrets: set, list and delete them, encrypt them anew, and give them to the attempts that name them.

No answer to a person has a value, and no fault repeats a part of one.
"""

import asyncio
import base64
import binascii
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.graph.model import DIMENSION_VALUE_MAX, NAME_MAX, SECRET_BYTES_MAX, SECRET_BYTES_MIN
from taskyard.core.graph.scalars import name_fault
from taskyard.core.matching import DEFAULT_POOL
from taskyard.server import requests
from taskyard.server.context import AppContext, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import RequestRefused, invalid, invalid_field
from taskyard.server.requests import Fields
from taskyard.server.responses import JSON, IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.tasks import own_run
from taskyard.server.tokens import ADMIN, SECRETS
from taskyard.store.repo.secrets import FIRST, SecretListing
from taskyard.wire import api
from taskyard.wire.bot_protocol import AttemptSecrets

routes = APIRouter(prefix="/api/v1", tags=["secrets"])
_SIZES: Final = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
_VALUE: Final = body(
    f"The value, {_SIZES}: a text, or any bytes in base64.",
    {"type": "object", "properties": {"value": {"type": "string"}, "value_base64": {"type": "string"}}},
    example={"value": "an example"},
)
_ROTATE: Final = body(
    "Whether to give up a key that is lost.",
    {"type": "object", "properties": {"abandon": {"type": "boolean", "default": False}}},
    required=False,
)
Pool = Annotated[str, Query(description="The pool that the secret belongs to.")]


@routes.get("/secrets", response_model=api.SecretViews)
async def list_secrets(
    context: Context,
    caller: CurrentCaller,
    page: Page,
    pool: Annotated[str, Query(max_length=DIMENSION_VALUE_MAX, description="Only the secrets of this pool.")] = "",
) -> Response:
    """List named secrets without their values. Needs `secrets`; shows those of the pools in which it is held."""
    mine = context.readable_pools(caller, SECRETS, "list secrets")
    if pool:
        _check_pool(pool)
        context.require(caller, SECRETS, frozenset({pool}), f"list the secrets of pool {pool}")
        mine = frozenset({pool})
    after, limit = requests.cursor_pair(page.cursor, FIRST), page.limit
    found = await context.read(lambda repo: repo.secrets.page(mine, after, limit + 1))
    last = found[limit - 1] if len(found) > limit else None
    place = requests.encode_cursor(None) if last is None else requests.encode_cursor(last.pool, last.name)
    return reply(api.SecretViews([_view(context, one) for one in found[:limit]], place))


@routes.put("/secrets/{name:path}", response_model=api.SecretView, openapi_extra=_VALUE)
async def set_secret(
    name: str,
    request: Request,
    context: Context,
    caller: CurrentCaller,
    pool: Pool = DEFAULT_POOL,
    key: IdempotencyKey = "",
) -> Response:
    """Store a secret, or replace its value; the same value again changes nothing. Needs `admin` of the pool.

    Attempts that begin from then on get the new value; no route returns it.
    """
    _check_place(pool, name)
    context.require(caller, ADMIN, frozenset({pool}), f"set secret {name} of pool {pool}")
    value = await _read_value(request)
    save = context.engine.secrets.save
    stored = await asyncio.to_thread(save, pool, name, value, actor=caller.actor, key=caller_key(caller, key))
    return reply(_view(context, unwrap(stored)))


@routes.delete("/secrets/{name:path}", response_model=api.DeletedSecret)
async def delete_secret(
    name: str, context: Context, caller: CurrentCaller, pool: Pool = DEFAULT_POOL, key: IdempotencyKey = ""
) -> Response:
    """Delete a secret; tasks that name it wait until it is set again. Needs `admin` of the pool."""
    _check_place(pool, name)
    context.require(caller, ADMIN, frozenset({pool}), f"delete secret {name} of pool {pool}")
    delete, actor = context.engine.secrets.delete, caller.actor
    tasks = unwrap(await asyncio.to_thread(delete, pool, name, actor=actor, key=caller_key(caller, key)))
    return reply(api.DeletedSecret(pool, name, tasks))


@routes.post("/secrets/rotate", response_model=api.SecretRotation, openapi_extra=_ROTATE)
async def rotate_secrets(
    request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Encrypt all secrets with the first key of the server's key file; continues one that was cut off. Needs `admin`.

    A repetition changes nothing more, with a key or without one. With `abandon` a lost key is given up: what only that
    key opens has to be set anew.
    """
    context.require_admin(caller, "rotate the key of secrets")
    fields = Fields(await requests.read_object(request, optional=True))
    abandon = fields.flag("abandon", False)
    fields.check()
    caller_key(caller, key)
    rotate = context.engine.secrets.rotate
    done = unwrap(await asyncio.to_thread(rotate, actor=caller.actor, abandon=abandon))
    return reply(api.SecretRotation(done.key_id, done.rewrapped, done.unopened, list(done.unused)))


@routes.post("/tasks/{task_id}/secrets", response_model=dict[str, Any])
async def give_secrets(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Return the secrets that the running attempt names, and record that. Needs the task's own token."""
    run = own_run(context, caller, task_id, "get the secrets of")
    give = context.engine.secrets.give
    given = unwrap(await asyncio.to_thread(give, run.task, run.attempt, run.fence, caller.actor))
    return Response(msgspec.json.encode(AttemptSecrets(given)), headers={"Cache-Control": "no-store"}, media_type=JSON)


async def _read_value(request: Request) -> bytes:
    """Read the value of a secret."""
    try:
        sent = await requests.read_object(request)
    except RequestRefused as fault:
        if fault.problem.status != 400:
            raise
        # What cannot be read may be a part of the value.
        raise invalid("the body must be an object with `value` or `value_base64`, in valid JSON") from None
    return _value_of(sent)


def _value_of(sent: dict[str, Any]) -> bytes:
    fields = Fields({name: value for name, value in sent.items() if name not in ("value", "value_base64")})
    text, encoded = sent.get("value"), sent.get("value_base64")
    value = b""
    if (text is None) is (encoded is None):
        fields.add_fault("value", "is missing: give either it or value_base64")
    elif text is not None:
        value = _bytes_of_text(text, fields)
    else:
        value = _bytes_of_base64(encoded, fields)
    if value and not SECRET_BYTES_MIN <= len(value) <= SECRET_BYTES_MAX:
        reason = "; shorter ones cannot be masked in output" if len(value) < SECRET_BYTES_MIN else ""
        fields.add_fault("value", f"has {len(value)} bytes; a secret has {_SIZES}{reason}")
    fields.check()
    return value


def _bytes_of_text(text: object, fields: Fields) -> bytes:
    try:
        if isinstance(text, str) and text:
            return text.encode()
    except UnicodeEncodeError:
        pass
    fields.add_fault("value", "must be a text that is not empty; give bytes in value_base64")
    return b""


def _bytes_of_base64(text: object, fields: Fields) -> bytes:
    try:
        if isinstance(text, str) and (found := base64.b64decode(text, validate=True)):
            return found
    except (binascii.Error, ValueError):
        pass
    fields.add_fault("value_base64", "must be bytes in base64, at least one")
    return b""


def _check_place(pool: str, name: str) -> None:
    _check_pool(pool)
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")


def _check_pool(pool: str) -> None:
    if fault := name_fault(pool, DIMENSION_VALUE_MAX):
        raise invalid_field(fault, "pool")


def _view(context: AppContext, one: SecretListing) -> api.SecretView:
    opens = one.key_id in context.engine.secrets.keyring.ids()
    times = (one.created_ms, one.changed_ms, one.changed_by)
    return api.SecretView(one.pool, one.name, one.version, *times, one.key_id, opens)
