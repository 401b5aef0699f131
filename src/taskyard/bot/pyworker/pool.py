"""The worker pool: warm workers, and the calls that wait for them.

Workers are started when calls come, kept, and sent a few calls at a time. Calls of different submitters never share a
worker, and a call can ask for a process of its own. A worker that dies fails only the call that it was making; the
calls behind that were not begun, and go to another worker. The pool enforces the time-outs of calls; the runner kills
workers whose leases end.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

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
from taskyard.bot.ipc import (
    AsyncChannel,
    FrameBuffer,
    KillWorker,
    SetExpiry,
    StartWorker,
    ToRunner,
    WorkerEnded,
    encode_frame,
)
from taskyard.bot.payloads import Function, attempt_environment
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.process import NOT_RUNNABLE
from taskyard.bot.pyworker.protocol import (
    NO_ARGUMENTS,
    Call,
    CallOutput,
    CallRaised,
    CallReturned,
    CallsGivenBack,
    CallUsage,
    WorkerLeaving,
    decode_from_worker,
)
from taskyard.bot.workdir import TaskFiles, WorkdirPool
from taskyard.wire.bot_protocol import INPUTS_MAX, NOTHING, Report, Signal, Stats

#: The runner is told of a longer expiry only when less than this is left of the one it knows: otherwise a worker that
#: makes thousands of calls a second would be reported as often.
EXPIRY_MARGIN_SECONDS: Final = 10.0
#: This long after a call's time-out the runner or the watchdog ends its worker, in case the agent could not.
LATE_SECONDS: Final = 10.0
#: Which calls may share a process: a submitter, and the run of a call that is alone in its process, otherwise 0.
IsolationKey = tuple[str, int]
#: What a call costs beside the function itself.
CALL_SECONDS: Final = 0.000_02
#: A worker whose call takes longer than this is sent no more behind it.
SLOW_SECONDS: Final = 0.01
#: If this many workers in a row end before they answer a call, none will.
FAILED_STARTS_MAX: Final = 5
#: How many idle workers of other submitters are kept: each takes some 30 MB of memory.
IDLE_OTHERS_MAX: Final = 8


# Warm workers.


def isolation_key(attempt: LeasedAttempt) -> IsolationKey:
    """Return the isolation key of a call. A limit of memory, and GPUs, hold for a process as a whole."""
    assert isinstance(attempt.work, Function), "programs are not called in workers"
    is_alone = attempt.work.fresh or attempt.gpus is not None
    return attempt.lease.submitter, attempt.run if is_alone else 0


@dataclass(slots=True, eq=False)
class WarmWorker:
    """A warm worker as the agent sees it. It makes its calls in order; the first unanswered one is the current one."""

    number: int
    key: IsolationKey  # the only calls that it makes
    channel: AsyncChannel | None = None
    calls: dict[int, LeasedAttempt] = field(default_factory=dict)
    call_began: float = 0.0  # when the current call began
    output_at: float = 0.0
    expiry_sent: float | None = None  # when the lease of its calls ends, as the runner knows it
    # Why it is being killed: timed_out, silent, deadline, stop, lose, corrupt; unused if it has no calls.
    kill_reason: str = ""
    killed_for: int | None = None  # the call because of which
    is_leaving: bool = False
    has_answered: bool = False  # it has answered a call

    @property
    def is_starting(self) -> bool:
        """Whether the runner is still starting it."""
        return self.channel is None

    @property
    def is_single_use(self) -> bool:
        """Whether it makes only one call."""
        return self.key[1] != 0

    @property
    def is_idle(self) -> bool:
        """Whether it can be sent a call and has none."""
        return self.is_usable and not self.calls

    @property
    def takes_slot(self) -> bool:
        """Whether it takes a slot."""
        return bool(self.calls) or self.channel is None

    @property
    def is_usable(self) -> bool:
        """Whether it can be sent calls."""
        return self.channel is not None and not self.is_leaving and not self.kill_reason

    @property
    def current_call(self) -> LeasedAttempt | None:
        """The call that it makes now."""
        return next(iter(self.calls.values()), None)

    def may_take(self, attempt: LeasedAttempt) -> bool:
        """Whether it may be sent this call, too.

        A call with a deadline is alone with its worker: so it begins at once, and killing the worker at the deadline
        costs no other call.
        """
        first = next(iter(self.calls.values()), None)
        return first is None or (first.deadline is None and attempt.deadline is None)

    def expires_at(self) -> float | None:
        """When it must be dead, for the sake of its calls; None if it need not be."""
        ends = [one.until for one in self.calls.values() if one.strict]
        ends += [one.deadline for one in self.calls.values() if one.deadline is not None]
        attempt = self.current_call
        if attempt is not None and isinstance(attempt.work, Function):
            ends.append(self.call_began + attempt.work.limits.timeout_s + LATE_SECONDS)
        return min(ends, default=None)

    def expiry_changed(self, now: float) -> bool:
        """Whether the runner needs another expiry."""
        wanted = self.expires_at()
        if wanted == self.expiry_sent:
            return False
        if self.expiry_sent is None or (wanted is not None and wanted < self.expiry_sent):
            return True
        return self.expiry_sent - now < EXPIRY_MARGIN_SECONDS

    def kill_reason_now(self, now: float) -> str:
        """Why the current call has to end now: timed_out, silent, deadline, stop or lose; empty if it need not."""
        attempt = self.current_call
        if attempt is None or not isinstance(attempt.work, Function):
            return ""
        if attempt.stopping:
            return attempt.stopping
        limits = attempt.work.limits
        timeout_at = self.call_began + limits.timeout_s
        if attempt.deadline is not None and now >= attempt.deadline:
            return "deadline" if attempt.deadline <= timeout_at else "timed_out"
        if now >= timeout_at:
            return "timed_out"
        if limits.silence_s is not None and now >= max(self.call_began, self.output_at) + limits.silence_s:
            return "silent"
        return ""


class PoolOwner(Protocol):
    """What the pool needs from the executor."""

    def add_output(self, attempt: LeasedAttempt, body: str | bytes) -> None:
        """Add to the output of an attempt."""

    def finished(self, attempt: LeasedAttempt, report: Report) -> None:
        """Record how an attempt ended."""

    def start_waiting(self) -> None:
        """Start attempts while there are free slots."""

    @property
    def report_trouble(self) -> ReportTrouble:
        """Report a problem of the bot itself."""


class WorkerPool:
    """All warm workers of a bot."""

    def __init__(
        self,
        workdirs: WorkdirPool,
        prefetch: PrefetchLimit,
        send: Callable[[ToRunner], None],
        attempts: LeasedAttempts,
        owner: PoolOwner,
    ) -> None:
        self._workdirs = workdirs
        self._prefetch = prefetch
        self._send = send
        self._attempts = attempts
        self._owner = owner
        self._queues: dict[IsolationKey, deque[LeasedAttempt]] = {}  # calls that wait; no queue is empty
        self._workers: dict[int, WarmWorker] = {}
        self._last_number = 0
        self._failed_starts = 0

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return sum(worker.takes_slot for worker in self._workers.values())

    @property
    def has_work(self) -> bool:
        """Whether there are calls, waiting or with workers."""
        return bool(self._queues) or any(worker.calls for worker in self._workers.values())

    @property
    def has_waiting(self) -> bool:
        """Whether there are calls that wait."""
        return bool(self._queues)

    def enqueue(self, attempt: LeasedAttempt) -> None:
        """Queue a call."""
        assert isinstance(attempt.work, Function), "programs are not called in workers"
        self._prefetch.note_name(attempt.work.name)
        key = isolation_key(attempt)
        if key in self._queues:
            self._queues[key].append(attempt)
        else:
            self._queues[key] = deque([attempt])

    def assign(self, free: int) -> None:
        """Give waiting calls to workers while slots are free, the longest waiting queue first."""
        for key in sorted(self._queues, key=lambda one: self._queues[one][0].run):
            free = self._assign_queue(key, free)
            if free <= 0 and key in self._queues:
                return  # it waits for a slot: workers of later queues get nothing before it has one

    def stop(self, attempt: LeasedAttempt) -> None:
        """End a call: a waiting one ends at once; the current one is killed with its worker."""
        if self._dequeue(attempt):
            self._owner.finished(attempt, return_report(attempt))
        else:
            self.tick(time.monotonic())

    def update_expiry(self) -> None:
        """Tell the runner when workers must be dead, after leases changed."""
        now = time.monotonic()
        moments = {
            worker.number: worker.expires_at() for worker in self._workers.values() if worker.expiry_changed(now)
        }
        if moments:
            self._send(SetExpiry(workers=moments))
            for number, moment in moments.items():
                self._workers[number].expiry_sent = moment

    def tick(self, now: float) -> None:
        """Kill workers whose calls take too long, and end waiting calls that may not begin any more."""
        for worker in self._workers.values():
            why = "" if worker.kill_reason else worker.kill_reason_now(now)
            if why:
                self._kill(worker, why)
            elif worker.calls and now - worker.call_began > SLOW_SECONDS:
                self._prefetch.record_call(now - worker.call_began)
                if worker.current_call is not None and now - worker.call_began >= MOMENT_SECONDS:
                    self._attempts.queue_begun(worker.current_call, now)
        waiting = [attempt for queue in self._queues.values() for attempt in queue]
        for attempt, report in [(one, report) for one in waiting if (report := one.expiry_report(now)) is not None]:
            self._dequeue(attempt)
            self._owner.finished(attempt, report)
        self.update_expiry()

    def kill_all(self) -> None:
        """Kill every worker, lose the calls that they make, and give back the rest."""
        for attempt in self._empty_queues():
            self._owner.finished(attempt, return_report(attempt))
        for worker in self._workers.values():
            self._kill(worker, "lose")

    def lose_all(self) -> None:
        """The runner is gone with every worker. Waiting calls have not begun."""
        for worker in self._workers.values():
            if worker.channel is not None:
                worker.channel.close()
            for place, attempt in enumerate(worker.calls.values()):
                self._owner.finished(attempt, lost_unbegun_report(attempt) if place else lost_report(attempt))
        self._workers.clear()

    def worker_started(self, number: int, end: socket.socket) -> None:
        """The runner has started a worker."""
        worker = self._workers.get(number)
        if worker is None:
            end.close()
            return
        loop = asyncio.get_running_loop()
        worker.channel = AsyncChannel(
            loop, end, lambda body: self._on_frame(worker, body), lambda: self._on_closed(worker)
        )
        if worker.is_single_use and worker.key not in self._queues:
            self._kill(worker, "unused")  # its call was ended before the worker came

    def worker_ended(self, ended: WorkerEnded) -> None:
        """A worker has ended: read what it still sent, fail the call that it was making, and requeue the rest."""
        worker = self._workers.get(ended.worker)
        if worker is None:
            return
        worker.is_leaving = True
        if worker.channel is not None:
            worker.channel.drain()
            worker.channel.close()
        for body in FrameBuffer().feed(ended.unsent) if ended.unsent else ():
            self._on_frame(worker, body)
        del self._workers[ended.worker]
        self._fail_current(worker, ended)
        if worker.kill_reason == "lose":
            for attempt in worker.calls.values():
                self._owner.finished(attempt, return_report(attempt))
        else:
            self._requeue(list(worker.calls.values()))
        if self._failed_starts >= FAILED_STARTS_MAX:
            self._fail_all()

    def _requeue(self, unbegun: list[LeasedAttempt]) -> None:
        """Put calls that have not begun at the front of their queue; one that has to end anyway ends now."""
        self._attempts.mark_not_begun(unbegun)
        for attempt in reversed(unbegun):
            if attempt.stopping:
                self._owner.finished(attempt, return_report(attempt))
            else:
                if attempt.workdir is not None and attempt.files is None:
                    self._workdirs.give_back(attempt.workdir)
                    attempt.workdir = None
                self._queues.setdefault(isolation_key(attempt), deque()).appendleft(attempt)

    def _take_back(self, worker: WarmWorker, runs: list[int]) -> None:
        """Requeue the calls behind one that takes long; another worker may be free for them."""
        self._requeue([worker.calls.pop(run) for run in runs if run in worker.calls])
        self._owner.start_waiting()

    def _fail_current(self, worker: WarmWorker, ended: WorkerEnded) -> None:
        # Answers that a call has overwritten cannot be distinguished from real ones.
        run = worker.killed_for if worker.kill_reason == "corrupt" else ended.run
        failed_call = worker.calls.pop(run, None) if run is not None else None
        if failed_call is not None:
            self._owner.finished(failed_call, self._death_report(worker, failed_call, ended))
        elif not worker.has_answered and not worker.kill_reason:
            self._failed_starts += 1

    # Giving calls to workers.

    def _assign_queue(self, key: IsolationKey, free: int) -> int:
        """Give the calls of one queue to workers; return how many slots are still free."""
        while (queue := self._queues.get(key)) is not None:
            idle = [worker for worker in self._workers.values() if worker.is_idle and worker.key == key]
            if free > 0 and idle:
                self._send_calls(idle[-1], -(-len(queue) // min(free, len(idle))))
                free -= 1
                continue
            if free > 0:
                free -= self._start_workers(key, min(free, len(queue)))
            if not self._top_up(key):
                break
        return free

    def _start_workers(self, key: IsolationKey, wanted: int) -> int:
        """Start workers until this many of one key are starting; return how many were started."""
        missing = wanted - sum(worker.is_starting and worker.key == key for worker in self._workers.values())
        for _ in range(missing):
            self._last_number += 1
            self._workers[self._last_number] = WarmWorker(self._last_number, key)
            self._send(StartWorker(self._last_number, _memory_mb(self._queues[key][0])))
        others = [worker for worker in self._workers.values() if worker.is_idle and worker.key != key]
        for worker in sorted(others, key=lambda one: one.call_began)[: max(0, len(others) - IDLE_OTHERS_MAX)]:
            self._kill(worker, "unused")
        return max(0, missing)

    def _top_up(self, key: IsolationKey) -> bool:
        """Send more calls to a worker that is about to run out."""
        batch_size, now = self._prefetch.calls_per_batch, time.monotonic()
        for worker in self._workers.values():
            if worker.key != key or not worker.is_usable:
                continue
            is_low = 0 < len(worker.calls) <= batch_size // 4 and now - worker.call_began < SLOW_SECONDS
            if is_low and worker.may_take(self._queues[key][0]):
                self._send_calls(worker, batch_size)
                return True
        return False

    def _send_calls(self, worker: WarmWorker, share: int) -> None:
        now = time.monotonic()
        if not worker.calls:
            worker.call_began = now
        frames: list[bytes] = []
        begun: list[LeasedAttempt] = []  # they may begin at any time from now on
        queue = self._queues[worker.key]
        wanted = min(self._prefetch.calls_per_batch, share)
        while queue and len(frames) < wanted and worker.may_take(queue[0]):
            attempt = queue.popleft()
            if (report := attempt.expiry_report(now)) is not None:
                self._owner.finished(attempt, report)
                continue
            attempt.began = now
            attempt.prepared_ms = round((now - attempt.received_at) * 1000)
            try:
                frames.append(encode_frame(self._make_call(attempt)))
            except OSError as error:
                self._owner.report_trouble(f"a call has no working folder: {error}", attempt)
                self._owner.add_output(attempt, f"taskyard: {error}\n")
                self._owner.finished(attempt, failure_report(attempt, "exit_code", NOT_RUNNABLE))
                continue
            worker.calls[attempt.run] = attempt
            begun.append(attempt)
        if not queue:
            del self._queues[worker.key]
        if worker.is_single_use and not worker.calls:
            self._kill(worker, "unused")
        if worker.expiry_changed(now):
            # Before the calls: a worker never runs for a lease that the runner does not know.
            self.update_expiry()
        self._attempts.mark_begun(begun)
        assert worker.channel is not None, "only running workers are sent calls"
        worker.channel.send(b"".join(frames))

    def _make_call(self, attempt: LeasedAttempt) -> Call:
        function, lease = attempt.work, attempt.lease
        assert isinstance(function, Function), "programs are not called in workers"
        attempt.workdir = workdir = attempt.workdir or self._workdirs.take()
        cwd = function.cwd or ""
        if function.files is not None:
            cwd = os.path.join(workdir.folder, cwd)
        workdir.prepare(lease, attempt.inputs)
        inputs = attempt.inputs if len(attempt.inputs or b"") <= INPUTS_MAX else None
        secrets = {} if attempt.secrets is None else attempt.secrets.variables
        return Call(
            run=attempt.run,
            function=function.name,
            args=function.args if bytes(function.args) else NO_ARGUMENTS,
            env={**function.env, **secrets, **workdir.env(), **attempt_environment(lease, attempt.gpus or ())},
            cwd=cwd,
            inputs=NOTHING if inputs is None else msgspec.Raw(inputs),
            checkpoint=lease.checkpoint,
        )

    def _dequeue(self, attempt: LeasedAttempt) -> bool:
        """Take a call out of its queue; False if it is not there."""
        key = isolation_key(attempt)
        queue = self._queues.get(key)
        if queue is None or attempt not in queue:
            return False
        queue.remove(attempt)
        if not queue:
            del self._queues[key]
        return True

    def _empty_queues(self) -> list[LeasedAttempt]:
        """Take all calls out of the queues."""
        waiting = [attempt for queue in self._queues.values() for attempt in queue]
        self._queues.clear()
        return waiting

    # Frames from workers.

    def _on_frame(self, worker: WarmWorker, body: bytes) -> None:
        match decode_from_worker(body):
            case CallReturned() | CallRaised() as frame:
                self._on_answer(worker, frame)
            case CallOutput() as frame:
                self._on_output(worker, frame)
            case CallsGivenBack(runs):
                self._take_back(worker, runs)
            case WorkerLeaving():
                worker.is_leaving = True

    def _on_output(self, worker: WarmWorker, frame: CallOutput) -> None:
        attempt = worker.calls.get(frame.run)
        if attempt is None:
            return  # it has arrived before
        worker.output_at = time.monotonic()
        self._owner.add_output(attempt, frame.body[max(0, attempt.output_seen - frame.start) :])
        attempt.output_seen = max(attempt.output_seen, frame.start + len(frame.body))

    def _on_answer(self, worker: WarmWorker, frame: CallReturned | CallRaised) -> None:
        attempt = worker.calls.pop(frame.run, None)
        if attempt is None:
            return  # it has arrived before
        worker.call_began, worker.has_answered, self._failed_starts = time.monotonic(), True, 0
        self._prefetch.record_call(frame.usage.ran_s + CALL_SECONDS)
        self._owner.finished(attempt, self._call_report(attempt, frame))
        if worker.is_single_use:
            self._kill(worker, "unused")
        if len(worker.calls) <= (self._prefetch.calls_per_batch // 4 if self._queues else 0):
            self._owner.start_waiting()

    def _call_report(self, attempt: LeasedAttempt, frame: CallReturned | CallRaised) -> Report:
        lease, stats = attempt.lease, _call_stats(attempt, frame.usage)
        if isinstance(frame, CallReturned):
            is_sound, result = self._collect_files(attempt), frame.result or NOTHING
        else:
            self._owner.add_output(attempt, frame.traceback_text)
            is_sound, result = self._collect_files(attempt), NOTHING
            if frame.exit_code != 0:
                reason = "bad_result" if frame.bad_result else "exit_code"
                return failure_report(attempt, reason, frame.exit_code, stats)
        if not is_sound:
            return failure_report(attempt, "bad_result", 0, stats)
        if attempt.secrets is not None:
            cleaned = attempt.secrets.clean(TaskFiles(result))
            if cleaned.faults:
                self._owner.add_output(attempt, f"taskyard: {cleaned.faults[0]}\n")
                return failure_report(attempt, "bad_result", 0, stats)
            result = cleaned.result
        return Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, None, 0, result, stats)

    def _on_closed(self, worker: WarmWorker) -> None:
        """The worker is ending; the runner reports its end when nothing of it is left."""
        worker.is_leaving = True
        if worker.channel is not None and worker.channel.is_corrupt:
            self._kill(worker, "corrupt")

    def _death_report(self, worker: WarmWorker, attempt: LeasedAttempt, ended: WorkerEnded) -> Report:
        self._collect_files(attempt)
        if worker.kill_reason == "lose":
            return lost_report(attempt)
        if ended.reason == "lease_over" and worker.killed_for != attempt.run:
            return deadline_report(attempt) if attempt.is_late(time.monotonic()) else unrenewed_report(attempt)
        if worker.kill_reason:
            if worker.killed_for != attempt.run:
                return lost_report(attempt)  # it had only just begun when another call's worker was killed
            if worker.kill_reason == "deadline":
                return deadline_report(attempt, ended.exit_code)
            reason = worker.kill_reason if worker.kill_reason in ("timed_out", "silent") else "signaled"
            return failure_report(attempt, reason, ended.exit_code)
        code = ended.exit_code
        self._owner.report_trouble(f"a warm worker died during a call ({_exit_text(code)})", attempt)
        self._owner.add_output(attempt, f"taskyard: the worker that made this call died ({_exit_text(code)})\n")
        return failure_report(attempt, "signaled" if code is not None and code < 0 else "exit_code", code)

    def _collect_files(self, attempt: LeasedAttempt) -> bool:
        """Keep the checkpoint that a call left; False if one of its files cannot be used, which its output says."""
        attempt.untouched = attempt.workdir is None or attempt.workdir.is_unchanged()
        if attempt.workdir is None or attempt.untouched:
            return True
        left = attempt.workdir.read_files(succeeded=False)
        left = left if attempt.secrets is None else attempt.secrets.clean(left)
        if left.checkpoint is not None:
            attempt.last_checkpoint = left.checkpoint
        for fault in left.faults:
            self._owner.add_output(attempt, f"taskyard: {fault}\n")
        return not left.faults

    def _kill(self, worker: WarmWorker, why: str) -> None:
        if not worker.kill_reason:
            attempt = worker.current_call
            worker.kill_reason, worker.killed_for = why, attempt.run if attempt is not None else None
            self._send(KillWorker(worker.number))

    def _fail_all(self) -> None:
        self._failed_starts = 0
        self._owner.report_trouble("cannot start any warm worker", None)
        for attempt in self._empty_queues():
            self._owner.add_output(attempt, "taskyard: this bot cannot start a warm worker\n")
            self._owner.finished(attempt, failure_report(attempt, "exit_code", NOT_RUNNABLE))


def _memory_mb(attempt: LeasedAttempt) -> int:
    """Return how much memory the worker of a call may use; 0 for as much as there is."""
    return 0 if attempt.lease.takes is None else attempt.lease.takes.memory


def _call_stats(attempt: LeasedAttempt, usage: CallUsage) -> Stats:
    return Stats(
        prepared_ms=attempt.prepared_ms,
        downloaded_ms=attempt.download_ms,
        ran_ms=round(usage.ran_s * 1000),
        cpu_s=usage.cpu_s,
        memory_bytes=usage.memory_bytes,
    )


def _exit_text(code: int | None) -> str:
    if code is None:
        return "exit code unknown"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
