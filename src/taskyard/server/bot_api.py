"""What bots ask for: hello, poll, goodbye. The hottest routes there are, so they are plain ASGI and read by msgspec.

Each turns shapes of the wire into commands of the engine and back; it decides nothing. A poll that waits is answered
when there is work, when it has waited for long enough, or not at all if its bot has hung up: then what it may have
been given is what the same poll gets when it is sent again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from taskyard.core import fleet
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import ID, POOL, canonical
from taskyard.core.states import Millis, Reason, Signal
from taskyard.core.structs import value
from taskyard.engine import validate
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Trouble
from taskyard.engine.validate import NUMBER_MAX
from taskyard.lifecycle import commands
from taskyard.lifecycle.bot_sessions import record_error
from taskyard.lifecycle.commands import Code, Lease, OutputStored, Refusal, Renewed
from taskyard.lifecycle.poll import PollOutcome
from taskyard.server import tokens
from taskyard.server.auth import ANONYMOUS, Denial
from taskyard.server.context import AppContext, bearer
from taskyard.server.errors import (
    MEDIA_TYPE,
    RequestRefused,
    from_engine_error,
    from_refusal,
    invalid,
    invalid_field,
    refused,
)
from taskyard.wire import bot_protocol as wire
from taskyard.wire.documents import DEPTH_MAX, is_deep

if TYPE_CHECKING:
    from concurrent.futures import Future


#: The largest request of a bot: all results and all output that one poll may bring, as base64 and with room to spare.
BODY_MAX: Final = 8 * 1024 * 1024

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

_SIGNALS: Final = {str(signal): signal for signal in Signal}
_REASONS: Final = {str(reason): reason for reason in Reason}
_DECODERS: Final[Mapping[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (wire.Hello, wire.Poll, wire.Goodbye)
}
#: How bots say of what type a body is: not at all, or as almost all do; what else means the same is looked at.
_KINDS: Final = (b"application/json", b"")
_ENCODER: Final = msgspec.json.Encoder()


@value
class Reply:
    """What is sent back."""

    status: int
    body: bytes = b""
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Admission(Protocol):
    """Who may speak for bots, and what running tasks are given to speak for themselves."""

    async def pool_of(self, authorization: bytes) -> str:
        """Name the pool of the bots that a token lets in; raise Refused if it lets nobody in."""
        ...

    def run_token(self, task: int, attempt: int, fence: int) -> str:
        """Make the token of a running attempt."""
        ...


class BotRoutes:
    """The routes of bots, as an ASGI application."""

    def __init__(self, engine: Engine, admission: Admission) -> None:
        self._engine = engine
        self._admission = admission
        self._wait_max_ms = min(wire.WAIT_MAX_MS, fleet.wait_max_ms(engine.lease_ms))
        self._routes: Mapping[str, Callable[[bytes, str, Receive], Awaitable[Reply]]] = {
            "/api/v1/bot/hello": self._hello,
            "/api/v1/bot/poll": self._poll,
            "/api/v1/bot/goodbye": self._goodbye,
        }

    def serves(self, path: str) -> bool:
        """Tell whether this is for bots."""
        return path in self._routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._reply(scope, receive)
        headers = [(b"content-type", reply.kind), (b"content-length", str(len(reply.body)).encode()), *reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        try:
            return await self._routed(scope, receive)
        except RequestRefused as fault:
            return _problem(fault)
        except Trouble as trouble:
            return _problem(from_engine_error(trouble))
        except (msgspec.MsgspecError, ValueError) as fault:
            return _problem(invalid(str(fault)))
        except RecursionError:
            return _problem(invalid("the body is nested too deeply"))

    async def _routed(self, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] != "POST":
            raise refused(405, "method_not_allowed", "use POST", headers={"Allow": "POST"})
        pool = await self._admission.pool_of(_header(scope, b"authorization"))
        kind = _header(scope, b"content-type")
        if kind not in _KINDS and kind.partition(b";")[0].strip().lower() != b"application/json":
            raise refused(415, "unsupported", "a bot speaks application/json: say so in Content-Type, or leave it out")
        return await self._routes[scope["path"]](await _read(receive), pool, receive)

    async def _hello(self, body: bytes, pool: str, _: Receive) -> Reply:
        said: wire.Hello = _DECODERS[wire.Hello].decode(body)
        had = {**said.dimensions, ID: [said.bot], POOL: [pool]}
        hello = commands.Hello(
            said.bot,
            said.session,
            canonical(had),
            said.slots,
            said.quarantined,
            said.maintenance,
            said.draining,
            None if said.begun is None else tuple(map(_begun, said.begun)),
        )
        self._check(await _awaited(self._engine.ask(commands.Hello, hello)), pool)
        return _said(wire.Welcome(said.bot, pool, self._engine.lease_ms, fleet.GUARD_MS, self._wait_max_ms))

    async def _goodbye(self, body: bytes, pool: str, _: Receive) -> Reply:
        said: wire.Goodbye = _DECODERS[wire.Goodbye].decode(body)
        goodbye = commands.Goodbye(said.bot, said.session, pool)
        self._check(await _awaited(self._engine.ask(commands.Goodbye, goodbye)), pool)
        return Reply(204)

    async def _poll(self, body: bytes, pool: str, receive: Receive) -> Reply:
        said: wire.Poll = _DECODERS[wire.Poll].decode(body)
        asked = self._engine.ask(commands.Poll, _poll(said, pool))
        answer = await (self._waited(asked, said, receive) if said.wait_ms > 0 else _awaited(asked))
        self._check(answer, pool)
        return _said(self._polled(said, answer))

    async def _waited(self, asked: "Future[Any]", said: wire.Poll, receive: Receive) -> Any:
        """Wait for work as long as the bot can, and is there."""
        leave = lambda *_: self._engine.leave(asked)  # noqa: E731
        timer = asyncio.get_running_loop().call_later(min(said.wait_ms, self._wait_max_ms) / 1000, leave)
        gone = asyncio.ensure_future(receive())  # after the body, all that can come is that the bot hangs up
        gone.add_done_callback(leave)
        try:
            return await _awaited(asked)
        finally:
            timer.cancel()
            gone.remove_done_callback(leave)
            gone.cancel()

    def _check(self, answer: object, pool: str) -> None:  # noqa: ARG002 - who lets bots in notes who they are
        """Raise a refusal; `pool` is that of the token."""
        if isinstance(answer, Refusal):
            raise from_refusal(answer)

    def _polled(self, said: wire.Poll, answer: PollOutcome) -> wire.Polled:
        now = self._engine.clock.now()
        refusals = [
            *_refused(zip(said.reports, answer.reports, strict=True)),
            *_refused(zip(said.renewals, answer.renewals, strict=True)),
            *_refused(zip(said.outputs, answer.outputs, strict=True)),
        ]
        return wire.Polled(
            [self._lease(lease, now) for lease in answer.leases],
            [_renewed(one, now) for one in (*answer.renewals, *answer.stops) if isinstance(one, Renewed)],
            [
                wire.Kept(_text(one.task), one.attempt, one.size)
                for one in answer.outputs
                if isinstance(one, OutputStored)
            ],
            refusals,
            answer.ending,
        )

    def _lease(self, lease: Lease, now: Millis) -> wire.Lease:
        brief = lease.brief
        assert brief is not None, "bots are always told what to run"
        apart = brief.inputs is not None and len(brief.inputs) > wire.INPUTS_MAX
        return wire.Lease(
            _text(lease.task),
            lease.attempt,
            lease.fence,
            max(0, lease.until_ms - now),
            _text(brief.graph),
            brief.label,
            msgspec.Raw(brief.payload),
            self._admission.run_token(lease.task, lease.attempt, lease.fence),
            wire.NOTHING if brief.inputs is None or apart else msgspec.Raw(brief.inputs.encode()),
            apart,
            brief.checkpoint,
            None if brief.deadline_ms is None else max(0, brief.deadline_ms - now),
            "keep" if brief.disconnect == "keep" else "strict",
            brief.submitter,
        )


# From the wire to the engine.


def _poll(said: wire.Poll, pool: str) -> commands.Poll:
    return commands.Poll(
        said.bot,
        said.session,
        said.poll,
        tuple(map(_report, said.reports)) if said.reports else (),
        tuple(map(_renewal, said.renewals)) if said.renewals else (),
        said.want,
        tuple(map(_output, said.outputs)) if said.outputs else (),
        waits=said.wait_ms > 0,
        briefed=True,
        pool=pool,
        begun=tuple(map(_begun, said.begun)) if said.begun else (),
    )


def _report(one: wire.Report) -> commands.Report:
    return commands.Report(
        key_of(one.task),
        one.attempt,
        one.fence,
        _SIGNALS[one.signal],
        None if one.reason is None else _REASONS[one.reason],
        one.exit_code,
        _result(bytes(one.result)),
        _stats(one),
    )


def _result(said: bytes) -> str | None:
    if is_deep(said):
        raise ValueError(f"a result is nested more than {DEPTH_MAX} deep")
    return said.decode() or None


def _stats(one: wire.Report) -> commands.Stats | None:
    took = one.stats
    if took is None:
        return commands.Stats(truncated=True) if one.truncated else None
    phases = (took.prepared_ms, took.ran_ms, took.uploaded_ms)
    return commands.Stats(*phases, took.cpu_s, took.memory_bytes, took.read_bytes, took.written_bytes, one.truncated)


def _renewal(one: wire.Renewal) -> commands.Renewal:
    return commands.Renewal(key_of(one.task), one.attempt, one.fence, one.progress, one.checkpoint)


def _begun(one: wire.Begun) -> commands.Begun:
    return commands.Begun(key_of(one.task), one.attempt, one.fence)


def _output(one: wire.Output) -> commands.Output:
    return commands.Output(key_of(one.task), one.attempt, one.fence, one.start, one.body)


# And back.


def _refused(answered: Iterable[tuple[wire.Report | wire.Renewal | wire.Output, object]]) -> list[wire.Refused]:
    return [
        wire.Refused(one.task, one.attempt, outcome.code, outcome.text)
        for one, outcome in answered
        if isinstance(outcome, Refusal)
    ]


def _renewed(one: Renewed, now: Millis) -> wire.Renewed:
    left = None if one.until_ms is None else max(0, one.until_ms - now)
    return wire.Renewed(_text(one.task), one.attempt, left, one.stop)


def _text(id: int) -> str:
    return text_of(Key(id))


def _said(shape: wire.Shape) -> Reply:
    return Reply(200, _ENCODER.encode(shape))


def _problem(fault: RequestRefused) -> Reply:
    headers = tuple((name.lower().encode(), text.encode()) for name, text in fault.headers.items())
    return Reply(fault.problem.status, _ENCODER.encode(fault.problem), MEDIA_TYPE.encode(), headers)


# Over ASGI.


async def _awaited(asked: "Future[Any]") -> Any:
    """Wait for an answer; it comes though nobody may wait for it any more. (asyncio's own way takes twice as long.)"""
    loop = asyncio.get_running_loop()
    here: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not here.done():
            here.set_result(None)

    def hear(_: object) -> None:
        if not loop.is_closed():  # else the server has ended, and nobody waits
            loop.call_soon_threadsafe(tell)

    asked.add_done_callback(hear)
    await here
    return asked.result()


def _header(scope: Scope, name: bytes) -> bytes:
    for key, found in scope["headers"]:
        if key == name:
            return bytes(found)
    return b""


async def _read(receive: Receive) -> bytes:
    message = await receive()
    body = message.get("body", b"")
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        body = message.get("body", b"")
        size += len(body)
        if size > BODY_MAX:
            raise refused(413, "too_large", f"a bot may say at most {BODY_MAX} bytes at once")
        parts.append(body)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


# The lobby of bots: their routes, who of them comes in, and how those that wait are answered when the server stops.


_LOG = logging.getLogger(__name__)
#: The id of the token that the request under way showed.
_SHOWN: Final[ContextVar[str]] = ContextVar("taskyard_shown", default="")
#: How many threads look up tokens of bots; each look takes well below a millisecond, and holds for some seconds.
THREADS_MAX: Final = 2


_TROUBLE: Final = msgspec.json.Decoder(wire.Trouble)


class Guard:
    """Lets bots in by their tokens, and gives running tasks theirs."""

    def __init__(self, context: AppContext) -> None:
        self._desk = context
        self.run_token: Callable[[int, int, int], str] = context.signer.sign
        # Of their own: those of people may all wait for something, and what bots have to say must not.
        self._threads = ThreadPoolExecutor(THREADS_MAX, "taskyard-lobby")

    async def pool_of(self, authorization: bytes) -> str:
        """Name the pool of the bots that a token lets in, or refuse."""
        text, auth = bearer(authorization.decode("latin-1")), self._desk.auth
        known = auth.cached(text) if text is not None else None
        # A thread looks up a token that is not remembered: the database may be slow, or away.
        grant = (
            await self.apart(auth.authenticate_bot, text)
            if auth.enabled and known is None
            else auth.bot_grant(known or ANONYMOUS)
        )
        if isinstance(grant, Denial):
            raise self._desk.deny(grant, "speak for a bot")
        spoken = tokens.parse(text) if text is not None else None
        _SHOWN.set("" if spoken is None else spoken.id)
        return grant.pool

    async def apart(self, act: "Callable[..., T]", *said: object) -> "T":
        """Have something looked at by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *said)


class Lobby(BotRoutes):
    """The routes of bots, counted; polls that wait are known, so that none is left when the server stops."""

    def __init__(self, context: AppContext) -> None:
        self._guard = Guard(context)
        super().__init__(context.engine, self._guard)
        self._desk = context
        self._waiting: dict[Future[Any], str] = {}  # with the id of the token that was shown
        self._routes = {**self._routes, "/api/v1/bot/trouble": self._trouble}
        context.on_close.append(self.close)
        context.auth.on_revoke.append(self._end)

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
        self._desk.metrics.count_bot(scope["path"], reply.status)
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
            raise invalid_field(f"must be an integer from 1 to {NUMBER_MAX}", "attempt")
        about = None if said.task is None else key_of(said.task), said.attempt
        text = " ".join(said.text[: wire.TROUBLE_MAX].replace("\0", " ").split())
        refusal = await asyncio.to_thread(
            self._engine.transact,
            lambda transaction: record_error(transaction, said.bot, said.session, text, about, pool),
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
