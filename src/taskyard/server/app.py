"""The ASGI app of a server: the bot API, the page and the user API. It does not start or stop the engine."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from taskyard.engine.engine import Engine
from taskyard.server.auth import cross_site_fault
from taskyard.server.bot_api import BotApi
from taskyard.server.context import AppContext
from taskyard.server.errors import problem_response, refused
from taskyard.server.file_gc import collect_forever
from taskyard.server.page import Page
from taskyard.server.settings import Settings, load_signer


class App:
    """The whole server as an ASGI app. Its parts share `context`."""

    def __init__(self, context: AppContext, user_api: ASGIApp) -> None:
        self.context = context
        self._user_api = user_api
        self._bot_api = BotApi(context)
        self._page = Page()
        self._check_origin = not context.settings.authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request to the bot API, the page or the user API."""
        if self._check_origin and scope["type"] == "http" and (why := cross_site_fault(scope)):
            refusal = refused(403, "forbidden", f"without tokens this is refused: {why}")
            await problem_response(refusal)(scope, receive, send)
        elif scope["type"] == "http" and self._bot_api.serves(scope["path"]):
            await self._bot_api(scope, receive, send)
        elif scope["type"] == "http" and self._page.serves(scope):
            await self._page(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._user_api(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        # Threads wait for the database most of the time, so there are more of them than processors.
        threads = ThreadPoolExecutor(self.context.settings.threads_max, "taskyard-users")
        asyncio.get_running_loop().set_default_executor(threads)
        collecting = None if self.context.settings.lazy_user_api else asyncio.create_task(collect_forever(self.context))
        amqp = self.context.amqp
        if amqp is not None:
            amqp.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if amqp is not None:
            await asyncio.to_thread(amqp.stop)
        if collecting is not None:
            collecting.cancel()
        await send({"type": "lifespan.shutdown.complete"})


class LazyUserApi:
    """The user API, loaded on a thread at the first request for it.

    Loading it takes most of a second. A server that exists for a single run is asked only by tasks that use the API,
    which most do not.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._loading: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_load_user_api, self._context))
        # A client that disconnects while it is loaded does not cancel it for others.
        user_api = await asyncio.shield(self._loading)
        await user_api(scope, receive, send)


def build(engine: Engine, settings: Settings) -> App:
    """Build the app around an engine whose database `settings.prepare` has prepared."""
    context = AppContext(engine, settings, load_signer(engine))
    return App(context, LazyUserApi(context) if settings.lazy_user_api else _load_user_api(context))


def _load_user_api(context: AppContext) -> ASGIApp:
    from taskyard.server.user_api import limited_user_api  # noqa: PLC0415 - FastAPI takes most of a second to load

    return limited_user_api(context)
