"""The route of the audit log: who asked for what, and when."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from taskyard.core import ids
from taskyard.core.graph.model import NAME_MAX
from taskyard.server import requests
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field
from taskyard.server.responses import Page, reply
from taskyard.server.routes.graphs import clean
from taskyard.views import audit as views
from taskyard.views.audit import AuditFilter
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["access"])
#: Later than any time in the audit log.
MOMENT_MAX: Final = 2**53


async def get_audit_filter(
    actor: Annotated[str, Query(max_length=NAME_MAX, description="As in a row, or the name or id of a token.")] = "",
    action: Annotated[str, Query(max_length=NAME_MAX, description="Such as submit, make_token or denied.")] = "",
    subject: Annotated[str | None, Query(max_length=ids.KEY_DIGITS, description="The id of a graph or a task.")] = None,
    since_ms: Annotated[int, Query(ge=0, le=MOMENT_MAX, description="The earliest time.")] = 0,
    until_ms: Annotated[int, Query(ge=0, le=MOMENT_MAX, description="The latest time.")] = MOMENT_MAX,
) -> AuditFilter:
    """Read the filter."""
    try:
        key = None if subject is None else ids.key_of(subject)
    except ValueError as fault:
        raise invalid_field(str(fault), "subject") from None
    return AuditFilter(clean(actor, "actor"), clean(action, "action"), key, since_ms, until_ms)


AuditFilterQuery = Annotated[AuditFilter, Depends(get_audit_filter)]


@routes.get("/audit", response_model=api.Audits)
async def list_audit(context: Context, caller: CurrentCaller, page: Page, wanted: AuditFilterQuery) -> Response:
    """List who asked for what, the newest first. A page may be short and still have a `next`. Needs `admin`."""
    context.require_admin(caller, "list the audit")
    before = requests.cursor_key(page.cursor, views.NEWEST)
    found, last = await context.read(lambda repo: views.audits(repo, wanted, before, page.limit))
    return reply(api.Audits(found, requests.encode_cursor(last)))
