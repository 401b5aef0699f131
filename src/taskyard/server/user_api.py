"""The API for users and their programs: all its routes, and problem documents for every error."""

from importlib.metadata import version
from typing import Any, Final

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from taskyard.engine.errors import EngineError
from taskyard.server import openapi
from taskyard.server.asgi import AccessLog, ConcurrencyLimit, HeadAsGet
from taskyard.server.context import AppContext
from taskyard.server.errors import RequestRefused, from_engine_error, invalid, problem_response, refused
from taskyard.server.logs import log
from taskyard.server.routes import (
    about,
    access,
    approvals,
    audit,
    catalogue,
    drawing,
    events,
    files,
    fleet,
    graphs,
    health,
    launches,
    limits,
    output,
    requests,
    retention,
    schedules,
    secrets,
    session,
    stats,
    targets,
    task_list,
    tasks,
    webhooks,
    why,
)
from taskyard.wire import api

_LOG = log("taskyard.server")
#: The modules with routes.
ROUTERS: Final = (
    files,
    graphs,
    drawing,
    events,
    targets,
    requests,
    task_list,
    tasks,
    webhooks,
    why,
    approvals,
    output,
    fleet,
    stats,
    launches,
    limits,
    retention,
    schedules,
    secrets,
    catalogue,
    access,
    session,
    audit,
    about,
    health,
)
#: The paths that have no parameters.
_WITHOUT_IDS: Final = frozenset(
    route.path for part in ROUTERS for route in part.routes.routes if isinstance(route, Route) and "{" not in route.path
)


class UserApi(FastAPI):
    """The FastAPI app with its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; it is made once, because routes never change."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.describe(self, self.version)
        return self.openapi_schema


def limited_user_api(context: AppContext) -> ASGIApp:
    """Make the user API with its middleware: the limit of concurrent requests and the access log."""
    return HeadAsGet(
        AccessLog(
            ConcurrencyLimit(user_api(context), context.settings, lambda: context.engine.writer_thread.waiting),
            context.metrics,
        )
    )


def user_api(context: AppContext | None) -> UserApi:
    """Make the user API; without a context it can only be described."""
    app = UserApi(
        version=version("taskyard"),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        exception_handlers=EXCEPTION_HANDLERS,
        dependencies=[Depends(_refuse_words_as_ids)],
    )
    app.state.context = context
    for part in ROUTERS:
        app.include_router(part.routes)
    return app


async def _refuse_words_as_ids(request: Request) -> None:
    """Answer 405 for another method on a path such as `/graphs/check`, which a route with an id matches, too."""
    if request.url.path in _WITHOUT_IDS and "{" in request.scope["route"].path:
        raise HTTPException(405)


# Exception handlers.


async def _refused(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, RequestRefused)
    return problem_response(fault)


async def _invalid(_: Request, fault: Exception) -> Response:
    """List everything that is wrong with the parameters."""
    assert isinstance(fault, RequestValidationError)
    faults = [api.Fault(str(one["msg"]), ".".join(str(step) for step in one["loc"][1:])) for one in fault.errors()]
    return problem_response(invalid("the parameters are invalid", faults))


async def _by_http(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    codes = {404: ("not_found", "there is no such route"), 405: ("method_not_allowed", "this route has no such method")}
    code, detail = codes.get(fault.status_code, ("refused", str(fault.detail)))
    headers = {"Allow": _allowed(request)} if fault.status_code == 405 else fault.headers
    return problem_response(refused(fault.status_code, code, f"{detail}: {request.method}", headers=headers))


def _allowed(request: Request) -> str:
    """List all methods of a path: each of its routes knows only its own."""
    described = (route for route in request.app.routes if isinstance(route, Route))
    routes = (route for part in ROUTERS for route in part.routes.routes if isinstance(route, Route))
    found = [one for one in (*described, *routes) if one.matches(request.scope)[0] is not Match.NONE]
    # For a fixed path such as /graphs/check, routes with an id in the path do not count.
    spelled = [one for one in found if one.path == request.url.path]
    methods = {method for route in spelled or found for method in route.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def _trouble(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, EngineError)
    _LOG.warning("trouble", trouble=type(fault).__name__, text=str(fault))
    return problem_response(from_engine_error(fault))


async def _gone(_: Request, __: Exception) -> Response:
    """Answer a client that has disconnected; nothing is sent."""
    return Response(status_code=400)


async def _bug(_: Request, __: Exception) -> Response:
    return problem_response(refused(500, "failed", "this is a bug of the server"))


EXCEPTION_HANDLERS: dict[Any, Any] = {
    RequestRefused: _refused,
    RequestValidationError: _invalid,
    HTTPException: _by_http,
    EngineError: _trouble,
    ClientDisconnect: _gone,
    Exception: _bug,
}
