"""Routes of tasks of all graphs: list, count and cancel them by tag, state, bot, user and time."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core import ids, tags
from taskyard.core.graph.model import DIMENSION_VALUE_MAX, NAME_MAX, TAG_KEY_MAX, TAG_VALUE_MAX
from taskyard.core.matching import POOL
from taskyard.core.states import Millis, Signal, State, sources
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.cancel import TASKS_PER_CANCEL_MAX
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.server import requests
from taskyard.server.auth import Caller
from taskyard.server.context import Visibility, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid, invalid_field
from taskyard.server.requests import Fields
from taskyard.server.responses import Cursor, IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.audit import MOMENT_MAX
from taskyard.server.routes.graphs import clean
from taskyard.server.tokens import CANCEL, READ
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST
from taskyard.views import task_list as views
from taskyard.views import tasks as task_views
from taskyard.views.task_list import TaskFilter
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["tasks"])
#: How many tags and states a request may name.
TAGS_NAMED_MAX: Final = 16
_TAG_MAX: Final = TAG_KEY_MAX + 1 + max(TAG_VALUE_MAX, DIMENSION_VALUE_MAX)
_CANCELABLE: Final = sources(Signal.CANCEL)
_STRINGS: Final = {"type": "array", "items": {"type": "string"}, "maxItems": TAGS_NAMED_MAX}
_CANCEL: Final = body(
    "Which tasks to cancel. At least a tag, a bot, a user or a pool is needed.",
    {
        "type": "object",
        "properties": {
            "tags": _STRINGS,
            "states": {"type": "array", "items": {"enum": sorted(_CANCELABLE)}, "maxItems": len(State)},
            "bot": {"type": ["string", "null"]},
            "user": {"type": ["string", "null"]},
            "pool": {"type": ["string", "null"]},
            "since_ms": {"type": ["integer", "null"]},
            "until_ms": {"type": ["integer", "null"]},
            "cursor": {"type": ["string", "null"]},
        },
    },
    example={"tags": ["build:1234"], "states": ["pending", "waiting"]},
)


async def get_task_filter(  # noqa: PLR0913, PLR0917 - each is a parameter of the query
    tag: Annotated[list[str] | None, Query(max_length=TAGS_NAMED_MAX, description="key:value; all must match.")] = None,
    state: Annotated[list[State] | None, Query(max_length=len(State), description="Any of these.")] = None,
    bot: Annotated[str, Query(max_length=NAME_MAX, description="A bot that had an attempt of the task.")] = "",
    user: Annotated[str, Query(max_length=TAG_VALUE_MAX, description="For whom the task runs.")] = "",
    pool: Annotated[str, Query(max_length=DIMENSION_VALUE_MAX, description="A pool that the task names.")] = "",
    graph: Annotated[str | None, Query(max_length=ids.KEY_DIGITS, description="The id of a graph.")] = None,
    since_ms: Annotated[int, Query(ge=0, le=MOMENT_MAX, description="Submitted then or later.")] = 0,
    until_ms: Annotated[int, Query(ge=0, le=MOMENT_MAX, description="Submitted before.")] = MOMENT_MAX,
) -> TaskFilter:
    """Read the filter."""
    named = _tags([clean(one, "tag") for one in tag or ()], clean(user, "user"), clean(pool, "pool"))
    for one in tag or ():
        if fault := _tag_fault(one):
            raise invalid_field(fault, "tag")
    try:
        key = None if graph is None else ids.key_of(graph)
    except ValueError as fault:
        raise invalid_field(str(fault), "graph") from None
    return TaskFilter(named, frozenset(state or ()), clean(bot, "bot"), key, _within(since_ms), _within(until_ms))


TaskFilterQuery = Annotated[TaskFilter, Depends(get_task_filter)]


@routes.get("/tasks", response_model=api.Tasks)
async def list_all_tasks(context: Context, caller: CurrentCaller, page: Page, wanted: TaskFilterQuery) -> Response:
    """List tasks of all graphs, the newest first. A page may be short and still have a `next`."""
    wanted = struct_replace(wanted, pools=context.readable_pools(caller, READ, "list tasks"))
    after, now, url = requests.cursor_key(page.cursor, FIRST), context.engine.clock.now(), context.settings.public_url

    def look(repo: Repo) -> api.Tasks:
        found = views.listed(repo, wanted, after, page.limit)
        ids = [id for id, _ in found.tasks]
        rows = task_views.task_rows(repo, ids, url, now, Visibility(repo, caller))
        return api.Tasks(rows, requests.encode_cursor(found.next))

    return reply(await context.read(look))


@routes.get("/tasks/count", response_model=api.TaskCounts)
async def count_tasks(
    context: Context, caller: CurrentCaller, wanted: TaskFilterQuery, cursor: Cursor = None
) -> Response:
    """Count tasks of all graphs by state. An answer with a `next` has counted only some: add the following ones."""
    wanted = struct_replace(wanted, pools=context.readable_pools(caller, READ, "count tasks"))
    after = requests.cursor_key(cursor, FIRST)
    found, last = await context.read(lambda repo: views.counted(repo, wanted, after))
    return reply(api.TaskCounts(found.total(), dict(found), requests.encode_cursor(last)))


@routes.post("/tasks/cancel", response_model=api.TasksCanceled, openapi_extra=_CANCEL)
async def cancel_tasks(request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Cancel tasks of all graphs. Needs `cancel`, and leaves out others. An answer with a `next` has canceled some."""
    given = await requests.read_object(request)
    wanted, cursor = _read_cancel(given)
    pools = context.readable_pools(caller, CANCEL, "cancel tasks")
    wanted = struct_replace(wanted, pools=pools)
    after = requests.cursor_key(cursor, FIRST)

    def look(repo: Repo) -> tuple[list[int], int | None]:
        found = views.listed(repo, wanted, after, TASKS_PER_CANCEL_MAX)
        return _permitted(repo, caller, [id for id, _ in found.tasks]), found.next

    chosen, last = await context.read(look)
    done = unwrap(
        await context.async_engine.cancel_tasks(
            chosen, after=last or NO_SUBJECT, request=given, actor=caller.actor, key=caller_key(caller, key)
        )
    )
    return reply(api.TasksCanceled(done.moved, requests.encode_cursor(done.subject or None)))


def _read_cancel(given: Mapping[str, Any]) -> tuple[TaskFilter, str | None]:
    fields = Fields(dict(given))
    named = fields.names("tags", TAGS_NAMED_MAX, _tag_fault)
    states = fields.names("states", len(State), _state_fault)
    bot, user = fields.text("bot", None, NAME_MAX), fields.text("user", None, TAG_VALUE_MAX)
    pool = fields.text("pool", None, DIMENSION_VALUE_MAX)
    since, until = fields.number("since_ms", None, 0, MOMENT_MAX), fields.number("until_ms", None, 0, MOMENT_MAX)
    cursor = fields.text("cursor", None, requests.CURSOR_MAX)
    fields.check()
    if not (named or bot or user or pool):
        raise invalid("name a tag, a bot, a user or a pool: without one, every task would be canceled")
    chosen = frozenset(map(State, states)) or _CANCELABLE
    tagged = _tags(named, user or "", pool or "")
    until_ms = _within(ids.LAST_MS if until is None else until)
    return TaskFilter(tagged, chosen, bot or "", None, _within(since or 0), until_ms), cursor


def _tags(named: Sequence[str], user: str, pool: str) -> tuple[str, ...]:
    """Return the tags to look for: a user and a pool are found by their automatic tags."""
    automatic = [tags.tag_text(key, value) for key, value in ((tags.USER, user), (POOL, pool)) if value]
    return tuple(dict.fromkeys((*named, *automatic)))


def _tag_fault(text: str) -> str | None:
    if ":" not in text or "\0" in text:
        return "must be key:value"
    return f"must have at most {_TAG_MAX} characters" if len(text) > _TAG_MAX else None


def _state_fault(text: str) -> str | None:
    return None if text in set(map(str, _CANCELABLE)) else f"must be one of {', '.join(sorted(map(str, _CANCELABLE)))}"


def _within(moment: int) -> Millis:
    return Millis(min(moment, ids.LAST_MS))


def _permitted(repo: Repo, caller: Caller, found: Sequence[int]) -> list[int]:
    """Return the tasks in whose own pools the caller has the right to cancel."""
    pools = caller.rights.pools_with(CANCEL)
    if pools is None:
        return list(found)
    return [one.id for one in repo.tasks.read(found) if not pools.isdisjoint(task_views.pools(repo, one))]
