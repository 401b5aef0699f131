"""The runner: starts what the agent says, reads what it prints, and sees to it that it ends when it has to.

It is the dead-man's switch. A run that nobody holds any longer is killed by the runner alone, and so is everything when
the agent is gone, except for runs that may go on without it. An end is told once nothing of a run is left.

One thread and one `select`: whatever it does, it comes back to the clock within a moment. It ignores the signals that
end programs, since it always ends with its agent. It decides nothing about tasks, and never speaks with a server.
"""

import argparse
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from math import inf
from typing import Final

import msgspec

from taskyard.bot import ipc, output_spool, watchdog
from taskyard.bot.ipc import (
    Dismiss,
    Ended,
    Gone,
    Hire,
    Hired,
    Hold,
    Line,
    Ping,
    Pong,
    Printed,
    Recall,
    Start,
    Started,
    Stop,
    ToRunner,
)
from taskyard.bot.process import NOT_RUNNABLE, Exit, NotStarted, Spawner, has_ended, reaped, signal_group
from taskyard.bot.process_cleanup import BOT_MARK, UNKNOWN, Strays, be_seen, marks
from taskyard.bot.pyworker.protocol import Papers
from taskyard.bot.task_user import become
from taskyard.bot.watchdog import GUARDED_MAX, Deadlines, NoPlace, owner_of

# When something that runs has to end, and how: the end of its lease, its deadline, its time-out, its silence, a stop.
#
# It looks at no clock and ends nothing: moments are arguments, and what it answers is the signal to send.


class Watch:
    """The moments of one run or worker. `why` is the first reason for which it was ended, if it was."""

    __slots__ = (
        "_asked", "_deadline", "_heard_at", "_killed", "_silence_s", "_timeout_at",
        "grace_s", "kill_at", "until", "why",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        until: float = inf,
        timeout_s: float | None = None,
        silence_s: float | None = None,
        grace_s: float = 0.0,
        deadline: float | None = None,
    ) -> None:
        self.until = until
        self.why: str | None = None
        self._deadline = inf if deadline is None else deadline
        self._timeout_at = inf if timeout_s is None else now + timeout_s
        self._silence_s = inf if silence_s is None else silence_s
        self._heard_at = now
        self.grace_s = grace_s
        self._asked = False
        self.kill_at = inf
        self._killed = False

    def due(self) -> float:
        """When to look again."""
        if self._killed:
            return inf
        if self._asked:
            return min(self.until, self.kill_at)
        return min(self.until, self._deadline, self._timeout_at, self._heard_at + self._silence_s)

    @property
    def ask_at(self) -> float:
        """When it has to end whatever it prints: at its deadline or its time-out."""
        return inf if self._asked or self._killed else min(self._deadline, self._timeout_at)

    @property
    def ask_why(self) -> str:
        """Say which of the two comes first."""
        return "deadline" if self._deadline <= self._timeout_at else "timed_out"

    def heard(self, now: float) -> None:
        """It printed something."""
        self._heard_at = now

    def deafen(self) -> None:
        """Nobody listens to it for now, so that its silence says nothing."""
        self._heard_at = inf

    def judge(self, now: float) -> signal.Signals | None:
        """Say which signal it gets now, if any. That its lease is over comes first: then there is no grace."""
        if self._killed or now < self.due():
            return None
        if now >= self.until:
            return self.kill("lease_over")
        if self._asked:
            return self.kill("stopped")
        return self.ask(self._why_asked(now), now)

    def _why_asked(self, now: float) -> str:
        """Say which of its moments came first; it may be looked at late."""
        if now >= min(self._deadline, self._timeout_at):
            return self.ask_why
        return "silent"

    def ask(self, why: str, now: float) -> signal.Signals | None:
        """It has to end, within its grace; being told twice changes nothing."""
        if self._asked or self._killed:
            return None
        if self.grace_s <= 0:
            return self.kill(why)
        self.why, self._asked, self.kill_at = self.why or why, True, now + self.grace_s
        return signal.SIGTERM

    def kill(self, why: str) -> signal.Signals:
        """It has to end at once."""
        self.why, self._killed = self.why or why, True
        return signal.SIGKILL


# What a runner looks after: runs and warm workers, each with its process, its moments and its output.
#
# They are notes of the runner, which alone starts, reads and ends what they stand for.


#: How long after its end the rest of a run's output and the last of its processes are awaited. Nothing but a process
#: that nobody may kill, or one that was handed the pipe from elsewhere, takes as long.
BURIAL_SECONDS_MAX: Final = 2.0


class ProcessRecord:
    """A process that leads a session, and its end."""

    __slots__ = ("began", "buried_by", "exit", "name", "number", "output", "pid", "place", "watch")

    def __init__(self, number: int, name: str, watch: Watch, began: float) -> None:
        self.number = number
        self.name = name  # what marks everything that it starts
        self.watch = watch
        self.began = began
        self.pid = 0
        self.place = 0  # of its deadlines, in what the watchdog knows
        self.output: int | None = None  # where what it prints is read
        self.exit: Exit | None = None
        self.buried_by = inf  # when its end is told at the latest

    def end(self, how: Exit, now: float) -> None:
        """Its leader has ended; others that it started may be left."""
        self.exit, self.buried_by = how, now + BURIAL_SECONDS_MAX


class Run(ProcessRecord):
    """One attempt of a task."""

    __slots__ = ("ended", "heard", "keep", "waited_s")

    def __init__(self, start: Start, now: float, waited_s: float = 0.0) -> None:
        watch = Watch(now, start.until, start.timeout_s, start.silence_s, start.grace_s, start.deadline)
        super().__init__(start.run, str(start.run), watch, now)
        self.keep = start.keep
        self.waited_s = waited_s  # for its turn
        self.heard = False  # it is listened to
        self.ended = now

    def end(self, how: Exit, now: float) -> None:
        super().end(how, now)
        self.ended = now


class Worker(ProcessRecord):
    """A warm worker."""

    __slots__ = ("papers",)

    def __init__(self, number: int, papers: Papers, now: float) -> None:
        super().__init__(number, f"worker-{number}", Watch(now), now)
        self.papers = papers


# Runs that the runner was told of ahead, and that wait for their turn: so that none waits for the agent in between.
#
# None of them has begun. It starts nothing and has no clock.


class Waiting:
    """One that waits, since when, and until when it may still begin."""

    __slots__ = ("since", "start", "until")

    def __init__(self, start: Start, since: float) -> None:
        self.start, self.since, self.until = start, since, start.until


class Turns:
    """All that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: Start, now: float) -> None:
        """Let it wait."""
        self._waiting[start.run] = Waiting(start, now)

    def next(self, runs: int) -> Waiting | None:
        """Take the one whose turn it is while so many run, if there is one."""
        first = next(iter(self._waiting.values()), None)
        if first is None or runs >= first.start.abreast:
            return None
        return self._waiting.pop(first.start.run)

    def take(self, run: int) -> Waiting | None:
        """Take this one out of the line, if it is there."""
        return self._waiting.pop(run, None)

    def hold(self, run: int, until: float) -> bool:
        """Let it begin as late as that; say whether it waits at all."""
        found = self._waiting.get(run)
        if found is not None:
            found.until = until
        return found is not None

    def over(self, now: float) -> list[Waiting]:
        """Take out those that may not begin any more."""
        return [self._waiting.pop(one.start.run) for one in list(self._waiting.values()) if one.until <= now]

    def due(self) -> float:
        """When the first of them may not begin any more."""
        return min((one.until for one in self._waiting.values()), default=inf)

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()


# Wakes a `select` when a child has ended. It says neither which nor how many: several ends can be one signal.
#
# One signal for all is cheaper than a descriptor for each, and is there on every system with processes like these.


class Wakes:
    """Something to read whenever a child has ended."""

    def __init__(self) -> None:
        self._source, sink = os.pipe()
        os.set_blocking(self._source, False)
        os.set_blocking(sink, False)
        # A full pipe is no fault: whoever has not read it yet will look at all children anyway.
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        return self._source

    def drain(self) -> None:
        """Forget the wakes that came so far."""
        with suppress(BlockingIOError):
            os.read(self._source, 4096)


#: How much may wait for the agent before runs are no longer read, and how little before they are again.
BACKLOG_MAX: Final = 1_048_576
BACKLOG_LOW: Final = 262_144
#: How long the word that a run started waits for others to go with, and a run until it is listened to. What short runs
#: print is read at their end, and the agent is woken once for them instead of twice.
FRESH_SECONDS: Final = 0.002
#: How often a burial is looked at, beside whenever something ends.
BURIAL_LOOK_SECONDS: Final = 0.02

_NOBODY: Final[AbstractSet[str]] = frozenset()


class Runner:
    """All runs and workers of one agent."""

    def __init__(
        self, end: socket.socket, marker: str, deadlines: Deadlines, worker_options: Sequence[str] = ()
    ) -> None:
        self._marker = marker
        self._deadlines = deadlines
        self._worker_options = worker_options
        self._line = Line(end)
        self._spawner = Spawner()
        self._strays = Strays(marker)
        self._alone = False
        self._runs: dict[int, Run] = {}
        self._workers: dict[int, Worker] = {}
        self._leaders: dict[int, ProcessRecord] = {}  # those that live, by process
        self._burials: list[ProcessRecord] = []
        self._turns = Turns()
        self._deaf = False
        self._blocked = False  # something waits until the agent can take it
        self._wakes = Wakes()
        self._fresh: list[Run] = []  # those that nobody listens to yet
        self._fresh_until = inf
        self._due = inf  # no ward has to be judged before
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._line, selectors.EVENT_READ, self._hear)
        self._selector.register(self._wakes, selectors.EVENT_READ, self._wake)

    def serve(self) -> None:
        """Run until the agent is gone and nothing is left."""
        try:
            while not self._alone or self._leaders or self._burials:
                self._turn()
        finally:
            # Nothing is left behind by a bug here, either.
            for pid in self._leaders:
                signal_group(pid, signal.SIGKILL)

    def _turn(self) -> None:
        ready = self._selector.select(self._patience())
        # The clock comes first. This process may have been stopped for long, and what the agent said before that is
        # no reason to let something live on past its moment.
        now = time.monotonic()
        if now >= self._due:
            self._judge(now)
        for key, _ in ready:
            if isinstance(key.data, Run):
                self._read(key.data)
            else:
                key.data()
        if self._burials:
            self._bury()
        if self._turns:
            self._begin_next()
        if self._fresh and now >= self._fresh_until:
            self._settle_in()
        if self._line.urgent or self._line.blocked:
            self._line.flush()
        self._mind_the_agent()

    def _patience(self) -> float | None:
        due = min(self._due, self._fresh_until) if self._fresh else self._due
        if self._burials:
            due = min(due, time.monotonic() + BURIAL_LOOK_SECONDS)
        return None if due == inf else max(0.0, due - time.monotonic())

    # What the agent says.

    def _hear(self) -> None:
        for body in self._line.heard():
            self._do(ipc.read_for_runner(body))

    def _do(self, frame: ToRunner) -> None:
        match frame:
            case Start():
                self._line_up(frame)
            case Hold():
                self._hold(frame)
            case Stop():
                self._stop(frame)
            case Recall():
                self._recall(frame)
            case Hire():
                self._hire(frame)
            case Dismiss():
                self._dismiss(frame)
            case Ping():
                self._line.say(Pong())

    def _line_up(self, frame: Start) -> None:
        if frame.abreast == 0:
            self._start(frame)
            return
        self._turns.add(frame, time.monotonic())
        self._due = min(self._due, frame.until)

    def _begin_next(self) -> None:
        """Start those whose turn it is; one that has ended is told once the next has begun."""
        while (waiting := self._turns.next(len(self._runs))) is not None:
            now = time.monotonic()
            if now >= waiting.until:
                self._line.say(Ended(waiting.start.run, None, "lease_over"))
            else:
                self._start(msgspec.structs.replace(waiting.start, until=waiting.until), now - waiting.since)
        if not self._fresh:
            self._line.urgent = True  # what was said is not about to go out with the word of a start

    def _start(self, frame: Start, waited_s: float = 0.0) -> None:
        run = Run(frame, time.monotonic(), waited_s)
        try:
            source, sink = os.pipe()
        except OSError as error:
            self._line.say(Ended(frame.run, 126, "not_started", f"no pipe for its output: {error.strerror}"))
            return
        try:
            self._guard(run, owner_of(run.number, is_worker=False))
            environment = frame.env | marks(self._marker, run.name)
            run.pid = self._spawner.spawn(frame.argv, environment, frame.cwd, sink)
        except NotStarted as error:
            self._unguard(run)
            os.close(source)
            self._line.say(Ended(frame.run, error.exit_code, "not_started", error.note))
            return
        finally:
            os.close(sink)
        os.set_blocking(source, False)
        run.output = source
        self._runs[run.number] = run
        self._look_after(run)
        if not self._fresh:
            self._fresh_until = run.began + FRESH_SECONDS
        self._fresh.append(run)
        self._line.say(Started(run.number, run.pid), urgent=False)

    def _guard(self, ward: ProcessRecord, owner: int) -> None:
        """Tell the watchdog of something that is about to start."""
        try:
            ward.place = self._deadlines.add(owner, ward.watch.grace_s)
        except NoPlace:
            raise NotStarted(NOT_RUNNABLE, f"{GUARDED_MAX} processes run already") from None
        self._renew(ward)

    def _unguard(self, ward: ProcessRecord) -> None:
        if ward.place:
            self._deadlines.remove(ward.place)
            ward.place = 0

    def _renew(self, ward: ProcessRecord) -> None:
        """Give the watchdog the deadlines that hold now."""
        self._deadlines.move(ward.place, ward.watch.until, ward.watch.ask_at, ward.watch.kill_at)

    def _look_after(self, ward: ProcessRecord) -> None:
        self._leaders[ward.pid] = ward
        self._deadlines.lead(ward.place, ward.pid)
        self._due = min(self._due, ward.watch.due())

    def _hold(self, frame: Hold) -> None:
        for number, until in frame.runs.items():
            if self._turns.hold(number, until):
                self._due = min(self._due, until)
            self._move_on(self._runs.get(number), until)
        for number, moment in frame.workers.items():
            self._move_on(self._workers.get(number), inf if moment is None else moment)

    def _move_on(self, ward: ProcessRecord | None, until: float) -> None:
        if ward is not None:
            ward.watch.until = until
            self._renew(ward)
            self._due = min(self._due, until)

    def _stop(self, frame: Stop) -> None:
        if self._turns.take(frame.run) is not None:
            self._line.say(Ended(frame.run, None, "stopped"))
        run = self._runs.get(frame.run)
        if run is not None and run.exit is None:
            self._send(run, run.watch.ask("stopped", time.monotonic()))
            self._due = min(self._due, run.watch.due())

    def _recall(self, frame: Recall) -> None:
        for run in frame.runs:
            if self._turns.take(run) is not None:
                self._line.say(Ended(run, None, "recalled"))

    def _hire(self, frame: Hire) -> None:
        try:
            worker = Worker(frame.worker, Papers(), time.monotonic())
            theirs = self._begin(worker)
        except (NotStarted, OSError):
            self._line.say(Gone(frame.worker, None, "not_started"))
            return
        self._workers[worker.number] = worker
        self._look_after(worker)
        self._line.say(Hired(worker.number, worker.pid), theirs)

    def _begin(self, worker: Worker) -> socket.socket:
        """Start a worker; give the agent's end of the socket to it."""
        papers = worker.papers
        with ExitStack() as undo:
            undo.callback(papers.close)
            undo.callback(self._unguard, worker)
            self._guard(worker, owner_of(worker.number, is_worker=True))
            theirs, own = socket.socketpair()
            undo.callback(theirs.close)
            with own:
                own.set_inheritable(True)
                os.set_inheritable(papers.journal, True)
                ends = ["--fd", str(own.fileno()), "--journal", str(papers.journal)]
                argv = [sys.executable, "-m", "taskyard.bot.pyworker.worker", *ends, *self._worker_options]
                environment = os.environ | marks(self._marker, worker.name)
                worker.pid = self._spawner.spawn(argv, environment, "", papers.output)
            # Nothing else may have it: it would see, or break, what this worker says.
            os.set_inheritable(papers.journal, False)
            undo.pop_all()
        return theirs

    def _dismiss(self, frame: Dismiss) -> None:
        worker = self._workers.get(frame.worker)
        if worker is not None and worker.exit is None:
            self._send(worker, worker.watch.kill("dismissed"))

    # What time and the agent's end bring.

    def _judge(self, now: float) -> None:
        for ward in self._leaders.values():
            # What has ended by itself, and only was not looked at yet, was not ended by anybody.
            if now >= ward.watch.due() and not has_ended(ward.pid):
                self._send(ward, ward.watch.judge(now))
        for waiting in self._turns.over(now):
            self._line.say(Ended(waiting.start.run, None, "lease_over"))
        self._due = min((ward.watch.due() for ward in self._leaders.values()), default=inf)
        self._due = min(self._due, self._turns.due())
        if self._due <= now:
            # Only those that have ended are still due, and their end is about to be seen.
            self._due = now + BURIAL_LOOK_SECONDS

    def _send(self, ward: ProcessRecord, by: signal.Signals | None) -> None:
        if by is not None:
            self._renew(ward)
            signal_group(ward.pid, by)

    def _mind_the_agent(self) -> None:
        if not self._line.open and not self._alone:
            self._go_on_alone()
        if self._line.blocked is not self._blocked and not self._alone:
            self._blocked = self._line.blocked
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._blocked else 0)
            self._selector.modify(self._line, events, self._hear)
        if self._line.backlog > BACKLOG_MAX and not self._deaf:
            self._deafen()
        elif self._line.backlog < BACKLOG_LOW and self._deaf:
            self._listen_again()

    def _go_on_alone(self) -> None:
        """The agent is gone: only what may go on without it does, and that to its own time-out."""
        self._alone = True
        self._turns.clear()
        self._selector.unregister(self._line)
        for ward in self._leaders.values():
            if isinstance(ward, Run) and ward.keep:
                ward.watch.until = inf
                self._renew(ward)
            else:
                self._send(ward, ward.watch.kill("lease_over"))

    # What runs print.

    def _settle_in(self) -> None:
        """Listen to the runs that have been there for a moment, and say that they are."""
        fresh, self._fresh = self._fresh, []
        for run in fresh:
            self._listen(run)
        self._line.urgent = True

    def _listen(self, run: Run) -> None:
        if self._deaf:
            run.watch.deafen()
        elif run.output is not None and not run.heard:
            self._selector.register(run.output, selectors.EVENT_READ, run)
            run.heard = True

    def _deafen(self) -> None:
        """Leave what runs print in their pipes until the agent takes what it was told: nothing gets lost."""
        self._deaf = True
        for run in self._runs.values():
            run.watch.deafen()
            self._ignore(run)

    def _listen_again(self) -> None:
        self._deaf = False
        now = time.monotonic()
        for run in self._runs.values():
            run.watch.heard(now)
            self._due = min(self._due, run.watch.due())
            self._listen(run)

    def _read(self, run: Run) -> bool:
        """Tell one piece of what a run printed; say whether there may be more."""
        if run.output is None:
            return False
        try:
            body = output_spool.read(run.output)
        except BlockingIOError:
            return False
        if not body:
            self._stop_reading(run)
            return False
        run.watch.heard(time.monotonic())
        self._line.say(Printed(run.number, body), urgent=not self._turns)
        return True

    def _stop_reading(self, run: Run) -> None:
        if run.output is None:
            return
        self._ignore(run)
        os.close(run.output)
        run.output = None

    def _ignore(self, run: Run) -> None:
        if run.heard and run.output is not None:
            self._selector.unregister(run.output)
            run.heard = False

    # How things end.

    def _wake(self) -> None:
        self._wakes.drain()
        now = time.monotonic()
        for pid, how in reaped(self._leaders):
            ward = self._leaders.pop(pid, None)
            if ward is not None:
                by_watchdog = self._deadlines.reaped(ward.place)
                if by_watchdog:
                    ward.watch.why = ward.watch.why or (by_watchdog if by_watchdog != "asked" else ward.watch.ask_why)
                ward.end(how, now)
                self._burials.append(ward)

    def _bury(self) -> None:
        """Tell the end of those of whom nothing is left; kill what is."""
        adopted = self._strays.adopted(self._leaders)
        left = self._kill_strays(adopted) if adopted else _NOBODY
        now = time.monotonic()
        self._burials = [ward for ward in self._burials if not self._buried(ward, left, now)]

    def _kill_strays(self, adopted: list[int]) -> AbstractSet[str]:
        live = {ward.name for ward in self._leaders.values()}
        sessions = {ward.pid: ward.name for ward in [*self._burials, *self._leaders.values()]}
        return self._strays.kill(adopted, sessions, live)

    def _buried(self, ward: ProcessRecord, left: AbstractSet[str], now: float) -> bool:
        if isinstance(ward, Run):
            self._read_rest(ward)
        unfinished = ward.name in left or UNKNOWN in left or (isinstance(ward, Run) and ward.output is not None)
        if unfinished and now < ward.buried_by:
            return False
        assert ward.exit is not None, "only what has ended is buried"
        self._unguard(ward)
        if isinstance(ward, Run):
            self._tell_end(ward, ward.exit, "some of its processes cannot be ended" if ward.name in left else "")
        elif isinstance(ward, Worker):
            self._tell_gone(ward, ward.exit)
        return True

    def _read_rest(self, run: Run) -> None:
        """Read what is in the pipe, though the agent may be behind: it is not more than a pipe can hold."""
        for _ in range(output_spool.REST_PIECES_MAX):
            if not self._read(run):
                break

    def _tell_end(self, run: Run, how: Exit, note: str) -> None:
        self._stop_reading(run)
        del self._runs[run.number]
        self._line.say(
            Ended(
                run.number,
                how.code,
                run.watch.why,
                note,
                run.waited_s,
                ran_s=run.ended - run.began,
                cpu_s=how.cpu_s,
                memory_bytes=how.memory_bytes,
                read_bytes=how.read_bytes,
                written_bytes=how.written_bytes,
            ),
            # While more wait for their turn, the agent need not hear of each end by itself.
            urgent=not self._turns,
        )

    def _tell_gone(self, worker: Worker, how: Exit) -> None:
        del self._workers[worker.number]
        run, told = worker.papers.read()
        worker.papers.close()
        self._line.say(Gone(worker.number, how.code, worker.watch.why, run, told))


def main() -> None:
    """Serve the agent at the other end of an inherited socket."""
    options = argparse.ArgumentParser(prog="python -m taskyard.bot.runner", description=__doc__)
    options.add_argument("--fd", type=int, required=True, help="this end of the socket to the agent")
    options.add_argument("--worker-memory-max", type=int, help="bytes of memory at which a warm worker is replaced")
    options.add_argument("--user", help="the numbers of the user to become, and of its groups")
    given = options.parse_args()
    if given.user is not None:
        # What the watchdog needs at its end may be where that user cannot read.
        from taskyard.bot import process_cleanup  # noqa: F401, PLC0415

        become(given.user)
        be_seen()
    # A terminal or a service sends these to agent and runner alike; what becomes of the runs is for the agent to say.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    limit = [] if given.worker_memory_max is None else ["--memory-max", str(given.worker_memory_max)]
    os.set_inheritable(given.fd, False)
    marker = os.environ.get(BOT_MARK) or str(os.getpid())
    with watchdog.started(marker, given.fd) as deadlines:
        Runner(socket.socket(fileno=given.fd), marker, deadlines, limit).serve()


if __name__ == "__main__":
    main()
