"""Routes that explain: why a task does not run, what holds up a graph, and what a graph would do (dry run)."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.engine import submit
from taskyard.engine.submit import pools_of
from taskyard.server import requests
from taskyard.server.context import Visibility, unwrap
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.requests import check_size
from taskyard.server.responses import body, reply
from taskyard.server.routes.graphs import DOCUMENT, find_faults_of
from taskyard.server.tokens import READ, SUBMIT
from taskyard.views.dry_run import dry_run
from taskyard.views.explain import explain_task
from taskyard.views.explain_graph import explain_graph
from taskyard.wire import explain as api
from taskyard.wire.explain import DryRun

routes = APIRouter(prefix="/api/v1", tags=["why"])


@routes.get("/tasks/{task_id}/why", response_model=api.WhyView)
async def why_task(task_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Explain why a task does not run, down to the root causes; or on which bot it runs, or how it ended."""
    now = context.engine.clock.now()
    return reply(
        await context.read_task(
            caller, READ, task_id, lambda repo, one: explain_task(repo, one, now, Visibility(repo, caller))
        )
    )


@routes.get("/graphs/{graph_id}/why", response_model=api.WhyGraphView)
async def why_graph(graph_id: str, context: Context, caller: CurrentCaller) -> Response:
    """Explain what holds up a graph: its root causes, grouped, the most urgent first."""
    now = context.engine.clock.now()
    return reply(
        await context.read_graph(
            caller, READ, graph_id, lambda repo, key: explain_graph(repo, key, now, Visibility(repo, caller))
        )
    )


@routes.post("/graphs/check", response_model=DryRun, openapi_extra=body("A graph document.", DOCUMENT, yaml=True))
async def check_graph(request: Request, context: Context, caller: CurrentCaller) -> Response:
    """Check a graph and tell what would happen if it were submitted now; nothing is stored. Needs `submit`."""
    async with requests.open_document(request, find_faults_of(context)) as document:
        now = context.engine.clock.now()
        await asyncio.to_thread(check_size, document, context.settings.tasks_max)
        graph = unwrap(await asyncio.to_thread(submit.check_document, document, now, context.engine.scheduler_id))
        context.require(caller, SUBMIT, await asyncio.to_thread(pools_of, graph), "check a graph")
        found = await context.read(
            lambda repo: submit.refused(repo, graph) or dry_run(repo, graph, now, Visibility(repo, caller))
        )
        return reply(unwrap(found))
