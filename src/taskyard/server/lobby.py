"""The lobby of bots: their routes, who of them comes in, and how those that wait are answered when the server stops."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from taskyard.core.ids import key_of
from taskyard.engine import validate
from taskyard.engine.validate import NUMBER_MAX
from taskyard.lifecycle import commands
from taskyard.lifecycle.bot_sessions import complain
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.server import tokens
from taskyard.server.auth import Denial
from taskyard.server.bots import BotRoutes, Receive, Reply, Scope
from taskyard.server.callers import ANYONE
from taskyard.server.desk import Desk, bearer
from taskyard.server.problems import MEDIA_TYPE, refused, wrong
from taskyard.wire import bots as wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
#: The id of the token that the request under way showed.
_SHOWN: Final[ContextVar[str]] = ContextVar("taskyard_shown", default="")
#: How many threads look up tokens of bots; each look takes well below a millisecond, and holds for some seconds.
THREADS_MAX: Final = 2


_TROUBLE: Final = msgspec.json.Decoder(wire.Trouble)


class Guard:
    """Lets bots in by their tokens, and gives running tasks theirs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.run_token: Callable[[int, int, int], str] = desk.seal.token
        # Of their own: those of people may all wait for something, and what bots have to say must not.
        self._threads = ThreadPoolExecutor(THREADS_MAX, "taskyard-lobby")

    async def pool_of(self, authorization: bytes) -> str:
        """Name the pool of the bots that a token lets in, or refuse."""
        text, auth = bearer(authorization.decode("latin-1")), self._desk.auth
        known = auth.remembered(text) if text is not None else None
        # A thread looks up a token that is not remembered: the database may be slow, or away.
        grant = await self.apart(auth.bot, text) if auth.on and known is None else auth.as_bot(known or ANYONE)
        if isinstance(grant, Denial):
            raise self._desk.deny(grant, "speak for a bot")
        spoken = tokens.read(text) if text is not None else None
        _SHOWN.set("" if spoken is None else spoken.id)
        return grant.pool

    async def apart(self, act: "Callable[..., T]", *said: object) -> "T":
        """Have something looked at by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *said)


class Lobby(BotRoutes):
    """The routes of bots, counted; polls that wait are known, so that none is left when the server stops."""

    def __init__(self, desk: Desk) -> None:
        self._guard = Guard(desk)
        super().__init__(desk.engine, self._guard)
        self._desk = desk
        self._waiting: dict[Future[Any], str] = {}  # with the id of the token that was shown
        self._routes = {**self._routes, "/api/v1/bot/trouble": self._trouble}
        desk.at_close.append(self.close)
        desk.auth.at_end.append(self._end)

    def close(self) -> None:
        """Have every poll that waits answered."""
        for asked in list(self._waiting):
            self._engine.leave(asked)

    def _end(self, token: str) -> None:
        """Have every poll answered that waits with a token that ends: its bot is given nothing any more."""
        for asked in [one for one, shown in self._waiting.items() if shown == token]:
            self._engine.leave(asked)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        try:
            reply = await super()._reply(scope, receive)
        except Exception:  # noqa: BLE001 - a bug, of which a bot hears as of any other problem
            _LOG.exception("a bug on %s", scope["path"])
            bug = refused(500, "failed", "this is a bug of the server").problem
            reply = Reply(500, msgspec.json.encode(bug), MEDIA_TYPE.encode())
        self._desk.meters.count_bot(scope["path"], reply.status)
        return reply

    def _check(self, answer: object, pool: str) -> None:
        """Raise a refusal, and note it if a bot speaks for one of another pool."""
        if isinstance(answer, Refusal) and answer.code is Code.FORBIDDEN:
            raise self._desk.deny(Denial(403, Code.FORBIDDEN, answer.text, f"a bot of pool {pool}"), "speak for a bot")
        super()._check(answer, pool)

    async def _trouble(self, body: bytes, pool: str, _: Receive) -> Reply:
        """Note what went wrong with a bot."""
        said = _TROUBLE.decode(body)
        bad = validate.CHECKS[commands.Goodbye](commands.Goodbye(said.bot, said.session))
        self._check(bad, pool)
        if said.attempt is not None and not 1 <= said.attempt <= NUMBER_MAX:
            raise wrong(f"must be an integer from 1 to {NUMBER_MAX}", "attempt")
        about = None if said.task is None else key_of(said.task), said.attempt
        text = " ".join(said.text[: wire.TROUBLE_MAX].replace("\0", " ").split())
        refusal = await asyncio.to_thread(
            self._engine.transact, lambda passage: complain(passage, said.bot, said.session, text, about, pool)
        )
        self._check(refusal, pool)
        return Reply(204)

    async def _waited(self, asked: "Future[Any]", said: wire.Poll, receive: Receive) -> Any:
        self._waiting[asked] = _SHOWN.get()
        try:
            return await super()._waited(asked, said, receive)
        finally:
            self._waiting.pop(asked, None)


def header_of(scope: Scope, name: bytes) -> bytes:
    """Read a header."""
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")
