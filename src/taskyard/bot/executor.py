"""Runs leased attempts, at most one per slot: programs by way of the runner, functions in warm workers.

It stands between the poll loop, which brings leases and what the server decided, and the runner, which reports what
happened. It makes no requests of its own, except for what does not come with a lease: large inputs, and files.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec
from msgspec.structs import replace

from taskyard.bot import gpus
from taskyard.bot.attempts import (
    MOMENT_SECONDS,
    LeasedAttempt,
    LeasedAttempts,
    ReportTrouble,
    deadline_report,
    failure_report,
    given_up_report,
    lost_report,
    lost_unbegun_report,
    return_report,
    unrenewed_report,
)
from taskyard.bot.caches import CachePathTaken, CacheStore
from taskyard.bot.gpus import GpuPool
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
from taskyard.bot.output_spool import Spool
from taskyard.bot.payloads import FileSpec, Function, Program, TaskEnvironment, UnsupportedPayload, parse_payload
from taskyard.bot.process import NOT_RUNNABLE
from taskyard.bot.pyworker.pool import WorkerPool
from taskyard.bot.server_client import InputsUnavailable, MachineFault, fetch_inputs
from taskyard.bot.workdir import NO_FILES, TaskFiles, Workdir, WorkdirPool
from taskyard.wire.bot_protocol import Reason, Report, Resources, Signal, Stats
from taskyard.wire.plays import BOT_FAILED_EXIT, MISSING_EXIT, TREE_FOLDER

if TYPE_CHECKING:
    from taskyard.bot.engines.protocol import EngineHost
    from taskyard.bot.files import FileTransfers

#: How long an attempt that may outlive its lease is allowed to run: its time-out or the server ends it first.
UNLIMITED_SECONDS: Final = 10 * 365 * 86_400.0


# Attempts that run as programs: prepare the working folder, tell the runner to start the program, read how it ended.


class ProgramAttempts:
    """The attempts that run as programs now."""

    def __init__(
        self,
        make_spool: Callable[[LeasedAttempt], Spool],
        workdirs: WorkdirPool,
        caches: CacheStore,
        environment: TaskEnvironment,
        attempts: LeasedAttempts,
        owner: "ExecutorOwner",
    ) -> None:
        self._caches = caches
        self.running: dict[int, LeasedAttempt] = {}  # those in the runner's queue included
        self._starts: list[StartRun] = []
        self._running_since: dict[int, float] = {}  # start time of those not yet seen to run for a moment
        self._queued: set[int] = set()  # those that may still be in the runner's queue
        self._make_spool = make_spool
        self._workdirs = workdirs
        self._environment = environment
        self._attempts = attempts
        self._send = owner.send_to_runner
        self._report_trouble = owner.report_trouble

    def start(self, attempt: LeasedAttempt, parallel_max: int = 0) -> Report | None:
        """Prepare an attempt for the next `flush_starts`, or return the report of its failure.

        With `parallel_max` the runner queues it until fewer runs than that are there.
        """
        program = cast("Program", attempt.work)
        report = attempt.expiry_report(time.monotonic())
        if report is not None:
            return report
        try:
            attempt.workdir = workdir = attempt.workdir or self._workdirs.take()
            workdir.prepare(attempt.lease, attempt.inputs, program.script)
            if program.caches:
                self._place_caches(attempt, program, workdir)
        except CachePathTaken as error:
            self.add_output(attempt, f"taskyard: a cache has no place: {error}\n")
            return _rejected(attempt)
        except OSError as error:
            self._report_trouble(f"a program has no working folder: {error}", attempt)
            self.add_output(attempt, f"taskyard: this bot has no working folder for it: {error}\n")
            return lost_unbegun_report(attempt)  # another bot may have one
        try:
            cwd = _working_folder(program, workdir)
        except OSError as error:
            self.add_output(attempt, f"taskyard: {error}\n")
            return _rejected(attempt)
        attempt.began = time.monotonic()
        attempt.prepared_ms = round((attempt.began - attempt.received_at) * 1000)
        self.running[attempt.run] = attempt
        if parallel_max:
            self._queued.add(attempt.run)
        self._starts.append(
            StartRun(
                run=attempt.run,
                argv=list(program.argv) if program.script is None else [*program.argv, workdir.file("script")],
                env=self._environment.for_attempt(
                    attempt.lease, workdir.env(), _variables(attempt, program.env), attempt.gpus or ()
                ),
                cwd=cwd,
                until=attempt.until if attempt.strict else attempt.began + UNLIMITED_SECONDS,
                deadline=attempt.deadline,
                timeout_s=program.limits.timeout_s,
                silence_s=program.limits.silence_s,
                grace_s=program.limits.grace_s,
                survives_disconnect=not attempt.strict,
                parallel_max=parallel_max,
                memory_mb=0 if attempt.lease.takes is None else attempt.lease.takes.memory,
            )
        )
        return None

    def _place_caches(self, attempt: LeasedAttempt, program: Program, workdir: Workdir) -> None:
        began = time.monotonic()
        attempt.caches = self._caches.place(program.caches, attempt.lease.submitter, workdir.folder)
        attempt.cached_ms = round((time.monotonic() - began) * 1000)

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
        if attempt.secrets is not None:
            body = attempt.secrets.masker.add(body)
            if not body:
                return
        self._add_masked(attempt, body)

    def finish_output(self, attempt: LeasedAttempt) -> None:
        """Add what was kept of the output because it could have been the beginning of a secret."""
        if attempt.secrets is None:
            return
        body = attempt.secrets.masker.finish()
        if attempt.secrets.has_dropped:
            body += b"taskyard: a checkpoint had a secret in it and was not kept\n"
        if body:
            self._add_masked(attempt, body)

    def _add_masked(self, attempt: LeasedAttempt, body: bytes) -> None:
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
        with_result = _succeeded(attempt, frame) or _kind(attempt) == "ansible"  # which says what failed on which host
        left = NO_FILES if attempt.untouched else attempt.workdir.read_files(succeeded=with_result)
        left = left if attempt.secrets is None else attempt.secrets.clean(left)
        if left.checkpoint is not None:
            attempt.last_checkpoint = left.checkpoint
        for fault in left.faults:
            self.add_output(attempt, f"taskyard: {fault}\n")
        return attempt, _end_report(attempt, frame, left)


def _variables(attempt: LeasedAttempt, env: dict[str, str]) -> Mapping[str, str]:
    return env if attempt.secrets is None else {**env, **attempt.secrets.variables}


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
    if _kind(attempt) and (given_up := _why_given_up(frame)) is not None:
        return given_up_report(attempt, given_up)
    if not _succeeded(attempt, frame):
        reason = "signaled" if frame.exit_code < 0 else "exit_code"
        return replace(failure_report(attempt, reason, frame.exit_code, stats), result=left.result)
    if left.faults:
        return failure_report(attempt, "bad_result", 0, stats)
    lease = attempt.lease
    return Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, None, 0, left.result, stats)


def _kind(attempt: LeasedAttempt) -> str:
    """Return the kind of work that a program of the bot's own runs; the empty text for any other."""
    return attempt.work.kind if isinstance(attempt.work, Program) else ""


def _why_given_up(frame: RunEnded) -> Reason | None:
    """Return why a program of the bot's own gave up, or crashed; None if it ended as its work did."""
    if frame.exit_code == MISSING_EXIT:
        return Reason.MISSING
    crashed = frame.reason == "not_started" or (frame.exit_code is not None and frame.exit_code < 0)
    return Reason.BOT_FAILED if crashed or frame.exit_code == BOT_FAILED_EXIT else None


def _rejected(attempt: LeasedAttempt, reason: Reason = Reason.MISSING) -> Report:
    """Report an attempt that cannot begin: a failure, but an error of the system where the kind of work knows one."""
    return given_up_report(attempt, reason) if _kind(attempt) else failure_report(attempt, "exit_code", NOT_RUNNABLE)


def _unfinished_report(attempt: LeasedAttempt, frame: RunEnded) -> Report:
    """Report an attempt that did not end by itself: whether it had begun, and what ended it."""
    if frame.exit_code is None:
        return return_report(attempt)
    return lost_report(attempt) if attempt.stopping == "lose" else unrenewed_report(attempt)


def _leaves_outputs(attempt: LeasedAttempt, report: Report) -> bool:
    """Whether output files of an attempt are to be kept: it has begun, and has ended by itself."""
    has_ended = attempt.began is not None and report.signal in (Signal.SUCCEED, Signal.FAIL)
    is_wanted = attempt.is_ours and not attempt.stopping and attempt.workdir is not None
    return has_ended and is_wanted and attempt.files is not None and bool(attempt.files.outputs)


def _described(error: Exception) -> str:
    """Name an error that nobody expects at this place."""
    return str(error) if isinstance(error, MachineFault) else f"{type(error).__name__}: {error}"


def _working_folder(program: Program, workdir: Workdir) -> str:
    if program.cwd is None:
        return workdir.folder
    # Beside files, a relative folder is inside the fresh one, where the files are.
    cwd = program.cwd if program.files is None else os.path.join(workdir.folder, program.cwd)
    if not os.path.isdir(cwd):
        raise NotADirectoryError(f"cwd: there is no folder {program.cwd}")
    return cwd


def _program_stats(attempt: LeasedAttempt, frame: RunEnded) -> Stats:
    return Stats(
        prepared_ms=attempt.prepared_ms,
        cached_ms=attempt.cached_ms,
        downloaded_ms=attempt.download_ms,
        ran_ms=round(frame.ran_s * 1000),
        cpu_s=frame.cpu_s,
        memory_bytes=frame.memory_bytes,
        read_bytes=frame.read_bytes,
        written_bytes=frame.written_bytes,
    )


def _lacks_secrets(attempt: LeasedAttempt) -> bool:
    """Whether it needs secrets that it does not have yet."""
    return attempt.work is not None and attempt.work.needs_secrets and attempt.secrets is None


class ExecutorOwner(Protocol):
    """What the executor needs from the local engine."""

    def send_to_runner(self, *frames: ToRunner) -> None:
        """Send frames to the runner; frames given together go out together."""

    def on_change(self) -> None:
        """There is something to send to the server."""

    def report_trouble(self, text: str, attempt: LeasedAttempt | None = None) -> None:
        """Report a problem of the bot itself."""

    def on_lost(self) -> None:
        """An attempt was lost, or could not begin, through a fault of this machine."""


class Executor:
    """The slots of a bot, and the attempts that wait for one."""

    def __init__(self, host: "EngineHost", caches: CacheStore, owner: ExecutorOwner) -> None:
        config, state = host.config, host.state
        self._caches = caches
        self._on_lost = owner.on_lost
        self._config = config
        self._attempts = attempts = host.attempts
        self._prefetch = prefetch = host.prefetch
        self._send: SendToRunner = owner.send_to_runner
        self._on_change = owner.on_change
        self.report_trouble: ReportTrouble = owner.report_trouble
        self._workdirs = WorkdirPool(state.work)
        self._call_workdirs = WorkdirPool(state.work, only_files=True)
        self._programs = ProgramAttempts(
            host.new_spool, self._workdirs, caches, TaskEnvironment(config), attempts, owner
        )
        self._pool = WorkerPool(self._call_workdirs, prefetch, self._send, attempts, self)
        self._gpus = GpuPool(gpus.names())
        self._extra_slots = 0  # that attempts in hand take, beside one for each
        self._paused = False
        self._waiting: deque[LeasedAttempt] = deque()  # programs without a slot
        self.pool = ""  # of this bot, once the server has said it
        self._transfers: FileTransfers | None = None
        # Attempts whose inputs are being fetched, by run; and those that have ended, and whose outputs are being kept.
        self._fetching: dict[int, tuple[LeasedAttempt, asyncio.Task[None]]] = {}
        self._keeping: dict[int, tuple[LeasedAttempt, Report, asyncio.Task[None]]] = {}
        self._secret_files = state.secret_files
        self._fetching_secrets: set[int] = set()  # those that are fetched and have a slot already

    # Called by the agent, after a poll.

    def accept(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Take these attempts and run them as slots become free."""
        for attempt in attempts:
            self._prepare(attempt)
        self.start_waiting()

    def extend(self, attempts: Sequence[LeasedAttempt]) -> None:
        """Let attempts run until their new expiry."""
        runs = {one.run: one.until for one in attempts if one.run in self._programs.running and one.strict}
        if runs:
            self._send(SetExpiry(runs=runs))
        self._pool.update_expiry()

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
            case RunStarted():
                self._programs.mark_started(frame.run, time.monotonic())
                return  # it has had its slot before
            case RunEnded():
                self._on_program_end(frame)
            case RunOutput():
                attempt = self._programs.running.get(frame.run)
                if attempt is not None:
                    self.add_output(attempt, frame.body)
                return
            case WorkerStarted():
                assert end is not None, "a worker comes with a socket"
                self._pool.worker_started(frame.worker, end)
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
        self._check_keeping(now)
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
        self._check_keeping(time.monotonic())

    def cancel_transfers(self) -> None:
        """Stop fetching inputs and keeping outputs: this bot ends."""
        for _, task in self._fetching.values():
            task.cancel()
        for _, _, task in self._keeping.values():
            task.cancel()

    # Called by program attempts and the worker pool.

    def add_output(self, attempt: LeasedAttempt, body: str | bytes) -> None:
        """Add to the output of an attempt; it goes out with the next request, or soon by itself."""
        self._programs.add_output(attempt, body)
        if attempt.spool is not None and attempt.spool.trouble:
            self.report_trouble(attempt.spool.trouble, attempt)

    def finished(self, attempt: LeasedAttempt, report: Report) -> None:
        """Record how an attempt ended, and release what it used; before that, keep its output files."""
        if attempt.files is not None and _leaves_outputs(attempt, report):
            task = asyncio.get_running_loop().create_task(self._keep_outputs(attempt, report))
            self._keeping[attempt.run] = (attempt, report, task)
        else:
            self._finish(attempt, report)

    def _finish(self, attempt: LeasedAttempt, report: Report) -> None:
        if attempt.secrets is not None:
            self._programs.finish_output(attempt)
            self._secret_files.remove(attempt.run)
            attempt.secrets = None
        if attempt.workdir is not None:
            report = self._clean_up(attempt, attempt.workdir, report)
        if report.signal is Signal.LOSE:
            self._on_lost()
        if attempt.spool is not None:
            attempt.ended = time.monotonic()
            attempt.spool.finish()
            if attempt.spool.trouble:
                self.report_trouble(attempt.spool.trouble, attempt)
        if attempt.gpus is not None:
            self._give_back(attempt, attempt.gpus)
        self._attempts.finish(attempt, report)
        self._on_change()

    def _clean_up(self, attempt: LeasedAttempt, workdir: Workdir, report: Report) -> Report:
        """Give the working folder of an attempt back, and its caches; tell in its report how long that took."""
        attempt.workdir = None
        if isinstance(attempt.work, Function) and attempt.files is None:
            self._call_workdirs.give_back(workdir, attempt.untouched)
            return report
        began = time.monotonic()
        if attempt.caches:
            self._caches.put_back(attempt.caches)
        self._workdirs.give_back(workdir, attempt.untouched)
        if report.stats is None:
            return report
        cleaned_ms = round((time.monotonic() - began) * 1000)
        return replace(report, stats=replace(report.stats, cleaned_ms=cleaned_ms, uploaded_ms=attempt.upload_ms))

    def start_waiting(self) -> None:
        """Start attempts while there are free slots."""
        if self._paused:
            return
        while self._waiting:
            ahead = self._may_queue_at_runner(self._waiting[0])
            if not ahead and self._free_slots <= 0:
                break
            attempt = self._waiting.popleft()
            if _lacks_secrets(attempt):
                self._fetch(attempt, self._fetch_secrets(attempt))
                self._fetching_secrets.add(attempt.run)
                continue
            slots = self._config.slots - self._extra_slots
            report = self._programs.start(attempt, max(1, slots - self._pool.busy) if ahead else 0)
            if report is not None:
                self.finished(attempt, report)
        self._programs.flush_starts()
        if self._pool.has_waiting:
            self._pool.assign(self._free_slots)

    @property
    def _free_slots(self) -> int:
        taken = self._extra_slots + len(self._programs.running) + len(self._fetching_secrets)
        return max(0, self._config.slots - taken) - self._pool.busy

    def _may_queue_at_runner(self, attempt: LeasedAttempt) -> bool:
        """Whether the runner may queue it: only a plain program without a deadline, while all are short programs."""
        if not self._prefetch.programs_are_short or attempt.lease.deadline_ms is not None or self._pool.has_work:
            return False
        plain = isinstance(attempt.work, Program) and not (attempt.work.caches or attempt.work.needs_secrets)
        return plain and attempt.files is None and attempt.gpus is None

    def _prepare(self, attempt: LeasedAttempt) -> None:
        """Read the payload of an attempt, and queue it for a slot."""
        try:
            attempt.work = parse_payload(bytes(attempt.lease.payload))
        except UnsupportedPayload as error:
            self._reject(attempt, str(error))
            return
        attempt.files = attempt.work.files
        if attempt.lease.takes is not None and not self._take(attempt, attempt.lease.takes):
            return
        if attempt.lease.inputs_apart or attempt.files is not None:
            self._fetch(attempt, self._fetch_inputs(attempt))
            return
        attempt.inputs = bytes(attempt.lease.inputs) or None
        self._enqueue(attempt)

    def _take(self, attempt: LeasedAttempt, takes: Resources) -> bool:
        """Give an attempt what it takes of this bot; end it if there is too little, which the server rules out."""
        attempt.gpus = self._gpus.take(takes.gpus)
        if attempt.gpus is not None:
            self._extra_slots += takes.slots - 1
        elif self._gpus.ever_has(takes.gpus):
            self.finished(attempt, return_report(attempt))  # an attempt that was taken away still ends
        else:
            self._reject(attempt, f"it takes {takes.gpus} GPUs, and {gpus.VISIBLE} of this bot names fewer")
        return attempt.gpus is not None

    def _give_back(self, attempt: LeasedAttempt, taken: tuple[str, ...]) -> None:
        assert attempt.lease.takes is not None, "an attempt with GPUs says what it takes"
        self._gpus.give_back(taken)
        self._extra_slots -= attempt.lease.takes.slots - 1
        attempt.gpus = None

    async def _fetch_inputs(self, attempt: LeasedAttempt) -> None:
        lease = attempt.lease
        try:
            if lease.inputs_apart:
                attempt.inputs = await fetch_inputs(self._config.servers, lease.task, lease.token, self._config.tls)
            else:
                attempt.inputs = bytes(lease.inputs) or None
            if attempt.files is not None:
                attempt.workdir = await self._folder_with_inputs(attempt, attempt.files)
        except InputsUnavailable as error:
            self._reject(attempt, str(error), Reason.MISSING)
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt must not stay in hand for ever
            self.report_trouble(f"the inputs of a task cannot be fetched here: {_described(error)}", attempt)
            self.add_output(attempt, f"taskyard: this bot cannot fetch its inputs: {_described(error)}\n")
            self.finished(attempt, lost_unbegun_report(attempt))  # another bot may have more luck
        else:
            self._enqueue(attempt)
            self.start_waiting()
        finally:
            self._fetching.pop(attempt.run, None)

    def _file_transfers(self) -> "FileTransfers":
        if self._transfers is None:
            from taskyard.bot.files import FileTransfers  # noqa: PLC0415 - most bots never move files

            self._transfers = FileTransfers(self._config, self.pool, self.report_trouble)
        return self._transfers

    async def _folder_with_inputs(self, attempt: LeasedAttempt, files: FileSpec) -> Workdir:
        """Take a working folder, and write the input files into it."""
        try:
            workdir = self._workdirs.take()
        except OSError as error:
            raise MachineFault(f"there is no working folder: {error}") from error
        try:
            if files.has_inputs:
                await self._file_transfers().fetch(attempt, workdir.folder)
        except BaseException:
            self._workdirs.give_back(workdir)
            raise
        return workdir

    async def _keep_outputs(self, attempt: LeasedAttempt, report: Report) -> None:
        """Keep the output files of an attempt that has ended, then record its end."""
        assert attempt.files is not None
        assert attempt.workdir is not None, "what has files has a working folder"
        work, succeeded = attempt.work, report.signal is Signal.SUCCEED
        folder = work.cwd if work is not None and work.cwd and os.path.isabs(work.cwd) else attempt.workdir.folder
        is_checkout = _kind(attempt) == "git"
        if is_checkout:
            folder = os.path.join(folder, TREE_FOLDER)
        try:
            faults, tree = await self._file_transfers().keep(attempt, folder, attempt.files, succeeded=succeeded)
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt must not stay in hand for ever
            self.report_trouble(f"the outputs of a task cannot be kept: {_described(error)}", attempt)
            faults, tree = [f"the outputs cannot be kept: {_described(error)}"], None
        finally:
            self._keeping.pop(attempt.run, None)
        for fault in faults:
            self.add_output(attempt, f"taskyard: {fault}\n")
        if faults and succeeded:
            report = failure_report(attempt, "bad_result", 0, report.stats)
        elif succeeded and is_checkout:
            result = msgspec.json.decode(report.result, type=dict[str, object])
            report = replace(report, result=msgspec.Raw(msgspec.json.encode({**result, "tree": tree})))
        self._finish(attempt, report)

    def _check_keeping(self, now: float) -> None:
        """End attempts whose output files are not wanted any more: canceled, taken away, or too late."""
        for attempt, report, task in list(self._keeping.values()):
            if attempt.stopping == "lose":
                ended: Report | None = lost_report(attempt)
            elif attempt.is_late(now):
                ended = deadline_report(attempt, report.exit_code, report.stats)
            else:
                ended = report if attempt.stopping or not attempt.is_ours else None
            if ended is not None:
                task.cancel()
                del self._keeping[attempt.run]
                self._finish(attempt, ended)

    def _fetch(self, attempt: LeasedAttempt, coming: Coroutine[None, None, None]) -> None:
        self._fetching[attempt.run] = (attempt, asyncio.get_running_loop().create_task(coming))

    async def _fetch_secrets(self, attempt: LeasedAttempt) -> None:
        """Fetch the secrets of an attempt that has a slot, and begin it; give it back if they cannot be had."""
        from taskyard.bot import secrets  # noqa: PLC0415 - few tasks need it

        lease, config = attempt.lease, self._config
        try:
            found = await secrets.fetch_secrets(config.servers, lease.task, lease.token, config.tls)
            private = _kind(attempt) != ""
            attempt.secrets = secrets.SecretsInHand(attempt.run, found, self._secret_files, private=private)
        except secrets.SecretsUnavailable as error:
            self._end_fetch(attempt)
            self.report_trouble(f"an attempt was given back: {error}", attempt)
            self.finished(attempt, return_report(attempt))
        except (secrets.SecretsUnusable, OSError) as error:
            self._end_fetch(attempt)
            self._secret_files.remove(attempt.run)
            self._reject(attempt, str(error))
        else:
            self._end_fetch(attempt)
            if attempt.stopping or not attempt.is_ours:
                self.finished(attempt, return_report(attempt))
            elif isinstance(attempt.work, Program):
                self._waiting.appendleft(attempt)
            else:
                self._pool.enqueue(attempt)
        self.start_waiting()

    def _end_fetch(self, attempt: LeasedAttempt) -> None:
        self._fetching.pop(attempt.run, None)
        self._fetching_secrets.discard(attempt.run)

    def _check_fetching(self, now: float) -> None:
        """End attempts that wait for inputs or secrets and may not begin any more."""
        for attempt, task in list(self._fetching.values()):
            report = attempt.expiry_report(now)
            if attempt.stopping or not attempt.is_ours:
                report = return_report(attempt)
            if report is not None:
                task.cancel()
                self._end_fetch(attempt)
                self.finished(attempt, report)
                self.start_waiting()  # it may have had a slot

    def _enqueue(self, attempt: LeasedAttempt) -> None:
        if isinstance(attempt.work, Program):
            self._prefetch.note_name(attempt.work.name)
            self._waiting.append(attempt)
        elif _lacks_secrets(attempt):
            self._waiting.append(attempt)
        else:
            self._pool.enqueue(attempt)

    def _reject(self, attempt: LeasedAttempt, why: str, reason: Reason = Reason.BOT_FAILED) -> None:
        self.add_output(attempt, f"taskyard: {why}\n")
        self.finished(attempt, _rejected(attempt, reason))

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
