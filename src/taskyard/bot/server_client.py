"""What a bot asks its server: requests and their refusals, retries, reports of its own problems, and inputs."""

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
from taskyard.sdk.servers import ServerList
from taskyard.wire.bot_protocol import TROUBLE_MAX, Goodbye, Hello, Polled, Trouble, Welcome

#: How long an answer may take beyond the time that the server was allowed to wait for work.
ANSWER_SECONDS_MAX: Final = 30.0
#: A larger Retry-After is a mistake: a bot that sleeps for an hour is as good as lost.
RETRY_AFTER_SECONDS_MAX: Final = 60.0
_LOG = logging.getLogger("taskyard.bot")
_T = TypeVar("_T")
#: The first pause, and the longest. Pauses grow and are random, so that a fleet does not come back all at once.
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
#: The same problem is reported once in this time, and one bot process reports at most this many.
REPEAT_SECONDS: Final = 60.0
TROUBLES_MAX: Final = 200
#: How long to try to send a report. After that the problem is only in the log.
SEND_SECONDS_MAX: Final = 60.0
#: How often a bot that had to leave its server looks at most whether it is back.
HOME_SECONDS: Final = 30.0
#: How long a server may take to say that it is ready.
READY_SECONDS_MAX: Final = 5.0
#: How often the server may answer with an error. A server that cannot be reached is asked for as long as the lease
#: lasts.
TRIES_MAX: Final = 8
#: How many faults of a refused request are in the message with which a bot ends.
_FAULTS_TOLD_MAX: Final = 5


class ServerUnavailable(Exception):
    """The server cannot answer now; the request may be repeated."""

    def __init__(self, why: str, retry_after: float | None = None, elsewhere: bool = False) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.elsewhere = elsewhere  # another server may answer now


class SessionUnknown(Exception):
    """The server does not know this session: send a hello first."""


class BotRejected(Exception):
    """The server rejects this bot; `exit_code` is the exit code for its program."""

    def __init__(self, why: str, exit_code: int = 1, replaced: bool = False) -> None:
        super().__init__(why)
        self.exit_code = exit_code
        self.replaced = replaced  # another bot has started under its name


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a poll, and when the poll was sent: leases count from there."""

    polled: Polled
    sent: float


class ServerClient:
    """A connection to the server for one bot. It sends each request once."""

    def __init__(self, config: BotConfig) -> None:
        self._connection = ServerConnection(config.servers, {"authorization": f"Bearer {config.token}"}, config.tls)
        self.answer_s = ANSWER_SECONDS_MAX
        self._encoder = msgspec.json.Encoder()
        self._polled = msgspec.json.Decoder(Polled)

    async def enrol(self, name: str, key: str) -> str:
        """Exchange an enrolment token for a bot token; with the same key the answer is the same."""
        body = self._encoder.encode({"name": name})
        answer = await self._ask("/api/v1/enrol", body, ANSWER_SECONDS_MAX, {"idempotency-key": key})
        return _decode(answer, msgspec.json.Decoder(_Enrolled)).token

    async def hello(self, hello: Hello) -> Welcome:
        """Open a session, or change what the server knows about this bot."""
        return _decode(await self._post("hello", self._encoder.encode(hello)), msgspec.json.Decoder(Welcome))

    async def poll(self, body: bytes, wait_ms: int) -> Reply:
        """Send a `Poll` that is encoded already."""
        sent = time.monotonic()
        answer = await self._post("poll", body, self.answer_s + wait_ms / 1000)
        return Reply(_decode(answer, self._polled), sent)

    async def goodbye(self, goodbye: Goodbye) -> None:
        """End the session."""
        await self._post("goodbye", self._encoder.encode(goodbye), timeout_s=5.0)

    async def trouble(self, trouble: Trouble) -> None:
        """Report a problem of this bot."""
        await self._post("trouble", self._encoder.encode(trouble), timeout_s=5.0)

    def leave(self, server: str) -> None:
        """Fail the request that waits for a server that is away."""
        self._connection.leave(server)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def _post(self, route: str, body: bytes, timeout_s: float = ANSWER_SECONDS_MAX) -> HttpResponse:
        return await self._ask(f"/api/v1/bot/{route}", body, timeout_s)

    async def _ask(
        self, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        try:
            answer = await self._connection.ask("POST", path, body, timeout_s, headers)
        except ConnectionFailed as error:
            raise ServerUnavailable(str(error), elsewhere=self._connection.asks_at_once) from error
        if answer.status >= 300:
            raise _error_for(answer, self._connection.asks_at_once)
        return answer


class _Enrolled(msgspec.Struct):
    """The field of the answer to an enrolment that is read."""

    token: str


class _Fault(msgspec.Struct):
    """One thing that is wrong with a request, and where."""

    path: str = ""
    message: str = ""


class Problem(msgspec.Struct):
    """The fields of a problem document that are read."""

    code: str = ""
    detail: str = ""
    title: str = ""
    faults: list[_Fault] = []


def _error_for(answer: HttpResponse, elsewhere: bool = False) -> Exception:
    problem = read_problem(answer.body)
    why = f"{answer.status} {problem.detail or problem.title or problem.code}".rstrip()
    if answer.status in (408, 425, 429) or answer.status >= 500:
        pause = retry_after_s(answer.headers.get("retry-after"), RETRY_AFTER_SECONDS_MAX)
        return ServerUnavailable(why, pause, elsewhere)
    if answer.status == 404:
        return SessionUnknown(why)
    if answer.status in (401, 403):
        return BotRejected(f"the server rejects this bot's token: {why}", exit_code=4)
    if problem.code == "session_replaced":
        return BotRejected(f"another bot has started under the same name; this one ends: {why}", replaced=True)
    faults = "".join(f"; {one.path} {one.message}" for one in problem.faults[:_FAULTS_TOLD_MAX])
    return BotRejected(f"the server rejects this bot: {why}{faults}")


def read_problem(body: bytes) -> Problem:
    """Read a problem document; one without fields from anything else."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return Problem()


def _decode(answer: HttpResponse, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(answer.body)
    except msgspec.MsgspecError as error:
        # Half a server, or something else on its port: it may be better soon.
        raise ServerUnavailable(f"cannot read the answer: {error}") from error


# Retries.


async def retry_until_answered(ask: Callable[[], Awaitable[_T]], pause_s_max: float = PAUSE_SECONDS_MAX) -> _T:
    """Repeat a request until the server answers, however long it is away; rejections are raised."""
    away = 0
    while True:
        try:
            answer = await ask()
        except ServerUnavailable as error:
            if away == 0:
                _LOG.warning("the server is unavailable, retrying: %s", error)
            if not error.elsewhere:
                await asyncio.sleep(_pause_s(away, error.retry_after, pause_s_max))
            away += 1
        else:
            if away:
                _LOG.warning("the server is available again")
            return answer


def _pause_s(tries: int, retry_after: float | None, longest_s: float) -> float:
    """Choose a pause after so many tries before this one; never less than the server asks for."""
    pause = backoff_s(tries, PAUSE_SECONDS, longest_s)
    return max(pause, retry_after * random.uniform(1.0, 1.2)) if retry_after else pause  # noqa: S311 - no secret


async def return_home(config: BotConfig) -> None:
    """Go back to the server that this bot began with whenever it is back, so that bots stay spread over the servers."""
    servers = config.servers
    while len(servers) > 1:
        await asyncio.sleep(HOME_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
        if servers.current != servers.home and await _is_ready(servers.home, config.tls):
            _LOG.info("going back to %s", servers.home)
            servers.go_home()


async def _is_ready(url: str, tls: ssl.SSLContext | None) -> bool:
    """Whether a server answers and can use its database."""
    connection = ServerConnection(url, None, tls)
    try:
        return (await connection.ask("GET", "/readyz", timeout_s=READY_SECONDS_MAX)).status == 200
    except ConnectionFailed:
        return False
    finally:
        connection.close()


# Reports of the bot's own problems, for people. They go over connections of their own, so that they never delay work.


class TroubleReporter:
    """Reports the problems of one session. A report whose answer is lost may be recorded twice."""

    def __init__(self, config: BotConfig, session: str) -> None:
        self._config, self._session = config, session
        self._sent_at: dict[str, float] = {}  # when each text was last reported
        self._count = 0
        self._sending: set[asyncio.Task[None]] = set()

    def report(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Report a problem, about an attempt if one is given, without waiting for the server."""
        now = time.monotonic()
        if self._count >= TROUBLES_MAX or now - self._sent_at.get(text, now - REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._sent_at[text] = now
        self._count += 1
        _LOG.warning("%s", text)
        about = (attempt.lease.task, attempt.lease.attempt) if attempt is not None else (None, None)
        task = asyncio.get_running_loop().create_task(
            self._send(Trouble(self._config.name, self._session, text[:TROUBLE_MAX], *about))
        )
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Cancel reports that are not sent."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, trouble: Trouble) -> None:
        client = ServerClient(self._config)
        try:
            with contextlib.suppress(TimeoutError, SessionUnknown, BotRejected):
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    await retry_until_answered(lambda: client.trouble(trouble))
        finally:
            client.close()


# Inputs that are too large to come with a lease.


class InputsUnavailable(Exception):
    """The inputs of a task cannot be fetched."""


class MachineFault(Exception):
    """The machine of this bot cannot do what a task needs; another one may."""


async def fetch_inputs(servers: ServerList, task: str, token: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Fetch the results of a task's prerequisites: a JSON object, label -> result.

    It uses the token of the attempt, which sees only what the attempt may see. The caller cancels it when the lease
    ends.
    """
    connection = ServerConnection(servers, {"authorization": f"Bearer {token}"}, tls)
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
                    raise InputsUnavailable(f"the inputs cannot be fetched: the server answered {answer.status}")
            await asyncio.sleep(backoff_s(tries, PAUSE_SECONDS, PAUSE_SECONDS_MAX))
            tries += 1
    finally:
        connection.close()
