"""The bot API: hello, poll, goodbye and trouble. Its routes are the hottest, so they are plain ASGI with msgspec.

Each route converts messages of the bot protocol to commands of the engine and back. A poll that waits is answered when
there is work or its time is over. If its bot disconnects, the poll is not answered; repeated, it gets the same leases.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from taskyard.core import fleet
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import ID, POOL, canonical
from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace, value
from taskyard.engine import validate
from taskyard.engine.errors import EngineError
from taskyard.lifecycle import commands
from taskyard.lifecycle.bot_sessions import record_error
from taskyard.lifecycle.commands import Code, Lease, OutputStored, Refusal, Renewed
from taskyard.lifecycle.poll import PollOutcome
from taskyard.server.auth import ANONYMOUS, Denial
from taskyard.server.context import AppContext, bearer
from taskyard.server.errors import (
    MEDIA_TYPE,
    RequestRefused,
    from_engine_error,
    from_refusal,
    invalid,
    refused,
)
from taskyard.wire import bot_protocol as wire
from taskyard.wire.bot_protocol import TaskKey

if TYPE_CHECKING:
    from concurrent.futures import Future


#: The size limit of a request: all results and all output that one poll may have, as base64, with room to spare.
BODY_MAX: Final = 8 * 1024 * 1024
#: How many threads look up tokens of bots; a lookup takes well below a millisecond, and is cached for some seconds.
THREADS_MAX: Final = 2
#: How long a poll waits before its connection is watched.
UNWATCHED_S: Final = 0.02

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_HELLO: Final = wire.Hello[TaskKey]
_DECODERS: Final[Mapping[Any, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind, dec_hook=validate.task_key)
    for kind in (_HELLO, commands.Poll, commands.Goodbye, wire.Trouble)
}
#: The values of Content-Type that need no parsing; bots send no others.
_JSON_TYPES: Final = (b"application/json", b"")
#: The id of the token of the current request.
_TOKEN_ID: Final[ContextVar[str]] = ContextVar("taskyard_token_id", default="")
_LOG = logging.getLogger(__name__)
_ENCODER: Final = msgspec.json.Encoder()


@value
class Reply:
    """The answer to a bot."""

    status: int
    body: bytes = b""
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BotApi:
    """The bot API as an ASGI app."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._engine = context.engine
        self._run_token = context.signer.sign
        self._version = version("taskyard")
        self._wait_max_ms = min(wire.WAIT_MAX_MS, fleet.wait_max_ms(context.engine.lease_ms))
        self._waiting: dict[Future[Any], str] = {}  # waiting polls, with the id of the token they were sent with
        # Separate threads: those of the user API may all be busy, and bots must not wait for them.
        self._threads = ThreadPoolExecutor(THREADS_MAX, "taskyard-bots")
        self._routes: Mapping[str, Callable[[bytes, str, Receive], Awaitable[Reply]]] = {
            "/api/v1/bot/hello": self._hello,
            "/api/v1/bot/poll": self._poll,
            "/api/v1/bot/goodbye": self._goodbye,
            "/api/v1/bot/trouble": self._trouble,
        }
        context.engine.allow_parking(True)  # an earlier server of this engine may have stopped
        context.on_close.append(self.close)
        context.auth.on_revoke.append(self._end_polls_of)

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the bot API."""
        return path in self._routes

    def close(self) -> None:
        """Answer all waiting polls, and those that are still to come, at once."""
        self._engine.allow_parking(False)

    def _end_polls_of(self, token: str) -> None:
        """Answer the waiting polls of a token that is revoked: its bot gets no more leases."""
        for future in [one for one, used in self._waiting.items() if used == token]:
            self._engine.leave(future)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._reply(scope, receive)
        headers = [(b"content-type", reply.kind), (b"content-length", str(len(reply.body)).encode()), *reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        try:
            reply = await self._dispatch(scope, receive)
        except RequestRefused as fault:
            reply = _problem(fault)
        except EngineError as trouble:
            reply = _problem(from_engine_error(trouble))
        except (msgspec.MsgspecError, ValueError) as fault:
            reply = _problem(invalid(str(fault)))
        except RecursionError:
            reply = _problem(invalid("the body is nested too deeply"))
        except Exception:  # noqa: BLE001 - a bug is answered like any other problem
            _LOG.exception("a bug on %s", scope["path"])
            reply = _problem(refused(500, "failed", "this is a bug of the server"))
        self._context.metrics.count_bot(scope["path"], reply.status)
        return reply

    async def _dispatch(self, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] != "POST":
            raise refused(405, "method_not_allowed", "use POST", headers={"Allow": "POST"})
        pool = await self._authenticate(_header(scope, b"authorization"))
        content_type = _header(scope, b"content-type")
        if content_type not in _JSON_TYPES and content_type.partition(b";")[0].strip().lower() != b"application/json":
            raise refused(415, "unsupported", "bots must send application/json, in Content-Type, too, if it is set")
        return await self._routes[scope["path"]](await _read(receive), pool, receive)

    async def _authenticate(self, authorization: bytes) -> str:
        """Return the pool of the bots that a token is for, or refuse."""
        text, auth = bearer(authorization.decode("latin-1")), self._context.auth
        known = auth.cached(text) if text is not None else None
        if auth.enabled and known is None:
            # On a thread: the database may be slow or unavailable.
            loop = asyncio.get_running_loop()
            grant = await loop.run_in_executor(self._threads, auth.authenticate_bot, text)
        else:
            grant = auth.bot_grant(known or ANONYMOUS)
        if isinstance(grant, Denial):
            raise self._context.deny(grant, "speak for a bot")
        _TOKEN_ID.set(grant.token)
        return grant.pool

    async def _hello(self, body: bytes, pool: str, _: Receive) -> Reply:
        message: wire.Hello[TaskKey] = _decode(_HELLO, body)
        dimensions = {**message.dimensions, ID: [message.bot], POOL: [pool]}
        hello = commands.Hello(
            message.bot,
            message.session,
            canonical(dimensions),
            message.slots,
            message.quarantined,
            message.maintenance,
            message.draining,
            message.version,
            message.begun,
            message.replaces,
            message.adopts,
        )
        answer = await _result_of(self._engine.ask(commands.Hello, hello))
        self._check(answer, pool)
        spans = (self._engine.lease_ms, fleet.GUARD_MS, self._wait_max_ms)
        advice, now = fleet.update_advice(message.version, self._version), self._engine.clock.now()
        adopted = [_adopted(one, now) for one in answer or ()]
        return _json(wire.Welcome(message.bot, pool, *spans, advice, adopted))

    async def _goodbye(self, body: bytes, pool: str, _: Receive) -> Reply:
        goodbye = struct_replace(_decode(commands.Goodbye, body), pool=pool)
        self._check(await _result_of(self._engine.ask(commands.Goodbye, goodbye)), pool)
        return Reply(204)

    async def _poll(self, body: bytes, pool: str, receive: Receive) -> Reply:
        message: commands.Poll = _decode(commands.Poll, body)
        # A bot that sends no `begun` has begun nothing new. The other two fields are never the bot's to set.
        poll = struct_replace(message, begun=message.begun or (), with_definitions=True, pool=pool)
        future = self._engine.ask(commands.Poll, poll, decoded=True)
        answer = await (self._wait(future, poll, receive) if poll.wait_ms > 0 else _result_of(future))
        self._check(answer, pool)
        return _json(self._poll_answer(poll, answer))

    async def _wait(self, future: "Future[Any]", message: commands.Poll, receive: Receive) -> Any:
        """Wait for work as long as the poll may wait, its bot is connected and the server runs."""
        wait_s = min(message.wait_ms, self._wait_max_ms) / 1000
        watch = _PollWatch(wait_s, receive, lambda *_: self._engine.leave(future))
        self._waiting[future] = _TOKEN_ID.get()
        try:
            return await _result_of(future)
        finally:
            self._waiting.pop(future, None)
            watch.end()

    async def _trouble(self, body: bytes, pool: str, _: Receive) -> Reply:
        """Record an error of the bot itself."""
        message: wire.Trouble = _decode(wire.Trouble, body)
        self._check(validate.check(commands.Goodbye, commands.Goodbye(message.bot, message.session)), pool)
        about = None if message.task is None else key_of(message.task), message.attempt
        text = " ".join(message.text[: wire.TROUBLE_MAX].replace("\0", " ").split())
        refusal = await asyncio.to_thread(
            self._engine.transact,
            lambda transaction: record_error(transaction, message.bot, message.session, text, about, pool),
        )
        self._check(refusal, pool)
        return Reply(204)

    def _check(self, answer: object, pool: str) -> None:
        """Raise the engine's refusal; record a denial if a bot named one of another pool than its token's."""
        if isinstance(answer, Refusal):
            if answer.code is Code.FORBIDDEN:
                denial = Denial(403, Code.FORBIDDEN, answer.text, f"a bot of pool {pool}")
                raise self._context.deny(denial, "speak for a bot")
            raise from_refusal(answer)

    def _poll_answer(self, message: commands.Poll, answer: PollOutcome) -> wire.Polled:
        now = self._engine.clock.now()
        refusals = [
            *_refused(zip(message.reports, answer.reports, strict=True)),
            *_refused(zip(message.renewals, answer.renewals, strict=True)),
            *_refused(zip(message.outputs, answer.outputs, strict=True)),
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
        definition = lease.definition
        assert definition is not None, "leases for bots always have a definition"
        sent_apart = definition.inputs is not None and len(definition.inputs) > wire.INPUTS_MAX
        return wire.Lease(
            _text(lease.task),
            lease.attempt,
            lease.fence,
            max(0, lease.until_ms - now),
            _text(definition.graph),
            definition.label,
            msgspec.Raw(definition.payload),
            self._run_token(lease.task, lease.attempt, lease.fence),
            wire.NOTHING if definition.inputs is None or sent_apart else msgspec.Raw(definition.inputs.encode()),
            sent_apart,
            definition.checkpoint,
            None if definition.deadline_ms is None else max(0, definition.deadline_ms - now),
            "keep" if definition.disconnect == "keep" else "strict",
            definition.submitter,
            definition.takes,
        )


def _adopted(one: commands.Adopted, now: Millis) -> wire.Adopted:
    return wire.Adopted(_text(one.task), one.attempt, one.fence, max(0, one.lease_until_ms - now), one.stop)


class _PollWatch:
    """Calls `leave` when a poll has waited for long enough, or its bot has disconnected.

    Most polls are answered at once, and watching a connection takes a tenth of such a poll: it begins a little later.
    """

    def __init__(self, wait_s: float, receive: Receive, leave: Callable[..., None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._leave = leave
        self._disconnected: asyncio.Future[Any] | None = None
        unwatched_s = min(wait_s, UNWATCHED_S)
        self._timer = self._loop.call_later(unwatched_s, self._begin, wait_s - unwatched_s)

    def _begin(self, rest_s: float) -> None:
        self._timer = self._loop.call_later(rest_s, self._leave)
        self._disconnected = asyncio.ensure_future(self._receive())  # after the body, only a disconnect can follow
        self._disconnected.add_done_callback(self._leave)

    def end(self) -> None:
        """Call `leave` no more."""
        self._timer.cancel()
        if self._disconnected is not None:
            self._disconnected.remove_done_callback(self._leave)
            self._disconnected.cancel()


def _decode(kind: Any, body: bytes) -> Any:
    """Decode a message; if that fails, raise a refusal that lists every fault."""
    try:
        return _DECODERS[kind].decode(body)
    except msgspec.ValidationError:
        refusal = validate.check_undecodable(kind, msgspec.json.decode(body))
        if refusal is None:
            raise
        raise from_refusal(refusal) from None


# Outcomes to messages.


def _refused(
    pairs: Iterable[tuple[commands.Report | commands.Renewal | commands.Output, object]],
) -> list[wire.Refused]:
    return [
        wire.Refused(_text(one.task), one.attempt, outcome.code, outcome.text)
        for one, outcome in pairs
        if isinstance(outcome, Refusal)
    ]


def _renewed(one: Renewed, now: Millis) -> wire.Renewed:
    left = None if one.until_ms is None else max(0, one.until_ms - now)
    return wire.Renewed(_text(one.task), one.attempt, left, one.stop)


def _text(id: int) -> str:
    return text_of(Key(id))


def _json(message: wire.Message) -> Reply:
    return Reply(200, _ENCODER.encode(message))


def _problem(fault: RequestRefused) -> Reply:
    headers = tuple((name.lower().encode(), text.encode()) for name, text in fault.headers.items())
    return Reply(fault.problem.status, _ENCODER.encode(fault.problem), MEDIA_TYPE.encode(), headers)


# ASGI.


async def _result_of(future: "Future[Any]") -> Any:
    """Wait for the result of a command. `asyncio.wrap_future` takes twice as long."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not arrived.done():
            arrived.set_result(None)

    def done(_: object) -> None:
        if not loop.is_closed():  # else the server has stopped, and no request waits
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(done)
    await arrived
    return future.result()


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
            raise refused(413, "too_large", f"a request of a bot may have at most {BODY_MAX} bytes")
        parts.append(body)
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
