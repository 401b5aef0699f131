"""Routes of approvals: what people are asked, and what they decide."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.ids import Key as TaskKey
from taskyard.core.ids import text_of
from taskyard.engine.validate import COMMENT_MAX
from taskyard.lifecycle.commands import Approve
from taskyard.server import requests
from taskyard.server.context import TheCaller, TheDesk, done
from taskyard.server.requests import Fields
from taskyard.server.responses import Key, ThePage, body, own_key, reply
from taskyard.server.tokens import APPROVE, READ
from taskyard.store.repo.read import FIRST
from taskyard.views import approvals as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["approvals"])
_DECISION: Final = body(
    "What is decided: yes, unless it says otherwise; and why.",
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
async def list_approvals(desk: TheDesk, caller: TheCaller, page: ThePage) -> Response:
    """List what people are asked, the newest first. A page may be short and still have a `next`."""
    pools = desk.readable(caller, READ, "list approvals")
    after = requests.key(page.cursor, FIRST)
    found, last = await desk.read(lambda repo: views.approvals(repo, pools, after, page.limit))
    return reply(api.Approvals(found, requests.written(last)))


@routes.post("/tasks/{task_id}/approve", response_model=api.Decided, openapi_extra=_DECISION)
async def approve_task(task_id: str, request: Request, desk: TheDesk, caller: TheCaller, key: Key = "") -> Response:
    """Decide about an approval that waits for a person. Needs `approve` in the pool it names, or in one of its graph.

    Who comes before it is asked, or after it was decided, gets 409 and hears why.
    """
    said = Fields(await requests.fields(request, optional=True))
    approved, comment = said.flag("approved", True), said.text("comment", None, COMMENT_MAX) or ""
    said.close()
    task = await desk.of_task(caller, APPROVE, task_id, lambda _, one: one.id)
    wish = Approve(task, approved, comment, caller.actor, own_key(caller, key))
    answer = done(await desk.face.approve(wish))
    return reply(api.Decided(text_of(TaskKey(answer.task)), approved, answer.state.text))
