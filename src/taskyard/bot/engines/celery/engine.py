"""The Celery engine of a bot: sends its attempts to Celery workers, and answers what these say.

To its workers the bot is what the server is to bots: it renews what they run, as long as it has the lease itself, and
stores what they report. A worker that says nothing gets no more time, so its attempts end with the leases that it knows
of, and are lost some seconds later. So a lost worker is a lost bot.

A message of a worker is answered once the server has what it reports: the worker keeps it until then, and says it again
to the next instance of the bot.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from taskyard.bot.attempts import (
    OUTPUT_SECONDS,
    Key,
    LeasedAttempt,
    deadline_report,
    failure_report,
    lost_report,
    lost_unbegun_report,
)
from taskyard.bot.config import Dimensions
from taskyard.bot.engines.celery.app import configure
from taskyard.bot.engines.celery.broker import BrokerLink
from taskyard.bot.engines.celery.journal import Journal
from taskyard.bot.engines.celery.messages import (
    GREETING,
    TASK,
    WORKER_POLL,
    Start,
    WorkerPoll,
    WorkerReply,
    encode,
    run_id,
)
from taskyard.bot.engines.protocol import Adoptable, EngineHost, EngineUnusable, option
from taskyard.bot.output_spool import Spool
from taskyard.bot.process import NOT_RUNNABLE
from taskyard.wire.bot_protocol import (
    OUTPUT_MAX,
    Begun,
    Kept,
    Lease,
    Output,
    Polled,
    Refused,
    Renewal,
    Renewed,
    Report,
    Welcome,
)

#: How often the bot makes itself known to workers.
GREETING_SECONDS: Final = 2.0
#: A start waits this long for the first worker.
WORKERS_SECONDS: Final = 3.0
#: A worker that says nothing for so long does not count as capacity; it says something every second.
SILENT_SECONDS: Final = 8.0
#: It is forgotten after this.
FORGOTTEN_SECONDS: Final = 120.0
#: If workers are idle for so long, an attempt that none of them took is not in the queue any more.
IDLE_SECONDS: Final = 5.0
#: The guard of a lease, until the server has said it.
GUARD_SECONDS: Final = 5.0
#: How much work is sent ahead: workers should find the next attempt in the queue.
AHEAD_SECONDS: Final = 0.1
OPTIONS: Final = ("broker", "queue")
NO_WORKERS: Final = "there is no Celery worker"
NO_BROKER: Final = "its message broker cannot be reached"
_LOG = logging.getLogger("taskyard.bot")


class _Remote:
    """An attempt that is with Celery."""

    __slots__ = ("attempt", "begun", "dropped", "granted", "worker")

    def __init__(self, attempt: LeasedAttempt) -> None:
        self.attempt = attempt
        self.granted = attempt.until  # until when any worker may run it: no worker knows of a later end
        self.worker = ""  # the one that has it, as soon as it said so
        self.begun = False
        self.dropped = False  # the message with it is gone, and it is not known whether a worker began it


class _Worker:
    """A worker that has said something."""

    __slots__ = ("answers", "dimensions", "inbox", "pending", "seen", "slots")

    def __init__(self, poll: WorkerPoll, now: float) -> None:
        self.inbox, self.seen = poll.inbox, now
        self.slots, self.dimensions = poll.slots, poll.dimensions
        self.pending: dict[int, WorkerPoll] = {}  # messages that are not answered yet
        self.answers: dict[int, WorkerReply] = {}  # the latest answers: a message may be said again


#: How many answers are kept for each worker; it has fewer messages under way.
ANSWERS_MAX: Final = 32


class CeleryEngine:
    """The attempts of a bot that are with Celery, and the workers."""

    def __init__(self, host: EngineHost) -> None:
        options = host.config.engine_options
        broker, queue = option(options, "broker", OPTIONS), option(options, "queue", OPTIONS)
        if not broker:
            raise EngineUnusable(
                "the engine celery needs a broker: --broker-file PATH, TASKYARD_BROKER or --broker URL"
            )
        self._app = configure(broker, queue) if queue else configure(broker)
        if host.config.user is not None:
            raise EngineUnusable("the engine celery starts nothing on this machine: --user is for the local one")
        self._host, self._config, self._attempts = host, host.config, host.attempts
        self._folder, _, instance = host.session.rpartition("/")
        self._inbox = f"taskyard.bot.{self._folder}.{instance}"
        self._journal = Journal(host.state.engine_file, host.session)
        self._adoptable = self._journal.adoptable
        self._remotes: dict[Key, _Remote] = {}
        # What workers say before it is known which attempts this instance has. An answer would end those.
        self._early: list[bytes] | None = []
        self._workers: dict[str, _Worker] = {}
        self._link: BrokerLink | None = None
        self._pool, self._guard_s = "", GUARD_SECONDS
        self._greeted_at = 0.0
        self._idle_since: float | None = None  # workers have free slots and take nothing
        self._capacity = 0
        self._dimensions: Dimensions = {}
        self._has_worker = asyncio.Event()
        host.prefetch.ahead_min_s = AHEAD_SECONDS

    @property
    def capacity(self) -> int:
        """The slots of the workers that live."""
        return self._capacity

    @property
    def caches_held(self) -> Callable[[], tuple[str, ...] | None] | None:
        """Nothing: it is not known which worker gets an attempt."""
        return None

    @property
    def outlives_bot(self) -> bool:
        """Yes: workers go on until the ends of their leases."""
        return True

    def dimensions(self) -> Dimensions:
        """Return what all workers have in common: any of them may get an attempt."""
        return self._dimensions

    async def open(self) -> None:
        """Connect to the broker, and wait a moment for workers."""
        self._host.state.clear_work()
        loop = asyncio.get_running_loop()
        self._link = BrokerLink(self._app, self._inbox, lambda body: _in_loop(loop, self._on_message, body))
        self._host.control.maintain(NO_WORKERS)
        if await asyncio.to_thread(self._link.is_receiving.wait, WORKERS_SECONDS):
            self._greet(time.monotonic())
            try:
                async with asyncio.timeout(WORKERS_SECONDS):
                    await self._has_worker.wait()
            except TimeoutError:
                _LOG.warning("no Celery worker has answered yet; start some with: taskyard celery-worker")

    def adopt(self) -> Adoptable:
        """Return what earlier instances have sent and not reported."""
        return self._adoptable

    def welcomed(self, welcome: Welcome, adopted: Sequence[LeasedAttempt]) -> None:
        """Go on with what the server left to this bot, and have the rest ended by its workers."""
        self._pool, self._guard_s = welcome.pool, welcome.guard_ms / 1000
        for attempt in adopted:
            self._remotes[attempt.key] = _Remote(attempt)
            if attempt.stopping:
                self.cancel(attempt, attempt.stopping)
        given_away = [one for one in self._adoptable.leases if (one.task, one.attempt) not in self._remotes]
        if given_away:
            self._stop(given_away, list(self._workers.values()), revoke=True)
            self._journal.remove([(one.task, one.attempt) for one in given_away])
        self._adoptable = Adoptable()
        early, self._early = self._early, None
        if early is not None and self._capacity:
            self._host.control.refresh()
        for body in early or ():
            self._on_message(body)

    def start(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Send attempts to the queue of the workers."""
        runnable = [one for one in attempts if self._is_runnable(one)]
        try:
            self._journal.add([one.lease for one in runnable])
        except OSError as error:
            # What is not in the file could not be adopted, and would run beside its next attempt.
            self._host.control.report_trouble(f"attempts cannot be sent to Celery: {error}")
            for attempt in runnable:
                self._host.ended(attempt, lost_unbegun_report(attempt))
            return
        for attempt in runnable:
            self._remotes[attempt.key] = _Remote(attempt)
            start = Start(
                self._folder,
                self._inbox,
                self._config.url,
                self._pool,
                attempt.until,
                attempt.lease,
                attempt.received_at,
                attempt.deadline,
            )
            self._publish(start)

    def extend(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Do nothing: workers ask, and are told the new end."""

    def cancel(self, attempt: LeasedAttempt, why: str) -> None:
        """Have an attempt ended: stopped where it runs, or revoked if none has it yet."""
        attempt.stopping = attempt.stopping or why
        remote = self._remotes.get(attempt.key)
        if attempt.report is None and remote is not None:
            at = [one for id, one in self._workers.items() if remote.worker in ("", id)]
            self._stop([attempt.lease], at, revoke=not remote.worker)

    def cancel_all(self) -> None:
        """End everything, as far as workers answer."""
        for remote in list(self._remotes.values()):
            self.cancel(remote.attempt, "lose")

    def poll(self, now: float) -> None:
        """Greet workers, answer them, and find what is lost."""
        if now - self._greeted_at >= GREETING_SECONDS:
            self._greet(now)
        over = [key for key in self._remotes if key not in self._attempts.by_key]
        for key in over:
            del self._remotes[key]
        if over:
            self._journal.remove(over)
        for worker in self._workers.values():
            self._answer(worker)
        self._update_capacity(now)
        for remote in list(self._remotes.values()):
            if remote.attempt.report is None and (report := self._loss(remote, now)) is not None:
                self._host.control.on_lost()
                self._host.ended(remote.attempt, report)

    async def close(self) -> None:
        """Disconnect from the broker."""
        if self._link is not None:
            await asyncio.to_thread(self._link.close)
        self._journal.close()

    # Sending.

    def _is_runnable(self, attempt: LeasedAttempt) -> bool:
        """Whether a worker can run it; if not, end it with a word about why."""
        takes = attempt.lease.takes
        if takes is None or (takes.slots == 1 and not (takes.cpus or takes.memory or takes.gpus)):
            return True
        self._host.output(attempt, b"taskyard: a bot with the engine celery runs only tasks that take one slot\n")
        self._host.ended(attempt, failure_report(attempt, "exit_code", NOT_RUNNABLE))
        return False

    def _publish(self, start: Start) -> None:
        assert self._link is not None, "the engine is open"
        body = encode(start).decode()
        name = run_id(start.lease)
        app = self._app
        self._link.do(
            lambda producer: app.send_task(TASK, (body,), task_id=name, producer=producer, retry=False, argsrepr=name)
        )

    def _stop(self, leases: Sequence[Lease], workers: Sequence[_Worker], *, revoke: bool) -> None:
        """Have attempts ended by workers; `revoke` those that may be in the queue."""
        assert self._link is not None, "the engine is open"
        stops = [Begun(one.task, one.attempt, one.fence) for one in leases]
        for worker in workers:
            self._link.publish(worker.inbox, encode(WorkerReply(time.monotonic(), stops=stops)))
        if revoke:
            names, app = [run_id(one) for one in leases], self._app
            self._link.do(lambda producer: app.control.revoke(names, connection=producer.connection))

    def _greet(self, now: float) -> None:
        assert self._link is not None, "the engine is open"
        self._greeted_at = now
        said, app = {"bot": self._folder, "inbox": self._inbox}, self._app
        self._link.do(lambda producer: app.control.broadcast(GREETING, arguments=said, connection=producer.connection))

    # What workers say.

    def _on_message(self, body: bytes) -> None:
        try:
            poll = WORKER_POLL.decode(body)
        except msgspec.MsgspecError as error:
            _LOG.warning("a message in the inbox of this bot cannot be read: %s", error)
            return
        now = time.monotonic()
        worker = self._workers.get(poll.worker)
        if worker is None:
            worker = self._workers[poll.worker] = _Worker(poll, now)
            _LOG.info("Celery worker %s has %d slots", poll.worker, poll.slots)
            # It begins nothing before it has an answer, and this goes out first.
            unwanted = [one.attempt.lease for one in self._remotes.values() if one.attempt.stopping and not one.worker]
            if unwanted:
                self._stop(unwanted, [worker], revoke=False)
        worker.seen, worker.slots, worker.dimensions = now, poll.slots, poll.dimensions
        self._update_capacity(now)
        if self._early is not None:
            self._early.append(body)
        elif poll.number in worker.answers:
            self._send_answer(worker, worker.answers[poll.number])
        elif poll.number not in worker.pending:
            worker.pending[poll.number] = poll
            self._take(poll, now)
            self._answer(worker)

    def _take(self, poll: WorkerPoll, now: float) -> None:
        """Take over what a worker says about attempts."""
        for one in poll.troubles:
            remote = self._remotes.get((one.task or "", one.attempt or 0))
            self._host.control.report_trouble(one.text, None if remote is None else remote.attempt)
        for ref in poll.dropped:
            if (remote := self._live((ref.task, ref.attempt))) is not None and not remote.worker:
                remote.dropped = True
        for ref in poll.begun:
            if (remote := self._live((ref.task, ref.attempt))) is not None:
                remote.worker, remote.begun = poll.worker, True
                self._host.begun(remote.attempt)
        for renewal in poll.renewals:
            if (remote := self._live((renewal.task, renewal.attempt))) is not None:
                remote.worker = poll.worker
                self._take_progress(remote.attempt, renewal)
        self._take_results(poll, now)

    def _take_progress(self, attempt: LeasedAttempt, renewal: Renewal) -> None:
        attempt.progress = renewal.progress or attempt.progress
        if renewal.checkpoint is not None:
            attempt.last_checkpoint = renewal.checkpoint

    def _take_results(self, poll: WorkerPoll, now: float) -> None:
        for output in poll.outputs:
            if (remote := self._live((output.task, output.attempt))) is not None:
                remote.worker = poll.worker
                self._take_output(remote.attempt, output, now)
        for report in poll.reports:
            if (remote := self._live((report.task, report.attempt))) is not None:
                self._end(remote, report)

    def _live(self, key: Key) -> _Remote | None:
        """Return an attempt that has not ended as far as the bot knows."""
        remote = self._remotes.get(key)
        return None if remote is None or remote.attempt.report is not None else remote

    def _take_output(self, attempt: LeasedAttempt, output: Output, now: float) -> None:
        """Keep what is new of a piece of output. The worker has bounded it already."""
        spool = attempt.spool
        if spool is None:
            spool = Spool(self._host.state.work / f"{attempt.run}.output", 2 * OUTPUT_MAX, start=output.start)
        if output.start <= spool.size < output.start + len(output.body):
            self._attempts.add_output(attempt, spool, output.body[spool.size - output.start :], now)
            attempt.output_since = now - OUTPUT_SECONDS  # it has waited at the worker
            self._host.control.on_change()

    def _end(self, remote: _Remote, report: Report) -> None:
        attempt = remote.attempt
        if report.stats is not None and report.stats.ran_ms is not None:
            self._host.prefetch.record_program(report.stats.ran_ms / 1000)
        if attempt.spool is not None and report.truncated:
            attempt.spool.truncated = True
        self._host.ended(attempt, replace(report, fence=attempt.lease.fence))

    # Answers.

    def _answer(self, worker: _Worker) -> None:
        """Answer the messages of a worker of which the server has everything."""
        for number, poll in list(worker.pending.items()):
            if all(self._is_stored(one) for one in poll.reports) and all(self._is_kept(one) for one in poll.outputs):
                del worker.pending[number]
                answer = WorkerReply(time.monotonic(), number, self._polled(poll))
                worker.answers[number] = answer
                while len(worker.answers) > ANSWERS_MAX:
                    del worker.answers[next(iter(worker.answers))]
                self._send_answer(worker, answer)

    def _send_answer(self, worker: _Worker, answer: WorkerReply) -> None:
        assert self._link is not None, "the engine is open"
        self._link.publish(worker.inbox, encode(answer))

    def _is_stored(self, report: Report) -> bool:
        """Whether the server has a report, or does not want it."""
        return (report.task, report.attempt) not in self._attempts.by_key

    def _is_kept(self, output: Output) -> bool:
        """Whether the server has a piece of output, or does not want it."""
        attempt = self._attempts.by_key.get((output.task, output.attempt))
        if attempt is None or attempt.spool is None:
            return True
        return attempt.spool.acked >= min(output.start + len(output.body), attempt.spool.size)

    def _polled(self, poll: WorkerPoll) -> Polled:
        now = time.monotonic()
        renewed, refused = [], []
        named = {(one.task, one.attempt) for part in (poll.renewals, poll.outputs, poll.begun) for one in part}
        renewals = {(one.task, one.attempt) for one in poll.renewals}
        for key in named:
            remote = self._live(key)
            if remote is None or not remote.attempt.is_ours:
                refused.append(Refused(*key, "lease_lost", "the bot has this attempt no more"))
            elif key in renewals:
                attempt = remote.attempt
                remote.granted = max(remote.granted, attempt.until)
                left_ms = max(0, int((attempt.until - now) * 1000))
                renewed.append(Renewed(*key, left_ms, stop=bool(attempt.stopping)))
        kept = [Kept(one.task, one.attempt, one.start + len(one.body)) for one in poll.outputs]
        return Polled(renewed=renewed, kept=kept, refused=refused)

    # Workers that come and go, and what they lose.

    def _update_capacity(self, now: float) -> None:
        live = {id: one for id, one in self._workers.items() if now - one.seen < SILENT_SECONDS}
        for id in [id for id, one in self._workers.items() if now - one.seen > FORGOTTEN_SECONDS]:
            del self._workers[id]
        capacity = sum(one.slots for one in live.values())
        dimensions = _common([one.dimensions for one in live.values()])
        if (capacity, dimensions) != (self._capacity, self._dimensions):
            self._capacity, self._dimensions = capacity, dimensions
            self._host.control.maintain(self._why_idle())
            if self._early is None:
                # Not before the welcome: it makes the bot ask for work, and a server that knows only the last session
                # would end this one.
                self._host.control.refresh()
            if capacity:
                self._has_worker.set()
        busy = sum(1 for one in self._remotes.values() if one.worker and one.attempt.report is None)
        if capacity <= busy:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now

    def _why_idle(self) -> str | None:
        if self._capacity:
            return None
        return NO_WORKERS if self._link is not None and self._link.is_receiving.is_set() else NO_BROKER

    def _loss(self, remote: _Remote, now: float) -> Report | None:
        """Return the report of an attempt that no worker runs any more, or ever did; None if one may."""
        attempt = remote.attempt
        if now < remote.granted + self._guard_s:
            return None
        if remote.worker:
            return lost_report(attempt) if remote.begun else lost_unbegun_report(attempt)
        # A worker that takes it from the queue now asks before it begins: its time there is over.
        if attempt.is_late(now):
            return deadline_report(attempt)
        is_gone = remote.dropped or (self._idle_since is not None and now - self._idle_since > IDLE_SECONDS)
        return lost_unbegun_report(attempt) if is_gone or attempt.stopping or not attempt.is_ours else None


def _in_loop(loop: asyncio.AbstractEventLoop, act: Callable[[bytes], None], body: bytes) -> None:
    """Call something on the event loop; a loop that has ended wants nothing."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(act, body)


def _common(dimensions: Sequence[Dimensions]) -> Dimensions:
    """Return the values that all of some machines have."""
    if not dimensions:
        return {}
    first, *others = dimensions
    common = {
        key: [value for value in values if all(value in one.get(key, ()) for one in others)]
        for key, values in first.items()
    }
    return {key: values for key, values in common.items() if values}
