"""The app: the routes of bots, and beside them those of people. It starts and stops nothing of the engine.

The routes of people cost most of a second to load. A server that is there for a single run has them made when the
first person comes, and that is a task that asks for something: most never do.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from taskyard.engine.engine import Engine
from taskyard.server.bootstrap import seal_of
from taskyard.server.desk import Desk
from taskyard.server.lobby import Lobby
from taskyard.server.origins import stranger
from taskyard.server.problems import refused, response
from taskyard.server.settings import Settings


class App:
    """The whole server, as ASGI. Its desk is what all parts of it share."""

    def __init__(self, desk: Desk, people: ASGIApp) -> None:
        self.desk = desk
        self._people = people
        self._bots = Lobby(desk)
        self._anybody = not desk.settings.authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send bots to their own door and everybody else to the other."""
        if self._anybody and scope["type"] == "http" and (why := stranger(scope)):
            await response(refused(403, "forbidden", f"without tokens this is refused: {why}"))(scope, receive, send)
        elif scope["type"] == "http" and self._bots.serves(scope["path"]):
            await self._bots(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._people(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        # Threads wait for the database most of the time, so there are more of them than processors.
        threads = ThreadPoolExecutor(self.desk.settings.threads_max, "taskyard-people")
        asyncio.get_running_loop().set_default_executor(threads)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


class Later:
    """The routes of people, made by a thread when the first of them comes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(_people, self._desk))
        # Whoever leaves while it is made does not end it for the others.
        people = await asyncio.shield(self._made)
        await people(scope, receive, send)


def build(engine: Engine, settings: Settings) -> App:
    """Build the app around an engine that `bootstrap.prepare` has seen."""
    desk = Desk(engine, settings, seal_of(engine))
    return App(desk, Later(desk) if settings.people_later else _people(desk))


def _people(desk: Desk) -> ASGIApp:
    from taskyard.server.people import behind_doors  # noqa: PLC0415 - most of what a server costs to load

    return behind_doors(desk)
