"""Routes of bots and pools: list them, show them, change their settings."""

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.durations import span_ms, span_text
from taskyard.core.fleet import CapacityUnit, Condition
from taskyard.core.graph.model import DESCRIPTION_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.ids import DIMENSION_AGGREGATION_KEY
from taskyard.core.reuse import REUSE_WINDOW_MAX_MS
from taskyard.lifecycle import bot_care, bot_sessions
from taskyard.lifecycle.admission import pools as describe
from taskyard.lifecycle.bot_events import record_event
from taskyard.lifecycle.commands import NO_SUBJECT, Refusal
from taskyard.lifecycle.idempotency import run_once
from taskyard.lifecycle.reuse import DEFAULT_POLICY, set_policy
from taskyard.lifecycle.transaction import Transaction
from taskyard.server import requests
from taskyard.server.auth import Caller
from taskyard.server.context import AppContext, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field, not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.graphs import clean, parse_pair
from taskyard.server.tokens import ADMIN, READ
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.read import FIRST_NAME
from taskyard.views import bots
from taskyard.views import bots as views
from taskyard.views.demand import demand
from taskyard.wire import api
from taskyard.wire.bot_protocol import NUMBER_MAX

routes = APIRouter(prefix="/api/v1", tags=["fleet"])
_OR_NULL = {"type": ["string", "null"], "minLength": 1, "maxLength": DESCRIPTION_MAX}
_SETTINGS = body(
    "The settings of a bot; fields that are left out stay as they are.",
    {
        "type": "object",
        "properties": {
            "quarantined": _OR_NULL,
            "maintenance": _OR_NULL,
            "draining": {"type": "boolean"},
            "terminated": {"type": "boolean"},
        },
    },
)
_POOL = body(
    "The capacity of a pool, and for how long it reuses the results of idempotent tasks (`0s`: never).",
    {
        "type": "object",
        "properties": {
            "capacity": {"type": ["integer", "null"], "minimum": 0, "maximum": NUMBER_MAX},
            "from_bots": {"type": "boolean"},
            "unit": {"enum": list(map(str, CapacityUnit))},
            "adjustment": {"type": "number", "minimum": 0, "maximum": 1},
            "external": {"type": "boolean"},
            "reuse_window": {"type": "string", "maxLength": NAME_MAX},
            "reuse_shared": {"type": "boolean"},
        },
    },
    required=False,
)


@routes.get("/bots", response_model=api.Bots)
async def list_bots(
    context: Context,
    caller: CurrentCaller,
    page: Page,
    pool: Annotated[str, Query(max_length=DIMENSION_VALUE_MAX)] = "",
    state: Condition | None = None,
    dimension: Annotated[list[str] | None, Query(max_length=16, description="key:value; all must match.")] = None,
) -> Response:
    """List bots. A page may be short and still have a `next`."""
    pools = context.readable_pools(caller, READ, "list bots")
    if clean(pool, "pool"):
        pools = frozenset({pool}) if pools is None else pools & {pool}
    wanted = views.BotFilter(pools, state, tuple(parse_pair(one, "dimension") for one in dimension or ()))
    after = requests.cursor_name(page.cursor, FIRST_NAME)
    found, last = await context.read(lambda repo: views.bots(repo, wanted, after, page.limit))
    return reply(api.Bots(found, requests.encode_cursor(last)))


@routes.get("/bots/{bot_id}", response_model=api.BotView)
async def show_bot(bot_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Show a bot with its tasks."""
    return reply(await _bot(context, caller, READ, bot_id))


@routes.get("/bots/{bot_id}/events", response_model=api.BotEvents)
async def list_bot_events(bot_id: str, context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List the events and tasks of a bot, the newest first; of its tasks, only those that are found quickly."""
    await _bot(context, caller, READ, bot_id)
    after = requests.cursor_moment(page.cursor, bots.NEWEST)
    found, last = await context.read(lambda repo: bots.events(repo, bot_id, after, page.limit))
    return reply(api.BotEvents(found, requests.encode_cursor(*last) if last else None))


@routes.get("/bots/{bot_id}/queues", response_model=api.BotQueues)
async def list_bot_queues(bot_id: str, context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List the queues that a bot looks at for work. A page may be short and still have a `next`."""
    await _bot(context, caller, READ, bot_id)
    after = requests.cursor_key(page.cursor, 0)
    found, last = await context.read(lambda repo: bots.queues(repo, bot_id, after, page.limit))
    return reply(api.BotQueues(found, requests.encode_cursor(last)))


@routes.patch("/bots/{bot_id}", response_model=api.BotView, openapi_extra=_SETTINGS)
async def set_bot(
    bot_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Change a bot's settings: quarantine, maintenance, drain, terminate. Needs `admin` of its pool."""
    fields = Fields(await requests.read_object(request))
    settings: dict[str, Any] = {name: fields.text(name, None) for name in ("quarantined", "maintenance")}
    settings |= {name: fields.flag(name, False) for name in ("draining", "terminated")}
    fields.check()
    await _bot(context, caller, ADMIN, bot_id)
    changes = {name: value for name, value in settings.items() if fields.has(name)}
    scoped_key, operation = caller_key(caller, key), ("set_bot", bot_id, changes)

    def act(transaction: Transaction) -> Refusal | None:
        return run_once(
            transaction,
            scoped_key,
            operation,
            lambda _: _set(transaction, bot_id, changes, caller.actor),
            lambda _: None,
        )

    unwrap(await asyncio.to_thread(context.engine.transact, act))
    return reply(await _bot(context, caller, ADMIN, bot_id))


@routes.post("/bots/{bot_id}/free", response_model=api.BotView)
async def free_bot(bot_id: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Release the name of a terminated bot, so that any pool may enrol it. Needs `admin` of its pool."""
    await _bot(context, caller, ADMIN, bot_id)
    scoped_key, operation = caller_key(caller, key), (bot_sessions.FREE, bot_id)

    def act(transaction: Transaction) -> Refusal | None:
        return run_once(
            transaction,
            scoped_key,
            operation,
            lambda _: bot_sessions.release_name(transaction, bot_id, caller.actor),
            lambda _: None,
        )

    unwrap(await asyncio.to_thread(context.engine.transact, act))
    return reply(await _bot(context, caller, ADMIN, bot_id))


@routes.delete("/bots/{bot_id}", status_code=204)
async def delete_bot(bot_id: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Delete a bot that is dead, with its events; its name belongs to no pool then. Needs `admin` of its pool."""
    await _check_name(context, caller, bot_id)
    scoped_key, operation = caller_key(caller, key), (bot_care.DELETE, bot_id)
    while unwrap(await asyncio.to_thread(context.engine.transact, lambda one: bot_care.delete_old_events(one, bot_id))):
        pass  # page by page

    def act(transaction: Transaction) -> Refusal | None:
        return run_once(
            transaction,
            scoped_key,
            operation,
            lambda _: bot_care.delete_bot(transaction, bot_id, caller.actor),
            lambda _: None,
        )

    unwrap(await asyncio.to_thread(context.engine.transact, act))
    return Response(status_code=204)


@routes.get("/dimensions", response_model=api.DimensionAggregation)
async def list_dimensions(context: Context, caller: CurrentCaller) -> Response:
    """List the dimensions of the bots that the caller may see, with their values."""
    pools = context.readable_pools(caller, READ, "list dimensions")
    if pools is not None:
        return reply(await context.read(lambda repo: views.aggregation(repo, pools)))
    found, kept = await context.read(
        lambda repo: (views.aggregation(repo), repo.read.aggregation(DIMENSION_AGGREGATION_KEY))
    )
    text = msgspec.json.encode(found).decode()
    if text != kept:
        await asyncio.to_thread(context.engine.transact, lambda transaction: _keep(transaction, text))
    return reply(found)


@routes.get("/pools", response_model=api.Pools)
async def list_pools(context: Context, caller: CurrentCaller) -> Response:
    """List pools."""
    mine = context.readable_pools(caller, READ, "list pools")
    found = await context.read(views.pools)
    return reply(api.Pools([pool for pool in found if mine is None or pool.name in mine]))


@routes.get("/pools/{name}/demand", response_model=api.PoolDemand)
async def show_demand(name: str, context: Context, caller: CurrentCaller) -> Response:
    """Count the tasks of a pool that want a bot, by the dimensions that it must have. For autoscalers."""
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")
    context.require(caller, READ, frozenset({name}), f"read the demand of pool {name}")
    return reply(await context.read(lambda repo: demand(repo, name)))


@routes.put("/pools/{name}", response_model=api.PoolView, openapi_extra=_POOL)
async def set_pool(
    name: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Create a pool, or change its settings; fields that are left out stay as they are. Needs `admin` of it."""
    sent = await requests.read_object(request, optional=True)
    fields = Fields(sent)
    known = {pool.name: pool for pool in await context.read(lambda repo: repo.admission.pools())}
    wanted = _wanted(fields, known.get(name, PoolRow(name, None, from_bots=False)))
    window_ms, shared = _wanted_reuse(fields)
    fields.check()
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")
    context.require(caller, ADMIN, frozenset({name}), f"set pool {name}")
    scoped_key = caller_key(caller, key)

    def act(transaction: Transaction) -> bool | Refusal:
        # Fields that are left out take the pool's current values, so the request is compared as it was sent.
        return run_once(
            transaction,
            scoped_key,
            ("set_pool", name, sent),
            lambda _: _set_pool(transaction, wanted, (window_ms, shared), caller.actor),
            lambda _: False,
        )

    unwrap(await asyncio.to_thread(context.engine.transact, act))
    found = await context.read(views.pools)
    return reply(next(pool for pool in found if pool.name == name))


def _wanted(fields: Fields, before: PoolRow) -> PoolRow:
    """Read the capacity of a pool: either a number, or what its bots carry."""
    from_bots = fields.flag("from_bots", before.from_bots and not fields.has("capacity"))
    stays = PoolRow(before.name, None if from_bots else before.capacity, from_bots, external=before.external)
    if from_bots and before.from_bots:
        stays = before
    return PoolRow(
        before.name,
        fields.number("capacity", stays.capacity, 0, NUMBER_MAX),
        from_bots,
        fields.choice("unit", stays.unit, list(map(str, CapacityUnit))),
        fields.fraction("adjustment", stays.adjustment),
        fields.flag("external", stays.external),
    )


def _wanted_reuse(fields: Fields) -> tuple[int | None, bool | None]:
    """Read for how long a pool reuses results and whether across submitters; None stands for what stays as it is."""
    text = fields.text("reuse_window", None, NAME_MAX)
    ms = None if text is None else span_ms(text)
    if text is not None and (ms is None or ms > REUSE_WINDOW_MAX_MS):
        longest = span_text(REUSE_WINDOW_MAX_MS)
        fields.add_fault("reuse_window", f"must be a duration like 7d, at most {longest}; 0s reuses nothing")
    return ms, fields.flag("reuse_shared", False) if fields.is_given("reuse_shared") else None


def _set_pool(
    transaction: Transaction,
    pool: PoolRow,
    reuse: tuple[int | None, bool | None],
    actor: str,
) -> bool | Refusal:
    """Set the capacity of a pool, and what it reuses."""
    answer = describe.set_pool(transaction, pool, actor)
    before, (window_ms, shared) = transaction.reuse_policies().get(pool.name, DEFAULT_POLICY), reuse
    if not isinstance(answer, Refusal):
        set_policy(
            transaction,
            pool.name,
            before.window_ms if window_ms is None else window_ms,
            before.shared if shared is None else shared,
            actor,
        )
    return answer


async def _bot(context: AppContext, caller: Caller, right: str, bot_id: str) -> api.BotView:
    """Read a bot on behalf of a caller; refuse one without the right in its pool."""
    if name_fault(bot_id):
        raise not_found("bot", bot_id)
    found = await context.read(lambda repo: views.bot(repo, bot_id))
    if found is None:
        context.readable_pools(caller, right, f"{right} bot {bot_id}")
        raise not_found("bot", bot_id)
    context.require(caller, right, frozenset({found.pool}), f"{right} bot {bot_id}")
    return found


async def _check_name(context: AppContext, caller: Caller, bot_id: str) -> None:
    """Check that a caller is an admin of the pool of a bot, which may be forgotten, or of any pool if there is none."""
    if name_fault(bot_id):
        raise not_found("bot", bot_id)
    pool = await context.read(lambda repo: views.pool_of_name(repo, bot_id))
    if pool is None:
        context.readable_pools(caller, ADMIN, f"{ADMIN} bot {bot_id}")
    else:
        context.require(caller, ADMIN, frozenset({pool}), f"{ADMIN} bot {bot_id}")


def _set(transaction: Transaction, bot: str, changes: dict[str, Any], actor: str) -> None:
    """Store an admin's settings of a bot; the next admission pass looks at all bots again."""
    before = dict(
        zip(("quarantined", "maintenance", "draining", "terminated"), _settings_of(transaction, bot), strict=True)
    )
    after = before | changes
    if after == before:
        return
    row = (bot, after["quarantined"], after["maintenance"], int(after["draining"]), int(after["terminated"]))
    transaction.repo.bots.set_settings([row])
    note = ", ".join(f"{name}: {value}" for name, value in changes.items())
    record_event(transaction, [bot], "settings", note)
    if before["quarantined"] is not None and after["quarantined"] is None:
        bot_care.forget_failures(transaction, [bot])
    transaction.audit(actor, "set_bot", NO_SUBJECT, f"{bot}: {note}")
    transaction.mark_bot_changed(bot)
    transaction.mark_dirty(None)


def _settings_of(transaction: Transaction, bot: str) -> tuple[str | None, str | None, bool, bool]:
    return transaction.repo.read.bot_settings(bot)


def _keep(transaction: Transaction, text: str) -> None:
    transaction.repo.bots.set_aggregation(DIMENSION_AGGREGATION_KEY, text)
