"""What a bot asks its server, over one connection, and what each refusal means for it.

A question is asked once. Whether and when it is asked again is decided elsewhere.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from taskyard.bot.attempts import LeasedAttempt
from taskyard.bot.config import BotConfig
from taskyard.sdk.backoff import backoff_s, retry_after_s
from taskyard.sdk.bot_http import ConnectionFailed, HttpResponse, ServerConnection
from taskyard.wire.bot_protocol import TROUBLE_MAX, Goodbye, Hello, Polled, Trouble, Welcome

#: How long an answer may take beyond the time that the server was allowed to wait for work.
ANSWER_SECONDS_MAX: Final = 30.0
#: Retry-After beyond this is a mistake: a bot that sleeps for an hour is a bot that is lost.
RETRY_AFTER_SECONDS_MAX: Final = 60.0

_T = TypeVar("_T")


class Away(Exception):
    """The server cannot answer now; the same may be asked again."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Stranger(Exception):
    """The server does not know this session: it has to be told hello first."""


class TurnedAway(Exception):
    """The server will not deal with this bot; `exit_code` is what its program should end with."""

    def __init__(self, why: str, exit_code: int = 1, replaced: bool = False) -> None:
        super().__init__(why)
        self.exit_code = exit_code
        self.replaced = replaced  # another bot has begun in its name


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a poll, and when the request that it answers was sent: spans count from there."""

    polled: Polled
    sent: float


class Link:
    """A connection to the server, in the name of one bot."""

    def __init__(self, config: BotConfig) -> None:
        self._connection = ServerConnection(config.url, {"authorization": f"Bearer {config.token}"}, config.tls)
        self._encoder = msgspec.json.Encoder()
        self._polled = msgspec.json.Decoder(Polled)

    async def enrol(self, name: str, key: str) -> str:
        """Give the token that an enrolment token is exchanged for; repeated with the same key, it is the same."""
        body = self._encoder.encode({"name": name})
        answer = await self._ask("/api/v1/enrol", body, ANSWER_SECONDS_MAX, {"idempotency-key": key})
        return _read(answer, msgspec.json.Decoder(_Enrolled)).token

    async def hello(self, hello: Hello) -> Welcome:
        """Begin a session, or change what is known about this bot."""
        return _read(await self._post("hello", self._encoder.encode(hello)), msgspec.json.Decoder(Welcome))

    async def poll(self, body: bytes, wait_ms: int) -> Reply:
        """Say and ask what `body`, a `Poll` as JSON, says."""
        sent = time.monotonic()
        answer = await self._post("poll", body, ANSWER_SECONDS_MAX + wait_ms / 1000)
        return Reply(_read(answer, self._polled), sent)

    async def goodbye(self, goodbye: Goodbye) -> None:
        """End the session."""
        await self._post("goodbye", self._encoder.encode(goodbye), timeout_s=5.0)

    async def trouble(self, trouble: Trouble) -> None:
        """Say what went wrong with this bot."""
        await self._post("trouble", self._encoder.encode(trouble), timeout_s=5.0)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    async def _post(self, route: str, body: bytes, timeout_s: float = ANSWER_SECONDS_MAX) -> HttpResponse:
        return await self._ask(f"/api/v1/bot/{route}", body, timeout_s)

    async def _ask(
        self, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        try:
            answer = await self._connection.ask("POST", path, body, timeout_s, headers)
        except ConnectionFailed as error:
            raise Away(str(error)) from error
        if answer.status >= 300:
            raise _refusal(answer)
        return answer


class _Enrolled(msgspec.Struct):
    """What is read of the answer to an enrolment."""

    token: str


class _Problem(msgspec.Struct):
    """What is read of a problem document."""

    code: str = ""
    detail: str = ""
    title: str = ""


def _refusal(answer: HttpResponse) -> Exception:
    problem = _problem(answer.body)
    why = f"{answer.status} {problem.detail or problem.title or problem.code}".rstrip()
    if answer.status in (408, 425, 429) or answer.status >= 500:
        return Away(why, retry_after_s(answer.headers.get("retry-after"), RETRY_AFTER_SECONDS_MAX))
    if answer.status == 404:
        return Stranger(why)
    if answer.status in (401, 403):
        return TurnedAway(f"the server does not take this bot's token: {why}", exit_code=4)
    if problem.code == "session_replaced":
        return TurnedAway(f"another bot of the same name has begun; this one ends: {why}", replaced=True)
    return TurnedAway(f"the server does not understand this bot: {why}")


def _problem(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except msgspec.MsgspecError:
        return _Problem()


def _read(answer: HttpResponse, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(answer.body)
    except msgspec.MsgspecError as error:
        # Half a server, or something else on its port: it may be better soon.
        raise Away(f"the answer cannot be read: {error}") from error


# Asks again until there is an answer: with growing, uneven pauses, so that a fleet does not knock all at once.


#: The first pause, and the longest.
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0

_LOG = logging.getLogger("taskyard.bot")


async def answered(ask: Callable[[], Awaitable[_T]], pause_s_max: float = PAUSE_SECONDS_MAX) -> _T:
    """Ask until the server answers, however long it is away; refusals go through."""
    away = 0
    while True:
        try:
            answer = await ask()
        except Away as error:
            if away == 0:
                _LOG.warning("the server is away, and will be asked again: %s", error)
            await asyncio.sleep(_pause_s(away, error.after_s, pause_s_max))
            away += 1
        else:
            if away:
                _LOG.warning("the server is back")
            return answer


def _pause_s(tries: int, retry_after: float | None, longest_s: float) -> float:
    """Choose a pause after so many tries before this one; never less than the server asks for."""
    pause = backoff_s(tries, PAUSE_SECONDS, longest_s)
    return max(pause, retry_after * random.uniform(1.0, 1.2)) if retry_after else pause  # noqa: S311 - no secret


# Tells the server what went wrong with this bot itself, for people: beside its work, and never in its way.
#
# Each trouble is told once in a while and there is a most of them in one life, so that a bot that ails says so and
# does not shout. One that cannot be told soon is left to the log; one whose answer is lost may be noted twice.


#: How often the same is told, and how much in one life.
AGAIN_SECONDS: Final = 60.0
TROUBLES_MAX: Final = 200
#: How long the server may be away for a trouble to be told.
TELL_SECONDS_MAX: Final = 60.0


class Troubles:
    """The troubles of one session."""

    def __init__(self, config: BotConfig, session: str) -> None:
        self._config, self._session = config, session
        self._told: dict[str, float] = {}  # when each was last told
        self._count = 0
        self._telling: set[asyncio.Task[None]] = set()

    def note(self, text: str, held: LeasedAttempt | None = None) -> None:
        """Take note of a trouble, of one attempt if it is about one."""
        now = time.monotonic()
        if self._count >= TROUBLES_MAX or now - self._told.get(text, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._told[text] = now
        self._count += 1
        _LOG.warning("%s", text)
        about = (held.lease.task, held.lease.attempt) if held is not None else (None, None)
        task = asyncio.get_running_loop().create_task(
            self._tell(Trouble(self._config.name, self._session, text[:TROUBLE_MAX], *about))
        )
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Tell nothing more."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _tell(self, trouble: Trouble) -> None:
        link = Link(self._config)
        try:
            with contextlib.suppress(TimeoutError, Stranger, TurnedAway):
                async with asyncio.timeout(TELL_SECONDS_MAX):
                    await answered(lambda: link.trouble(trouble))
        finally:
            link.close()


# Fetches the results of a task's prerequisites when they are too large to come with its lease.
#
# It speaks with the attempt's own word, not the bot's: it can see what the attempt may see, and no more.


#: How often the server may say that it cannot answer now. One that is away is asked for as long as the lease lasts.
TRIES_MAX: Final = 8


class InputsMissing(Exception):
    """They cannot be had."""


async def fetch_inputs(url: str, task: str, token: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Fetch a JSON object: label -> result. Whoever awaits this ends it with the lease."""
    connection = ServerConnection(url, {"authorization": f"Bearer {token}"}, tls)
    tries = answers = 0
    try:
        while True:
            with suppress(ConnectionFailed):
                answer = await connection.ask("GET", f"/api/v1/tasks/{task}/inputs")
                if answer.status == 200:
                    return answer.body
                answers += 1
                is_refusal = answer.status < 500 and answer.status != 429
                if is_refusal or answers == TRIES_MAX:
                    raise InputsMissing(f"the inputs cannot be fetched: the server answered {answer.status}")
            await asyncio.sleep(backoff_s(tries, PAUSE_SECONDS, PAUSE_SECONDS_MAX))
            tries += 1
    finally:
        connection.close()
