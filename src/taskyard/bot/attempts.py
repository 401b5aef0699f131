"""The attempts that a bot holds leases for, from the lease until the server has the report.

Pure bookkeeping: it says what has to be sent and when, but sends nothing, starts nothing and reads no clock.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from taskyard.bot.begun_attempts import BegunFile, Ref
from taskyard.bot.caches import PlacedCache
from taskyard.bot.output_spool import Spool
from taskyard.bot.payloads import FileSpec, Function, Program
from taskyard.bot.workdir import Workdir
from taskyard.wire.bot_protocol import Lease, Reason, Report, Signal, Stats

if TYPE_CHECKING:
    from taskyard.bot.secrets import SecretsInHand

#: A lease is renewed after this part of its span: two more tries are left then.
RENEW_PART: Final = 1 / 3
#: Output of a running attempt waits this long for a request that goes out anyway.
OUTPUT_SECONDS: Final = 0.5
#: What runs longer than this is reported as begun; what ends sooner is only reported as ended.
MOMENT_SECONDS: Final = 0.05
#: The report that an attempt has begun waits this long for a request that goes out anyway.
BEGUN_SECONDS: Final = 0.1

Key = tuple[str, int]


class LeasedAttempt(msgspec.Struct, eq=False):
    """One attempt in hand: a msgspec struct, which is the cheapest object to create and to change."""

    lease: Lease
    key: Key  # task and attempt number
    run: int  # its number on this bot, never reused
    received_at: float  # when the lease arrived; its request may have waited for it
    until: float  # when nothing of it may run any more, unless it is renewed
    renew_at: float
    deadline: float | None  # when it must be ended even if it is renewed; the server sent what was left
    work: Program | Function | None = None
    files: FileSpec | None = None  # what its payload says of files; None: nothing
    strict: bool = True  # it must not outlive its lease
    inputs: bytes | None = None
    secrets: "SecretsInHand | None" = None  # from shortly before it begins until it has ended
    workdir: Workdir | None = None
    caches: Sequence[PlacedCache] = ()  # in its working folder
    untouched: bool = False  # nothing can have been written in its workdir
    spool: Spool | None = None
    output_since: float | None = None  # when it printed the first output that was not sent yet
    output_seen: int = 0  # how much of a call's output has arrived from the worker
    began: float | None = None
    begun_queued: bool = False  # it has run for more than a moment, and is or was queued to be reported as begun
    prepared_ms: int | None = None
    cached_ms: int | None = None
    download_ms: int | None = None  # how long its input files took, and its output files
    upload_ms: int | None = None
    report: Report | None = None  # how it ended
    ended: float | None = None  # when it ended, if it printed anything
    in_flight: bool = False  # a request that mentions it is under way
    stopping: str = ""  # why it has to end: stop or lose
    is_ours: bool = True  # False: the server has taken it away and wants no report
    last_checkpoint: bytes | None = None  # left in its file at the end, until it is sent
    progress: str | None = None  # that an engine without a workdir here has heard of, until it is sent
    gpus: tuple[str, ...] | None = None  # the GPUs that it has, maybe none; None: it takes one slot and nothing else

    @property
    def ref(self) -> Ref:
        """Task, attempt and fence."""
        return (self.lease.task, self.lease.attempt, self.lease.fence)

    def is_late(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and now >= self.deadline

    def expiry_report(self, now: float) -> Report | None:
        """Return the report of an attempt that has not begun and may not begin any more; None if it may."""
        if self.deadline is not None and now >= self.deadline:
            return deadline_report(self)
        return return_report(self) if self.strict and now >= self.until else None


#: Reports a problem of the bot itself, about an attempt or none.
ReportTrouble = Callable[[str, LeasedAttempt | None], None]


class LeasedAttempts:
    """All attempts in hand."""

    def __init__(self, file: BegunFile | None = None) -> None:
        self._file = file
        self.by_key: dict[Key, LeasedAttempt] = {}
        self.begun: dict[Key, LeasedAttempt] = {}  # running for a while, and not yet reported as begun
        self._begun_since = math.inf
        self.finished: dict[Key, LeasedAttempt] = {}  # ended, report not yet accepted by the server
        self.with_output: dict[Key, LeasedAttempt] = {}  # with output to send
        self.renews = True  # False: renew nothing, because no process would enforce the new expiry
        self._runs = 0
        self._renew_at = math.inf

    @property
    def unfinished(self) -> int:
        """Count the attempts that have not ended."""
        return len(self.by_key) - len(self.finished)

    def __iter__(self) -> Iterator[LeasedAttempt]:
        """Iterate over all attempts in hand; they may change meanwhile."""
        return iter(list(self.by_key.values()))

    def add(self, lease: Lease, sent: float, now: float) -> LeasedAttempt:
        """Add a leased attempt. The lease counts from when the request was sent that brought it."""
        self._runs += 1
        key = (lease.task, lease.attempt)
        attempt = LeasedAttempt(
            lease,
            key,
            self._runs,
            received_at=now,
            until=sent + lease.lease_ms / 1000,
            renew_at=_renewal_time(sent, lease.lease_ms),
            deadline=None if lease.deadline_ms is None else now + lease.deadline_ms / 1000,
            strict=lease.disconnect == "strict",
        )
        self.by_key[key] = attempt
        self._renew_at = min(self._renew_at, attempt.renew_at)
        return attempt

    def mark_begun(self, some: Sequence[LeasedAttempt]) -> None:
        """Record, in the file that outlives this process, that attempts are about to begin."""
        if self._file is not None and some:
            self._file.add([one.ref for one in some], self._begun_refs)

    def mark_not_begun(self, some: Sequence[LeasedAttempt]) -> None:
        """Record that attempts have not begun after all."""
        for attempt in some:
            attempt.began = None
        if self._file is not None and some:
            self._file.drop([one.ref for one in some], self._begun_refs)

    def _begun_refs(self) -> list[Ref]:
        return [one.ref for one in self.by_key.values() if one.began is not None]

    def queue_begun(self, attempt: LeasedAttempt, now: float) -> None:
        """Queue the report that an attempt has begun; it is sent once."""
        if not attempt.begun_queued and attempt.report is None:
            attempt.begun_queued = True
            self.begun[attempt.key] = attempt
            self._begun_since = min(self._begun_since, now)

    def unreported_begun(self) -> list[LeasedAttempt]:
        """Return the attempts whose begin is not yet reported."""
        self._begun_since = math.inf
        return [one for one in self.begun.values() if not one.in_flight]

    def is_begun_due(self, now: float) -> bool:
        """Whether a report of a begin has waited long enough."""
        return now - self._begun_since >= BEGUN_SECONDS

    def extend(self, attempt: LeasedAttempt, sent: float, lease_ms: int) -> None:
        """Extend its lease."""
        attempt.until = max(attempt.until, sent + lease_ms / 1000)
        attempt.renew_at = _renewal_time(sent, lease_ms)
        self._renew_at = min(self._renew_at, attempt.renew_at)

    def add_output(self, attempt: LeasedAttempt, spool: Spool, body: bytes, now: float) -> None:
        """Keep what it printed until it is sent."""
        attempt.spool = spool
        spool.add(body)
        if spool.pending:
            attempt.output_since = attempt.output_since or now
            self.with_output[attempt.key] = attempt

    def finish(self, attempt: LeasedAttempt, report: Report) -> None:
        """Record how it ended; an attempt that the server has taken away is dropped."""
        assert attempt.report is None, "an attempt ends once"
        attempt.report = report
        if self.begun.pop(attempt.key, None) is not None and not self.begun:
            self._begun_since = math.inf
        if attempt.is_ours:
            self.finished[attempt.key] = attempt
        else:
            self.drop(attempt)

    def drop(self, attempt: LeasedAttempt) -> None:
        """Forget an attempt."""
        key = attempt.key
        if self.by_key.get(key) is attempt:
            del self.by_key[key]
            for kept in (self.finished, self.with_output, self.begun):
                if kept:
                    kept.pop(key, None)
        if not self.by_key and self._file is not None:
            self._file.empty()
        if attempt.spool is not None:
            attempt.spool.close()

    def due_for_renewal(self, now: float) -> list[LeasedAttempt]:
        """Return the attempts to renew now, and those that would be due soon: one request serves all."""
        if now < self._renew_at or not self.renews:
            return []
        running = [one for one in self.by_key.values() if one.report is None and one.is_ours and not one.in_flight]
        # Past its deadline nothing is renewed: the attempt has the rest of its lease to end.
        running = [one for one in running if not one.is_late(now)]
        due = [one for one in running if one.renew_at <= now + (one.until - one.renew_at) / 4]
        self._renew_at = min((one.renew_at for one in running if one not in due), default=math.inf)
        return due

    def renew_all(self) -> None:
        """Make every attempt due for renewal."""
        for attempt in self.by_key.values():
            attempt.renew_at = -math.inf
        self._renew_at = -math.inf

    def is_renewal_due(self, now: float) -> bool:
        """Whether an attempt must be renewed now."""
        return self.renews and now >= self._renew_at

    def reset_renewal_time(self) -> None:
        """Compute again when the next renewal is due: a renewal that was sent may not have been granted."""
        self._renew_at = min((one.renew_at for one in self.by_key.values() if one.report is None), default=math.inf)

    def is_output_due(self, now: float) -> bool:
        """Whether output has waited long enough."""
        return any(
            now - (one.output_since or now) >= OUTPUT_SECONDS for one in self.with_output.values() if not one.in_flight
        )


def lost_report(attempt: LeasedAttempt) -> Report:
    """The attempt was lost through no fault of its own."""
    return Report(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.LOSE)


def unrenewed_report(attempt: LeasedAttempt) -> Report:
    """The attempt was ended because its lease could not be renewed in time."""
    return Report(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.LOSE, Reason.UNRENEWED)


def lost_unbegun_report(attempt: LeasedAttempt) -> Report:
    """The attempt was lost with the runner, and had not begun as far as is known."""
    return Report(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.LOSE, Reason.RETURNED)


def return_report(attempt: LeasedAttempt) -> Report:
    """The attempt has not begun and is given back."""
    return Report(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.RETURN)


def deadline_report(attempt: LeasedAttempt, exit_code: int | None = None, stats: Stats | None = None) -> Report:
    """The attempt was ended at its deadline."""
    return Report(
        attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.DEADLINE, None, exit_code, stats=stats
    )


def given_up_report(attempt: LeasedAttempt, reason: Reason) -> Report:
    """The bot could not run the attempt, or found something missing."""
    return Report(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, Signal.LOSE, reason)


def failure_report(
    attempt: LeasedAttempt, reason: str | None, exit_code: int | None = None, stats: Stats | None = None
) -> Report:
    """The attempt failed."""
    lease = attempt.lease
    return Report(lease.task, lease.attempt, lease.fence, Signal.FAIL, reason, exit_code, stats=stats)  # type: ignore[arg-type]


def _renewal_time(sent: float, lease_ms: int) -> float:
    return sent + lease_ms / 1000 * RENEW_PART
