"""The poll loop: decides when a bot sends which request, with as few requests as possible and nothing late.

There are two connections. A request for work can be parked at the server on the first; reports go over the second
meanwhile. When nothing is parked, reports and the next request for work are one request, so a chain of tasks costs one
request per task. While tasks are so short that many end before an answer comes, both connections are used in turn, and
the server never waits for the bot.

A request that reports something never waits for work, so its answer comes at once. No request is cancelled; one without
an answer is repeated unchanged until it has one.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from taskyard.bot.attempts import LeasedAttempts
from taskyard.bot.config import BotConfig, Dimensions, merge_dimensions, read_file
from taskyard.bot.poll_payload import PollEffects, PollPayload, apply_reply, build_payload
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.server_client import (
    ANSWER_SECONDS_MAX,
    PAUSE_SECONDS_MAX,
    Reply,
    ServerClient,
    ServerUnavailable,
    SessionUnknown,
    retry_until_answered,
)
from taskyard.wire.bot_protocol import WAIT_MAX_MS, Begun, Hello, Lease, Poll, Welcome

if TYPE_CHECKING:
    from taskyard.bot.health_check import HealthCheck

#: While short tasks run, a request for work waits this long before it is parked: most often reports come first.
LINGER_SECONDS: Final = 0.003
#: Reports of a busy bot are collected, but never for longer than this.
COLLECT_SECONDS: Final = 0.010
#: A bot with all slots taken that has sent nothing for this long parks a request that asks for nothing: an admin may
#: stop a task.
LISTEN_SECONDS: Final = 0.5
#: How short the wait for an answer may be made by short leases, where there are other servers.
ANSWER_SECONDS_MIN: Final = 2.0
#: A request without an answer after this time does not hold back other reports.
SLOW_SECONDS: Final = 1.0
_LOG = logging.getLogger("taskyard.bot")


class PollHandler(Protocol):
    """Carries out what the server answered."""

    def accept(self, leases: list[Lease], sent: float) -> None:
        """Run these."""

    def apply(self, effects: PollEffects) -> None:
        """Extend, stop or drop attempts."""

    def terminate(self) -> None:
        """End once nothing is in hand."""


class PollLoop:
    """The requests of one session. `failure` gets the error that ends it: a rejection by the server."""

    def __init__(
        self,
        config: BotConfig,
        session: str,
        attempts: LeasedAttempts,
        prefetch: PrefetchLimit,
        handler: PollHandler,
        say_hello: Callable[[ServerClient], Awaitable[object]],
    ) -> None:
        self.wants_work = True  # False: ask for no more work
        self.check: HealthCheck | None = None  # asked before each request for work
        self.caches: Callable[[], tuple[str, ...] | None] | None = None  # returns them when they have changed
        self.wait_ms = WAIT_MAX_MS
        self.pause_s_max = PAUSE_SECONDS_MAX
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = self._loop.create_future()
        self._config, self._session = config, session
        self._attempts, self._prefetch = attempts, prefetch
        self._handler, self._say_hello = handler, say_hello
        self._clients = (ServerClient(config), ServerClient(config))
        config.servers.on_leave = self._note_left
        self._in_flight: list[asyncio.Task[None] | None] = [None, None]
        self._wanted = [0, 0]  # how many tasks the request on each connection asks for
        self._reporting = [0, 0]  # how many reports it carries
        self._parked = False
        self._listening = False  # no lease has come since all attempts were renewed
        self._parked_for_stops = False  # the parked request asks for nothing: it only waits for stops
        self._last_sent_at = 0.0  # when a request last carried or asked for something
        self._first_sent_at = 0.0  # when the first connection was last used
        self._polls = 0
        self._poll_prefix = secrets.token_hex(4)  # makes the names of polls unique in a session
        self._encoder = msgspec.json.Encoder()
        self._step_is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        self._collect_until = math.inf

    def limit_answers(self, lease_s: float) -> None:
        """Wait for a server that says nothing only so long that another one can still renew the leases."""
        if len(self._config.servers) > 1:
            for client in self._clients:
                client.answer_s = min(ANSWER_SECONDS_MAX, max(ANSWER_SECONDS_MIN, lease_s / 4))

    def _note_left(self, server: str) -> None:
        """Any thread may call this."""
        with suppress(RuntimeError):  # the loop has closed, so nothing waits
            self._loop.call_soon_threadsafe(self._leave, server)

    def _leave(self, server: str) -> None:
        """Repeat at another server what still waits for one that is away."""
        for client in self._clients:
            client.leave(server)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._in_flight == [None, None]

    def wake(self) -> None:
        """Schedule a step: something has happened. All that happens now is handled by one step."""
        if not self._step_is_scheduled:
            self._step_is_scheduled = True
            self._loop.call_soon(self._step)

    async def close(self) -> None:
        """Send nothing more."""
        self.wants_work = False
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in self._in_flight if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:
            client.close()

    def _step(self) -> None:
        self._step_is_scheduled = False
        if self.failure.done():
            return
        now = time.monotonic()
        if self._in_flight[0] is None:
            self._poll_or_report(now)
        elif self._in_flight[1] is None:
            if self._parked or now - self._first_sent_at > SLOW_SECONDS:
                self._report_on_second(now)
            elif len(self._attempts.finished) - self._reporting[0] >= self._prefetch.report_batch:
                self._send(
                    1, build_payload(self._attempts, now), self._capacity(self._attempts.unfinished, now), 0, now
                )

    def _poll_or_report(self, now: float) -> None:
        in_hand = self._attempts.unfinished
        if self._must_report(now) or (self._attempts.finished and self._is_time_to_report(in_hand, now)):
            payload = build_payload(self._attempts, now)
            if payload:
                self._send(0, payload, self._capacity(in_hand, now), 0, now)
                return
        if not self._wanted[1]:  # otherwise the other request may be given all the work there is
            self._request_or_listen(in_hand, now)

    def _request_or_listen(self, in_hand: int, now: float) -> None:
        if in_hand < self._prefetch.slots and self._may_ask(now):
            if in_hand == 0 or not self._prefetch.is_short or now >= self._linger_until:
                self._prefetch.reset()  # there was no work left, so the averages say nothing about what comes next
                self._send(0, PollPayload(), self._prefetch.slots - in_hand, self.wait_ms, now)
            else:
                self._wake_at(self._linger_until, now)
        elif in_hand and self._listening:
            self._send(0, PollPayload(), 0, self.wait_ms, now)
        elif in_hand and now - self._last_sent_at > LISTEN_SECONDS:
            # Ask once before listening: a task may have been stopped before the request was parked.
            self._listening = True
            self._attempts.renew_all()
            self._send(0, build_payload(self._attempts, now), 0, 0, now)
        elif in_hand:
            self._wake_at(self._last_sent_at + LISTEN_SECONDS, now)

    def _report_on_second(self, now: float) -> None:
        if self._attempts.finished or self._must_report(now):
            payload = build_payload(self._attempts, now)
            if payload:
                may_ask = self._parked_for_stops and self.wants_work
                self._send(1, payload, self._capacity(self._attempts.unfinished, now) if may_ask else 0, 0, now)

    def _may_ask(self, now: float) -> bool:
        """Whether to ask for work: the bot wants it, and the machine is fit."""
        return self.wants_work and (self.check is None or self.check.passes(now))

    def _capacity(self, in_hand: int, now: float) -> int:
        """How many more tasks to ask for, beyond those in hand and those asked for already."""
        count = self._prefetch.target - in_hand - sum(self._wanted)
        return count if count > 0 and self._may_ask(now) else 0

    def _must_report(self, now: float) -> bool:
        return (
            self._attempts.is_renewal_due(now) or self._attempts.is_output_due(now) or self._attempts.is_begun_due(now)
        )

    def _is_time_to_report(self, in_hand: int, now: float) -> bool:
        """Whether to send reports now: little work is left, or they have waited long enough."""
        if in_hand <= self._prefetch.refill_at or not self.wants_work or now >= self._collect_until:
            return True
        if self._collect_until == math.inf:
            self._collect_until = now + COLLECT_SECONDS
        self._wake_at(self._collect_until, now)
        return False

    def _wake_at(self, moment: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, moment - now), self._step)

    def _send(self, which: int, payload: PollPayload, want: int, wait_ms: int, now: float) -> None:
        self._polls += 1
        name = f"{self._poll_prefix}-{self._polls}" if want else ""
        poll = Poll(
            self._config.name,
            self._session,
            name,
            tuple(payload.reports),
            tuple(payload.renewals),
            want,
            tuple(payload.outputs),
            wait_ms,
            tuple(payload.begun),
            None if self.caches is None else self.caches(),
        )
        if which == 0:
            self._parked, self._first_sent_at = wait_ms > 0, now
            self._parked_for_stops = self._parked and not want
        if payload or want:
            self._last_sent_at = now
        self._collect_until = math.inf
        self._wanted[which], self._reporting[which] = want, len(payload.reported)
        task = self._loop.create_task(self._exchange(which, payload, self._encoder.encode(poll), wait_ms))
        task.add_done_callback(self._on_exchange_done)
        self._in_flight[which] = task

    async def _exchange(self, which: int, payload: PollPayload, body: bytes, wait_ms: int) -> None:
        client = self._clients[which]
        reply = await retry_until_answered(lambda: self._poll_once(client, body, wait_ms), self.pause_s_max)
        self._in_flight[which] = None
        self._wanted[which] = self._reporting[which] = 0
        effects = apply_reply(self._attempts, payload, reply.polled, reply.sent)
        if effects:
            self._handler.apply(effects)
        if reply.polled.terminate:
            self._handler.terminate()
        now = time.monotonic()
        if wait_ms == 0:
            self._prefetch.record_exchange(now - reply.sent)
        self._linger_until = now + LINGER_SECONDS
        if reply.polled.leases:
            self._listening = False
            self._handler.accept(reply.polled.leases, reply.sent)
        self.wake()

    async def _poll_once(self, client: ServerClient, body: bytes, wait_ms: int) -> Reply:
        try:
            return await client.poll(body, wait_ms)
        except SessionUnknown as error:
            await self._say_hello(client)
            raise ServerUnavailable(f"this bot had to open its session again: {error}") from error

    def _on_exchange_done(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self.failure.done():
            return
        error = task.exception()
        if error is not None:
            self.failure.set_exception(error)


# The hello of a bot: its name, its machine, and whether it takes work. It is sent again in the same session whenever
# one of these changes.


class HelloSender:
    """The hello of one session."""

    def __init__(
        self,
        config: BotConfig,
        session: str,
        on_welcome: Callable[[Welcome, float], None],
        detect: Callable[[], Dimensions],
    ) -> None:
        self.session = session
        self.slots = config.slots
        self.replaces = ""  # an earlier session, attempts of which this one goes on with until the server has said so
        self.adopts: list[Begun] = []
        self._detect = detect  # the dimensions of the machine
        self._on_welcome = on_welcome  # called with the server's answer, and when the hello was sent
        self.draining = False
        self.maintenance: str | None = None  # why it takes no work for now
        self.quarantined: str | None = None  # why it is unfit
        self.begun: list[Begun] | None = []  # what earlier instances had begun, until the server knows it
        self._config = config
        self._version = _version()
        self._read_stamp = _file_stamp(config.dimensions_file)
        self._from_file: Dimensions = {}

    async def hello(self, client: ServerClient) -> Welcome:
        """Send the hello over a connection."""
        hello = Hello(
            bot=self._config.name,
            session=self.session,
            dimensions=self._dimensions(),
            slots=self.slots,
            draining=self.draining,
            maintenance=self.maintenance,
            quarantined=self.quarantined,
            version=self._version,
            begun=None if self.begun is None else tuple(self.begun),
            replaces=self.replaces,
            adopts=tuple(self.adopts),
        )
        sent = time.monotonic()
        welcome = await client.hello(hello)
        self._on_welcome(welcome, sent)
        return welcome

    async def hello_once(self) -> Welcome:
        """Send the hello over a connection of its own."""
        client = ServerClient(self._config)
        try:
            return await self.hello(client)
        finally:
            client.close()

    def has_changed(self) -> bool:
        """Whether the file of dimensions has changed since it was read."""
        return _file_stamp(self._config.dimensions_file) != self._read_stamp

    def _dimensions(self) -> Dimensions:
        file = self._config.dimensions_file
        self._read_stamp = _file_stamp(file)
        if file is not None:
            try:
                self._from_file = read_file(file)
            except (OSError, ValueError) as error:
                _LOG.warning("cannot read the file of dimensions, keeping the previous ones: %s", error)
        return merge_dimensions(self._detect(), self._from_file, self._config.dimensions)


def _file_stamp(file: Path | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _version() -> str:
    try:
        return version("taskyard")
    except PackageNotFoundError:
        return ""
