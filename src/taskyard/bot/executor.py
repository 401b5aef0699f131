"""Runs leased attempts, at most one per slot: programs by way of the runner, functions in warm workers.

It stands between the poll loop, which brings leases and what the server decided, and the runner, which reports what
happened. It makes no requests of its own, except for inputs that are too large to come with a lease.
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
    LeasedAttempt,
    LeasedAttempts,
    ReportTrouble,
    deadline_report,
    failure_report,
    lost_report,
    lost_unbegun_report,
    return_report,
    unrenewed_report,
)
from taskyard.bot.config import BotConfig
from taskyard.bot.ipc import (
    RecallRuns,
    RunEnded,
    RunOutput,
    RunStarted,
    SendToRunner,
    SetExpiry,
    StartRun,
    StopRun,
    ToAgent,
    ToRunner,
    WorkerEnded,
    WorkerStarted,
)
from taskyard.bot.output_spool import Spool, rest_file_name
from taskyard.bot.payloads import Function, Program, TaskEnvironment, UnsupportedPayload, parse_payload
from taskyard.bot.poll_payload import PollEffects
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.process import NOT_RUNNABLE
from taskyard.bot.pyworker.pool import WorkerPool
from taskyard.bot.server_client import InputsUnavailable, fetch_inputs
from taskyard.bot.state_folder import StateFolder
from taskyard.bot.workdir import NO_FILES, TaskFiles, Workdir, WorkdirPool
from taskyard.wire.bot_protocol import Lease, Report, Signal, Stats

#: How long an attempt that may outlive its lease is allowed to run: its time-out or the server ends it first.
UNLIMITED_SECONDS: Final = 10 * 365 * 86_400.0


# Attempts that run as programs: prepare the working folder, tell the runner to start the program, read how it ended.


class ProgramAttempts:
    """The attempts that run as programs now."""

    def __init__(
        self,
        make_spool: Callable[[LeasedAttempt], Spool],
        workdirs: WorkdirPool,
        environment: TaskEnvironment,
        attempts: LeasedAttempts,
        send: SendToRunner,
        report_trouble: ReportTrouble,
    ) -> None:
        self.running: dict[int, LeasedAttempt] = {}  # those in the runner's queue included
        self._starts: list[StartRun] = []
        self._running_since: dict[int, float] = {}  # start time of those not yet seen to run for a moment
        self._queued: set[int] = set()  # those that may still be in the runner's queue
        self._make_spool = make_spool
        self._workdirs = workdirs
        self._environment = environment
        self._attempts = attempts
        self._send = send
        self._report_trouble = report_trouble

    def start(self, attempt: LeasedAttempt, parallel_max: int = 0) -> Report | None:
        """Prepare an attempt for the next `flush_starts`, or return the report of its failure.

        With `parallel_max` the runner queues it until fewer runs than that are there.
        """
        program = cast("Program", attempt.work)
        report = attempt.expiry_report(time.monotonic())
        if report is not None:
            return report
        try:
            attempt.workdir = workdir = self._workdirs.take()
            workdir.prepare(attempt.lease, attempt.inputs, program.script)
            cwd = _working_folder(program, workdir)
        except OSError as error:
            self._report_trouble(f"a program has no working folder: {error}", attempt)
            self.add_output(attempt, f"taskyard: {error}\n")
            return failure_report(attempt, "exit_code", NOT_RUNNABLE)
        attempt.began = time.monotonic()
        attempt.prepared_ms = round((attempt.began - attempt.received_at) * 1000)
        self.running[attempt.run] = attempt
        if parallel_max:
            self._queued.add(attempt.run)
        self._starts.append(
            StartRun(
                run=attempt.run,
                argv=list(program.argv) if program.script is None else [*program.argv, workdir.file("script")],
                env=self._environment.for_attempt(attempt.lease, workdir.env(), program.env),
                cwd=cwd,
                until=attempt.until if attempt.strict else attempt.began + UNLIMITED_SECONDS,
                deadline=attempt.deadline,
                timeout_s=program.limits.timeout_s,
                silence_s=program.limits.silence_s,
                grace_s=program.limits.grace_s,
                survives_disconnect=not attempt.strict,
                parallel_max=parallel_max,
            )
        )
        return None

    def mark_started(self, run: int, now: float) -> None:
        """Note that its process has started."""
        self._queued.discard(run)
        if run in self.running:
            self._running_since[run] = now

    def tick(self, now: float) -> bool:
        """Queue the begin report of those that have run for a moment; True if there were any."""
        going_on = [run for run, since in self._running_since.items() if now - since >= MOMENT_SECONDS]
        for run in going_on:
            del self._running_since[run]
            if run in self.running:
                self._attempts.queue_begun(self.running[run], now)
        return bool(going_on)

    def recall(self) -> None:
        """Ask the runner to return its queued runs: they count as begun while they are there."""
        if self._queued:
            self._send(RecallRuns(sorted(self._queued)))

    def take_recalled(self, run: int) -> LeasedAttempt | None:
        """Take back an attempt that the runner has not begun."""
        self._queued.discard(run)
        attempt = self.running.pop(run, None)
        if attempt is not None:
            self._attempts.mark_not_begun([attempt])
            assert attempt.workdir is not None, "a program has a workdir"
            self._workdirs.give_back(attempt.workdir)
            attempt.workdir = None
        return attempt

    def lose_all(self) -> list[tuple[LeasedAttempt, Report]]:
        """Forget all attempts, because the runner is gone; return the report of each."""
        gone = [
            (attempt, lost_unbegun_report(attempt) if run in self._queued else lost_report(attempt))
            for run, attempt in self.running.items()
        ]
        self.running.clear()
        self._running_since.clear()
        self._queued.clear()
        return gone

    def flush_starts(self) -> None:
        """Send the prepared starts to the runner."""
        if self._starts:
            starts, self._starts = self._starts, []
            self._attempts.mark_begun([self.running[one.run] for one in starts])
            self._send(*starts)

    def stop(self, attempt: LeasedAttempt) -> None:
        """End an attempt within the grace of its payload."""
        self._send(StopRun(attempt.run))

    def add_output(self, attempt: LeasedAttempt, text: str | bytes) -> None:
        """Add to the output of an attempt."""
        body = text if isinstance(text, bytes) else text.encode(errors="replace")
        spool = attempt.spool or self._make_spool(attempt)
        self._attempts.add_output(attempt, spool, body, time.monotonic())

    def finish(self, frame: RunEnded) -> tuple[LeasedAttempt, Report] | None:
        """Read how an attempt ended; None if it is unknown."""
        attempt = self.running.pop(frame.run, None)
        self._running_since.pop(frame.run, None)
        self._queued.discard(frame.run)
        if attempt is None:
            return None
        if frame.waited_s and attempt.prepared_ms is not None:
            attempt.prepared_ms += round(frame.waited_s * 1000)
        if frame.note:
            self.add_output(attempt, f"taskyard: {frame.note}\n")
        assert attempt.workdir is not None, "a program has a workdir"
        attempt.untouched = attempt.workdir.is_unchanged()
        left = NO_FILES if attempt.untouched else attempt.workdir.read_files(succeeded=_succeeded(attempt, frame))
        if left.checkpoint is not None:
            attempt.last_checkpoint = left.checkpoint
        for fault in left.faults:
            self.add_output(attempt, f"taskyard: {fault}\n")
        return attempt, _end_report(attempt, frame, left)


def _succeeded(attempt: LeasedAttempt, frame: RunEnded) -> bool:
    return frame.exit_code == 0 and frame.reason is None and attempt.stopping != "lose"


def _end_report(attempt: LeasedAttempt, frame: RunEnded, left: TaskFiles) -> Report:
    stats = _program_stats(attempt, frame)
    if frame.reason == "lease_over" or attempt.stopping == "lose":
        return _unfinished_report(attempt, frame)
    if frame.reason == "deadline":
        return deadline_report(attempt, frame.exit_code, stats)
    if frame.reason in ("timed_out", "silent"):
        return failure_report(attempt, frame.reason, frame.exit_code, stats)
    if frame.exit_code is None:
        return return_report(attempt)
    if not _succeeded(attempt, frame):
        return failure_report(attempt, "signaled" if frame.exit_code < 0 else "exit_code", frame.exit_code, stats)
    if left.faults:
        return failure_report(attempt, "bad_result", 0, stats)
    lease = attempt.lease
    return Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, None, 0, left.result, stats)


def _unfinished_report(attempt: LeasedAttempt, frame: RunEnded) -> Report:
    """Report an attempt that did not end by itself: whether it had begun, and what ended it."""
    if frame.exit_code is None:
        return return_report(attempt)
    return lost_report(attempt) if attempt.stopping == "lose" else unrenewed_report(attempt)


def _working_folder(program: Program, workdir: Workdir) -> str:
    if program.cwd is None:
        return workdir.folder
    if not os.path.isdir(program.cwd):
        raise NotADirectoryError(f"cwd: there is no folder {program.cwd}")
    return program.cwd


def _program_stats(attempt: LeasedAttempt, frame: RunEnded) -> Stats:
    return Stats(
        prepared_ms=attempt.prepared_ms,
        ran_ms=round(frame.ran_s * 1000),
        cpu_s=frame.cpu_s,
        memory_bytes=frame.memory_bytes,
        read_bytes=frame.read_bytes,
        written_bytes=frame.written_bytes,
    )


class ExecutorOwner(Protocol):
    """What the executor needs from the agent."""

    def send_to_runner(self, *frames: ToRunner) -> None:
        """Send frames to the runner; frames given together go out together."""

    def on_change(self) -> None:
        """There is something to send to the server."""

    def report_trouble(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Report a problem of the bot itself."""


class Executor:
    """The slots of a bot, and the attempts that wait for one."""

    def __init__(
        self,
        config: BotConfig,
        state: StateFolder,
        attempts: LeasedAttempts,
        prefetch: PrefetchLimit,
        owner: ExecutorOwner,
    ) -> None:
        self._config = config
        self._attempts = attempts
        self._prefetch = prefetch
        self._send: SendToRunner = owner.send_to_runner
        self._on_change = owner.on_change
        self.report_trouble: ReportTrouble = owner.report_trouble
        self._work = state.work
        self._workdirs = WorkdirPool(state.work)
        self._programs = ProgramAttempts(
            self._new_spool, self._workdirs, TaskEnvironment(config), attempts, self._send, owner.report_trouble
        )
        self._pool = WorkerPool(self._workdirs, prefetch, self._send, attempts, self)
        self._paused = False
        self._waiting: deque[LeasedAttempt] = deque()  # programs without a slot
        # Attempts whose inputs are being fetched, by run.
        self._fetching: dict[int, tuple[LeasedAttempt, asyncio.Task[None]]] = {}

    # Called by the agent, after a poll.

    def accept(self, leases: list[Lease], sent: float) -> None:
        """Take these attempts and run them as slots become free."""
        now = time.monotonic()
        for lease in leases:
            if (lease.task, lease.attempt) not in self._attempts.by_key:
                self._prepare(self._attempts.add(lease, sent, now))
        self.start_waiting()

    def apply(self, effects: PollEffects) -> None:
        """Extend, stop or drop attempts after a reply."""
        runs = {one.run: one.until for one in effects.renewed if one.run in self._programs.running and one.strict}
        if runs:
            self._send(SetExpiry(runs=runs))
        if effects.renewed:
            self._pool.update_expiry()
        for attempt in (*effects.stop, *effects.revoked):
            self.stop(attempt, "stop")

    def stop(self, attempt: LeasedAttempt, why: str) -> None:
        """End an attempt: `stop` because a person asked for it, `lose` because this bot ends."""
        attempt.stopping = attempt.stopping or why
        if attempt.report is not None:
            return
        if attempt.run in self._programs.running:
            self._programs.stop(attempt)
        elif attempt in self._waiting:
            self._waiting.remove(attempt)
            self.finished(attempt, return_report(attempt))
        elif isinstance(attempt.work, Function):
            self._pool.stop(attempt)

    # Called by the agent, for the runner.

    def on_runner_frame(self, frame: ToAgent, end: socket.socket | None) -> None:
        """Handle a frame from the runner."""
        match frame:
            case RunOutput(run, body):
                attempt = self._programs.running.get(run)
                if attempt is not None:
                    self.add_output(attempt, body)
            case RunStarted(run, _):
                self._programs.mark_started(run, time.monotonic())
            case RunEnded():
                self._on_program_end(frame)
            case WorkerStarted(worker, _):
                assert end is not None, "a worker comes with a socket"
                self._pool.worker_started(worker, end)
            case WorkerEnded():
                self._pool.worker_ended(frame)
        self.start_waiting()

    def pause(self) -> None:
        """Start nothing: there is no runner that answers."""
        self._paused = True

    def resume(self) -> None:
        """Start attempts again: there is a runner."""
        self._paused = False
        self.start_waiting()

    def lose_all(self) -> None:
        """The runner is gone, and everything that ran with it."""
        for attempt, report in self._programs.lose_all():
            self.finished(attempt, report)
        self._pool.lose_all()

    # Timers and shutdown.

    def tick(self, now: float) -> None:
        """End attempts that have run for too long, where the runner does not do it."""
        self._pool.tick(now)
        self._check_fetching(now)
        if self._programs.tick(now):
            # Programs are longer than before: take back what the runner has queued, and send nothing ahead.
            self._prefetch.record_program(MOMENT_SECONDS)
            self._programs.recall()
        for attempt, report in [
            (one, report) for one in self._waiting if (report := one.expiry_report(now)) is not None
        ]:
            self._waiting.remove(attempt)
            self.finished(attempt, report)

    def kill_all(self) -> None:
        """Kill everything at once, without grace, and report it as lost."""
        for attempt in self._attempts:
            attempt.stopping = attempt.stopping or "lose"
        for attempt in list(self._waiting):
            self.stop(attempt, "lose")
        if self._programs.running:
            # The end of a lease kills a run without grace.
            self._send(SetExpiry(runs=dict.fromkeys(self._programs.running, time.monotonic())))
        self._pool.kill_all()

    def cancel_fetches(self) -> None:
        """Stop fetching inputs: this bot ends."""
        for _, task in self._fetching.values():
            task.cancel()

    # Called by program attempts and the worker pool.

    def add_output(self, attempt: LeasedAttempt, body: str | bytes) -> None:
        """Add to the output of an attempt; it goes out with the next request, or soon by itself."""
        self._programs.add_output(attempt, body)
        if attempt.spool is not None and attempt.spool.trouble:
            self.report_trouble(attempt.spool.trouble, attempt)

    def finished(self, attempt: LeasedAttempt, report: Report) -> None:
        """Record how an attempt ended, and release what it used."""
        if attempt.workdir is not None:
            self._workdirs.give_back(attempt.workdir, attempt.untouched)
            attempt.workdir = None
        if attempt.spool is not None:
            attempt.ended = time.monotonic()
            attempt.spool.finish()
            if attempt.spool.trouble:
                self.report_trouble(attempt.spool.trouble, attempt)
        self._attempts.finish(attempt, report)
        self._on_change()

    def start_waiting(self) -> None:
        """Start attempts while there are free slots."""
        if self._paused:
            return
        while self._waiting:
            ahead = self._may_queue_at_runner(self._waiting[0])
            if not ahead and self._free_slots <= 0:
                break
            attempt = self._waiting.popleft()
            report = self._programs.start(attempt, max(1, self._config.slots - self._pool.busy) if ahead else 0)
            if report is not None:
                self.finished(attempt, report)
        self._programs.flush_starts()
        if self._pool.has_work:
            self._pool.assign(self._free_slots)

    @property
    def _free_slots(self) -> int:
        return max(0, self._config.slots - len(self._programs.running)) - self._pool.busy

    def _may_queue_at_runner(self, attempt: LeasedAttempt) -> bool:
        """Whether the runner may queue it: only a program without a deadline, while all work here is short programs."""
        return self._prefetch.programs_are_short and attempt.lease.deadline_ms is None and not self._pool.has_work

    def _prepare(self, attempt: LeasedAttempt) -> None:
        """Read the payload of an attempt, and queue it for a slot."""
        try:
            attempt.work = parse_payload(attempt.lease.payload)
        except UnsupportedPayload as error:
            self._reject(attempt, str(error))
            return
        if attempt.lease.inputs_apart:
            task = asyncio.get_running_loop().create_task(self._fetch_inputs(attempt))
            self._fetching[attempt.run] = (attempt, task)
            return
        attempt.inputs = bytes(attempt.lease.inputs) or None
        self._enqueue(attempt)

    async def _fetch_inputs(self, attempt: LeasedAttempt) -> None:
        try:
            attempt.inputs = await fetch_inputs(
                self._config.url, attempt.lease.task, attempt.lease.token, self._config.tls
            )
        except InputsUnavailable as error:
            self._reject(attempt, str(error))
        else:
            self._enqueue(attempt)
            self.start_waiting()
        finally:
            self._fetching.pop(attempt.run, None)

    def _check_fetching(self, now: float) -> None:
        """End attempts that wait for inputs and may not begin any more."""
        for attempt, task in list(self._fetching.values()):
            report = attempt.expiry_report(now)
            if attempt.stopping or not attempt.is_ours:
                report = return_report(attempt)
            if report is not None:
                task.cancel()
                del self._fetching[attempt.run]
                self.finished(attempt, report)

    def _new_spool(self, attempt: LeasedAttempt) -> Spool:
        folder, lease = self._config.keep_output, attempt.lease
        whole = None if folder is None else folder / rest_file_name(lease.task, lease.attempt)
        return Spool(self._work / f"{attempt.run}.output", self._config.output_max, whole)

    def _enqueue(self, attempt: LeasedAttempt) -> None:
        if isinstance(attempt.work, Program):
            self._prefetch.note_name(attempt.work.name)
            self._waiting.append(attempt)
        else:
            self._pool.enqueue(attempt)

    def _reject(self, attempt: LeasedAttempt, why: str) -> None:
        self.add_output(attempt, f"taskyard: {why}\n")
        self.finished(attempt, failure_report(attempt, "exit_code", NOT_RUNNABLE))

    def _requeue(self, attempt: LeasedAttempt) -> None:
        """Put an attempt that has not begun back in its place in the queue."""
        if attempt.stopping or not attempt.is_ours:
            self.finished(attempt, return_report(attempt))
        else:
            before = sum(1 for _ in takewhile(lambda one: one.run < attempt.run, self._waiting))
            self._waiting.insert(before, attempt)

    def _on_program_end(self, frame: RunEnded) -> None:
        if frame.reason == "recalled":
            attempt = self._programs.take_recalled(frame.run)
            if attempt is not None:
                self._requeue(attempt)
            return
        self._prefetch.record_program(frame.ran_s)
        found = self._programs.finish(frame)
        if found is not None:
            if frame.reason == "not_started":
                self.report_trouble(frame.note, found[0])
            self.finished(*found)
