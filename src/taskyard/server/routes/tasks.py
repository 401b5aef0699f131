"""Routes of tasks: show, cancel and rerun them; their attempts, history, inputs, results and checkpoints."""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.ids import Key, text_of
from taskyard.lifecycle.commands import Cancel, Publish, Rerun
from taskyard.server import requests
from taskyard.server.auth import Caller, Denial
from taskyard.server.context import AppContext, Visibility, parse_id, subtree_denial, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import JSON, IdempotencyKey, body, caller_key, reply
from taskyard.server.routes.graphs import command_reply
from taskyard.server.tokens import CANCEL, READ, SUBMIT, RunToken
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks as attempt_views
from taskyard.views import tasks as views
from taskyard.views.history import history_view, read_history
from taskyard.wire import api
from taskyard.wire.bot_protocol import CHECKPOINT_MAX, PROGRESS_MAX, RESULT_MAX

routes = APIRouter(prefix="/api/v1", tags=["tasks"])
_SUBTREE = body(
    "Whether to cancel all that depends on the task, too.",
    {"type": "object", "properties": {"subtree": {"type": "boolean"}}},
    required=False,
)
Ending = Annotated[str, Path(pattern="^[0-9a-f]{5,15}$", description="The last 5 to 15 digits of an id.")]
_ANY: Final[dict[str, Any]] = {}
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
_RESULT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The result.", "content": {JSON: {"schema": _ANY}}}
}
_TEXT: Final = {TEXT: {"schema": {"type": "string"}}}
_BYTES: Final = {BYTES: {"schema": {"type": "string", "format": "binary"}}}


@routes.get("/ids/{ending}", response_model=api.Ids)
async def find_ids(context: Context, caller: CurrentCaller, ending: Ending) -> Response:
    """Find graphs and tasks by the last digits of their ids, the newest first."""
    context.readable_pools(caller, READ, "find ids")
    return reply(await context.read(lambda repo: views.find_by_suffix(repo, ending, Visibility(repo, caller))))


@routes.get("/tasks/{task_id}", response_model=api.TaskView)
async def show_task(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Show a task with its edges, its definition and its result."""
    now, url = context.engine.clock.now(), context.settings.public_url

    def look(repo: Repo, one: TaskRecord) -> api.TaskView | None:
        return views.task(repo, one.id, url, now, Visibility(repo, caller))

    return reply(await context.read_task(caller, READ, task_id, look))


@routes.get("/tasks/{task_id}/attempts", response_model=api.Attempts)
async def list_attempts(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """List all attempts of a task."""
    found = await context.read_task(caller, READ, task_id, lambda repo, one: attempt_views.attempts(repo, one.id))
    return reply(api.Attempts(found))


@routes.get("/tasks/{task_id}/story", response_model=api.StoryView)
async def tell_story(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Show the history of a task: every transition with its cause."""
    lease_ms = context.engine.lease_ms
    return reply(
        await context.read_task(
            caller, READ, task_id, lambda repo, one: history_view(repo, read_history(repo, one.id), lease_ms)
        )
    )


@routes.post("/tasks/{task_id}/cancel", response_model=api.CommandResult, openapi_extra=_SUBTREE)
async def cancel_task(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Cancel a task, or a task with everything that depends on it. Needs `cancel`."""
    fields = Fields(await requests.read_object(request, optional=True))
    subtree = fields.flag("subtree", False)
    fields.check()
    task, graph = await context.read_task(caller, CANCEL, task_id, lambda _, one: (one.id, one.graph))
    if subtree and (denial := await context.read(lambda repo: subtree_denial(repo, caller, CANCEL, graph, [task]))):
        raise context.deny(denial, f"cancel task {task_id} and all behind it")
    command = Cancel(task=task, subtree=subtree, actor=caller.actor, key=caller_key(caller, key))
    return command_reply(await context.async_engine.cancel(command))


@routes.post("/tasks/{task_id}/rerun", response_model=api.CommandResult)
async def rerun_task(task_id: str, context: Context, caller: CurrentCaller, key: IdempotencyKey = "") -> Response:
    """Rerun a failed task. Needs `submit`."""
    task = await context.read_task(caller, SUBMIT, task_id, lambda _, one: one.id)
    return command_reply(
        await context.async_engine.rerun(Rerun(task=task, actor=caller.actor, key=caller_key(caller, key)))
    )


@routes.get("/tasks/{task_id}/inputs", response_model=dict[str, Any])
async def show_inputs(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Return the results of a task's prerequisites by label."""
    return reply(await context.read_task(caller, READ, task_id, lambda repo, one: attempt_views.inputs(repo, one.id)))


@routes.get("/tasks/{task_id}/result", responses=_RESULT)
async def show_result(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Return the result of a task's last attempt."""
    found = await context.read_task(caller, READ, task_id, lambda repo, one: attempt_views.result(repo, one.id) or b"")
    if not found:
        raise not_found("result of task", task_id)
    return Response(found, media_type=JSON)


# Routes for running tasks.


@routes.put("/tasks/{task_id}/result", status_code=204, openapi_extra=body("Any JSON.", _ANY))
async def put_result(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Publish the result of the running attempt. Needs the task's own token."""
    run = own_run(context, caller, task_id)
    requests.check_content_type(request, (JSON,))
    text = await requests.read_body(request, RESULT_MAX)
    value = requests.parse(text, "result.json")
    return await _publish(context, run, caller_key(caller, key), result=msgspec.json.encode(value).decode())


@routes.put(
    "/tasks/{task_id}/progress",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": _TEXT, "description": "A short text."}},
)
async def put_progress(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Report the progress of the running attempt. Needs the task's own token."""
    run = own_run(context, caller, task_id)
    requests.check_content_type(request, (TEXT,))
    fields = await requests.read_body(request, PROGRESS_MAX)
    return await _publish(context, run, caller_key(caller, key), progress=requests.decode_text(fields))


@routes.put(
    "/tasks/{task_id}/checkpoint",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": _BYTES, "description": "Any bytes."}},
)
async def put_checkpoint(
    task_id: str, request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Store a checkpoint for the next attempt. Needs the task's own token."""
    run = own_run(context, caller, task_id)
    requests.check_content_type(request, (BYTES,))
    return await _publish(
        context, run, caller_key(caller, key), checkpoint=await requests.read_body(request, CHECKPOINT_MAX)
    )


def own_run(context: AppContext, caller: Caller, task_id: str, what: str = "publish for") -> RunToken:
    """Return the attempt of the caller; refuse a caller that is not an attempt of this task."""
    task = parse_id(task_id, "task")
    if caller.run is None or caller.run.token.task != task:
        text = f"this needs the token of the running task {text_of(Key(task))} itself"
        raise context.deny(Denial(403, "forbidden", text, caller.actor), f"{what} task {task_id}")
    return caller.run.token


async def _publish(context: AppContext, run: RunToken, key: str, **fields: Any) -> Response:
    publish = Publish(run.task, run.attempt, run.fence, **fields)
    unwrap(await asyncio.to_thread(context.engine.publish, publish, key))
    return Response(status_code=204)
