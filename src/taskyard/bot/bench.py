"""Runs what is in hand, at most so many at a time as there are slots: programs by the runner, functions in workers.

It is where the server's wishes and the runner's news meet; who talks with the server is told by `changed` that there is
something to tell. It has no connection of its own, but for inputs that are too large to come along.
"""

import asyncio
import socket
import time
from collections import deque
from itertools import takewhile
from typing import Protocol

from taskyard.bot.config import BotConfig
from taskyard.bot.crew import Crew
from taskyard.bot.desk import MOMENT_SECONDS, Complain, Desk, Held, failed, returned
from taskyard.bot.environment import Surroundings
from taskyard.bot.frames import Ended, Gone, Hired, Hold, Printed, Started, Tell, ToAgent, ToRunner
from taskyard.bot.inputs import InputsMissing, fetch_inputs
from taskyard.bot.kinds import Function, Program, Unfit, work_of
from taskyard.bot.parcel import Consequences
from taskyard.bot.prefetch import Appetite
from taskyard.bot.programs import NOT_RUNNABLE, Programs
from taskyard.bot.room import Rooms
from taskyard.bot.spool import Spool, rest_name
from taskyard.bot.state import State
from taskyard.wire.bots import Lease, Report


class Owner(Protocol):
    """Whose bench it is."""

    def tell_runner(self, *told: ToRunner) -> None:
        """Tell the runner; what is told together goes out together."""

    def changed(self) -> None:
        """There is something to tell the server."""

    def trouble(self, text: str, held: Held | None = None) -> None:
        """Something went wrong with the bot itself."""


class Bench:
    """The slots, and the line before them."""

    def __init__(
        self,
        config: BotConfig,
        state: State,
        desk: Desk,
        appetite: Appetite,
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
        self._crew = Crew(self._rooms, appetite, self._tell, desk, self)
        self._paused = False
        self._waiting: deque[Held] = deque()  # programs without a slot
        self._fetching: dict[int, tuple[Held, asyncio.Task[None]]] = {}  # those whose inputs are awaited, by run

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

    def stop(self, held: Held, why: str) -> None:
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

    def print(self, held: Held, body: str | bytes) -> None:
        """Note what one printed; while it runs, its output goes out with the next request, or soon by itself."""
        self._programs.print(held, body)
        if held.spool is not None and held.spool.trouble:
            self.trouble(held.spool.trouble, held)

    def ended(self, held: Held, report: Report) -> None:
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

    def _may_go_ahead(self, held: Held) -> bool:
        """Whether it may wait for its turn at the runner: while nothing but short programs is done here."""
        return self._appetite.short_programs and held.lease.deadline_ms is None and not self._crew.has_work

    def _receive(self, held: Held) -> None:
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

    async def _fetch(self, held: Held) -> None:
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

    def _new_spool(self, held: Held) -> Spool:
        folder, lease = self._config.keep_output, held.lease
        whole = None if folder is None else folder / rest_name(lease.task, lease.attempt)
        return Spool(self._work / f"{held.run}.output", self._config.output_max, whole)

    def _line_up(self, held: Held) -> None:
        if isinstance(held.work, Program):
            self._appetite.meet(held.work.name)
            self._waiting.append(held)
        else:
            self._crew.line_up(held)

    def _refuse(self, held: Held, why: str) -> None:
        self.print(held, f"taskyard: {why}\n")
        self.ended(held, failed(held, "exit_code", NOT_RUNNABLE))

    def _take_back(self, held: Held) -> None:
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
