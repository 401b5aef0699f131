"""Routes of launches: launch a template, an update or an ad-hoc command; list launches, and launch one again."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.catalogue.launched import AD_HOC, SOURCE, Options, Wanted
from taskyard.core.catalogue.model import TEMPLATES, DocumentKind
from taskyard.core.graph.model import ARGUMENT_MAX, NAME_MAX, PATH_MAX
from taskyard.core.ids import Key, text_of
from taskyard.engine.launch import TEMPLATE, Preview, sources_of
from taskyard.lifecycle.idempotency import Sender
from taskyard.lifecycle.launch import LaunchStored
from taskyard.server import requests
from taskyard.server.context import AppContext, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.graphs import clean, submit_permission
from taskyard.server.tokens import READ, SUBMIT
from taskyard.store.repo.read import FIRST
from taskyard.views import launches as views
from taskyard.views.graphs import shown_names
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["launches"])
#: What can be launched.
KINDS: Final = (TEMPLATE, *map(str, TEMPLATES), str(DocumentKind.PROJECT), str(DocumentKind.INVENTORY), SOURCE, AD_HOC)
_UPDATES: Final = (str(DocumentKind.PROJECT), str(DocumentKind.INVENTORY), SOURCE)
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": NAME_MAX}
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": PATH_MAX}
_WANTED = body(
    "What is launched: a template with variables; the update of a project, of an inventory with all its sources, or of "
    "one `source`, INVENTORY/SOURCE; or an `ad_hoc` command on an inventory.",
    {
        "type": "object",
        "required": ["name"],
        "properties": {
            "kind": {"type": "string", "enum": [*KINDS], "default": TEMPLATE},
            "name": _NAME,
            "variables": {"type": "object"},
            "texts": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Variables as people type them: each is read as the type that the survey gives it.",
            },
            "limit": _TEXT,
            "check": {"type": "boolean"},
            "module": _TEXT,
            "module_args": {"type": "string", "minLength": 1, "maxLength": ARGUMENT_MAX},
            "dry_run": {"type": "boolean", "default": False},
        },
        "additionalProperties": False,
    },
    example={"name": "deploy", "variables": {"version": "1.2"}},
)
_AGAIN = body(
    "Whether a workflow takes over what its successful nodes left, and goes on from those that failed.",
    {
        "type": "object",
        "properties": {"from_failed": {"type": "boolean", "default": False}},
        "additionalProperties": False,
    },
    required=False,
)
_ECHO: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": api.Launched, "description": "It was launched before, or this was a dry run."}
}


@routes.post("/launches", status_code=201, response_model=api.Launched, responses=_ECHO, openapi_extra=_WANTED)
async def launch(request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Launch something. Needs `submit` in the pool of the document, and in those of templates that it launches.

    A running task may launch what runs in the pools of its own graph.
    """
    if caller.run is None:
        context.readable_pools(caller, SUBMIT, "launch")
    fields = Fields(await requests.read_object(request))
    wanted, dry_run = _wanted(fields), fields.flag("dry_run", False)
    fields.check()
    scoped_key = caller_key(caller, key)
    async with submit_permission(context, caller, f"launch {wanted.name}") as sender:
        if dry_run:
            preview = await context.async_engine.preview_launch(wanted, **sender)
            return reply(_preview(unwrap(preview)))
        if wanted.kind == DocumentKind.INVENTORY:
            return await _update_sources(context, wanted.name, scoped_key, sender)
        made = await context.async_engine.launch(wanted, key=scoped_key, **sender)
    return _launched(unwrap(made))


@routes.get("/launches", response_model=api.Launches)
async def list_launches(
    context: Context,
    caller: CurrentCaller,
    page: Page,
    kind: Annotated[str, Query(max_length=NAME_MAX, description="Only of this kind of document.")] = "",
    name: Annotated[str, Query(max_length=NAME_MAX, description="Only of documents with this name.")] = "",
) -> Response:
    """List launches, the newest first."""
    pools = context.readable_pools(caller, READ, "list launches")
    wanted, after = (clean(kind, "kind"), clean(name, "name")), requests.cursor_key(page.cursor, FIRST)
    found, last = await context.read(lambda repo: views.launches(repo, *wanted, pools, after, page.limit))
    return reply(api.Launches(found, requests.encode_cursor(last)))


@routes.post(
    "/graphs/{graph_id}/relaunch", status_code=201, response_model=api.Launched, responses=_ECHO, openapi_extra=_AGAIN
)
async def relaunch(
    graph_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Launch again what a graph was launched from, with the same variables, planned anew. Needs `submit` as a launch.

    It also needs `read` in the graph.
    """
    context.readable_pools(caller, SUBMIT, f"relaunch graph {graph_id}")
    fields = Fields(await requests.read_object(request, optional=True))
    from_failed = fields.flag("from_failed", False)
    fields.check()
    await context.read_graph(caller, READ, graph_id, lambda _, key: key)
    async with submit_permission(context, caller, f"relaunch graph {graph_id}") as sender:
        scoped_key = caller_key(caller, key)
        made = await context.async_engine.relaunch(graph_id, from_failed=from_failed, key=scoped_key, **sender)
    return _launched(unwrap(made))


def _wanted(fields: Fields) -> Wanted:
    """Read what is to be launched."""
    kind, name = fields.choice("kind", TEMPLATE, KINDS), fields.name("name", "")
    variables = fields.object("variables", {})
    texts = _texts(fields, variables)
    options = Options(
        fields.text("limit", None, PATH_MAX),
        fields.flag("check", False) if fields.is_given("check") else None,
        fields.text("module", None, PATH_MAX),
        fields.text("module_args", None, ARGUMENT_MAX),
    )
    if kind != AD_HOC:
        _refuse(fields, ("module", "module_args"), f"belongs to the kind {AD_HOC}")
    if kind in _UPDATES:
        given = [option for option, said in (("variables", variables), ("texts", texts)) if said]
        _refuse(fields, (*given, "limit", "check"), f"belongs to a template; a {kind} is updated as it is")
    return Wanted(kind, name, variables, options, texts=texts)


def _texts(fields: Fields, variables: Collection[str]) -> dict[str, str]:
    """Read variables as people type them."""
    texts = fields.object("texts", {})
    for variable, text in texts.items():
        if not isinstance(text, str):
            fields.add_fault("texts", "must be a string", variable)
        elif variable in variables:
            fields.add_fault("texts", "is in variables, too; give it once", variable)
    return texts


def _refuse(fields: Fields, options: Iterable[str], fault: str) -> None:
    for option in options:
        if fields.has(option):
            fields.add_fault(option, fault)


async def _update_sources(context: AppContext, inventory: str, key: str, sender: Sender) -> Response:
    """Update all sources of an inventory, each as a graph of its own."""
    sources = await context.read(lambda repo: sources_of(repo, inventory))
    if sources is None:
        raise not_found("inventory", inventory)
    made = []
    for one in sources:
        wanted = Wanted(SOURCE, f"{inventory}/{one}")
        each = f"{key} {one}" if key else ""
        made.append(unwrap(await context.async_engine.launch(wanted, key=each[:NAME_MAX], **sender)))
    return _launched_together(made)


def _launched(made: LaunchStored) -> Response:
    updates = [views.update_view(one) for one in made.updates]
    id = text_of(Key(made.graph))
    answer = api.Launched(id, made.echo, nameMapping=shown_names(made.names), updates=updates, graph_ids=[id])
    return reply(answer, 200 if made.echo else 201)


def _launched_together(made: Sequence[LaunchStored]) -> Response:
    ids = [text_of(Key(one.graph)) for one in made]
    updates = [views.update_view(update) for one in made for update in one.updates]
    echo = all(one.echo for one in made)
    answer = api.Launched(next(iter(ids), None), echo, updates=updates, graph_ids=ids)
    return reply(answer, 200 if echo else 201)


def _preview(found: Preview) -> api.Launched:
    graph = found.graph
    updates = [views.update_view(one) for one in found.updates]
    document = dict(graph.document)
    return api.Launched(None, False, graph.kind, graph.name, graph.version, updates=updates, document=document)
