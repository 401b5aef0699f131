"""What one poll carries about attempts in hand, and what its answer means for them.

A report goes out with the last of its output or after it, never before. An attempt that is mentioned in a request under
way is mentioned in no other.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from taskyard.bot.attempts import Key, LeasedAttempt, LeasedAttempts
from taskyard.bot.output_spool import Spool
from taskyard.wire.bot_protocol import OUTPUTS_MAX, Begun, Output, Polled, Renewal, Report


@dataclass(slots=True)
class PollPayload:
    """What one poll carries."""

    reports: list[Report] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    reported: list[LeasedAttempt] = field(default_factory=list)
    mentioned: list[LeasedAttempt] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reports or self.renewals or self.outputs or self.begun)


@dataclass(frozen=True, slots=True)
class PollEffects:
    """What to do after an answer."""

    renewed: list[LeasedAttempt]
    stop: list[LeasedAttempt]  # attempts that a person wants ended
    revoked: list[LeasedAttempt]

    def __bool__(self) -> bool:
        return bool(self.renewed or self.stop or self.revoked)


def build_payload(attempts: LeasedAttempts, now: float) -> PollPayload:
    """Collect everything that can be sent now."""
    payload, space = PollPayload(), OUTPUTS_MAX
    for attempt in [one for one in attempts.finished.values() if not one.in_flight]:
        space = _add_output(payload, attempt, space) if attempt.spool is not None else space
        spool = attempt.spool
        if attempt.report is not None and (spool is None or _output_end(payload, attempt) == spool.size):
            _add_report(
                payload,
                attempt,
                attempt.report if spool is None else _complete_report(attempt, attempt.report, spool, now),
            )
        elif payload.outputs and payload.outputs[-1].task == attempt.lease.task:
            payload.mentioned.append(attempt)
    for attempt in [one for one in attempts.with_output.values() if one.report is None and not one.in_flight]:
        space = _add_output(payload, attempt, space)
        payload.mentioned.append(attempt)
    for attempt in attempts.due_for_renewal(now):
        payload.renewals.append(_make_renewal(attempt))
        payload.mentioned.append(attempt)
    for attempt in attempts.unreported_begun():
        payload.begun.append(Begun(*attempt.ref))
        payload.mentioned.append(attempt)
    for attempt in (*payload.reported, *payload.mentioned):
        attempt.in_flight = True
    return payload


def apply_reply(attempts: LeasedAttempts, payload: PollPayload, polled: Polled, sent: float) -> PollEffects:
    """Record what the server accepted and refused; return what to do about it."""
    for attempt in (*payload.reported, *payload.mentioned):
        attempt.in_flight = False
    for one in payload.begun:
        attempts.begun.pop((one.task, one.attempt), None)
    if payload.outputs:
        _apply_kept(attempts, payload, {(one.task, one.attempt): one.size for one in polled.kept})
    refused = {(one.task, one.attempt) for one in polled.refused}
    for attempt in payload.reported:
        attempts.drop(attempt)
    revoked = [attempts.by_key[key] for key in refused if key in attempts.by_key]
    for attempt in revoked:
        _revoke(attempts, attempt)
    renewed, stop = _apply_renewals(attempts, polled, sent)
    if payload.mentioned:
        attempts.reset_renewal_time()
    return PollEffects(renewed, stop, revoked)


def _add_report(payload: PollPayload, attempt: LeasedAttempt, report: Report) -> None:
    if attempt.last_checkpoint is not None:
        payload.renewals.append(_renewal_message(attempt, checkpoint=attempt.last_checkpoint))
        attempt.last_checkpoint = None
    payload.reports.append(report)
    payload.reported.append(attempt)


def _complete_report(attempt: LeasedAttempt, report: Report, spool: Spool, now: float) -> Report:
    """Add to a report how long the upload of output took, until now, and whether output was cut."""
    stats = report.stats
    if stats is not None and attempt.ended is not None:
        stats = replace(stats, uploaded_ms=(stats.uploaded_ms or 0) + round((now - attempt.ended) * 1000))
    return replace(report, stats=stats, truncated=spool.truncated)


def _add_output(payload: PollPayload, attempt: LeasedAttempt, space: int) -> int:
    spool = attempt.spool
    assert spool is not None, "an attempt with output has a spool"
    start, lease = spool.acked, attempt.lease
    while start < spool.size and space > 0:
        body = spool.piece(start, space)
        payload.outputs.append(Output(lease.task, lease.attempt, lease.fence, start, body))
        start, space = start + len(body), space - len(body)
    return space


def _output_end(payload: PollPayload, attempt: LeasedAttempt) -> int:
    """How far the output of an attempt is sent, with this payload."""
    assert attempt.spool is not None, "an attempt with output has a spool"
    own = [one.start + len(one.body) for one in payload.outputs[-8:] if (one.task, one.attempt) == attempt.key]
    return max(own, default=attempt.spool.acked)


def _make_renewal(attempt: LeasedAttempt) -> Renewal:
    space, secrets = attempt.workdir, attempt.secrets
    if space is None:
        renewal = _renewal_message(attempt, attempt.progress, attempt.last_checkpoint)
        attempt.progress = attempt.last_checkpoint = None
        return renewal
    progress, checkpoint = space.new_progress(), space.new_checkpoint()
    if secrets is not None:
        progress = None if progress is None else secrets.masker.mask(progress.encode()).decode(errors="replace")
        checkpoint = secrets.clean_checkpoint(checkpoint)
    return _renewal_message(attempt, progress, checkpoint)


def _renewal_message(attempt: LeasedAttempt, progress: str | None = None, checkpoint: bytes | None = None) -> Renewal:
    return Renewal(attempt.lease.task, attempt.lease.attempt, attempt.lease.fence, progress, checkpoint)


def _apply_kept(attempts: LeasedAttempts, payload: PollPayload, kept: dict[Key, int]) -> None:
    ends = {(one.task, one.attempt): one.start + len(one.body) for one in payload.outputs}
    for key, end in ends.items():
        attempt = attempts.by_key.get(key)
        if attempt is None or attempt.spool is None:
            continue
        before = attempt.spool.acked
        attempt.spool.acknowledge(kept.get(key, end))
        if attempt.spool.acked == before:
            attempt.spool.discard_rest()  # a server that keeps nothing of it would be sent the same output for ever
        attempt.output_since = None
        if not attempt.spool.pending:
            attempts.with_output.pop(key, None)


def _apply_renewals(
    attempts: LeasedAttempts, polled: Polled, sent: float
) -> tuple[list[LeasedAttempt], list[LeasedAttempt]]:
    renewed, stop = [], []
    for one in polled.renewed:
        attempt = attempts.by_key.get((one.task, one.attempt))
        if attempt is None or attempt.report is not None:
            continue
        if one.lease_ms is not None:
            attempts.extend(attempt, sent, one.lease_ms)
            renewed.append(attempt)
        if one.stop and not attempt.stopping:
            stop.append(attempt)
    return renewed, stop


def _revoke(attempts: LeasedAttempts, attempt: LeasedAttempt) -> None:
    attempt.is_ours = False
    if attempt.report is not None:
        attempts.drop(attempt)
