"""The side of a Celery worker: runs the attempts of bots with a local engine for each bot.

The local engine has a runner and a watchdog, which end an attempt at the end of its lease. The lease ends there when
the bot has not extended it, or the worker, its thread for messages or the broker is frozen, killed or cut off.

A message that a broker delivers again is never run: another worker may have begun it, and may still run it.
"""

import asyncio
import hashlib
import logging
import math
import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from celery import Celery
from msgspec.structs import replace

from taskyard.bot.attempts import Key, LeasedAttempt, LeasedAttempts, return_report
from taskyard.bot.config import BotConfig, Dimensions, detect_dimensions
from taskyard.bot.engines.celery.app import app, configure, worker_failed
from taskyard.bot.engines.celery.broker import BrokerLink
from taskyard.bot.engines.celery.messages import WORKER_REPLY, Start, Trouble, WorkerPoll, WorkerReply, encode
from taskyard.bot.engines.local import LocalEngine
from taskyard.bot.engines.protocol import EngineHost
from taskyard.bot.poll_payload import PollPayload, apply_reply, build_payload
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.process_cleanup import deny_inspection
from taskyard.bot.state_folder import StateFolder
from taskyard.sdk.http import tls_context
from taskyard.wire.bot_protocol import Begun, Report, Signal, Welcome

#: How often a worker says that it lives, and how often it looks at its timers.
BEAT_SECONDS: Final = 1.0
TICK_SECONDS: Final = 0.05
IDLE_TICK_SECONDS: Final = 0.5
#: How many messages to a bot may be without an answer; an attempt is in one of them at most.
UNDER_WAY_MAX: Final = 16
#: A message without an answer is sent again after this long, and then after twice as long each time.
REPEAT_SECONDS: Final = 3.0
REPEAT_SECONDS_MAX: Final = 60.0
#: A bot that says nothing for so long is forgotten, and with it what it was not told.
FORGOTTEN_SECONDS: Final = 600.0
#: An end of the worker waits so long until bots have all reports.
CLOSE_SECONDS: Final = 5.0
#: How long a worker that has failed waits before it starts again.
RESTART_SECONDS: Final = 1.0
#: How fast a clock may run compared with another one: more than a broken one does.
DRIFT: Final = 0.001
#: Keys of dimensions that a worker has; of the others only the bot can be asked to say something.
DIMENSIONS: Final = ("os", "os_version", "arch", "cpu", "python", "ansible", "git")
_LOG = logging.getLogger("taskyard.bot")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is started with."""

    state: Path
    ca_file: str | None = None
    inherit: bool = False


_given: list[WorkerSettings] = []


def settings() -> WorkerSettings:
    """Return the settings of this worker: of `taskyard celery-worker`, or for `celery -A` from the environment."""
    if _given:
        return _given[-1]
    folder = os.environ.get("TASKYARD_WORKER_STATE")
    default = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "taskyard" / "celery-workers"
    return WorkerSettings(
        Path(folder) if folder else default,
        os.environ.get("TASKYARD_CA_FILE"),
        os.environ.get("TASKYARD_INHERIT_ENV") == "1",
    )


def serve(broker: str, queue: str, name: str, slots: int, said: WorkerSettings) -> int:
    """Run a Celery worker until a signal ends it."""
    configure(broker, queue)
    _given.append(said)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # Workers need not know of each other.
    app.worker_main(
        [
            "--quiet",
            "worker",
            f"--hostname={name}",
            f"--concurrency={slots}",
            f"--queues={queue}",
            "--pool=threads",
            "--without-gossip",
            "--without-mingle",
            "--loglevel=WARNING",
        ]
    )
    if worker_failed():
        # Some versions of Celery give up when a Redis is restarted. Nothing is in hand any more, so begin anew.
        _LOG.warning("the Celery worker has failed, and starts again")
        time.sleep(RESTART_SECONDS)
        os.execv(sys.executable, [sys.executable, "-m", "taskyard", *sys.argv[1:]])  # noqa: S606 - this program
    return 0


class CeleryWorker:
    """One Celery worker process. Its methods are called from threads of Celery; the rest is on a loop of its own."""

    def __init__(self, celery_app: Celery, name: str, slots: int, settings: WorkerSettings) -> None:
        deny_inspection()  # it has the address of the broker, and tasks may run as the same user
        self.name, self.slots, self.settings = name, slots, settings
        self.id = f"{name}.{secrets.token_hex(4)}"
        self._bots: dict[str, ServedBot] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taskyard-attempts", daemon=True)
        self._thread.start()
        self.link = BrokerLink(
            celery_app, f"taskyard.worker.{self.id}", lambda body: self._call(self._on_message, body)
        )
        self._ticking = asyncio.run_coroutine_threadsafe(self._tick(), self._loop)
        _LOG.info("Celery worker %s runs attempts in %s", self.id, settings.state)

    def run(self, start: Start, redelivered: bool) -> None:
        """Run an attempt, and return when it has ended."""
        asyncio.run_coroutine_threadsafe(self._run(start, redelivered), self._loop).result()

    def revoked(self, key: Key, redelivered: bool) -> None:
        """Tell its bot that an attempt was revoked before it began."""
        self._call(self._give_back, key, redelivered)

    def meet(self, bot: str, inbox: str) -> None:
        """Learn where a bot receives messages."""
        self._call(self._served, bot, inbox)

    def close(self) -> None:
        """Tell bots how attempts ended, and end everything."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self.link.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, act: object, *given: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *given)  # type: ignore[arg-type]

    async def _run(self, start: Start, redelivered: bool) -> None:
        await self._served(start.bot, start.inbox, is_greeting=False).run(start, redelivered=redelivered)

    def _give_back(self, key: Key, redelivered: bool) -> None:
        for bot in self._bots.values():  # it is not known whose it was; others ignore it
            bot.give_back(key, redelivered=redelivered)

    def _served(self, bot: str, inbox: str, *, is_greeting: bool = True) -> "ServedBot":
        found = self._bots.get(bot)
        if found is None:
            found = self._bots[bot] = ServedBot(self, bot, inbox)
        elif is_greeting:
            found.move_to(inbox)
        return found

    def _on_message(self, body: bytes) -> None:
        try:
            reply = WORKER_REPLY.decode(body)
        except msgspec.MsgspecError as error:
            _LOG.warning("a message in the inbox of this worker cannot be read: %s", error)
            return
        for bot in self._bots.values():
            bot.on_reply(reply)

    async def _tick(self) -> None:
        while True:
            is_busy = any(one.is_busy for one in self._bots.values())
            await asyncio.sleep(TICK_SECONDS if is_busy else IDLE_TICK_SECONDS)
            now = time.monotonic()
            for name, bot in list(self._bots.items()):
                bot.tick(now)
                if not bot.is_busy and now - bot.heard_at > FORGOTTEN_SECONDS:
                    del self._bots[name]
                    await bot.close()

    async def _close(self) -> None:
        until = time.monotonic() + CLOSE_SECONDS
        while any(one.has_reports for one in self._bots.values()) and time.monotonic() < until:
            await asyncio.sleep(TICK_SECONDS)
        self._ticking.cancel()
        for bot in self._bots.values():
            await bot.close()


class _UnderWay:
    """A message that is not answered yet."""

    __slots__ = ("body", "next_at", "pause", "payload", "sent")

    def __init__(self, payload: PollPayload, body: bytes, sent: float) -> None:
        self.payload, self.body, self.sent = payload, body, sent
        self.pause = REPEAT_SECONDS
        self.next_at = sent + self.pause


class ServedBot:
    """One bot: the local engine for its attempts, and what it has to be told.

    A start comes with the end of its lease by the clock of the bot. Each answer of the bot has that clock, and was made
    after the message that it answers was sent. So `clock of the worker at the sending - clock of the bot` is at most
    the difference of the clocks, and the end that follows from it is never too late.
    """

    def __init__(self, worker: CeleryWorker, bot: str, inbox: str) -> None:
        self._worker, self._bot, self._inbox = worker, bot, inbox
        self._attempts = LeasedAttempts()
        self._engine: LocalEngine | None = None
        self._state: StateFolder | None = None
        self._opening: asyncio.Task[LocalEngine] | None = None
        self._difference: tuple[float, float] | None = None  # of the clocks, and when it was found
        self._has_clock = asyncio.Event()
        self._ends: dict[Key, asyncio.Future[None]] = {}
        self._unconfirmed: dict[Key, LeasedAttempt] = {}  # those that ask whether they may begin
        self._stopped: dict[Key, float] = {}  # those that must not begin, and when that was said
        self._reports: list[Report] = []  # of attempts that were never in hand
        self._dropped: list[Begun] = []
        self._troubles: list[Trouble] = []
        self._under_way: dict[int, _UnderWay] = {}
        self._number = int(time.time() * 1000)  # so that the numbers of a worker rise also after it forgot the bot
        self._said_at = -math.inf
        self._is_flushing = False
        self._maintenance = False
        self.heard_at = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether it has attempts in hand."""
        return bool(self._attempts.by_key or self._ends)

    @property
    def has_reports(self) -> bool:
        """Whether the bot has not everything that it has to be told."""
        return bool(self._attempts.finished or self._reports)

    def move_to(self, inbox: str) -> None:
        """The bot is there; if it is another instance, it gets everything again that was not answered."""
        self.heard_at = time.monotonic()
        if inbox != self._inbox:
            self._inbox = inbox
            for one in self._under_way.values():
                self._worker.link.publish(inbox, one.body)
        if self._difference is None:
            self._say(time.monotonic())

    async def run(self, start: Start, *, redelivered: bool) -> None:
        """Run an attempt, and return when it has ended and its slot is free."""
        key = (start.lease.task, start.lease.attempt)
        if key in self._attempts.by_key:
            return  # the broker gives it to this worker once more; its end is told anyway
        if redelivered:
            self.give_back(key, redelivered=True)
            return
        engine = await self._opened(start)
        if self._difference is None:
            self._say(time.monotonic())
            await self._has_clock.wait()
        if key in self._stopped or key in self._attempts.by_key:
            self.give_back(key, redelivered=False)
            return
        self._ends[key] = asyncio.get_running_loop().create_future()
        attempt = self._add(start)
        if attempt.strict and time.monotonic() >= attempt.until:
            # It was in the queue for longer than its lease: the bot has to say that it still has it.
            self._unconfirmed[key] = attempt
            attempt.renew_at = -math.inf
            self._attempts.reset_renewal_time()
            self._flush()
        else:
            engine.start([attempt])
        self._notice_ends()
        await self._ends_of(key)

    def give_back(self, key: Key, *, redelivered: bool) -> None:
        """Tell the bot that an attempt will not begin here."""
        if key in self._attempts.by_key:
            return
        if redelivered:
            self._dropped.append(Begun(*key, 0))
        else:
            self._reports.append(Report(*key, 0, Signal.RETURN))
        self._flush()

    def on_reply(self, reply: WorkerReply) -> None:
        """Take over what the bot says."""
        for ref in reply.stops:
            self._stop((ref.task, ref.attempt))
        one = self._under_way.pop(reply.number, None)
        if one is None:
            return
        self.heard_at = time.monotonic()
        self._difference = (one.sent - reply.clock, one.sent)
        self._has_clock.set()
        effects = apply_reply(self._attempts, one.payload, reply.polled, one.sent)
        assert self._engine is not None or not effects, "nothing is in hand without an engine"
        for attempt in effects.renewed:
            if self._unconfirmed.pop(attempt.key, None) is not None and self._engine is not None:
                self._engine.start([attempt])
        if effects.renewed and self._engine is not None:
            self._engine.extend(effects.renewed)
        for attempt in (*effects.stop, *effects.revoked):
            self._cancel(attempt)
        self._notice_ends()
        self._flush()

    def tick(self, now: float) -> None:
        """Look after attempts, and say what is due."""
        if self._engine is not None:
            self._engine.poll(now)
        for attempt in list(self._unconfirmed.values()):
            if attempt.is_late(now):
                self._cancel(attempt)
        for one in self._under_way.values():
            if now >= one.next_at:
                one.pause = min(2 * one.pause, REPEAT_SECONDS_MAX)
                one.next_at = now + one.pause
                self._worker.link.publish(self._inbox, one.body)
        self._stopped = {key: at for key, at in self._stopped.items() if now - at < FORGOTTEN_SECONDS}
        self._notice_ends()
        self._say_if_due(now)

    async def close(self) -> None:
        """End everything."""
        for end in self._ends.values():
            end.cancel()
        if self._engine is not None:
            await self._engine.close()
        if self._state is not None:
            self._state.close()

    # Called by the local engine.

    def on_change(self) -> None:
        """An attempt has ended, begun or printed something."""
        self._flush()

    def report_trouble(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Pass a problem on to the bot."""
        _LOG.warning("%s", text)
        lease = None if attempt is None else attempt.lease
        about = (None, None) if lease is None else (lease.task, lease.attempt)
        self._troubles.append(Trouble(f"Celery worker {self._worker.name}: {text}", *about))

    def on_lost(self) -> None:
        """Nothing: the bot counts what is lost."""

    def maintain(self, why: str | None) -> None:
        """Have no slots while the runner does not answer."""
        self._maintenance = why is not None
        self._said_at = -math.inf

    def refresh(self) -> None:
        """Nothing: slots and dimensions go out with each message."""

    def fail(self) -> None:
        """Have no slots any more: the runner does not work here."""
        self.maintain("the runner cannot be started")

    # Attempts.

    def _add(self, start: Start) -> LeasedAttempt:
        """Take an attempt in hand, with the times of the bot by the clock of this machine."""
        assert self._difference is not None, "the clock of the bot is known"
        difference, found_at = self._difference
        now = time.monotonic()
        difference -= (now - found_at) * DRIFT
        left = start.until + difference - now
        deadline = None if start.deadline is None else max(0, int((start.deadline + difference - now) * 1000))
        lease = replace(start.lease, lease_ms=int(left * 1000), deadline_ms=deadline)
        attempt = self._attempts.add(lease, now, now)
        attempt.received_at = min(now, start.received + difference)
        return attempt

    async def _opened(self, start: Start) -> LocalEngine:
        """Return the local engine of this bot; the first attempt starts it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(start))
        return await asyncio.shield(self._opening)

    async def _open(self, start: Start) -> LocalEngine:
        worker = self._worker
        name = hashlib.sha256(f"{worker.name}\n{start.bot}".encode()).hexdigest()[:12]
        self._state = StateFolder(worker.settings.state / name)
        config = BotConfig(
            url=start.url,
            token="",
            name=worker.name,
            slots=worker.slots,
            state=worker.settings.state / name,
            ca_file=worker.settings.ca_file,
            tls=tls_context(worker.settings.ca_file) if worker.settings.ca_file else None,
            inherit=worker.settings.inherit,
        )
        host = EngineHost(config, self._state, worker.id, self._attempts, PrefetchLimit(worker.slots), self)
        engine = LocalEngine(host)
        await engine.open()
        engine.welcomed(Welcome(worker.name, start.pool, 0, 0, 0), [])
        self._engine = engine
        return engine

    def _stop(self, key: Key) -> None:
        attempt = self._attempts.by_key.get(key)
        if attempt is None:
            self._stopped[key] = time.monotonic()
        else:
            self._cancel(attempt)

    def _cancel(self, attempt: LeasedAttempt) -> None:
        if self._unconfirmed.pop(attempt.key, None) is not None:
            self._attempts.finish(attempt, attempt.expiry_report(time.monotonic()) or return_report(attempt))
        elif self._engine is not None:
            self._engine.cancel(attempt, "stop")

    def _notice_ends(self) -> None:
        """Let the threads of Celery go on whose attempts have ended."""
        for key in list(self._ends):
            attempt = self._attempts.by_key.get(key)
            if attempt is None or attempt.report is not None:
                end = self._ends.pop(key)
                if not end.done():
                    end.set_result(None)

    async def _ends_of(self, key: Key) -> None:
        end = self._ends.get(key)
        if end is not None:
            await end

    # Messages.

    def _flush(self) -> None:
        """Say what there is at the end of this turn of the loop: all that happens now is one message."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flushing = False
        self._notice_ends()
        self._say_if_due(time.monotonic())

    def _say_if_due(self, now: float) -> None:
        attempts = self._attempts
        is_due = (
            self._reports
            or self._dropped
            or now - self._said_at >= BEAT_SECONDS
            or attempts.is_renewal_due(now)
            or attempts.is_output_due(now)
            or attempts.is_begun_due(now)
            or any(not one.in_flight for one in attempts.finished.values())
        )
        if is_due and len(self._under_way) < UNDER_WAY_MAX:
            self._say(now)

    def _say(self, now: float) -> None:
        payload = build_payload(self._attempts, now)
        self._number += 1
        self._said_at = now
        body = encode(
            WorkerPoll(
                self._worker.id,
                self._worker.link.inbox,
                self._number,
                0 if self._maintenance else self._worker.slots,
                _own_dimensions(),
                [*payload.reports, *self._reports],
                payload.renewals,
                payload.outputs,
                payload.begun,
                self._dropped,
                self._troubles,
            )
        )
        self._reports, self._dropped, self._troubles = [], [], []
        self._under_way[self._number] = _UnderWay(payload, body, now)
        self._worker.link.publish(self._inbox, body)


def _own_dimensions() -> Dimensions:
    """Return what this machine is, as far as it matters which worker gets an attempt."""
    if not _DETECTED:
        found = detect_dimensions()
        _DETECTED.update({key: found[key] for key in DIMENSIONS if key in found})
        _DETECTED["engine"] = ["celery"]
    return _DETECTED


_DETECTED: Dimensions = {}
