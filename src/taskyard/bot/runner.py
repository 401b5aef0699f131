"""The runner: starts what the agent sends, reads its output, and makes sure that it ends in time.

It is the dead-man's switch. A run whose lease is not extended is killed by the runner alone, and so is everything when
the agent is gone, except for runs that may go on without it. The end of a run is reported once nothing of it is left.

One thread and one `select`: it never blocks, so it gets back to its timers within a moment. It ignores the signals that
end programs, because it always ends with its agent. It knows no tasks and never talks to a server.
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
    AgentChannel,
    KillWorker,
    Ping,
    Pong,
    RecallRuns,
    RunEnded,
    RunOutput,
    RunStarted,
    SetExpiry,
    StartRun,
    StartWorker,
    StopRun,
    ToRunner,
    WatchdogDied,
    WorkerEnded,
    WorkerStarted,
)
from taskyard.bot.memory_limit import MemoryLimit, MemoryLimits, find_parent
from taskyard.bot.process import NOT_RUNNABLE, ExitStatus, Spawner, SpawnError, has_ended, reap, signal_group
from taskyard.bot.process_cleanup import BOT_MARK, UNKNOWN, Orphans, allow_inspection, mark_environment
from taskyard.bot.pyworker.protocol import WorkerFiles
from taskyard.bot.task_user import become
from taskyard.bot.watchdog import PROCESSES_MAX, RETRY_SECONDS, TooManyProcesses, Watchdog, owner_number

#: How long to wait, after the end of a run, for the rest of its output and its last processes. Only a process that
#: cannot be killed, or one that was passed the pipe by an outsider, takes that long.
CLEANUP_SECONDS_MAX: Final = 2.0
#: Reading runs stops when this much waits for the agent, and goes on when only this much is left.
BACKLOG_MAX: Final = 1_048_576
BACKLOG_LOW: Final = 262_144
#: How long a `RunStarted` waits for other frames, and a new run until its output is read. The output of shorter runs is
#: read at their end, which wakes the agent once instead of twice.
READ_DELAY_SECONDS: Final = 0.002
#: How often to look again whether anything of an ended run is left.
CLEANUP_CHECK_SECONDS: Final = 0.02
_NO_OWNERS: Final[AbstractSet[str]] = frozenset()


# Timers.


class EndTimer:
    """When a run or worker must end: lease, deadline, time-out, silence or stop. `reason` is the first that applied.

    It reads no clock and ends nothing: times are arguments, and it returns the signal to send.
    """

    __slots__ = (
        "_deadline",
        "_killed",
        "_output_at",
        "_silence_s",
        "_term_sent",
        "_timeout_at",
        "grace_s",
        "kill_at",
        "reason",
        "until",
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
        self.reason: str | None = None
        self._deadline = inf if deadline is None else deadline
        self._timeout_at = inf if timeout_s is None else now + timeout_s
        self._silence_s = inf if silence_s is None else silence_s
        self._output_at = now
        self.grace_s = grace_s
        self._term_sent = False
        self.kill_at = inf
        self._killed = False

    def due(self) -> float:
        """When to check again."""
        if self._killed:
            return inf
        if self._term_sent:
            return min(self.until, self.kill_at)
        return min(self.until, self._deadline, self._timeout_at, self._output_at + self._silence_s)

    @property
    def term_at(self) -> float:
        """When it is asked to end whatever it prints: at its deadline or its time-out."""
        return inf if self._term_sent or self._killed else min(self._deadline, self._timeout_at)

    @property
    def silent_at(self) -> float:
        """When it is asked to end if it prints nothing until then."""
        return inf if self._term_sent or self._killed else self._output_at + self._silence_s

    @property
    def silence_s(self) -> float:
        """How long it may print nothing."""
        return self._silence_s

    @property
    def term_reason(self) -> str:
        """Which of the two comes first."""
        return "deadline" if self._deadline <= self._timeout_at else "timed_out"

    def saw_output(self, now: float) -> None:
        """Note that it printed something."""
        self._output_at = now

    def pause_silence(self) -> None:
        """Do not count silence: its output is not read for now."""
        self._output_at = inf

    def check(self, now: float) -> signal.Signals | None:
        """Return the signal to send now, if any. The end of the lease comes first and allows no grace."""
        if self._killed or now < self.due():
            return None
        if now >= self.until:
            return self.kill("lease_over")
        if self._term_sent:
            return self.kill("stopped")
        return self.request_stop(self._term_reason_now(now), now)

    def _term_reason_now(self, now: float) -> str:
        """Return which of its times came first; the check may be late."""
        if now >= min(self._deadline, self._timeout_at):
            return self.term_reason
        return "silent"

    def request_stop(self, why: str, now: float) -> signal.Signals | None:
        """Ask it to end, within its grace; a second request changes nothing."""
        if self._term_sent or self._killed:
            return None
        if self.grace_s <= 0:
            return self.kill(why)
        self.reason, self._term_sent, self.kill_at = self.reason or why, True, now + self.grace_s
        return signal.SIGTERM

    def kill(self, why: str) -> signal.Signals:
        """End it at once."""
        self.reason, self._killed = self.reason or why, True
        return signal.SIGKILL


# Process records.


class ProcessRecord:
    """A process that leads a session: a run or a worker."""

    __slots__ = ("began", "exit", "finish_by", "limit", "name", "number", "output", "pid", "timer", "watchdog_record")

    def __init__(self, number: int, name: str, timer: EndTimer, began: float) -> None:
        self.number = number
        self.name = name  # the owner in the mark of everything that it starts
        self.timer = timer
        self.began = began
        self.pid = 0
        self.watchdog_record = 0  # the number of its record in the watchdog's memory
        self.output: int | None = None  # the pipe with its output
        self.exit: ExitStatus | None = None
        self.finish_by = inf  # when its end is reported at the latest
        self.limit: MemoryLimit | None = None

    def set_exit(self, status: ExitStatus, now: float) -> None:
        """Its leader has ended; processes that it started may be left."""
        self.exit, self.finish_by = status, now + CLEANUP_SECONDS_MAX


class RunProcess(ProcessRecord):
    """An attempt that runs as a program."""

    __slots__ = ("ended", "is_read", "survives_disconnect", "waited_s")

    def __init__(self, start: StartRun, now: float, waited_s: float = 0.0) -> None:
        timer = EndTimer(now, start.until, start.timeout_s, start.silence_s, start.grace_s, start.deadline)
        super().__init__(start.run, str(start.run), timer, now)
        self.survives_disconnect = start.survives_disconnect
        self.waited_s = waited_s  # in the start queue
        self.is_read = False  # its output is registered with the selector
        self.ended = now

    def set_exit(self, status: ExitStatus, now: float) -> None:
        super().set_exit(status, now)
        self.ended = now


class WorkerProcess(ProcessRecord):
    """A warm worker."""

    __slots__ = ("files",)

    def __init__(self, number: int, files: WorkerFiles, now: float) -> None:
        super().__init__(number, f"worker-{number}", EndTimer(now), now)
        self.files = files


# The start queue.


class QueuedStart:
    """A queued start, since when it waits, and until when it may start."""

    __slots__ = ("since", "start", "until")

    def __init__(self, start: StartRun, since: float) -> None:
        self.start, self.since, self.until = start, since, start.until


class StartQueue:
    """Starts that the agent sent ahead, in order, so that no slot waits for the agent. None of them has begun."""

    def __init__(self) -> None:
        self._waiting: dict[int, QueuedStart] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: StartRun, now: float) -> None:
        """Add a start."""
        self._waiting[start.run] = QueuedStart(start, now)

    def next(self, runs: int) -> QueuedStart | None:
        """Take the first start if it may begin beside so many runs."""
        first = next(iter(self._waiting.values()), None)
        if first is None or runs >= first.start.parallel_max:
            return None
        return self._waiting.pop(first.start.run)

    def remove(self, run: int) -> QueuedStart | None:
        """Take a start out of the queue, if it is there."""
        return self._waiting.pop(run, None)

    def extend(self, run: int, until: float) -> bool:
        """Move the time until which it may start; False if it is not queued."""
        found = self._waiting.get(run)
        if found is not None:
            found.until = until
        return found is not None

    def expired(self, now: float) -> list[QueuedStart]:
        """Take out the starts that may not begin any more."""
        return [self._waiting.pop(one.start.run) for one in list(self._waiting.values()) if one.until <= now]

    def due(self) -> float:
        """When the first start may not begin any more."""
        return min((one.until for one in self._waiting.values()), default=inf)

    def clear(self) -> None:
        """Drop all starts."""
        self._waiting.clear()


# Noticing ends of children.


class ChildSignal:
    """A descriptor that becomes readable when a child has ended.

    It says neither which nor how many: several ends can be one signal. One signal for all is cheaper than a descriptor
    for each, and exists on every system.
    """

    def __init__(self) -> None:
        self._source, sink = os.pipe()
        os.set_blocking(self._source, False)
        os.set_blocking(sink, False)
        # A full pipe is fine: one wake-up is enough to look at all children.
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def fileno(self) -> int:
        return self._source

    def drain(self) -> None:
        """Discard the wake-ups so far."""
        with suppress(BlockingIOError):
            os.read(self._source, 4096)


class Runner:
    """All runs and workers of one agent."""

    def __init__(self, end: socket.socket, marker: str, watchdog: Watchdog, worker_options: Sequence[str] = ()) -> None:
        self._marker = marker
        self._watchdog = watchdog
        self._deadlines = watchdog.deadlines
        self._watch_again_at = inf  # when to start another watchdog, if there is none
        self._worker_options = worker_options
        self._channel = AgentChannel(end)
        self._spawner = Spawner()
        self._orphans = Orphans(marker)
        self._agent_gone = False
        self._runs: dict[int, RunProcess] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._leaders: dict[int, ProcessRecord] = {}  # those that live, by pid
        self._ending: list[ProcessRecord] = []
        self._queue = StartQueue()
        self._memory_limits: MemoryLimits | None = None  # made when first needed
        self._output_paused = False
        self._blocked = False  # something waits until the agent can take it
        self._child_signal = ChildSignal()
        self._new_runs: list[RunProcess] = []  # runs whose output is not read yet
        self._read_new_at = inf
        self._due = inf  # no timer has to be checked before
        self._expect_watchdog()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_agent_data)
        self._selector.register(self._child_signal, selectors.EVENT_READ, self._on_child_exit)

    def serve(self) -> None:
        """Serve until the agent is gone and nothing is left."""
        try:
            while not self._agent_gone or self._leaders or self._ending:
                self._step()
        finally:
            # Leave nothing behind after a bug here, either.
            for pid in self._leaders:
                signal_group(pid, signal.SIGKILL)

    def _step(self) -> None:
        ready = self._selector.select(self._select_timeout())
        # The timers come first. This process may have been stopped for long, and frames sent before that must not let
        # anything outlive its lease.
        now = time.monotonic()
        if now >= self._due:
            self._check_timers(now)
        for key, _ in ready:
            if isinstance(key.data, RunProcess):
                self._read_output(key.data)
            else:
                key.data()
        if self._ending:
            self._finish_ended()
        if self._queue:
            self._start_queued()
        if self._new_runs and now >= self._read_new_at:
            self._read_new_outputs()
        if self._channel.urgent or self._channel.blocked:
            self._channel.flush()
        self._check_agent()

    def _select_timeout(self) -> float | None:
        due = min(self._due, self._read_new_at) if self._new_runs else self._due
        if self._ending:
            due = min(due, time.monotonic() + CLEANUP_CHECK_SECONDS)
        return None if due == inf else max(0.0, due - time.monotonic())

    # Frames from the agent.

    def _on_agent_data(self) -> None:
        for body in self._channel.receive():
            self._handle(ipc.decode_for_runner(body))

    def _handle(self, frame: ToRunner) -> None:
        match frame:
            case StartRun():
                self._start_or_queue(frame)
            case SetExpiry():
                self._set_expiry(frame)
            case StopRun():
                self._stop_run(frame)
            case RecallRuns():
                self._recall_runs(frame)
            case StartWorker():
                self._start_worker(frame)
            case KillWorker():
                self._kill_worker(frame)
            case Ping():
                self._channel.send(Pong())

    def _start_or_queue(self, frame: StartRun) -> None:
        if frame.parallel_max == 0:
            self._start_run(frame)
            return
        self._queue.add(frame, time.monotonic())
        self._due = min(self._due, frame.until)

    def _start_queued(self) -> None:
        """Start queued runs that may begin. The end of a run goes out after the start of the next."""
        while (waiting := self._queue.next(len(self._runs))) is not None:
            now = time.monotonic()
            if now >= waiting.until:
                self._channel.send(RunEnded(waiting.start.run, None, "lease_over"))
            else:
                self._start_run(msgspec.structs.replace(waiting.start, until=waiting.until), now - waiting.since)
        if not self._new_runs:
            self._channel.urgent = True  # no `RunStarted` is about to take the other frames along

    def _start_run(self, frame: StartRun, waited_s: float = 0.0) -> None:
        run = RunProcess(frame, time.monotonic(), waited_s)
        try:
            source, sink = os.pipe()
        except OSError as error:
            self._channel.send(
                RunEnded(frame.run, NOT_RUNNABLE, "not_started", f"no pipe for its output: {error.strerror}")
            )
            return
        try:
            self._add_to_watchdog(run, owner_number(run.number, is_worker=False))
            environment = frame.env | mark_environment(self._marker, run.name)
            run.limit = self._memory_limit(run, frame.memory_mb)
            run.pid = self._spawner.spawn(frame.argv, environment, frame.cwd, sink, run.limit)
        except SpawnError as error:
            self._remove_from_watchdog(run)
            self._remove_limit(run)
            os.close(source)
            self._channel.send(RunEnded(frame.run, error.exit_code, "not_started", error.note))
            return
        finally:
            os.close(sink)
        os.set_blocking(source, False)
        run.output = source
        if run.timer.silence_s != inf:
            self._deadlines.set_output(run.watchdog_record, source, run.timer.silence_s)
        self._runs[run.number] = run
        self._track(run)
        if not self._new_runs:
            self._read_new_at = run.began + READ_DELAY_SECONDS
        self._new_runs.append(run)
        self._channel.send(RunStarted(run.number, run.pid), urgent=False)

    def _memory_limit(self, record: ProcessRecord, size_mb: int) -> MemoryLimit | None:
        if not size_mb:
            return None
        if self._memory_limits is None:
            self._memory_limits = MemoryLimits(find_parent())
        return self._memory_limits.create(record.name, size_mb)

    def _remove_limit(self, record: ProcessRecord) -> None:
        if record.limit is not None:
            record.limit.close()

    def _add_to_watchdog(self, record: ProcessRecord, owner: int) -> None:
        """Take a watchdog record for something that is about to start."""
        try:
            record.watchdog_record = self._deadlines.add(owner, record.timer.grace_s)
        except TooManyProcesses:
            raise SpawnError(NOT_RUNNABLE, f"{PROCESSES_MAX} processes run already") from None
        self._update_watchdog(record)

    def _remove_from_watchdog(self, record: ProcessRecord) -> None:
        if record.watchdog_record:
            self._deadlines.remove(record.watchdog_record)
            record.watchdog_record = 0

    def _update_watchdog(self, record: ProcessRecord) -> None:
        """Give the watchdog the current deadlines."""
        self._deadlines.set_times(
            record.watchdog_record, record.timer.until, record.timer.term_at, record.timer.kill_at
        )
        if record.timer.silence_s != inf:
            self._deadlines.set_silent_at(record.watchdog_record, record.timer.silent_at)

    def _replace_watchdog(self) -> None:
        self._watchdog.start()
        self._expect_watchdog()

    def _expect_watchdog(self) -> None:
        """If there is no watchdog, start one soon."""
        self._watch_again_at = inf if self._watchdog.pid else self._watchdog.started_at + RETRY_SECONDS
        self._due = min(self._due, self._watch_again_at)

    def _track(self, record: ProcessRecord) -> None:
        self._leaders[record.pid] = record
        self._deadlines.set_leader(record.watchdog_record, record.pid)
        self._due = min(self._due, record.timer.due())

    def _set_expiry(self, frame: SetExpiry) -> None:
        for number, until in frame.runs.items():
            if self._queue.extend(number, until):
                self._due = min(self._due, until)
            self._move_expiry(self._runs.get(number), until)
        for number, moment in frame.workers.items():
            self._move_expiry(self._workers.get(number), inf if moment is None else moment)

    def _move_expiry(self, record: ProcessRecord | None, until: float) -> None:
        if record is not None:
            record.timer.until = until
            self._update_watchdog(record)
            self._due = min(self._due, until)

    def _stop_run(self, frame: StopRun) -> None:
        if self._queue.remove(frame.run) is not None:
            self._channel.send(RunEnded(frame.run, None, "stopped"))
        run = self._runs.get(frame.run)
        if run is not None and run.exit is None:
            self._signal(run, run.timer.request_stop("stopped", time.monotonic()))
            self._due = min(self._due, run.timer.due())

    def _recall_runs(self, frame: RecallRuns) -> None:
        for run in frame.runs:
            if self._queue.remove(run) is not None:
                self._channel.send(RunEnded(run, None, "recalled"))

    def _start_worker(self, frame: StartWorker) -> None:
        try:
            worker = WorkerProcess(frame.worker, WorkerFiles(), time.monotonic())
            agent_end = self._spawn_worker(worker, frame.memory_mb)
        except (SpawnError, OSError):
            self._channel.send(WorkerEnded(frame.worker, None, "not_started"))
            return
        self._workers[worker.number] = worker
        self._track(worker)
        self._channel.send(WorkerStarted(worker.number, worker.pid), agent_end)

    def _spawn_worker(self, worker: WorkerProcess, memory_mb: int) -> socket.socket:
        """Start a worker; return the agent's end of the socket to it."""
        files = worker.files
        with ExitStack() as undo:
            undo.callback(files.close)
            undo.callback(self._remove_from_watchdog, worker)
            self._add_to_watchdog(worker, owner_number(worker.number, is_worker=True))
            agent_end, worker_end = socket.socketpair()
            undo.callback(agent_end.close)
            with worker_end:
                worker_end.set_inheritable(True)
                os.set_inheritable(files.outbox, True)
                ends = ["--fd", str(worker_end.fileno()), "--outbox", str(files.outbox)]
                argv = [sys.executable, "-m", "taskyard.bot.pyworker.worker", *ends, *self._worker_options]
                environment = os.environ | mark_environment(self._marker, worker.name)
                worker.limit = self._memory_limit(worker, memory_mb)
                undo.callback(self._remove_limit, worker)
                worker.pid = self._spawner.spawn(argv, environment, "", files.output, worker.limit)
            # No other process may inherit it: it could read or corrupt what this worker writes.
            os.set_inheritable(files.outbox, False)
            undo.pop_all()
        return agent_end

    def _kill_worker(self, frame: KillWorker) -> None:
        worker = self._workers.get(frame.worker)
        if worker is not None and worker.exit is None:
            self._signal(worker, worker.timer.kill("killed"))

    # Timers and the end of the agent.

    def _check_timers(self, now: float) -> None:
        if now >= self._watch_again_at:
            self._replace_watchdog()
        for record in self._leaders.values():
            # A process that has ended by itself, and is not reaped yet, was not ended by its timer.
            if now >= record.timer.due() and not has_ended(record.pid):
                # After this process was stopped, what was printed meanwhile is still in the pipe.
                if isinstance(record, RunProcess) and record.is_read and now >= record.timer.silent_at:
                    self._read_output(record)
                self._signal(record, record.timer.check(now))
        for waiting in self._queue.expired(now):
            self._channel.send(RunEnded(waiting.start.run, None, "lease_over"))
        self._due = min((record.timer.due() for record in self._leaders.values()), default=inf)
        self._due = min(self._due, self._queue.due(), self._watch_again_at)
        if self._due <= now:
            # Only processes that have ended are still due; their end is about to be seen.
            self._due = now + CLEANUP_CHECK_SECONDS

    def _signal(self, record: ProcessRecord, by: signal.Signals | None) -> None:
        if by is not None:
            self._update_watchdog(record)
            signal_group(record.pid, by)

    def _check_agent(self) -> None:
        if not self._channel.is_open and not self._agent_gone:
            self._on_agent_gone()
        if self._channel.blocked is not self._blocked and not self._agent_gone:
            self._blocked = self._channel.blocked
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._blocked else 0)
            self._selector.modify(self._channel, events, self._on_agent_data)
        if self._channel.backlog > BACKLOG_MAX and not self._output_paused:
            self._pause_output()
        elif self._channel.backlog < BACKLOG_LOW and self._output_paused:
            self._resume_output()

    def _on_agent_gone(self) -> None:
        """The agent is gone: kill all but the runs that may go on without it, which end at their time-outs."""
        self._agent_gone = True
        self._queue.clear()
        self._selector.unregister(self._channel)
        for record in self._leaders.values():
            if isinstance(record, RunProcess) and record.survives_disconnect:
                record.timer.until = inf
                self._update_watchdog(record)
            else:
                self._signal(record, record.timer.kill("lease_over"))

    # Output of runs.

    def _read_new_outputs(self) -> None:
        """Start to read the runs that have been there for a moment, and let their start frames go out."""
        new_runs, self._new_runs = self._new_runs, []
        for run in new_runs:
            self._start_reading(run)
        self._channel.urgent = True

    def _start_reading(self, run: RunProcess) -> None:
        if self._output_paused:
            run.timer.pause_silence()
            self._update_watchdog(run)
        elif run.output is not None and not run.is_read:
            self._selector.register(run.output, selectors.EVENT_READ, run)
            run.is_read = True

    def _pause_output(self) -> None:
        """Leave output in the pipes of runs until the agent catches up: nothing is lost."""
        self._output_paused = True
        for run in self._runs.values():
            run.timer.pause_silence()
            self._update_watchdog(run)
            self._unregister(run)

    def _resume_output(self) -> None:
        self._output_paused = False
        now = time.monotonic()
        for run in self._runs.values():
            run.timer.saw_output(now)
            self._update_watchdog(run)
            self._due = min(self._due, run.timer.due())
            self._start_reading(run)

    def _read_output(self, run: RunProcess) -> bool:
        """Send one piece of output; say whether there may be more."""
        if run.output is None:
            return False
        try:
            body = output_spool.read_pipe(run.output)
        except BlockingIOError:
            return False
        if not body:
            self._close_output(run)
            return False
        run.timer.saw_output(time.monotonic())
        if run.timer.silence_s != inf:
            self._deadlines.set_silent_at(run.watchdog_record, run.timer.silent_at)
        self._channel.send(RunOutput(run.number, body), urgent=not self._queue)
        return True

    def _close_output(self, run: RunProcess) -> None:
        if run.output is None:
            return
        self._unregister(run)
        if run.timer.silence_s != inf and run.watchdog_record:
            self._deadlines.set_output(run.watchdog_record, -1, run.timer.silence_s)
        os.close(run.output)
        run.output = None

    def _unregister(self, run: RunProcess) -> None:
        if run.is_read and run.output is not None:
            self._selector.unregister(run.output)
            run.is_read = False

    # Ends.

    def _on_child_exit(self) -> None:
        self._child_signal.drain()
        now = time.monotonic()
        for pid, status in reap(self._leaders):
            if pid == self._watchdog.pid:
                self._channel.send(WatchdogDied(pid))
                self._watchdog.pid = 0
                self._expect_watchdog()
            record = self._leaders.pop(pid, None)
            if record is not None:
                watchdog_reason = self._deadlines.clear_leader(record.watchdog_record)
                if watchdog_reason:
                    record.timer.reason = record.timer.reason or (
                        watchdog_reason if watchdog_reason != "asked" else record.timer.term_reason
                    )
                record.set_exit(status, now)
                self._ending.append(record)

    def _finish_ended(self) -> None:
        """Report the ends of processes of which nothing is left, and kill orphans."""
        adopted = self._orphans.adopted(self._leaders, self._watchdog.pid)
        left = self._kill_orphans(adopted) if adopted else _NO_OWNERS
        now = time.monotonic()
        self._ending = [record for record in self._ending if not self._try_finish(record, left, now)]

    def _kill_orphans(self, adopted: list[int]) -> AbstractSet[str]:
        live = {record.name for record in self._leaders.values()}
        sessions = {record.pid: record.name for record in [*self._ending, *self._leaders.values()]}
        return self._orphans.kill(adopted, sessions, live)

    def _try_finish(self, record: ProcessRecord, left: AbstractSet[str], now: float) -> bool:
        if isinstance(record, RunProcess):
            self._read_rest(record)
        unfinished = (
            record.name in left or UNKNOWN in left or (isinstance(record, RunProcess) and record.output is not None)
        )
        if unfinished and now < record.finish_by:
            return False
        assert record.exit is not None, "only an ended process is finished"
        self._remove_from_watchdog(record)
        if isinstance(record, RunProcess):
            self._report_run_end(record, record.exit, _end_note(record, left))
        elif isinstance(record, WorkerProcess):
            self._report_worker_end(record, record.exit)
        self._remove_limit(record)
        return True

    def _read_rest(self, run: RunProcess) -> None:
        """Read the rest of the pipe although the agent may be behind: it is at most what a pipe can hold."""
        for _ in range(output_spool.REST_PIECES_MAX):
            if not self._read_output(run):
                break

    def _report_run_end(self, run: RunProcess, status: ExitStatus, note: str) -> None:
        self._close_output(run)
        del self._runs[run.number]
        self._channel.send(
            RunEnded(
                run.number,
                status.code,
                run.timer.reason,
                note,
                run.waited_s,
                ran_s=run.ended - run.began,
                cpu_s=status.cpu_s,
                memory_bytes=status.memory_bytes,
                read_bytes=status.read_bytes,
                written_bytes=status.written_bytes,
            ),
            # While starts are queued, the agent is not woken for each end.
            urgent=not self._queue,
        )

    def _report_worker_end(self, worker: WorkerProcess, status: ExitStatus) -> None:
        del self._workers[worker.number]
        run, unsent = worker.files.read()
        worker.files.close()
        self._channel.send(WorkerEnded(worker.number, status.code, worker.timer.reason, run, unsent))


def _end_note(record: ProcessRecord, left: AbstractSet[str]) -> str:
    if record.limit is not None and record.limit.was_hit():
        return f"the kernel ended it because it used more than its {record.limit.size_mb} MiB of memory"
    return "some of its processes cannot be killed" if record.name in left else ""


def main() -> None:
    """Run the runner for the agent at the other end of an inherited socket."""
    options = argparse.ArgumentParser(prog="python -m taskyard.bot.runner", description=__doc__)
    options.add_argument("--fd", type=int, required=True, help="this end of the socket to the agent")
    options.add_argument("--worker-memory-max", type=int, help="bytes of memory at which a warm worker is replaced")
    options.add_argument("--user", help="the ids of the user to run as, and of its groups")
    given = options.parse_args()
    if given.user is not None:
        # The watchdog needs it at its end, and that user may not be able to read it.
        from taskyard.bot import process_cleanup  # noqa: F401, PLC0415

        become(given.user)
        allow_inspection()
    # A terminal or a service sends these to agent and runner alike; the agent decides what becomes of the runs.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    limit = [] if given.worker_memory_max is None else ["--memory-max", str(given.worker_memory_max)]
    os.set_inheritable(given.fd, False)
    marker = os.environ.get(BOT_MARK) or str(os.getpid())
    with watchdog.start(marker) as its_watchdog:
        Runner(socket.socket(fileno=given.fd), marker, its_watchdog, limit).serve()


if __name__ == "__main__":
    main()
