"""Warm workers and the calls that wait for them: hired when the first call comes, kept, and handed a little at a time.

Calls of different submitters never share a worker, and a call that asks for a process of its own has one. A worker
that dies takes only the call with it that it was making; those behind it were not begun, and another worker makes
them. Calls have their time-outs from here, and workers their last moment from the runner.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from taskyard.bot.attempts import (
    MOMENT_SECONDS,
    Complain,
    LeasedAttempt,
    LeasedAttempts,
    failed,
    lost,
    lost_ahead,
    overdue,
    returned,
    unrenewed,
)
from taskyard.bot.ipc import Dismiss, Gone, Hire, Hold, Intake, Pipe, ToRunner
from taskyard.bot.payloads import Function, identity
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.pyworker import protocol
from taskyard.bot.pyworker.protocol import Back, Call, Leaving, Raised, Returned, Said, Took, packed, read_told
from taskyard.bot.workdir import Rooms
from taskyard.wire.bot_protocol import INPUTS_MAX, NOTHING, Report, Stats

# One warm worker as the agent sees it: what was handed to it, what it is about to be told, and how long it may live.
#
# Calls are carried out in the order in which they were handed over; the first that is not answered is under way.


#: The runner is told anew how long a worker may live when less than this is left of what it was told: a worker that
#: makes thousands of calls a second would else have it told as often.
NEAR_SECONDS: Final = 10.0
#: So long after a call's time-out its worker is ended by the runner, or the watchdog, if the agent could not do it.
LATE_SECONDS: Final = 10.0


#: Which calls may share a process: those of one submitter, or one call alone, named by its run; 0 is no run.
Sharing = tuple[str, int]


def sharing_of(held: LeasedAttempt) -> Sharing:
    """Say with which calls one may share a process."""
    assert isinstance(held.work, Function), "a program shares nothing"
    return held.lease.submitter, held.run if held.work.fresh else 0


@dataclass(slots=True, eq=False)
class WarmWorker:
    """A worker; without a pipe it is still being hired."""

    number: int
    sharing: Sharing  # the only calls that it makes
    pipe: Pipe | None = None
    handed: dict[int, LeasedAttempt] = field(default_factory=dict)
    since: float = 0.0  # when the call that is under way began, or printed for the last time
    heard: float = 0.0
    told: float | None = None  # how long it may live, as the runner knows it
    # Why it was told to go: timed_out, silent, deadline, stop, lose, garbled; unused if it had nothing in hand.
    dismissed: str = ""
    blamed: int | None = None  # the call because of which
    leaving: bool = False
    useful: bool = False  # it has answered a call

    @property
    def hiring(self) -> bool:
        """Whether it is not there yet."""
        return self.pipe is None

    @property
    def single(self) -> bool:
        """Whether it makes one call only."""
        return self.sharing[1] != 0

    @property
    def idle(self) -> bool:
        """Whether it can be handed a call, and has none."""
        return self.usable and not self.handed

    @property
    def busy(self) -> bool:
        """Whether it takes a slot."""
        return bool(self.handed) or self.pipe is None

    @property
    def usable(self) -> bool:
        """Whether calls may be handed to it."""
        return self.pipe is not None and not self.leaving and not self.dismissed

    @property
    def under_way(self) -> LeasedAttempt | None:
        """The call that it makes now."""
        return next(iter(self.handed.values()), None)

    def may_take(self, held: LeasedAttempt) -> bool:
        """Whether it may be handed this call, too.

        A call with a deadline is alone with its worker: so it begins at once, and the end of the worker at the deadline
        costs no other call.
        """
        first = self.under_way
        return first is None or (first.deadline is None and held.deadline is None)

    def lifetime(self) -> float | None:
        """When it must be dead, for the sake of what it has in hand; None if it need not be."""
        ends = [one.until for one in self.handed.values() if one.strict]
        ends += [one.deadline for one in self.handed.values() if one.deadline is not None]
        held = self.under_way
        if held is not None and isinstance(held.work, Function):
            ends.append(self.since + held.work.limits.timeout_s + LATE_SECONDS)
        return min(ends, default=None)

    def news(self, now: float) -> bool:
        """Whether the runner has to be told another moment than it knows."""
        wanted = self.lifetime()
        if wanted == self.told:
            return False
        if self.told is None or (wanted is not None and wanted < self.told):
            return True
        return self.told - now < NEAR_SECONDS

    def overdue(self, now: float) -> str:
        """Why the call under way has to end now: timed_out, silent, deadline, stop or lose; empty if it has not."""
        held = self.under_way
        if held is None or not isinstance(held.work, Function):
            return ""
        if held.stopping:
            return held.stopping
        limits = held.work.limits
        timeout_at = self.since + limits.timeout_s
        if held.deadline is not None and now >= held.deadline:
            return "deadline" if held.deadline <= timeout_at else "timed_out"
        if now >= timeout_at:
            return "timed_out"
        if limits.silence_s is not None and now >= max(self.since, self.heard) + limits.silence_s:
            return "silent"
        return ""


#: What a call costs beside the function itself.
CALL_SECONDS: Final = 0.000_02
#: A worker whose call goes on for longer than this gets no more behind it.
SLOW_SECONDS: Final = 0.01
#: So many workers in a row that end before they answer anything mean that none will.
VAIN_HIRES_MAX: Final = 5
#: So many workers of other submitters are kept while they have nothing to do: each has some 30 MB of memory.
IDLE_OTHERS_MAX: Final = 8
NO_ARGUMENTS: Final = msgspec.Raw(b"[]")


class Floor(Protocol):
    """Where attempts are known."""

    def print(self, held: LeasedAttempt, body: str | bytes) -> None:
        """Note what one printed."""

    def ended(self, held: LeasedAttempt, report: Report) -> None:
        """Note how one ended."""

    def fill(self) -> None:
        """Start what there is a slot for."""

    @property
    def trouble(self) -> Complain:
        """Note what went wrong with the bot itself."""


class WorkerPool:
    """All warm workers of a bot."""

    def __init__(
        self,
        rooms: Rooms,
        appetite: PrefetchLimit,
        tell: Callable[[ToRunner], None],
        desk: LeasedAttempts,
        floor: Floor,
    ) -> None:
        self._rooms = rooms
        self._appetite = appetite
        self._tell = tell
        self._desk = desk
        self._floor = floor
        self._lines: dict[Sharing, deque[LeasedAttempt]] = {}  # calls that wait; a line is never empty
        self._workers: dict[int, WarmWorker] = {}
        self._hired = 0
        self._vain = 0

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return sum(worker.busy for worker in self._workers.values())

    @property
    def has_work(self) -> bool:
        """Whether there are calls, in line or with workers."""
        return bool(self._lines) or any(worker.handed for worker in self._workers.values())

    def line_up(self, held: LeasedAttempt) -> None:
        """Take a call."""
        assert isinstance(held.work, Function), "programs have another line"
        self._appetite.meet(held.work.name)
        self._lines.setdefault(sharing_of(held), deque()).append(held)

    def work(self, free: int) -> None:
        """Hand out what waits, with so many slots free, the longest waiting line first."""
        for sharing in sorted(self._lines, key=lambda one: self._lines[one][0].run):
            free = self._work(sharing, free)
            if free <= 0 and sharing in self._lines:
                return  # it waits for a slot: workers of those behind it get nothing more before it has one

    def stop(self, held: LeasedAttempt) -> None:
        """End a call: one that is not begun ends at once, one that is under way takes its worker with it."""
        if self._take_out(held):
            self._floor.ended(held, returned(held))
        else:
            self.tick(time.monotonic())

    def hold(self) -> None:
        """Leases were renewed: tell the runner what follows for workers."""
        now = time.monotonic()
        moments = {worker.number: worker.lifetime() for worker in self._workers.values() if worker.news(now)}
        if moments:
            self._tell(Hold(workers=moments))
            for number, moment in moments.items():
                self._workers[number].told = moment

    def tick(self, now: float) -> None:
        """End what takes too long, and keep the runner's knowledge fresh."""
        for worker in self._workers.values():
            why = "" if worker.dismissed else worker.overdue(now)
            if why:
                self._dismiss(worker, why)
            elif worker.handed and now - worker.since > SLOW_SECONDS:
                self._appetite.call_took(now - worker.since)
                if worker.under_way is not None and now - worker.since >= MOMENT_SECONDS:
                    self._desk.goes_on(worker.under_way, now)
        waiting = [held for line in self._lines.values() for held in line]
        for held, report in [(one, report) for one in waiting if (report := one.over(now)) is not None]:
            self._take_out(held)
            self._floor.ended(held, report)
        self.hold()

    def kill_all(self) -> None:
        """End every worker, lose what it does, and give back the rest."""
        for held in self._emptied():
            self._floor.ended(held, returned(held))
        for worker in self._workers.values():
            self._dismiss(worker, "lose")

    def lose_all(self) -> None:
        """The runner is gone, and with it every worker. What is in line was not begun."""
        for worker in self._workers.values():
            if worker.pipe is not None:
                worker.pipe.close()
            for place, held in enumerate(worker.handed.values()):
                self._floor.ended(held, lost_ahead(held) if place else lost(held))
        self._workers.clear()

    def welcome(self, number: int, end: socket.socket) -> None:
        """A worker is there."""
        worker = self._workers.get(number)
        if worker is None:
            end.close()
            return
        loop = asyncio.get_running_loop()
        worker.pipe = Pipe(loop, end, lambda body: self._hear(worker, body), lambda: self._hang_up(worker))
        if worker.single and worker.sharing not in self._lines:
            self._dismiss(worker, "unused")  # its call was ended before it came

    def bury(self, gone: Gone) -> None:
        """A worker has ended: hear what it still had to say, blame the call that it was making, give back the rest."""
        worker = self._workers.get(gone.worker)
        if worker is None:
            return
        worker.leaving = True
        if worker.pipe is not None:
            worker.pipe.drain()
            worker.pipe.close()
        for body in Intake().bodies(gone.told) if gone.told else ():
            self._hear(worker, body)
        del self._workers[gone.worker]
        self._blame(worker, gone)
        if worker.dismissed == "lose":
            for held in worker.handed.values():
                self._floor.ended(held, returned(held))
        else:
            self._give_back(list(worker.handed.values()))
        if self._vain >= VAIN_HIRES_MAX:
            self._give_up()

    def _give_back(self, unbegun: list[LeasedAttempt]) -> None:
        """Put what was not begun in front of the line; what has to end would only take another worker with it."""
        self._desk.unbegin(unbegun)
        for held in reversed(unbegun):
            if held.stopping:
                self._floor.ended(held, returned(held))
            else:
                if held.room is not None:
                    self._rooms.give_back(held.room)
                    held.room = None
                self._lines.setdefault(sharing_of(held), deque()).appendleft(held)

    def _take_back(self, worker: WarmWorker, runs: list[int]) -> None:
        """Put in front of the line what waits behind a call that takes long; another worker may be free for it."""
        self._give_back([worker.handed.pop(run) for run in runs if run in worker.handed])
        self._floor.fill()

    def _blame(self, worker: WarmWorker, gone: Gone) -> None:
        # What a call wrote over its answers cannot be told from them.
        run = worker.blamed if worker.dismissed == "garbled" else gone.run
        culprit = worker.handed.pop(run, None) if run is not None else None
        if culprit is not None:
            self._floor.ended(culprit, self._verdict(worker, culprit, gone))
        elif not worker.useful and not worker.dismissed:
            self._vain += 1

    # Handing out.

    def _work(self, sharing: Sharing, free: int) -> int:
        """Hand out what waits in one line, and say how many slots are still free."""
        while (line := self._lines.get(sharing)) is not None:
            idle = [worker for worker in self._workers.values() if worker.idle and worker.sharing == sharing]
            if free > 0 and idle:
                self._hand(idle[-1], -(-len(line) // min(free, len(idle))))
                free -= 1
                continue
            if free > 0:
                free -= self._hire(sharing, min(free, len(line)))
            if not self._top_up(sharing):
                break
        return free

    def _hire(self, sharing: Sharing, wanted: int) -> int:
        """Have workers started until so many of one sharing are about to come; say how many were started."""
        missing = wanted - sum(worker.hiring and worker.sharing == sharing for worker in self._workers.values())
        for _ in range(missing):
            self._hired += 1
            self._workers[self._hired] = WarmWorker(self._hired, sharing)
            self._tell(Hire(self._hired))
        others = [worker for worker in self._workers.values() if worker.idle and worker.sharing != sharing]
        for worker in sorted(others, key=lambda one: one.since)[: max(0, len(others) - IDLE_OTHERS_MAX)]:
            self._dismiss(worker, "unused")
        return max(0, missing)

    def _top_up(self, sharing: Sharing) -> bool:
        """Hand more to a worker that is about to have nothing left."""
        handful, now = self._appetite.handful, time.monotonic()
        for worker in self._workers.values():
            if worker.sharing != sharing or not worker.usable:
                continue
            is_low = 0 < len(worker.handed) <= handful // 4 and now - worker.since < SLOW_SECONDS
            if is_low and worker.may_take(self._lines[sharing][0]):
                self._hand(worker, handful)
                return True
        return False

    def _hand(self, worker: WarmWorker, share: int) -> None:
        now = time.monotonic()
        if not worker.handed:
            worker.since = now
        frames: list[bytes] = []
        begun: list[LeasedAttempt] = []  # they may begin at any time from now on
        line = self._lines[worker.sharing]
        wanted = min(self._appetite.handful, share)
        while line and len(frames) < wanted and worker.may_take(line[0]):
            held = line.popleft()
            if (report := held.over(now)) is not None:
                self._floor.ended(held, report)
                continue
            held.began = now
            held.prepared_ms = round((now - held.came) * 1000)
            try:
                frames.append(packed(self._call(held)))
            except OSError as error:
                self._floor.trouble(f"a call has no place to run in: {error}", held)
                self._floor.print(held, f"taskyard: {error}\n")
                self._floor.ended(held, failed(held, "exit_code", 126))
                continue
            worker.handed[held.run] = held
            begun.append(held)
        if not line:
            del self._lines[worker.sharing]
        if worker.single and not worker.handed:
            self._dismiss(worker, "unused")
        if worker.news(now):
            # Before the calls: a worker is never at work for a lease of which the runner knows nothing.
            self.hold()
        self._desk.begin(begun)
        assert worker.pipe is not None, "only workers that are ready are handed calls"
        worker.pipe.send(b"".join(frames))

    def _call(self, held: LeasedAttempt) -> Call:
        function, lease = held.work, held.lease
        assert isinstance(function, Function), "programs have another line"
        held.room = room = self._rooms.take()
        room.furnish(lease, held.inputs)
        inputs = held.inputs if len(held.inputs or b"") <= INPUTS_MAX else None
        return Call(
            run=held.run,
            function=function.name,
            args=function.args if bytes(function.args) else NO_ARGUMENTS,
            env={**function.env, **room.env(), **identity(lease)},
            cwd=function.cwd or "",
            inputs=protocol.NOTHING if inputs is None else msgspec.Raw(inputs),
            checkpoint=lease.checkpoint,
        )

    def _take_out(self, held: LeasedAttempt) -> bool:
        """Take a call out of its line; say whether it was there."""
        sharing = sharing_of(held)
        line = self._lines.get(sharing)
        if line is None or held not in line:
            return False
        line.remove(held)
        if not line:
            del self._lines[sharing]
        return True

    def _emptied(self) -> list[LeasedAttempt]:
        """Empty all lines."""
        waiting = [held for line in self._lines.values() for held in line]
        self._lines.clear()
        return waiting

    # Hearing.

    def _hear(self, worker: WarmWorker, body: bytes) -> None:
        frame = read_told(body)
        if isinstance(frame, Leaving):
            worker.leaving = True
            return
        if isinstance(frame, Back):
            self._take_back(worker, frame.runs)
            return
        held = worker.handed.get(frame.run)
        if held is None:
            return  # it was heard before
        if isinstance(frame, Said):
            worker.heard = time.monotonic()
            self._floor.print(held, frame.body[max(0, held.said - frame.start) :])
            held.said = max(held.said, frame.start + len(frame.body))
            return
        del worker.handed[frame.run]
        worker.since, worker.useful, self._vain = time.monotonic(), True, 0
        self._appetite.call_took(frame.took.ran_s + CALL_SECONDS)
        self._floor.ended(held, self._answer(held, frame))
        if worker.single:
            self._dismiss(worker, "unused")
        if len(worker.handed) <= (self._appetite.handful // 4 if self._lines else 0):
            self._floor.fill()

    def _answer(self, held: LeasedAttempt, frame: Returned | Raised) -> Report:
        lease, stats = held.lease, _stats(held, frame.took)
        if isinstance(frame, Raised):
            self._floor.print(held, frame.traceback_text)
        is_sound = self._remember(held)
        if isinstance(frame, Raised) and frame.exit_code != 0:
            return failed(held, "bad_result" if frame.bad_result else "exit_code", frame.exit_code, stats)
        if not is_sound:
            return failed(held, "bad_result", 0, stats)
        result = frame.result if isinstance(frame, Returned) and bytes(frame.result) else NOTHING
        return Report(lease.task, lease.attempt, lease.fence, "succeed", None, 0, result, stats)

    def _hang_up(self, worker: WarmWorker) -> None:
        """It is about to be gone; the runner says so when nothing of it is left."""
        worker.leaving = True
        if worker.pipe is not None and worker.pipe.is_garbled:
            self._dismiss(worker, "garbled")

    def _verdict(self, worker: WarmWorker, held: LeasedAttempt, gone: Gone) -> Report:
        self._remember(held)
        if worker.dismissed == "lose":
            return lost(held)
        if gone.why == "lease_over" and worker.blamed != held.run:
            return overdue(held) if held.is_late(time.monotonic()) else unrenewed(held)
        if worker.dismissed:
            if worker.blamed != held.run:
                return lost(held)  # it had only just begun when another was to be ended
            if worker.dismissed == "deadline":
                return overdue(held, gone.exit_code)
            reason = worker.dismissed if worker.dismissed in ("timed_out", "silent") else "signaled"
            return failed(held, reason, gone.exit_code)
        code = gone.exit_code
        self._floor.trouble(f"a warm worker has ended in the middle of a call: {_how(code)}", held)
        self._floor.print(held, f"taskyard: the worker that made this call has ended: {_how(code)}\n")
        return failed(held, "signaled" if code is not None and code < 0 else "exit_code", code)

    def _remember(self, held: LeasedAttempt) -> bool:
        """Keep what a call left for its next attempt; False, and said, if it left what cannot be taken."""
        held.untouched = held.room is None or held.room.is_still()
        if held.room is None or held.untouched:
            return True
        left = held.room.left(succeeded=False)
        if left.checkpoint is not None:
            held.memories.append(left.checkpoint)
        for fault in left.faults:
            self._floor.print(held, f"taskyard: {fault}\n")
        return not left.faults

    def _dismiss(self, worker: WarmWorker, why: str) -> None:
        if not worker.dismissed:
            held = worker.under_way
            worker.dismissed, worker.blamed = why, held.run if held is not None else None
            self._tell(Dismiss(worker.number))

    def _give_up(self) -> None:
        self._vain = 0
        self._floor.trouble("no warm worker can be started", None)
        for held in self._emptied():
            self._floor.print(held, "taskyard: no warm worker can be started on this bot\n")
            self._floor.ended(held, failed(held, "exit_code", 126))


def _stats(held: LeasedAttempt, took: Took) -> Stats:
    return Stats(
        prepared_ms=held.prepared_ms,
        ran_ms=round(took.ran_s * 1000),
        cpu_s=took.cpu_s,
        memory_bytes=took.memory_bytes,
    )


def _how(code: int | None) -> str:
    if code is None:
        return "nobody knows how"
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
