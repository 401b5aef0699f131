"""Routes of approvals: list and decide them."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.ids import Key, text_of
from taskyard.lifecycle.commands import COMMENT_MAX, Approve
from taskyard.server import requests
from taskyard.server.context import unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.requests import Fields
from taskyard.server.responses import IdempotencyKey, Page, body, caller_key, reply
from taskyard.server.tokens import APPROVE, READ
from taskyard.store.repo.read import FIRST
from taskyard.views import approvals as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["approvals"])
_DECISION: Final = body(
    "The decision, approved unless it says otherwise, and its reason.",
    {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean", "default": True},
            "comment": {"type": ["string", "null"], "minLength": 1, "maxLength": COMMENT_MAX},
        },
    },
    required=False,
)


@routes.get("/approvals", response_model=api.Approvals)
async def list_approvals(context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List the approvals that wait for a decision, the newest first. A page may be short and still have a `next`."""
    pools = context.readable_pools(caller, READ, "list approvals")
    after = requests.cursor_key(page.cursor, FIRST)
    found, last = await context.read(lambda repo: views.approvals(repo, pools, after, page.limit))
    return reply(api.Approvals(found, requests.encode_cursor(last)))


@routes.post("/tasks/{task_id}/approve", response_model=api.Decided, openapi_extra=_DECISION)
async def approve_task(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Decide an approval. Needs `approve` in the pool it names, or in one pool of its graph.

    An approval that is not requested yet, or is decided already, is refused with 409 and the reason.
    """
    fields = Fields(await requests.read_object(request, optional=True))
    approved, comment = fields.flag("approved", True), fields.text("comment", None, COMMENT_MAX) or ""
    fields.check()
    task = await context.read_task(caller, APPROVE, task_id, lambda _, one: one.id)
    command = Approve(task, approved, comment, caller.actor, caller_key(caller, key))
    answer = unwrap(await context.async_engine.approve(command))
    return reply(api.Decided(text_of(Key(answer.task)), approved, answer.state.text))
