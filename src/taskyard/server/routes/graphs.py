"""Routes of graphs: submit, extend, list, show, cancel, rerun."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.parse import validate
from taskyard.core.graph.scalars import name_fault
from taskyard.core.graph.schema import FIELDS
from taskyard.core.ids import KEY_DIGITS, Key, text_of
from taskyard.core.states import GraphState, State
from taskyard.engine.errors import outages
from taskyard.engine.validate import LABELS_MAX
from taskyard.engine.wide_commands import CommandOutcome
from taskyard.lifecycle.children import ChildOf
from taskyard.lifecycle.commands import CANCEL_TASKS_MAX, BulkOutcome, Cancel, Code, Refusal, Rerun
from taskyard.lifecycle.idempotency import Sender
from taskyard.lifecycle.submit import Submitted
from taskyard.server import requests
from taskyard.server.asgi import slot_of
from taskyard.server.auth import Caller, Denial
from taskyard.server.context import AppContext, Visibility, missing_scope, subtree_denial, task_denial, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import RequestRefused, from_refusal, invalid, invalid_field
from taskyard.server.requests import Fields, check_size, size_fault
from taskyard.server.responses import NAMES_MAX, Cursor, IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.tokens import CANCEL, READ, SECRETS, SUBMIT
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST, GraphFilter
from taskyard.views import graphs as views
from taskyard.views import tasks as task_views
from taskyard.views.events import graph_events
from taskyard.views.graphs import critical_path
from taskyard.views.tasks import tasks_by_name
from taskyard.wire import api
from taskyard.wire.api import WAIT_MAX_MS

routes = APIRouter(prefix="/api/v1", tags=["graphs"])
DOCUMENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A graph document.",
    "required": ["tasks"],
    "properties": {one.name: {"description": one.doc} for one in FIELDS["graph"]},
    "additionalProperties": False,
}
_EXAMPLE: Final[dict[str, Any]] = {
    "tasks": {
        "build": {"task": {"payload": {"command": ["make"]}, "dimensions": {"pool": "default"}}},
        "test": {
            "requires": ["build"],
            "task": {"payload": {"command": ["pytest"]}, "dimensions": {"pool": "default"}},
        },
    }
}


def _fields(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


ParentQuery = Annotated[
    str | None,
    Query(max_length=KEY_DIGITS, description="The running task with which the graph ends. Needs `submit` there."),
]
_TAKEN = body("A graph document, as JSON or YAML.", DOCUMENT, yaml=True, example=_EXAMPLE)
_MADE: Final[dict[int | str, dict[str, Any]]] = {200: {"model": api.Submitted, "description": "It was stored before."}}
_FROM: Final = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": NAME_MAX},
    "minItems": 1,
    "maxItems": LABELS_MAX,
    "description": "Labels; the label of a matrix stands for all its combinations.",
}
_PART = body("The tasks to start from; without them, the whole graph.", _fields(**{"from": _FROM}), required=False)
_AGAIN = body(
    "What to run again: all that failed, or everything from some tasks on, as a new graph.",
    _fields(failed={"type": "boolean"}, **{"from": _FROM}),
    required=False,
)
_RENEWED: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": api.CommandResult, "description": "A new graph was stored that runs this one again."}
}


@routes.post("/graphs", status_code=201, response_model=api.Submitted, responses=_MADE, openapi_extra=_TAKEN)
async def submit_graph(
    request: Request,
    context: Context,
    caller: CurrentCaller,
    key: IdempotencyKey = "",
    parent: ParentQuery = None,
) -> Response:
    """Store a graph. Needs `submit` in every pool that its tasks name; with a priority below 20 also another right."""
    async with requests.open_document(request, find_faults_of(context)) as document:
        small = requests.is_small(request, document)
        return await submit(context, caller, document, key=caller_key(caller, key), parent=parent, small=small)


@routes.put("/graphs/{graph_id}", status_code=201, response_model=api.Submitted, responses=_MADE, openapi_extra=_TAKEN)
async def put_graph(
    graph_id: str,
    request: Request,
    context: Context,
    caller: CurrentCaller,
    key: IdempotencyKey = "",
    parent: ParentQuery = None,
) -> Response:
    """Store a graph under an id that the caller has chosen; a repetition changes nothing. Needs `submit`."""
    async with requests.open_document(request, find_faults_of(context)) as document:
        scoped_key = caller_key(caller, key)
        return await submit(context, caller, document, graph_id=graph_id, key=scoped_key, parent=parent)


@routes.post("/graphs/{graph_id}/tasks", response_model=api.Submitted, openapi_extra=_TAKEN)
async def extend_graph(
    graph_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Add tasks to a graph; those that it has already, with the same definition, are skipped. Needs `submit`.

    A new task gets the results of the tasks that it requires, so this needs `read` in the pools of those.
    """
    graph = await context.read_graph(caller, SUBMIT, graph_id, lambda _, key: key)
    scoped_key = caller_key(caller, key)
    async with (
        requests.open_document(request) as document,
        submit_permission(context, caller, f"extend graph {graph_id}") as sender,
    ):
        if denial := await context.read(lambda repo: _required_denial(repo, caller, graph, document)):
            raise context.deny(denial, f"extend graph {graph_id}")

        def store() -> tuple[Submitted, Mapping[str, str]]:
            check_size(document, context.settings.tasks_max)
            made = unwrap(context.engine.extend(graph_id, document, key=scoped_key, **sender))
            return made, _names_by_label(context, made)

        return _submitted(*await asyncio.to_thread(store), 200)


@routes.get("/graphs", response_model=api.Graphs)
async def list_graphs(  # noqa: PLR0913, PLR0917 - each is a parameter of the query
    context: Context,
    caller: CurrentCaller,
    page: Page,
    state: GraphState | None = None,
    name: Annotated[str, Query(max_length=255)] = "",
    tag: Annotated[list[str] | None, Query(max_length=16, description="key:value; all must match.")] = None,
    counts: Annotated[bool, Query(description="Whether to count tasks by state, which reads all of them.")] = False,
) -> Response:
    """List graphs, the newest first. A page may be short and still have a `next`."""
    pools = context.readable_pools(caller, READ, "list graphs")
    wanted = GraphFilter("" if state is None else state.text, clean(name, "name"), pools)
    tags, after = dict(parse_pair(one, "tag") for one in tag or ()), requests.cursor_key(page.cursor, FIRST)

    def look(repo: Repo) -> api.Graphs:
        found, last = views.graphs(repo, wanted, tags, after, page.limit)
        return api.Graphs(views.with_counts(repo, found) if counts else found, requests.encode_cursor(last))

    return reply(await context.read(look))


@routes.get("/graphs/{graph_id}", response_model=api.GraphView)
async def show_graph(  # noqa: PLR0913, PLR0917 - each is a parameter of the query
    graph_id: str,
    request: Request,
    context: Context,
    caller: CurrentCaller,
    counts: Annotated[bool, Query(description="Whether to count tasks by state, which reads all of them.")] = True,
    names: Annotated[
        bool,
        Query(description="Whether to name tasks: `nameMapping`, or `namesUrl` for a large graph, and `requires`."),
    ] = True,
    wait_ms: Annotated[int, Query(ge=0, le=WAIT_MAX_MS, description="How long to wait until it is settled.")] = 0,
) -> Response:
    """Show a graph, with its tasks counted by state; on request, wait until it is settled or the time is over."""
    if wait_ms:
        with slot_of(request).released_while_waiting():
            await context.wait_until_settled(caller, graph_id, wait_ms / 1000)
    url = f"{context.settings.public_url}/api/v1/graphs/{graph_id}/names" if names else None
    return reply(
        await context.read_graph(
            caller, READ, graph_id, lambda repo, key: views.graph(repo, key, counts, Visibility(repo, caller), url)
        )
    )


@routes.get("/graphs/{graph_id}/tasks", response_model=api.Tasks)
async def list_tasks(
    graph_id: str,
    context: Context,
    caller: CurrentCaller,
    page: Page,
    state: State | None = None,
    label: Annotated[str, Query(max_length=255)] = "",
) -> Response:
    """List the tasks of a graph, in the order of its document."""
    wanted, after = (
        ("" if state is None else state.text, clean(label, "label")),
        requests.cursor_key(page.cursor, FIRST),
    )

    now, url = context.engine.clock.now(), context.settings.public_url

    def look(repo: Repo, graph: int) -> api.Tasks:
        found, last = task_views.tasks(repo, graph, after, wanted, page.limit)
        return api.Tasks(
            task_views.task_rows(repo, found, url, now, Visibility(repo, caller)), requests.encode_cursor(last)
        )

    return reply(await context.read_graph(caller, READ, graph_id, look))


@routes.get("/graphs/{graph_id}/names", response_model=api.Names)
async def list_names(
    graph_id: str,
    context: Context,
    caller: CurrentCaller,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=NAMES_MAX)] = NAMES_MAX,
) -> Response:
    """Map the labels of a graph's tasks to their ids."""
    after = requests.cursor_key(cursor, FIRST)
    found, last = await context.read_graph(
        caller, READ, graph_id, lambda repo, key: views.names(repo, key, after, limit)
    )
    return reply(api.Names(found, requests.encode_cursor(last)))


@routes.get("/graphs/{graph_id}/events", response_model=api.Events)
async def list_events(graph_id: str, context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List everything that happened in a graph, the oldest first: every transition of it and of its tasks."""
    after = requests.cursor_key(page.cursor, 0)
    found, last = await context.read_graph(
        caller, READ, graph_id, lambda repo, key: graph_events(repo, key, after, page.limit)
    )
    return reply(api.Events(found, requests.encode_cursor(last)))


@routes.get("/graphs/{graph_id}/critical-path", response_model=api.CriticalPath)
async def show_critical_path(graph_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Show the chain of tasks that determined when a graph ended, or will end, and when that is expected."""
    now = context.engine.clock.now()
    pools = frozenset[str]() if caller.run is not None else caller.rights.pools_with(READ)
    return reply(
        await context.read_graph(caller, READ, graph_id, lambda repo, key: critical_path(repo, key, now, pools))
    )


@routes.post("/graphs/{graph_id}/cancel", response_model=api.CommandResult, openapi_extra=_PART)
async def cancel_graph(
    graph_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Cancel a graph, which needs `cancel` in all of its pools; or only some tasks and all that depend on them."""
    names = await _labels(request)
    if names:
        graph = await context.read_graph(caller, CANCEL, graph_id, lambda _, key: key)
        tasks = await _tasks_named(context, caller, graph, names)
    else:
        graph, tasks = await context.require_whole_graph(caller, CANCEL, graph_id), ()
    command = Cancel(graph=graph, tasks=tasks, actor=caller.actor, key=caller_key(caller, key))
    return command_reply(await context.async_engine.cancel(command))


@routes.post("/graphs/{graph_id}/rerun", response_model=api.CommandResult, responses=_RENEWED, openapi_extra=_AGAIN)
async def rerun_graph(
    graph_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Rerun everything that failed, with what it blocked; or store a new graph that runs a settled one again.

    With `from`, the new graph runs these tasks again with all that depend on them, and reuses the rest. Both need
    `submit`: the first in all pools of the graph, the second in every pool where something runs again.
    """
    names = await _labels(request, "failed")
    if names:
        await context.read_graph(caller, READ, graph_id, lambda _, key: key)
        return await _rerun_as_new_graph(context, caller, graph_id, names, caller_key(caller, key))
    graph = await context.require_whole_graph(caller, SUBMIT, graph_id)
    command = Rerun(graph=graph, actor=caller.actor, key=caller_key(caller, key))
    return command_reply(await context.async_engine.rerun(command))


# Also for other routes.


async def submit(  # noqa: PLR0913 - each is a part of the request
    context: AppContext,
    caller: Caller,
    document: object,
    *,
    graph_id: str | None = None,
    key: str = "",
    parent: str | None = None,
    parent_field: str = "parent",
    secret_bytes: bytes | None = None,
    small: bool = False,
) -> Response:
    """Store a graph on behalf of a caller, and answer. It ends with the task `parent`, if that is given.

    The document of a `small` one is validated on the event loop.
    """
    child_of = None if parent is None else await _child_of(context, caller, parent, parent_field)
    async with submit_permission(context, caller, "submit a graph") as sender:
        if small and graph_id is None and secret_bytes is None:
            check_size(document, context.settings.tasks_max)
            answer = await context.async_engine.submit_small(document, key=key, child_of=child_of, **sender)
            if answer is not None and not (stored := unwrap(answer)).echo:
                return _submitted(stored, views.shown_names(stored.names), 201)

        def store() -> tuple[Submitted, Mapping[str, str]]:
            check_size(document, context.settings.tasks_max)
            beside: dict[str, Any] = {"child_of": child_of, "secret_bytes": secret_bytes}
            made = unwrap(context.engine.submit(document, graph_id=graph_id, key=key, **beside, **sender))
            return made, _names_by_label(context, made)

        return _submitted(*await asyncio.to_thread(store), 201)


def command_reply(outcome: CommandOutcome) -> Response:
    """Answer with the outcome of a cancel or a rerun."""
    if isinstance(outcome, Refusal):
        raise from_refusal(outcome)
    if isinstance(outcome, BulkOutcome):
        tasks = [text_of(Key(one)) for one in outcome.tasks]
        counts = (outcome.moved, outcome.promised, outcome.echo, outcome.total, outcome.unblocked)
        return reply(api.CommandResult(text_of(Key(outcome.subject)), *counts, tasks))
    return reply(api.CommandResult(text_of(Key(outcome.task)), int(not outcome.echo), False, outcome.echo))


def parse_pair(text: str, what: str) -> tuple[str, str]:
    """Read `key:value`."""
    key, colon, value = clean(text, what).partition(":")
    if not colon:
        raise invalid_field("must be key:value", what)
    return key, value


def clean(text: str, what: str) -> str:
    """Refuse text that no database can search for."""
    if "\0" in text:
        raise invalid_field("contains a NUL character", what)
    return text


def find_faults_of(context: AppContext) -> requests.FindFaults:
    """Return a function that lists the faults of a document whose syntax is faulty already.

    A document with too many tasks has only that fault: it is not expanded to look for more.
    """
    return lambda document: faults_of_graph(document, context.settings.tasks_max)


def faults_of_graph(document: object, tasks_max: int) -> list[api.Fault]:
    """List the faults of a document, or only that it has too many tasks."""
    if fault := size_fault(document, tasks_max):
        return [fault]
    return [api.Fault(one.message, one.path) for one in validate(document).faults]


class _Denied(Exception):
    """The caller lacks these scopes."""

    def __init__(self, scopes: list[str]) -> None:
        super().__init__()
        self.scopes = scopes


@asynccontextmanager
async def submit_permission(context: AppContext, caller: Caller, what: str) -> AsyncIterator[Sender]:
    """Provide what the engine has to know of the sender of tasks; refuse a caller who may not submit them.

    The checks run on a thread, and only the event loop records denials.
    """

    def may(pools: frozenset[str]) -> None:
        if lacks := caller.missing_scopes(SUBMIT, pools):
            raise _Denied(lacks)

    def may_urge(urgent: Mapping[int, frozenset[str]]) -> None:
        if lacks := caller.missing_for_priorities(urgent):
            raise _Denied(lacks)

    def may_use(pools: frozenset[str]) -> None:
        if lacks := caller.missing_scopes(SECRETS, pools):
            raise _Denied(lacks)

    try:
        yield {
            "actor": caller.actor,
            "submitter": caller.submitter,
            "user": caller.user,
            "may": may,
            "may_urge": may_urge,
            "may_use": may_use,
        }
    except _Denied as denied:
        raise context.deny(missing_scope(caller, " and ".join(denied.scopes)), what) from None


async def _child_of(context: AppContext, caller: Caller, parent: str, field: str) -> ChildOf:
    """Read the task with which a new graph ends; refuse a caller who may not add to what that task belongs to."""
    try:
        task = await context.read_task(caller, SUBMIT, parent, lambda _, one: one.id)
    except RequestRefused as refusal:
        if refusal.problem.code != Code.NOT_FOUND:
            raise
        raise invalid_field("is not the id of a task", field) from None
    is_caller = caller.run is not None and caller.run.token.task == task
    return ChildOf(task, caller.run.token.attempt if is_caller and caller.run is not None else None)


async def _labels(request: Request, other: str | None = None) -> tuple[str, ...]:
    """Read from which tasks on a command applies; none for the whole graph, or for what the field `other` says."""
    fields = Fields(await requests.read_object(request, optional=True))
    names = fields.names("from", LABELS_MAX, name_fault)
    if fields.has("from") and not names:
        fields.add_fault("from", "is empty: name a label, or leave it out")
    if other is not None and fields.flag(other, not names) is bool(names):
        fields.add_fault(other, "must be true, or from must name labels; not both")
    fields.check()
    return names


async def _tasks_named(context: AppContext, caller: Caller, graph: int, names: tuple[str, ...]) -> tuple[int, ...]:
    """Find the tasks to cancel; refuse a caller who lacks the right in any of them."""
    found = await context.read(lambda repo: tasks_by_name(repo, graph, names))
    if found.faults:
        faults = [api.Fault(one.message, one.path) for one in found.faults]
        raise invalid(f"graph {text_of(Key(graph))} has no such task", faults)
    if len(found.tasks) > CANCEL_TASKS_MAX:
        raise invalid_field(f"stands for {len(found.tasks)} tasks; the limit is {CANCEL_TASKS_MAX}", "from")
    denial = await context.read(lambda repo: subtree_denial(repo, caller, CANCEL, graph, found.tasks))
    if denial is not None:
        raise context.deny(denial, f"cancel tasks of graph {text_of(Key(graph))}")
    return found.tasks


async def _rerun_as_new_graph(
    context: AppContext, caller: Caller, graph_id: str, names: tuple[str, ...], key: str
) -> Response:
    """Store a graph that runs another one again, and answer."""
    async with submit_permission(context, caller, f"rerun graph {graph_id}") as sender, context.large_documents:
        made = unwrap(await context.async_engine.renew(graph_id, names, key=key, **sender))
    row = await context.read(lambda repo: repo.reuse.rerun(made.graph))
    assert row is not None, "a graph that runs another again says so"
    source = text_of(Key(row.source))
    new = text_of(Key(made.graph))
    total = row.to_run + row.reused
    answer = api.CommandResult(new, row.to_run, False, made.echo, total, rerun_of=source, reused=row.reused)
    return reply(answer, 200 if made.echo else 201)


def _required_denial(repo: Repo, caller: Caller, graph: int, document: object) -> Denial | None:
    """Deny a caller who may not read a task of the graph that an extension requires."""
    nodes = document.get("tasks") if isinstance(document, dict) else None
    if caller.run is not None or not isinstance(nodes, dict):
        return None
    wants = [one for node in nodes.values() if isinstance(node, dict) for one in _listed(node.get("requires"))]
    names = {one.get("task") if isinstance(one, dict) else one for one in wants}
    found = tasks_by_name(repo, graph, sorted(name for name in names if isinstance(name, str) and name not in nodes))
    return next(
        filter(None, (task_denial(repo, caller, READ, record) for record in repo.tasks.read(found.tasks))), None
    )


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


def _names_by_label(context: AppContext, made: Submitted) -> Mapping[str, str]:
    if made.names:
        return views.shown_names(made.names)
    with outages(), context.engine.store.read() as repo:
        return views.all_names(repo, made.graph)


def _submitted(made: Submitted, names: Mapping[str, str], status: int) -> Response:
    answer = api.Submitted(text_of(Key(made.graph)), made.echo, dict(names))
    return reply(answer, 200 if made.echo else status)
