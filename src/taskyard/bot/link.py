"""What a bot asks its server, over one connection, and what each refusal means for it.

A question is asked once. Whether and when it is asked again is decided elsewhere.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from taskyard.bot.config import BotConfig
from taskyard.sdk.http import Answer, Connection, Unreachable
from taskyard.wire.bots import Goodbye, Hello, Polled, Trouble, Welcome

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
        self._connection = Connection(config.url, {"authorization": f"Bearer {config.token}"}, config.tls)
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

    async def _post(self, route: str, body: bytes, timeout_s: float = ANSWER_SECONDS_MAX) -> Answer:
        return await self._ask(f"/api/v1/bot/{route}", body, timeout_s)

    async def _ask(self, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str] | None = None) -> Answer:
        try:
            answer = await self._connection.ask("POST", path, body, timeout_s, headers)
        except Unreachable as error:
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


def _refusal(answer: Answer) -> Exception:
    problem = _problem(answer.body)
    why = f"{answer.status} {problem.detail or problem.title or problem.code}".rstrip()
    if answer.status in (408, 425, 429) or answer.status >= 500:
        return Away(why, _retry_after(answer.headers.get("retry-after")))
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


def _retry_after(text: str | None) -> float | None:
    # The other form of this header, a date, needs a clock that is right; a bot's may not be.
    return min(float(text), RETRY_AFTER_SECONDS_MAX) if text is not None and text.isdecimal() else None


def _read(answer: Answer, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(answer.body)
    except msgspec.MsgspecError as error:
        # Half a server, or something else on its port: it may be better soon.
        raise Away(f"the answer cannot be read: {error}") from error
