"""Routes of the drawing of a graph: where its tasks are, which is computed once and kept, and their states."""

from enum import StrEnum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from taskyard.core.ids import Key
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import RequestRefused, refused
from taskyard.server.responses import JSON, reply
from taskyard.server.tokens import READ
from taskyard.store.connection import Repo
from taskyard.views import layout as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["graphs"])


class LayoutView(StrEnum):
    """What a drawing shows: tasks, groups of them, or whichever fits the size of the graph."""

    AUTO = views.AUTO
    TASKS = views.TASKS
    GROUPS = views.GROUPS


@routes.get("/graphs/{graph_id}/layout", response_model=api.GraphLayout)
async def show_layout(
    graph_id: str,
    context: Context,
    caller: CurrentCaller,
    view: Annotated[
        LayoutView, Query(description="Tasks or groups of them; `auto` groups only a large graph.")
    ] = LayoutView.AUTO,
) -> Response:
    """Return where the tasks of a graph are drawn: in layers, each task after what it requires."""
    layouts = context.layouts

    def look(repo: Repo, graph: Key) -> bytes | RequestRefused:
        size = repo.read.size(graph, views.DRAWN_TASKS_MAX + 1)
        kept = layouts.get(graph, size, view)
        if kept is not None:
            return kept
        found = views.layout(repo, graph, view)
        if found is None:
            return refused(409, "conflict", f"graphs of more than {views.DRAWN_TASKS_MAX} tasks are not drawn")
        body = msgspec.json.encode(found)
        layouts.keep(graph, found.size, view, body)
        return body

    async with layouts.turns:
        answer = await context.read_graph(caller, READ, graph_id, look)
    if isinstance(answer, RequestRefused):
        raise answer
    return Response(answer, media_type=JSON)


@routes.get("/graphs/{graph_id}/states", response_model=api.GraphStates)
async def show_states(
    graph_id: str,
    context: Context,
    caller: CurrentCaller,
    times: Annotated[bool, Query(description="Also when each task began and ended, and on which bot.")] = False,
) -> Response:
    """Return the state of each task of a graph, in the order of its layout."""
    found = await context.read_graph(caller, READ, graph_id, lambda repo, graph: views.states(repo, graph, times))
    return reply(found)
