"""The app: the routes of bots, and beside them those of people. It starts and stops nothing of the engine.

The routes of people cost most of a second to load. A server that is there for a single run has them made when the
first person comes, and that is a task that asks for something: most never do.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from taskyard.engine.engine import Engine
from taskyard.server.auth import cross_site_fault
from taskyard.server.bot_api import Lobby
from taskyard.server.context import AppContext
from taskyard.server.errors import problem_response, refused
from taskyard.server.settings import Settings, load_signer


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
    return App(context, LazyUserApi(context) if settings.lazy_user_api else _people(context))


def _people(context: AppContext) -> ASGIApp:
    from taskyard.server.user_api import limited_user_api  # noqa: PLC0415 - FastAPI takes most of a second to load

    return limited_user_api(context)
