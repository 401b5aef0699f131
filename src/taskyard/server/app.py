"""The app: the routes of bots, and beside them those of people. It starts and stops nothing of the engine.

The routes of people cost most of a second to load. A server that is there for a single run has them made when the
first person comes, and that is a task that asks for something: most never do.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from taskyard.engine.engine import Engine
from taskyard.engine.errors import Trouble
from taskyard.server import openapi
from taskyard.server.asgi import AccessLog, ConcurrencyLimit, HeadAsGet
from taskyard.server.auth import cross_site_fault
from taskyard.server.bot_api import Lobby
from taskyard.server.context import AppContext
from taskyard.server.errors import RequestRefused, from_engine_error, invalid, problem_response, refused
from taskyard.server.metrics import log
from taskyard.server.routes import (
    about,
    access,
    approvals,
    audit,
    fleet,
    graphs,
    health,
    limits,
    output,
    requests,
    tasks,
    why,
)
from taskyard.server.settings import Settings, load_signer
from taskyard.wire import api


class App:
    """The whole server, as ASGI. Its desk is what all parts of it share."""

    def __init__(self, context: AppContext, people: ASGIApp) -> None:
        self.context = context
        self._people = people
        self._bots = Lobby(context)
        self._anybody = not context.settings.authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send bots to their own door and everybody else to the other."""
        if self._anybody and scope["type"] == "http" and (why := cross_site_fault(scope)):
            await problem_response(refused(403, "forbidden", f"without tokens this is refused: {why}"))(
                scope, receive, send
            )
        elif scope["type"] == "http" and self._bots.serves(scope["path"]):
            await self._bots(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._people(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        # Threads wait for the database most of the time, so there are more of them than processors.
        threads = ThreadPoolExecutor(self.context.settings.threads_max, "taskyard-people")
        asyncio.get_running_loop().set_default_executor(threads)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


class LazyUserApi:
    """The routes of people, made by a thread when the first of them comes."""

    def __init__(self, context: AppContext) -> None:
        self._desk = context
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(_people, self._desk))
        # Whoever leaves while it is made does not end it for the others.
        people = await asyncio.shield(self._made)
        await people(scope, receive, send)


def build(engine: Engine, settings: Settings) -> App:
    """Build the app around an engine that `bootstrap.prepare` has seen."""
    context = AppContext(engine, settings, load_signer(engine))
    return App(context, LazyUserApi(context) if settings.people_later else _people(context))


def _people(context: AppContext) -> ASGIApp:

    return limited_user_api(context)


# The routes of people, put together, with one answer to whatever goes wrong. Bots have others.


_LOG = log("taskyard.server")
#: Everything that has routes.
ROUTERS: Final = (graphs, requests, tasks, why, approvals, output, fleet, limits, access, audit, about, health)


class UserApi(FastAPI):
    """The routes of people, and their description."""

    def openapi(self) -> dict[str, Any]:
        """Describe every route; once, for they never change."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.described(self, self.version)
        return self.openapi_schema


def limited_user_api(context: AppContext) -> ASGIApp:
    """Make the routes of people, with room for so many of them, and with every request noted."""
    return HeadAsGet(
        AccessLog(
            ConcurrencyLimit(user_api(context), context.settings, lambda: context.engine.loop.waiting), context.metrics
        )
    )


def user_api(context: AppContext | None) -> UserApi:
    """Make the routes of people; without a desk they can only be described."""
    app = UserApi(
        version=version("taskyard"),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # the pages that come with FastAPI ask strangers for their scripts
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.context = context
    for part in ROUTERS:
        app.include_router(part.routes)
    return app


# What is answered when something goes wrong.


async def _refused(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, RequestRefused)
    return problem_response(fault)


async def _invalid(_: Request, fault: Exception) -> Response:
    """Say everything that is wrong with parameters."""
    assert isinstance(fault, RequestValidationError)
    faults = [api.Fault(str(one["msg"]), ".".join(str(step) for step in one["loc"][1:])) for one in fault.errors()]
    return problem_response(invalid("the parameters are wrong", faults))


async def _by_http(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    codes = {404: ("not_found", "there is no such route"), 405: ("method_not_allowed", "this route has no such method")}
    code, detail = codes.get(fault.status_code, ("refused", str(fault.detail)))
    headers = {"Allow": _allowed(request)} if fault.status_code == 405 else fault.headers
    return problem_response(refused(fault.status_code, code, f"{detail}: {request.method}", headers=headers))


def _allowed(request: Request) -> str:
    """Name every method of a path: one path may have several routes, of which each knows only its own."""
    described = (route for route in request.app.routes if isinstance(route, Route))
    routes = (route for part in ROUTERS for route in part.routes.routes if isinstance(route, Route))
    found = [one for one in (*described, *routes) if one.matches(request.scope)[0] is not Match.NONE]
    # A path that is spelled out is no id of anything, though a route with an id in its path matches it as well.
    spelled = [one for one in found if one.path == request.url.path]
    methods = {method for route in spelled or found for method in route.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


async def _trouble(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, Trouble)
    _LOG.warning("trouble", trouble=type(fault).__name__, text=str(fault))
    return problem_response(from_engine_error(fault))


async def _gone(_: Request, __: Exception) -> Response:
    """Answer somebody who is not there any more."""
    return Response(status_code=400)


async def _bug(_: Request, __: Exception) -> Response:
    return problem_response(refused(500, "failed", "this is a bug of the server"))


EXCEPTION_HANDLERS: dict[Any, Any] = {
    RequestRefused: _refused,
    RequestValidationError: _invalid,
    HTTPException: _by_http,
    Trouble: _trouble,
    ClientDisconnect: _gone,
    Exception: _bug,
}
