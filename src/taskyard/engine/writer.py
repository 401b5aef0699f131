"""The loop: commands gather while a transaction commits, are carried out in the next, and answered after it.

One thread writes. Commands that wait share a transaction; an act that somebody wants for itself, such as a page of a
large graph, has its own, and after each of these everybody else has a turn. A command that cannot be carried out takes
none of its neighbours down: then each is carried out alone.

How long a transaction takes is known only afterwards, so a batch is bounded by what the last ones took: one that took
too long makes the next smaller, and those that are full and quick make it larger again.
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
from taskyard.engine.errors import Failed, Overloaded, Trouble, Unavailable
from taskyard.engine.failpoints import Boundary, Side, point
from taskyard.engine.parked_polls import Parking
from taskyard.lifecycle.admission.scheduler import Replaced
from taskyard.lifecycle.approve import approve
from taskyard.lifecycle.bot_sessions import goodbye, hello
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.claim import WANT_MAX
from taskyard.lifecycle.commands import Approve, Cancel, Goodbye, Hello, Poll, Rerun
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.idempotency import KeyedSubmission, carry_out_keyed, extend_keyed, submit_keyed
from taskyard.lifecycle.poll import PollOutcome, poll
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.submit import PAGE_MAX, Extension
from taskyard.lifecycle.transaction import SINGLE_SERVER, FollowUp, ServerIdentity, Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict

# The writer: carries out one transaction at a time, and knows which troubles pass.
#
# A transaction that lost a race is tried again; one that found no database is tried again for a while. Everything here
# is called by one thread.


#: How often a transaction that lost a race is tried again. Ten in a row are no bad luck any more.
RETRIES_MAX: Final = 10
#: How long a database that is gone is waited for: a restart takes less, and whoever asks should not wait longer.
GONE_MAX_MS: Final = 5_000
#: The longest pauses before another try, after a race and while the database is gone. The first are far shorter.
BUSY_PAUSE_MAX_MS: Final = 50
GONE_PAUSE_MAX_MS: Final = 500

Answer = TypeVar("Answer")
Act = Callable[[Transaction], Answer]


class Lost(Unavailable):
    """A transaction lost one race too many."""


class Writer:
    """The one that writes."""

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
        self._after = after  # is told what each commit leaves to do
        self._lease_ms = lease_ms
        self.server = server
        self._registry = Registry()
        self.parking = Parking()
        self.commits = 0
        self.last_ms = 0  # how long the last transaction took, from its beginning to its end
        self.longest_ms = 0  # and the longest so far

    def run(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Carry out `act` in a transaction of its own; it is durable when this returns.

        After a commit whose outcome nobody knows, `act` is carried out again: it has to bear that.
        """
        patience = _Patience(self._clock)
        while True:
            try:
                return self._try(act, boundary)
            except TransactionConflict as fault:
                patience.bear_race(fault)
            except StoreUnavailable as fault:
                patience.bear_outage(fault)

    def _try(self, act: Act[Answer], boundary: Boundary) -> Answer:
        began = self._clock.now()
        try:
            with gc_paused(), self._store.write() as repo:
                transaction = Transaction(repo, self._clock.now(), self._registry, self._lease_ms, self.server)
                answer = act(transaction)
                served = self.parking.serve(transaction, transaction.serves_all_queues)
                transaction.finish()
                point(boundary, Side.BEFORE)
            self._registry.settle()
            self.commits += 1
            self.parking.settle(served)
            self.parking.release(transaction.changed_bots)
            point(boundary, Side.AFTER)
        except BaseException:
            self._registry.undo()
            raise
        finally:
            self.last_ms = self._clock.now() - began
            self.longest_ms = max(self.longest_ms, self.last_ms)
        self._after(transaction.follow_up())
        return answer


class _Patience:
    """How often, and for how long, one transaction is tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._races = 0
        self._outages = 0
        self._gone_since: int | None = None

    def bear_race(self, fault: TransactionConflict) -> None:
        """Wait a little, or give up."""
        self._races += 1
        if self._races > RETRIES_MAX:
            raise Lost(f"lost {self._races} races in a row: {fault}") from fault
        self._pause(self._races, BUSY_PAUSE_MAX_MS)

    def bear_outage(self, fault: StoreUnavailable) -> None:
        """Wait a little, or give up."""
        now = self._clock.now()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since >= GONE_MAX_MS:
            raise Unavailable(f"the database cannot be used: {fault}") from fault
        self._outages += 1
        self._pause(self._outages, GONE_PAUSE_MAX_MS)

    def _pause(self, times: int, longest: int) -> None:
        """Wait for longer each time, and never for as long as another that lost the same race."""
        span = min(2**times, longest)
        self._clock.pause(span // 2 + self._clock.chance() % span)


# Which room carries out which command, and in which order: one transaction for all that arrived together.
#
# Whoever comes is greeted before anybody polls, and what people ask for is done before bots take tasks: so a poll sees
# all that arrived with it.


#: How many bytes of output are written in the time that a task takes.
BYTES_PER_TASK: Final = 4_096

Command: TypeAlias = Poll | Hello | Goodbye | Cancel | Rerun | Approve | KeyedSubmission | Extension
_Room: TypeAlias = Callable[[Transaction, Sequence[Any]], Sequence[object] | None]


def carry_out(transaction: Transaction, commands: Sequence[Command]) -> list[Any]:
    """Carry out commands; give an answer for each, in their order."""
    places: dict[type, list[int]] = defaultdict(list)
    for place, command in enumerate(commands):
        places[type(command)].append(place)
    answers: list[Any] = [None] * len(commands)
    for kind, room in _ROOMS.items():
        if kind in places:
            outcomes = room(transaction, [commands[place] for place in places[kind]])
            for place, outcome in zip(places[kind], outcomes or (), strict=bool(outcomes)):
                answers[place] = outcome
    return answers


def weight(command: Command) -> int:
    """Say about how many tasks a command touches."""
    if isinstance(command, Poll):
        printed = sum(len(one.body) for one in command.outputs) // BYTES_PER_TASK if command.outputs else 0
        said = len(command.reports) + len(command.renewals) + len(command.begun or ())
        return 1 + said + max(0, min(command.want, WANT_MAX)) + printed
    if isinstance(command, KeyedSubmission):
        return 1 + command.submission.new_tasks.weight
    if isinstance(command, Extension):
        return 1 + command.new_tasks.weight
    if isinstance(command, Cancel | Rerun):
        return 1 if command.task is not None and not getattr(command, "subtree", False) else PAGE_MAX
    return 1


_ROOMS: Final[Mapping[type, _Room]] = {
    Hello: hello,
    Goodbye: goodbye,
    KeyedSubmission: submit_keyed,
    Extension: extend_keyed,
    Cancel: lambda transaction, commands: carry_out_keyed(transaction, commands, cancel),
    Rerun: lambda transaction, commands: carry_out_keyed(transaction, commands, rerun),
    Approve: lambda transaction, commands: carry_out_keyed(transaction, commands, approve),
    Poll: poll,
}


#: How many commands may wait. At a thousand a second they are answered within ten seconds, or the caller hears at once.
QUEUE_MAX: Final = 10_000
#: How many commands share a transaction, how many tasks they may touch, and how long it should take at most: half of
#: the 100 ms that a transaction may take, since the next may be slower than the last.
BATCH_MAX: Final = 256
TOUCHED_MAX: Final = 2_000
BATCH_MAX_MS: Final = 50
#: However slow the last ones were, so many tasks may be touched: a commit alone can take that long.
TOUCHED_MIN: Final = 16
#: How long whoever asks waits: longer than any trouble that the writer bears.
ANSWER_MAX_S: Final = 120
#: How long a stop waits for what was accepted.
STOP_MAX_S: Final = 10

_LOG = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Work:
    """Something to do, and who waits for it."""

    command: Command | None = None
    act: Act[Any] | None = None
    boundary: Boundary = Boundary.BATCH
    weight: int = 0  # about how many tasks the command touches
    leaver: "Future[Any] | None" = None  # a poll that waits no longer
    future: "Future[Any]" = field(default_factory=Future)


class Loop:
    """The thread that writes, and what waits for it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._arrived: SimpleQueue[_Work | None] = SimpleQueue()
        self._commands: deque[_Work] = deque()
        self._acts: deque[_Work] = deque()
        self._room = TOUCHED_MAX  # how many tasks the next batch may touch
        self._door = Lock()
        self._closed = False
        self._ending = False
        self._abandoned = False
        self._thread = Thread(target=self._run, name="taskyard-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> bool:
        """Take nothing more, do what was accepted, and end; tell whether that could be done in time."""
        with self._door:
            closed, self._closed = self._closed, True
            if not closed:
                self._arrived.put(None)
        if self._thread.ident is None:
            return True
        self._thread.join(STOP_MAX_S)
        self._abandoned = True
        return not self._thread.is_alive()

    def put(self, command: Command) -> "Future[Any]":
        """Have a command carried out together with others; the future is its answer, once it is durable."""
        if self.waiting >= QUEUE_MAX:
            raise Overloaded(f"{QUEUE_MAX} commands wait already")
        return self._put(_Work(command, weight=weight(command)))

    def transact(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Carry out `act` in a transaction of its own; it may be carried out again if nobody knows how that ended.

        It is never refused for overload: whoever asks waits, so there are no more of these than threads.
        """
        answer: Answer = answer_of(self.begin(act, boundary))
        return answer

    def begin(self, act: Act[Answer], boundary: Boundary) -> "Future[Answer]":
        """Have `act` carried out in a transaction of its own; whoever asks can think of the next one meanwhile."""
        assert current_thread() is not self._thread, "the writer would wait for itself"
        return self._put(_Work(act=act, boundary=boundary))

    def leave(self, future: "Future[Any]") -> None:
        """Have a poll answered that may still wait for work."""
        with self._door:
            if not self._closed:
                self._arrived.put(_Work(leaver=future))

    @property
    def waiting(self) -> int:
        """Say how much waits."""
        return self._arrived.qsize() + len(self._commands) + len(self._acts)

    def _put(self, work: _Work) -> "Future[Any]":
        with self._door:
            if self._closed:
                raise Unavailable("the engine has stopped")
            self._arrived.put(work)
        return work.future

    def _run(self) -> None:
        while self._gather():
            batch = self._next_batch()
            if self._abandoned:
                _fail([*batch, *self._acts], Unavailable("the engine has stopped"))
                self._acts.clear()
                continue
            hand = batch
            try:
                if batch:
                    self._carry_out(batch)
                if self._acts:
                    hand = [self._acts.popleft()]
                    self._alone(hand[0])
            except BaseException as fault:  # noqa: BLE001 - nobody else writes: whatever it is, this thread goes on
                _LOG.exception("the writer goes on after a bug")
                left = [work for work in hand if not work.future.done()]
                _fail(left, Unavailable(f"nobody knows whether this was done: {fault!r}"))

    def _gather(self) -> bool:
        """Take in what has arrived; wait only if there is nothing to do. Tell whether there is."""
        idle = not self._commands and not self._acts
        while (idle and not self._ending) or not self._arrived.empty():
            work = self._arrived.get()
            if work is None:
                self._ending = True
                self._writer.parking.clear()
            elif work.leaver is not None:
                self._writer.parking.leave(work.leaver)
            elif work.future.set_running_or_notify_cancel():
                (self._commands if work.act is None else self._acts).append(work)
                idle = False
        return bool(self._commands or self._acts)

    def _next_batch(self) -> list[_Work]:
        batch: list[_Work] = []
        touched = 0
        while self._commands and len(batch) < BATCH_MAX:
            touched += self._commands[0].weight
            if batch and touched > min(self._room, TOUCHED_MAX):
                break
            batch.append(self._commands.popleft())
        return batch

    def _learn(self, batch: Sequence[_Work]) -> None:
        """Let the next batch be as large as fits into its time, by what this one took."""
        touched, took = sum(work.weight for work in batch), self._writer.last_ms
        if took > BATCH_MAX_MS:
            self._room = max(TOUCHED_MIN, min(self._room, touched) * BATCH_MAX_MS // took)
        elif touched > self._room // 2:
            self._room = min(TOUCHED_MAX, 2 * self._room)

    def _carry_out(self, batch: Sequence[_Work]) -> None:
        commands = [work.command for work in batch if work.command is not None]
        try:
            answers = self._writer.run(lambda transaction: carry_out(transaction, commands), Boundary.BATCH)
        except Lost:
            self._one_by_one(batch)
        except Unavailable as trouble:
            _fail(batch, trouble)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is the fault of one of them
            _LOG.debug("a batch of %d is carried out one by one: %r", len(batch), fault)
            self._one_by_one(batch)
        else:
            self._learn(batch)
            for work, answer in zip(batch, answers, strict=True):
                self._answer(work, answer)

    def _answer(self, work: _Work, answer: Any) -> None:
        """Answer, or let a poll wait that wants something and has nothing else to hear."""
        poll, parking = work.command, self._writer.parking
        waits = isinstance(poll, Poll) and poll.wait_ms > 0 and not self._ending and _is_hungry(poll, answer)
        # A poll that was heard before and waits no longer was answered: whoever sent this copy has moved on.
        if isinstance(poll, Poll) and waits and (not answer.repeated or parking.holds(poll)):
            parking.park(poll, work.future)
        else:
            if isinstance(poll, Poll) and poll.want:
                parking.hear(poll)
            work.future.set_result(answer)

    def _one_by_one(self, batch: Sequence[_Work]) -> None:
        gone: Unavailable | None = None
        for work in batch:
            if gone is not None:
                _fail([work], gone)
                continue
            command = work.command
            assert command is not None
            fault = self._alone(work, lambda transaction, one=command: carry_out(transaction, [one])[0])
            if isinstance(fault, Unavailable) and not isinstance(fault, Lost):
                gone = fault  # it will not be back for the others

    def _alone(self, work: _Work, act: Callable[..., Any] | None = None) -> Exception | None:
        """Carry out one thing, and answer; give the trouble there was."""
        try:
            wanted = act or work.act
            assert wanted is not None
            answer = self._writer.run(wanted, work.boundary)
        except (Trouble, DuplicateKey, Replaced) as fault:
            work.future.set_exception(fault)
            return fault
        except Exception as fault:  # noqa: BLE001 - a bug; it is told to whoever asked, and nobody else feels it
            # What was asked is not logged: it is the caller's, and may hold anything.
            _LOG.exception("%s failed", type(work.command).__name__ if work.command else work.boundary)
            failed = Failed(f"this cannot be carried out: {fault!r}")
            failed.__cause__ = fault
            work.future.set_exception(failed)
            return failed
        self._answer(work, answer)
        return None


def _is_hungry(poll: Poll, answer: object) -> bool:
    """Tell whether a poll has told nothing, and got nothing."""
    said = poll.reports or poll.renewals or poll.outputs
    return not said and isinstance(answer, PollOutcome) and not answer.leases and not answer.ending


def answer_of(future: "Future[Any]") -> Any:
    """Wait for an answer."""
    try:
        return future.result(ANSWER_MAX_S)
    except TimeoutError as fault:
        if future.done():
            raise
        raise Unavailable(f"there was no answer within {ANSWER_MAX_S} seconds") from fault


def _fail(works: Sequence[_Work], trouble: Trouble) -> None:
    for work in works:
        work.future.set_exception(type(trouble)(*trouble.args))
