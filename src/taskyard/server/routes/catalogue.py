"""Routes of the catalogue: apply documents, list and show them with their versions, and delete one."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.catalogue.model import DOCUMENTS_MAX, SETTINGS, DocumentKind, Schedule
from taskyard.core.catalogue.parse import Entry
from taskyard.core.catalogue.plan import Change, Rights
from taskyard.core.graph.model import DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.states import Millis
from taskyard.server import requests
from taskyard.server.auth import Caller
from taskyard.server.context import AppContext, missing_scope, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid, not_found, refused
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.routes.graphs import clean
from taskyard.server.tokens import ADMIN, CATALOGUE, READ, SECRETS, SUBMIT
from taskyard.store.repo.catalogue import FIRST
from taskyard.views import catalogue as views
from taskyard.views.schedules import next_runs
from taskyard.wire import api
from taskyard.wire.bot_protocol import NUMBER_MAX

routes = APIRouter(prefix="/api/v1", tags=["catalogue"])
_KINDS: Final = frozenset(map(str, DocumentKind))
#: How many of the next runs of a schedule are shown when it is applied.
RUNS: Final = 3
_DOCUMENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["kind", "name"],
    "properties": {"kind": {"enum": list(map(str, DocumentKind))}, "name": {"type": "string"}},
}
_DOCUMENTS: Final = body(
    "Documents of the catalogue.",
    {
        "type": "object",
        "required": ["documents"],
        "properties": {
            "documents": {"type": "array", "items": _DOCUMENT, "minItems": 1, "maxItems": DOCUMENTS_MAX},
            "dry_run": {"type": "boolean", "default": False},
        },
        "additionalProperties": False,
    },
    yaml=True,
    example={"documents": [{"kind": "limit", "name": "licences", "total": 2}], "dry_run": True},
)
Pool = Annotated[str, Query(max_length=DIMENSION_VALUE_MAX, description="Only the documents of this pool.")]
Shown = Annotated[
    views.Detail,
    Query(
        description="How much to show: `whole` what documents say, `launches` also the last launch or update of each."
    ),
]


class _Denied(Exception):
    """The sender lacks scopes. Only the event loop records denials."""

    def __init__(self, scopes: list[str]) -> None:
        super().__init__(scopes)
        self.scopes = scopes


@routes.post("/catalogue", response_model=api.DocumentChanges, openapi_extra=_DOCUMENTS)
async def apply_documents(
    request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Store documents, all or none; with `dry_run` only say what would change. Unchanged documents are skipped.

    Needs `catalogue` in the pools of the documents, `admin` of a pool that one describes, and `admin` for named limits.
    What tasks of a document need beside that, such as `secrets`, is needed here, too: its launches have it then.
    """
    context.readable_pools(caller, CATALOGUE, "apply documents")
    scoped_key = caller_key(caller, key)
    async with requests.open_document(request) as sent:
        if not isinstance(sent, dict):
            raise invalid("the body must be an object with `documents`")
        fields = Fields({name: value for name, value in sent.items() if name != "documents"})
        dry_run = fields.flag("dry_run", False)
        fields.check()
        try:
            applied = await asyncio.to_thread(
                context.engine.catalogue.apply,
                sent.get("documents"),
                dry_run=dry_run,
                rights=_rights(caller),
                check=lambda entries: _check(caller, entries),
                actor=caller.actor,
                key=scoped_key,
            )
        except _Denied as denied:
            raise context.deny(missing_scope(caller, " and ".join(denied.scopes)), "apply documents") from None
    now, found = context.engine.clock.now(), unwrap(applied).changes
    changes = await asyncio.to_thread(lambda: [_change_view(one, now) for one in found])
    return reply(api.DocumentChanges(changes, dry_run))


@routes.get("/catalogue", response_model=api.DocumentViews)
async def list_documents(
    context: Context,
    caller: CurrentCaller,
    page: Page,
    kind: DocumentKind | None = None,
    pool: Pool = "",
    detail: Shown = views.Detail.SHORT,
) -> Response:
    """List the documents of pools that the caller may read, and named limits, by kind and name.

    With more detail than `short`, pages are short, too.
    """
    mine = context.readable_pools(caller, READ, "list the catalogue")
    if clean(pool, "pool"):
        mine = frozenset({pool}) if mine is None else mine & {pool}
    kinds = [kind] if kind is not None else list(DocumentKind)
    wanted = [str(one) for one in kinds if not pool or one is not DocumentKind.LIMIT]
    after = requests.cursor_pair(page.cursor, FIRST)
    found, last = await context.read(lambda repo: views.page(repo, wanted, mine, after, page.limit, detail))
    return reply(api.DocumentViews(found, requests.encode_cursor(*(last or (None,)))))


@routes.get("/catalogue/{kind}/{name:path}", response_model=api.DocumentView)
async def show_document(kind: str, name: str, context: Context, caller: CurrentCaller) -> Response:
    """Show a document. Needs `read` in its pool, or anywhere for a named limit."""
    return reply(await _document(context, caller, kind, name))


@routes.get("/catalogue-versions/{kind}/{name:path}", response_model=api.DocumentVersions)
async def list_document_versions(kind: str, name: str, context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List the versions of a document, the newest first; one without a document is a deletion. Needs `read`.

    A page may be short and still have a `next`. Pools and named limits have no versions: the audit has their changes.
    """
    mine = context.readable_pools(caller, READ, f"list the versions of {kind} {name}")
    _check_name(kind, name)
    before = requests.cursor_key(page.cursor, NUMBER_MAX)
    count = min(page.limit, views.WHOLE_MAX)
    found, last = await context.read(lambda repo: views.versions(repo, kind, name, mine, before, count))
    if not found and last is None and page.cursor is None:
        raise not_found(kind, name)
    return reply(api.DocumentVersions(found, requests.encode_cursor(last)))


@routes.delete("/catalogue/{kind}/{name:path}", status_code=204)
async def delete_document(
    kind: str, name: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Delete a document, unless others refer to it. Needs `catalogue` in its pool. Its versions stay."""
    context.readable_pools(caller, CATALOGUE, f"delete {kind} {name}")
    _check_name(kind, name)
    if kind in {str(one) for one in SETTINGS}:
        raise refused(409, "conflict", f"a {kind} cannot be deleted: apply a document with other settings")
    delete, scoped_key = context.engine.catalogue.delete, caller_key(caller, key)
    rights = _rights(caller)
    left = await context.read(lambda repo: repo.catalogue.read([(kind, name)]).get((kind, name)))
    if left is not None and rights.may_read(left.pool):
        context.require(caller, CATALOGUE, frozenset({left.pool}), f"delete {kind} {name}")
    unwrap(await asyncio.to_thread(delete, kind, name, rights=rights, actor=caller.actor, key=scoped_key))
    return Response(status_code=204)


def _change_view(one: Change, now: Millis) -> api.DocumentChange:
    document = one.document
    version = 0 if document.kind in SETTINGS else one.version
    definition = document.definition
    runs = next_runs(definition, now, RUNS) if isinstance(definition, Schedule) else None
    return api.DocumentChange(str(document.kind), document.name, document.pool, str(one.action), version, runs)


async def _document(context: AppContext, caller: Caller, kind: str, name: str) -> api.DocumentView:
    mine = context.readable_pools(caller, READ, f"show {kind} {name}")
    _check_name(kind, name)
    found = await context.read(lambda repo: views.one(repo, kind, name, mine))
    if found is None:
        raise not_found(kind, name)
    return found


def _check_name(kind: str, name: str) -> None:
    """Answer for what can be no document as for one that does not exist."""
    if kind not in _KINDS or name_fault(name, NAME_MAX):
        raise not_found(kind, name)


def _rights(caller: Caller) -> Rights:
    pools_with = caller.rights.pools_with
    return Rights(pools_with(CATALOGUE), pools_with(READ), pools_with(SUBMIT))


def _check(caller: Caller, entries: Sequence[Entry]) -> None:
    """Raise if the sender lacks scopes for some documents, or for what their tasks will do."""
    owners = frozenset(one.document.pool for one in entries if one.document.kind not in SETTINGS)
    described = frozenset(one.document.name for one in entries if one.document.kind is DocumentKind.POOL)
    elsewhere = frozenset(pool for one in entries for pool in one.pools - {one.document.pool})
    named = frozenset(pool for one in entries for pool in one.secret_pools)
    lacks = [
        *caller.missing_scopes(CATALOGUE, owners),
        *caller.missing_scopes(ADMIN, described),
        *caller.missing_scopes(SUBMIT, elsewhere),
        *caller.missing_scopes(SECRETS, named),
        *(scope for one in entries if one.urgent for scope in caller.missing_for_priorities(one.urgent)),
    ]
    if not caller.rights.admin and any(one.document.kind is DocumentKind.LIMIT for one in entries):
        lacks.append(ADMIN)
    if lacks:
        raise _Denied(sorted(set(lacks)))
