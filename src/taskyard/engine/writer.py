"""The writer thread: gathers commands while a transaction commits, runs them in the next, answers after its commit.

Commands that wait share a transaction. A page of a large graph, or another function that needs a transaction of its
own, gets one, and the waiting commands run between two of these. If one command of a batch fails with a bug, the batch
is run again one by one, so that its neighbours are not affected.

The duration of a transaction is known only afterwards, so the size of a batch adapts: one that took too long makes the
next smaller, and those that are full and fast make it larger again.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Final, TypeAlias, TypeVar

from taskyard.core.fleet import LEASE_MS
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError, Failed, Overloaded, Unavailable, outage
from taskyard.engine.failpoints import Boundary, Side, point
from taskyard.engine.hints import Hint, merged
from taskyard.engine.parked_polls import ParkedPolls
from taskyard.lifecycle.admission.scheduler import Replaced
from taskyard.lifecycle.approve import approve
from taskyard.lifecycle.bot_sessions import goodbye, hello
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.claim import WANT_MAX
from taskyard.lifecycle.commands import Approve, Cancel, Goodbye, Hello, Poll, Rerun
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.idempotency import KeyedSubmission, carry_out_keyed, extend_keyed, submit_keyed
from taskyard.lifecycle.launch import Launch, launch
from taskyard.lifecycle.poll import PollOutcome, poll
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.submit import PAGE_MAX, Extension
from taskyard.lifecycle.transaction import SINGLE_SERVER, FollowUp, ServerIdentity, Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict

# One transaction at a time, with retries. Only the writer thread calls this.


#: How often a transaction that lost a race is retried; ten lost races in a row are not bad luck.
RETRIES_MAX: Final = 10
#: How long to retry while the database is unavailable: a restart takes less, and a caller should not wait longer.
GONE_MAX_MS: Final = 5_000
#: The longest pauses before a retry, after a race and during an outage; the first pauses are far shorter.
BUSY_PAUSE_MAX_MS: Final = 50
GONE_PAUSE_MAX_MS: Final = 500

Answer = TypeVar("Answer")
Act = Callable[[Transaction], Answer]


class TooManyConflicts(Unavailable):
    """A transaction lost too many races in a row."""


class Writer:
    """Runs transactions one after the other."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        after: Callable[[FollowUp], None],
        lease_ms: int = LEASE_MS,
        server: ServerIdentity = SINGLE_SERVER,
    ) -> None:
        self._store = store
        self._clock = clock
        self._after = after  # called with the work that each commit leaves to do
        self._lease_ms = lease_ms
        self.server = server
        self._registry = Registry()
        self.parked_polls = ParkedPolls()
        self.on_commit: Callable[[Transaction], None] = lambda _: None  # called with each one that is durable
        self.commits = 0
        self.last_ms = 0  # the duration of the last transaction
        self.longest_ms = 0  # the longest duration so far

    def run(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Run `act` in a transaction of its own; it is durable when this returns.

        After a commit with an unknown outcome, `act` runs again, so it must be safe to run twice.
        """
        retry = _RetryPolicy(self._clock)
        while True:
            try:
                return self._try(act, boundary)
            except TransactionConflict as error:
                retry.after_conflict(error)
            except StoreUnavailable as error:
                retry.after_outage(error)

    def _try(self, act: Act[Answer], boundary: Boundary) -> Answer:
        began = self._clock.now()
        try:
            with gc_paused(), self._store.write() as repo:
                transaction = Transaction(repo, self._clock.now(), self._registry, self._lease_ms, self.server)
                answer = act(transaction)
                served = self.parked_polls.serve(transaction, transaction.serves_all_queues)
                transaction.finish()
                point(boundary, Side.BEFORE)
            self._registry.settle()
            self.commits += 1
            self.parked_polls.settle(served)
            self.parked_polls.release(transaction.changed_bots)
            point(boundary, Side.AFTER)
        except BaseException:
            self._registry.undo()
            raise
        finally:
            self.last_ms = self._clock.now() - began
            self.longest_ms = max(self.longest_ms, self.last_ms)
        self._after(transaction.follow_up())
        self.on_commit(transaction)
        return answer


class _RetryPolicy:
    """Counts the retries of one transaction and pauses between them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._races = 0
        self._outages = 0
        self._outage_began: int | None = None

    def after_conflict(self, error: TransactionConflict) -> None:
        """Pause, or give up."""
        self._races += 1
        if self._races > RETRIES_MAX:
            raise TooManyConflicts(f"lost {self._races} races in a row: {error}") from error
        self._pause(self._races, BUSY_PAUSE_MAX_MS)

    def after_outage(self, error: StoreUnavailable) -> None:
        """Pause, or give up."""
        now = self._clock.now()
        self._outage_began = now if self._outage_began is None else self._outage_began
        if now - self._outage_began >= GONE_MAX_MS:
            raise outage(error) from error
        self._outages += 1
        self._pause(self._outages, GONE_PAUSE_MAX_MS)

    def _pause(self, times: int, longest: int) -> None:
        """Pause longer each time, with jitter, so that two that lost the same race do not meet again."""
        span = min(2**times, longest)
        self._clock.pause(span // 2 + self._clock.chance() % span)


# The functions that run each kind of command, in their order in a transaction: hellos before polls, and commands of
# people before polls, so that a poll sees everything that arrived with it.


#: How many bytes of output take as long to write as one task.
BYTES_PER_TASK: Final = 4_096

Command: TypeAlias = Poll | Hello | Goodbye | Cancel | Rerun | Approve | KeyedSubmission | Extension | Launch
_Executor: TypeAlias = Callable[[Transaction, Sequence[Any]], Sequence[object] | None]


def execute_commands(transaction: Transaction, commands: Sequence[Command]) -> list[Any]:
    """Run commands; return an answer for each, in their order."""
    places: dict[type, list[int]] = defaultdict(list)
    for place, command in enumerate(commands):
        places[type(command)].append(place)
    answers: list[Any] = [None] * len(commands)
    for kind, execute in _EXECUTORS.items():
        if kind in places:
            outcomes = execute(transaction, [commands[place] for place in places[kind]])
            for place, outcome in zip(places[kind], outcomes or (), strict=bool(outcomes)):
                answers[place] = outcome
    if Cancel in places or Rerun in places:
        transaction.expect_continuations()  # also those of an earlier try whose outcome was lost
    return answers


def weight(command: Command) -> int:
    """Estimate how many tasks a command touches."""
    if isinstance(command, Poll):
        printed = sum(len(one.body) for one in command.outputs) // BYTES_PER_TASK if command.outputs else 0
        said = len(command.reports) + len(command.renewals) + len(command.begun or ())
        return 1 + said + max(0, min(command.want, WANT_MAX)) + printed
    if isinstance(command, KeyedSubmission):
        return 1 + command.submission.new_tasks.weight
    if isinstance(command, Launch):
        return 1 + command.weight
    if isinstance(command, Extension):
        return 1 + command.new_tasks.weight
    if isinstance(command, Cancel | Rerun):
        return 1 if command.task is not None and not getattr(command, "subtree", False) else PAGE_MAX
    return 1


_EXECUTORS: Final[Mapping[type, _Executor]] = {
    Hello: hello,
    Goodbye: goodbye,
    KeyedSubmission: submit_keyed,
    Extension: extend_keyed,
    Launch: launch,
    Cancel: lambda transaction, commands: carry_out_keyed(transaction, commands, cancel),
    Rerun: lambda transaction, commands: carry_out_keyed(transaction, commands, rerun),
    Approve: lambda transaction, commands: carry_out_keyed(transaction, commands, approve),
    Poll: poll,
}


#: How many commands may wait; more are refused at once. At a thousand a second they are answered within ten seconds.
QUEUE_MAX: Final = 10_000
#: How many commands share a transaction, how many tasks they may touch, and how long it should take at most: half of
#: the 100 ms that a transaction may take, since the next may be slower than the last.
BATCH_MAX: Final = 256
TOUCHED_MAX: Final = 2_000
BATCH_MAX_MS: Final = 50
#: A batch may touch at least this many tasks, however slow the last one was: the commit alone can be slow.
TOUCHED_MIN: Final = 16
#: How long a caller waits for an answer: longer than all retries of the writer.
ANSWER_WAIT_MAX_S: Final = 120
#: How long a stop waits for the accepted commands.
STOP_MAX_S: Final = 10

_LOG = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _QueueItem:
    """A command or a function in the queue, and the future of its answer."""

    command: Command | None = None
    act: Act[Any] | None = None
    boundary: Boundary = Boundary.BATCH
    weight: int = 0  # about how many tasks the command touches
    stop_waiting: "Future[Any] | None" = None  # answer this parked poll
    hint: Hint | None = None  # of another server
    future: "Future[Any]" = field(default_factory=Future)


class WriterThread:
    """The thread that runs all transactions, and its queue."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._arrived: SimpleQueue[_QueueItem | None] = SimpleQueue()
        self._commands: deque[_QueueItem] = deque()
        self._acts: deque[_QueueItem] = deque()
        self._hints: list[Hint] = []
        self._parks = True  # whether polls may wait
        self._batch_limit = TOUCHED_MAX  # how many tasks the next batch may touch
        self._lock = Lock()
        self._closed = False
        self._ending = False
        self._abandoned = False
        self._thread = Thread(target=self._run, name="taskyard-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> bool:
        """Accept nothing more, run what was accepted, and end; return False if that took too long."""
        with self._lock:
            closed, self._closed = self._closed, True
            if not closed:
                self._arrived.put(None)
        if self._thread.ident is None:
            return True
        self._thread.join(STOP_MAX_S)
        self._abandoned = True
        return not self._thread.is_alive()

    def put(self, command: Command) -> "Future[Any]":
        """Queue a command, to run in one transaction with others; the future gets its answer once it is durable."""
        if self.waiting >= QUEUE_MAX:
            raise Overloaded(f"{QUEUE_MAX} commands wait already")
        return self._put(_QueueItem(command, weight=weight(command)))

    def transact(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Run `act` in a transaction of its own and wait for its answer; it must be safe to run twice.

        It is never refused for overload: the caller waits, so there are no more of these than threads.
        """
        answer: Answer = answer_of(self.begin(act, boundary))
        return answer

    def begin(self, act: Act[Answer], boundary: Boundary) -> "Future[Answer]":
        """Queue `act`, to run in a transaction of its own; the caller need not wait."""
        assert current_thread() is not self._thread, "the writer would wait for itself"
        return self._put(_QueueItem(act=act, boundary=boundary))

    def leave(self, future: "Future[Any]") -> None:
        """Answer a poll now if it is parked."""
        with self._lock:
            if not self._closed:
                self._arrived.put(_QueueItem(stop_waiting=future))

    def offer(self, hint: Hint) -> None:
        """Serve parked polls with what another server left for them."""
        with self._lock:
            if not self._closed:
                self._arrived.put(_QueueItem(hint=hint))

    def allow_parking(self, allowed: bool) -> None:
        """Let polls wait, or answer all that do and let none wait from now on: the server is about to stop."""
        self._parks = allowed
        self.offer(Hint("", everything=True))  # has the writer look at once

    @property
    def waiting(self) -> int:
        """How many commands and functions wait."""
        return self._arrived.qsize() + len(self._commands) + len(self._acts)

    def _put(self, item: _QueueItem) -> "Future[Any]":
        with self._lock:
            if self._closed:
                raise Unavailable("the engine has stopped")
            self._arrived.put(item)
        return item.future

    def _run(self) -> None:
        while self._collect():
            batch = self._next_batch()
            if self._abandoned:
                _fail_items([*batch, *self._acts], Unavailable("the engine has stopped"))
                self._acts.clear()
                continue
            current = batch
            try:
                if batch:
                    self._run_batch(batch)
                if self._acts:
                    current = [self._acts.popleft()]
                    self._run_alone(current[0])
            except BaseException as error:  # noqa: BLE001 - this is the only writer: it must go on
                _LOG.exception("the writer goes on after a bug")
                left = [item for item in current if not item.future.done()]
                _fail_items(left, Unavailable(f"this may or may not have been done: {error!r}"))

    def _collect(self) -> bool:
        """Move what has arrived into the queues; wait only if they are empty. Return False at the end."""
        idle = not self._commands and not self._acts
        while (idle and not self._ending) or not self._arrived.empty():
            item = self._arrived.get()
            if item is None:
                self._ending, self._parks = True, False
                self._writer.parked_polls.clear()
            elif item.stop_waiting is not None:
                self._writer.parked_polls.leave(item.stop_waiting)
            elif item.hint is not None:
                self._hints.append(item.hint)
            elif item.future.set_running_or_notify_cancel():
                (self._commands if item.act is None else self._acts).append(item)
                idle = False
            idle = idle and not self._hints
        self._take_hints()
        return bool(self._commands or self._acts) or not self._ending

    def _take_hints(self) -> None:
        """Serve the parked polls with what hints offer. Polls that have just come need no hint: they look anyway."""
        hints, self._hints = self._hints, []
        parked_polls = self._writer.parked_polls
        if not self._parks:
            parked_polls.clear()
        if not (hints and parked_polls):
            return
        parked_polls.release({bot for hint in hints for bot in hint.bots})
        queues, stopping, everything = merged(hints)

        def serve(transaction: Transaction) -> None:
            transaction.serve_queues(queues)
            transaction.stop_again(stopping)
            if everything:
                transaction.serve_all_queues()

        if queues or stopping or everything:
            self._acts.append(_QueueItem(act=serve, boundary=Boundary.OTHER))

    def _next_batch(self) -> list[_QueueItem]:
        batch: list[_QueueItem] = []
        task_count = 0
        while self._commands and len(batch) < BATCH_MAX:
            task_count += self._commands[0].weight
            if batch and task_count > min(self._batch_limit, TOUCHED_MAX):
                break
            batch.append(self._commands.popleft())
        return batch

    def _adapt_batch_size(self, batch: Sequence[_QueueItem]) -> None:
        """Set the size of the next batch by the duration of this one."""
        task_count, took = sum(item.weight for item in batch), self._writer.last_ms
        if took > BATCH_MAX_MS:
            self._batch_limit = max(TOUCHED_MIN, min(self._batch_limit, task_count) * BATCH_MAX_MS // took)
        elif task_count > self._batch_limit // 2:
            self._batch_limit = min(TOUCHED_MAX, 2 * self._batch_limit)

    def _run_batch(self, batch: Sequence[_QueueItem]) -> None:
        commands = [item.command for item in batch if item.command is not None]
        try:
            answers = self._writer.run(lambda transaction: execute_commands(transaction, commands), Boundary.BATCH)
        except TooManyConflicts:
            self._run_one_by_one(batch)
        except Unavailable as trouble:
            _fail_items(batch, trouble)
        except Exception as error:  # noqa: BLE001 - one of the commands has caused it
            _LOG.debug("a batch of %d is carried out one by one: %r", len(batch), error)
            self._run_one_by_one(batch)
        else:
            self._adapt_batch_size(batch)
            for item, answer in zip(batch, answers, strict=True):
                self._answer(item, answer)

    def _answer(self, item: _QueueItem, answer: Any) -> None:
        """Answer, or park a poll for which there is no work yet."""
        poll, parked_polls = item.command, self._writer.parked_polls
        waits = isinstance(poll, Poll) and poll.wait_ms > 0 and self._parks and _can_park(poll, answer)
        # A repeated poll that is not parked any more was answered: the bot does not wait for this copy.
        if isinstance(poll, Poll) and waits and (not answer.repeated or parked_polls.holds(poll)):
            parked_polls.park(poll, item.future)
        else:
            if isinstance(poll, Poll) and poll.want:
                parked_polls.replace_idle(poll)
            item.future.set_result(answer)

    def _run_one_by_one(self, batch: Sequence[_QueueItem]) -> None:
        outage: Unavailable | None = None
        for item in batch:
            if outage is not None:
                _fail_items([item], outage)
                continue
            command = item.command
            assert command is not None
            error = self._run_alone(item, lambda transaction, one=command: execute_commands(transaction, [one])[0])
            if isinstance(error, Unavailable) and not isinstance(error, TooManyConflicts):
                outage = error  # the others would only wait for it, too

    def _run_alone(self, item: _QueueItem, act: Callable[..., Any] | None = None) -> Exception | None:
        """Run one item and answer it; return its error, if any."""
        try:
            act_to_run = act or item.act
            assert act_to_run is not None
            answer = self._writer.run(act_to_run, item.boundary)
        except (EngineError, DuplicateKey, Replaced) as error:
            item.future.set_exception(error)
            return error
        except Exception as error:  # noqa: BLE001 - a bug fails this item alone
            # The command itself is not logged: it may hold secrets of the caller.
            _LOG.exception("%s failed", type(item.command).__name__ if item.command else item.boundary)
            failed = Failed(f"this cannot be carried out: {error!r}")
            failed.__cause__ = error
            item.future.set_exception(failed)
            return failed
        self._answer(item, answer)
        return None


def _can_park(poll: Poll, answer: object) -> bool:
    """Return whether a poll reports nothing and got nothing."""
    said = poll.reports or poll.renewals or poll.outputs
    return not said and isinstance(answer, PollOutcome) and not answer.leases and not answer.ending


def answer_of(future: "Future[Any]") -> Any:
    """Wait for an answer."""
    try:
        return future.result(ANSWER_WAIT_MAX_S)
    except TimeoutError as error:
        if future.done():
            raise
        raise Unavailable(f"there was no answer within {ANSWER_WAIT_MAX_S} seconds") from error


def _fail_items(items: Sequence[_QueueItem], trouble: EngineError) -> None:
    for item in items:
        item.future.set_exception(type(trouble)(*trouble.args))
