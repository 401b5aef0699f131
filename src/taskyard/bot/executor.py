"""Runs what is in hand, at most so many at a time as there are slots: programs by the runner, functions in workers.

It is where the server's wishes and the runner's news meet; who talks with the server is told by `changed` that there is
something to tell. It has no connection of its own, but for inputs that are too large to come along.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Final, Protocol, cast

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
from taskyard.bot.config import BotConfig
from taskyard.bot.ipc import Ended, Gone, Hired, Hold, Printed, Recall, Start, Started, Stop, Tell, ToAgent, ToRunner
from taskyard.bot.output_spool import Spool, rest_name
from taskyard.bot.payloads import Function, Program, Surroundings, Unfit, work_of
from taskyard.bot.poll_payload import Consequences
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.pyworker.pool import WorkerPool
from taskyard.bot.server_client import InputsMissing, fetch_inputs
from taskyard.bot.state_folder import State
from taskyard.bot.workdir import NOTHING_LEFT, Left, Room, Rooms
from taskyard.wire.bot_protocol import Lease, Report, Stats

# Attempts that are programs: their place is made ready, the runner is told to start them, and their end is read.
#
# It starts no process itself.


#: What a shell answers for a command that is there and cannot be run.
NOT_RUNNABLE: Final = 126
#: An attempt that may outlive its lease is held for so long: what ends it is its time-out, or the server's word.
FOR_EVER_SECONDS: Final = 10 * 365 * 86_400.0


class Programs:
    """What runs as a program now; `ended` is called for each that ends."""

    def __init__(
        self,
        spool: Callable[[LeasedAttempt], Spool],
        rooms: Rooms,
        surroundings: Surroundings,
        desk: LeasedAttempts,
        tell: Tell,
        trouble: Complain,
    ) -> None:
        self.running: dict[int, LeasedAttempt] = {}  # those that wait for their turn at the runner included
        self._starts: list[Start] = []
        self._started: dict[int, float] = {}  # those of which nothing was told yet
        self._ahead: set[int] = set()  # those that may still wait for their turn at the runner
        self._spool = spool
        self._rooms = rooms
        self._surroundings = surroundings
        self._desk = desk
        self._tell = tell
        self._trouble = trouble

    def start(self, held: LeasedAttempt, abreast: int = 0) -> Report | None:
        """Start one with the next `go`, or say how it failed; `abreast` is for one that may have to wait its turn."""
        program = cast("Program", held.work)
        report = held.over(time.monotonic())
        if report is not None:
            return report
        try:
            held.room = room = self._rooms.take()
            room.furnish(held.lease, held.inputs, program.script)
            cwd = _folder(program, room)
        except OSError as error:
            self._trouble(f"a program has no place to run in: {error}", held)
            self.print(held, f"taskyard: {error}\n")
            return failed(held, "exit_code", NOT_RUNNABLE)
        held.began = time.monotonic()
        held.prepared_ms = round((held.began - held.came) * 1000)
        self.running[held.run] = held
        if abreast:
            self._ahead.add(held.run)
        self._starts.append(
            Start(
                run=held.run,
                argv=list(program.argv) if program.script is None else [*program.argv, room.file("script")],
                env=self._surroundings.of(held.lease, room.env(), program.env),
                cwd=cwd,
                until=held.until if held.strict else held.began + FOR_EVER_SECONDS,
                deadline=held.deadline,
                timeout_s=program.limits.timeout_s,
                silence_s=program.limits.silence_s,
                grace_s=program.limits.grace_s,
                keep=not held.strict,
                abreast=abreast,
            )
        )
        return None

    def has_started(self, run: int, now: float) -> None:
        """Note that the process of one is there."""
        self._ahead.discard(run)
        if run in self.running:
            self._started[run] = now

    def tick(self, now: float) -> bool:
        """Note which go on for longer than a moment; say whether there was any that had not been noted."""
        going_on = [run for run, since in self._started.items() if now - since >= MOMENT_SECONDS]
        for run in going_on:
            del self._started[run]
            if run in self.running:
                self._desk.goes_on(self.running[run], now)
        return bool(going_on)

    def recall(self) -> None:
        """Ask the runner for those back that wait for their turn: they count as begun as long as they are there."""
        if self._ahead:
            self._tell(Recall(sorted(self._ahead)))

    def take_back(self, run: int) -> LeasedAttempt | None:
        """Take back one that the runner has not begun."""
        self._ahead.discard(run)
        held = self.running.pop(run, None)
        if held is not None:
            self._desk.unbegin([held])
            assert held.room is not None, "a program has a room"
            self._rooms.give_back(held.room)
            held.room = None
        return held

    def lose_all(self) -> list[tuple[LeasedAttempt, Report]]:
        """The runner is gone: say of each what is known of it."""
        gone = [(held, lost_ahead(held) if run in self._ahead else lost(held)) for run, held in self.running.items()]
        self.running.clear()
        self._started.clear()
        self._ahead.clear()
        return gone

    def go(self) -> None:
        """Tell the runner of all that were started."""
        if self._starts:
            starts, self._starts = self._starts, []
            self._desk.begin([self.running[one.run] for one in starts])
            self._tell(*starts)

    def stop(self, held: LeasedAttempt) -> None:
        """End one; it has the time that its payload gives it for that."""
        self._tell(Stop(held.run))

    def print(self, held: LeasedAttempt, text: str | bytes) -> None:
        """Add to what an attempt printed."""
        body = text if isinstance(text, bytes) else text.encode(errors="replace")
        spool = held.spool or self._spool(held)
        self._desk.printed(held, spool, body, time.monotonic())

    def end(self, frame: Ended) -> tuple[LeasedAttempt, Report] | None:
        """Read how one ended."""
        held = self.running.pop(frame.run, None)
        self._started.pop(frame.run, None)
        self._ahead.discard(frame.run)
        if held is None:
            return None
        if frame.waited_s and held.prepared_ms is not None:
            held.prepared_ms += round(frame.waited_s * 1000)
        if frame.note:
            self.print(held, f"taskyard: {frame.note}\n")
        assert held.room is not None, "a program has a room"
        held.untouched = held.room.is_still()
        left = NOTHING_LEFT if held.untouched else held.room.left(succeeded=_succeeded(held, frame))
        if left.checkpoint is not None:
            held.memories.append(left.checkpoint)
        for fault in left.faults:
            self.print(held, f"taskyard: {fault}\n")
        return held, _verdict(held, frame, left)


def _succeeded(held: LeasedAttempt, frame: Ended) -> bool:
    return frame.exit_code == 0 and frame.why is None and held.stopping != "lose"


def _verdict(held: LeasedAttempt, frame: Ended, left: Left) -> Report:
    stats = _stats(held, frame)
    if frame.why == "lease_over" or held.stopping == "lose":
        return _gone(held, frame)
    if frame.why == "deadline":
        return overdue(held, frame.exit_code, stats)
    if frame.why in ("timed_out", "silent"):
        return failed(held, frame.why, frame.exit_code, stats)
    if frame.exit_code is None:
        return returned(held)
    if not _succeeded(held, frame):
        return failed(held, "signaled" if frame.exit_code < 0 else "exit_code", frame.exit_code, stats)
    if left.faults:
        return failed(held, "bad_result", 0, stats)
    lease = held.lease
    return Report(lease.task, lease.attempt, lease.fence, "succeed", None, 0, left.result, stats)


def _gone(held: LeasedAttempt, frame: Ended) -> Report:
    """Say of one that came to no end of its own whether it had begun, and what ended it."""
    if frame.exit_code is None:
        return returned(held)
    return lost(held) if held.stopping == "lose" else unrenewed(held)


def _folder(program: Program, room: Room) -> str:
    if program.cwd is None:
        return room.folder
    if not os.path.isdir(program.cwd):
        raise NotADirectoryError(f"cwd: there is no folder {program.cwd}")
    return program.cwd


def _stats(held: LeasedAttempt, frame: Ended) -> Stats:
    return Stats(
        prepared_ms=held.prepared_ms,
        ran_ms=round(frame.ran_s * 1000),
        cpu_s=frame.cpu_s,
        memory_bytes=frame.memory_bytes,
        read_bytes=frame.read_bytes,
        written_bytes=frame.written_bytes,
    )


class Owner(Protocol):
    """Whose bench it is."""

    def tell_runner(self, *told: ToRunner) -> None:
        """Tell the runner; what is told together goes out together."""

    def changed(self) -> None:
        """There is something to tell the server."""

    def trouble(self, text: str, held: LeasedAttempt | None = None) -> None:
        """Something went wrong with the bot itself."""


class Executor:
    """The slots, and the line before them."""

    def __init__(
        self,
        config: BotConfig,
        state: State,
        desk: LeasedAttempts,
        appetite: PrefetchLimit,
        owner: Owner,
    ) -> None:
        self._config = config
        self._desk = desk
        self._appetite = appetite
        self._tell: Tell = owner.tell_runner
        self._changed = owner.changed
        self.trouble: Complain = owner.trouble
        self._work = state.work
        self._rooms = Rooms(state.work)
        self._programs = Programs(self._new_spool, self._rooms, Surroundings(config), desk, self._tell, owner.trouble)
        self._crew = WorkerPool(self._rooms, appetite, self._tell, desk, self)
        self._paused = False
        self._waiting: deque[LeasedAttempt] = deque()  # programs without a slot
        self._fetching: dict[
            int, tuple[LeasedAttempt, asyncio.Task[None]]
        ] = {}  # those whose inputs are awaited, by run

    # What the server says.

    def take(self, leases: list[Lease], sent: float) -> None:
        """Run these, as slots become free."""
        now = time.monotonic()
        for lease in leases:
            if (lease.task, lease.attempt) not in self._desk.held:
                self._receive(self._desk.take(lease, sent, now))
        self.fill()

    def heed(self, consequences: Consequences) -> None:
        """Hold, stop or give up attempts."""
        runs = {
            one.run: one.until for one in consequences.held_longer if one.run in self._programs.running and one.strict
        }
        if runs:
            self._tell(Hold(runs=runs))
        if consequences.held_longer:
            self._crew.hold()
        for held in (*consequences.stop, *consequences.taken_away):
            self.stop(held, "stop")

    def stop(self, held: LeasedAttempt, why: str) -> None:
        """End an attempt: `stop` because a person wants it, `lose` because this bot ends."""
        held.stopping = held.stopping or why
        if held.report is not None:
            return
        if held.run in self._programs.running:
            self._programs.stop(held)
        elif held in self._waiting:
            self._waiting.remove(held)
            self.ended(held, returned(held))
        elif isinstance(held.work, Function):
            self._crew.stop(held)

    # What the runner says.

    def hear(self, frame: ToAgent, end: socket.socket | None) -> None:
        """Do what follows from it."""
        match frame:
            case Printed(run, body):
                held = self._programs.running.get(run)
                if held is not None:
                    self.print(held, body)
            case Started(run, _):
                self._programs.has_started(run, time.monotonic())
            case Ended():
                self._end_program(frame)
            case Hired(worker, _):
                assert end is not None, "a worker comes with a socket"
                self._crew.welcome(worker, end)
            case Gone():
                self._crew.bury(frame)
        self.fill()

    def pause(self) -> None:
        """Start nothing: there is no runner."""
        self._paused = True

    def resume(self) -> None:
        """There is a runner again."""
        self._paused = False
        self.fill()

    def lose_all(self) -> None:
        """The runner is gone, and with it everything that ran."""
        for held, report in self._programs.lose_all():
            self.ended(held, report)
        self._crew.lose_all()

    # What time brings.

    def tick(self, now: float) -> None:
        """End what has gone on for too long, where the runner does not."""
        self._crew.tick(now)
        self._end_fetching(now)
        if self._programs.tick(now):
            # They are not as short as those before: what waits behind them is taken back, and nothing more is sent.
            self._appetite.program_took(MOMENT_SECONDS)
            self._programs.recall()
        for held, report in [(one, report) for one in self._waiting if (report := one.over(now)) is not None]:
            self._waiting.remove(held)
            self.ended(held, report)

    def kill_all(self) -> None:
        """End everything at once, without grace, and lose it."""
        for held in self._desk:
            held.stopping = held.stopping or "lose"
        for held in list(self._waiting):
            self.stop(held, "lose")
        if self._programs.running:
            # A lease that is over ends a run without any grace.
            self._tell(Hold(runs=dict.fromkeys(self._programs.running, time.monotonic())))
        self._crew.kill_all()

    def abandon(self) -> None:
        """Stop waiting for inputs: this bot ends."""
        for _, task in self._fetching.values():
            task.cancel()

    # What attempts do.

    def print(self, held: LeasedAttempt, body: str | bytes) -> None:
        """Note what one printed; while it runs, its output goes out with the next request, or soon by itself."""
        self._programs.print(held, body)
        if held.spool is not None and held.spool.trouble:
            self.trouble(held.spool.trouble, held)

    def ended(self, held: LeasedAttempt, report: Report) -> None:
        """Note how one ended."""
        if held.room is not None:
            self._rooms.give_back(held.room, held.untouched)
            held.room = None
        if held.spool is not None:
            held.ended = time.monotonic()
            held.spool.finish()
            if held.spool.trouble:
                self.trouble(held.spool.trouble, held)
        self._desk.end(held, report)
        self._changed()

    def fill(self) -> None:
        """Start what there is a slot for."""
        if self._paused:
            return
        while self._waiting:
            ahead = self._may_go_ahead(self._waiting[0])
            if not ahead and self._free <= 0:
                break
            held = self._waiting.popleft()
            report = self._programs.start(held, max(1, self._config.slots - self._crew.busy) if ahead else 0)
            if report is not None:
                self.ended(held, report)
        self._programs.go()
        if self._crew.has_work:
            self._crew.work(self._free)

    @property
    def _free(self) -> int:
        return max(0, self._config.slots - len(self._programs.running)) - self._crew.busy

    def _may_go_ahead(self, held: LeasedAttempt) -> bool:
        """Whether it may wait for its turn at the runner: while nothing but short programs is done here."""
        return self._appetite.short_programs and held.lease.deadline_ms is None and not self._crew.has_work

    def _receive(self, held: LeasedAttempt) -> None:
        """Find out what to do for an attempt, and put it in line."""
        try:
            held.work = work_of(held.lease.payload)
        except Unfit as error:
            self._refuse(held, str(error))
            return
        if held.lease.inputs_apart:
            task = asyncio.get_running_loop().create_task(self._fetch(held))
            self._fetching[held.run] = (held, task)
            return
        held.inputs = bytes(held.lease.inputs) or None
        self._line_up(held)

    async def _fetch(self, held: LeasedAttempt) -> None:
        try:
            held.inputs = await fetch_inputs(self._config.url, held.lease.task, held.lease.token, self._config.tls)
        except InputsMissing as error:
            self._refuse(held, str(error))
        else:
            self._line_up(held)
            self.fill()
        finally:
            self._fetching.pop(held.run, None)

    def _end_fetching(self, now: float) -> None:
        """End what waits for its inputs and may not begin any more."""
        for held, task in list(self._fetching.values()):
            report = held.over(now)
            if held.stopping or not held.ours:
                report = returned(held)
            if report is not None:
                task.cancel()
                del self._fetching[held.run]
                self.ended(held, report)

    def _new_spool(self, held: LeasedAttempt) -> Spool:
        folder, lease = self._config.keep_output, held.lease
        whole = None if folder is None else folder / rest_name(lease.task, lease.attempt)
        return Spool(self._work / f"{held.run}.output", self._config.output_max, whole)

    def _line_up(self, held: LeasedAttempt) -> None:
        if isinstance(held.work, Program):
            self._appetite.meet(held.work.name)
            self._waiting.append(held)
        else:
            self._crew.line_up(held)

    def _refuse(self, held: LeasedAttempt, why: str) -> None:
        self.print(held, f"taskyard: {why}\n")
        self.ended(held, failed(held, "exit_code", NOT_RUNNABLE))

    def _take_back(self, held: LeasedAttempt) -> None:
        """Put one that has not begun where it was in the line."""
        if held.stopping or not held.ours:
            self.ended(held, returned(held))
        else:
            before = sum(1 for _ in takewhile(lambda one: one.run < held.run, self._waiting))
            self._waiting.insert(before, held)

    def _end_program(self, frame: Ended) -> None:
        if frame.why == "recalled":
            held = self._programs.take_back(frame.run)
            if held is not None:
                self._take_back(held)
            return
        self._appetite.program_took(frame.ran_s)
        found = self._programs.end(frame)
        if found is not None:
            if frame.why == "not_started":
                self.trouble(frame.note, found[0])
            self.ended(*found)
