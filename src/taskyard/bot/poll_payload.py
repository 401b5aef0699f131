"""What one request tells about attempts in hand, and what its answer means for them.

A report travels with the last of its output or after it, never before. What is under way in one request is in no other.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from taskyard.bot.attempts import Key, LeasedAttempt, LeasedAttempts
from taskyard.bot.output_spool import Spool
from taskyard.wire.bot_protocol import OUTPUTS_MAX, Begun, Output, Polled, Renewal, Report


@dataclass(slots=True)
class PollPayload:
    """What goes along with one request."""

    reports: list[Report] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    reported: list[LeasedAttempt] = field(default_factory=list)
    others: list[LeasedAttempt] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reports or self.renewals or self.outputs or self.begun)


@dataclass(frozen=True, slots=True)
class Consequences:
    """What has to be done after an answer."""

    held_longer: list[LeasedAttempt]
    stop: list[LeasedAttempt]  # a person wants these ended
    taken_away: list[LeasedAttempt]

    def __bool__(self) -> bool:
        return bool(self.held_longer or self.stop or self.taken_away)


def pack(desk: LeasedAttempts, now: float) -> PollPayload:
    """Take everything that can be told now."""
    parcel, room = PollPayload(), OUTPUTS_MAX
    for held in [one for one in desk.finished.values() if not one.sending]:
        room = _pack_output(parcel, held, room) if held.spool is not None else room
        spool = held.spool
        if held.report is not None and (spool is None or _sent_to(parcel, held) == spool.size):
            _pack_report(parcel, held, held.report if spool is None else _told_whole(held, held.report, spool, now))
        elif parcel.outputs and parcel.outputs[-1].task == held.lease.task:
            parcel.others.append(held)
    for held in [one for one in desk.loud.values() if one.report is None and not one.sending]:
        room = _pack_output(parcel, held, room)
        parcel.others.append(held)
    for held in desk.due(now):
        parcel.renewals.append(_renewal(held))
        parcel.others.append(held)
    for held in desk.begun_to_tell():
        parcel.begun.append(Begun(*held.ref))
        parcel.others.append(held)
    for held in (*parcel.reported, *parcel.others):
        held.sending = True
    return parcel


def settle(desk: LeasedAttempts, parcel: PollPayload, polled: Polled, sent: float) -> Consequences:
    """Take note of what the server has, and has not."""
    for held in (*parcel.reported, *parcel.others):
        held.sending = False
    for one in parcel.begun:
        desk.begun.pop((one.task, one.attempt), None)
    if parcel.outputs:
        _settle_outputs(desk, parcel, {(one.task, one.attempt): one.size for one in polled.kept})
    refused = {(one.task, one.attempt) for one in polled.refused}
    for held in parcel.reported:
        desk.drop(held)
    taken_away = [desk.held[key] for key in refused if key in desk.held]
    for held in taken_away:
        _give_up(desk, held)
    longer, stop = _settle_renewals(desk, polled, sent)
    if parcel.others:
        desk.look_again()
    return Consequences(longer, stop, taken_away)


def _pack_report(parcel: PollPayload, held: LeasedAttempt, report: Report) -> None:
    if held.memories:
        parcel.renewals.append(_word(held, checkpoint=held.memories.pop()))
    parcel.reports.append(report)
    parcel.reported.append(held)


def _told_whole(held: LeasedAttempt, report: Report, spool: Spool, now: float) -> Report:
    """Say of an attempt that printed how long it took until the last of it goes out, which is now, and if it is cut."""
    stats = report.stats
    if stats is not None and held.ended is not None:
        stats = replace(stats, uploaded_ms=round((now - held.ended) * 1000))
    return replace(report, stats=stats, truncated=spool.truncated)


def _pack_output(parcel: PollPayload, held: LeasedAttempt, room: int) -> int:
    spool = held.spool
    assert spool is not None, "who is loud has a spool"
    start, lease = spool.kept, held.lease
    while start < spool.size and room > 0:
        body = spool.piece(start, room)
        parcel.outputs.append(Output(lease.task, lease.attempt, lease.fence, start, body))
        start, room = start + len(body), room - len(body)
    return room


def _sent_to(parcel: PollPayload, held: LeasedAttempt) -> int:
    """How far the output of an attempt is told, with this parcel."""
    assert held.spool is not None, "this is about output"
    own = [one.start + len(one.body) for one in parcel.outputs[-8:] if (one.task, one.attempt) == held.key]
    return max(own, default=held.spool.kept)


def _renewal(held: LeasedAttempt) -> Renewal:
    room = held.room
    return _word(held) if room is None else _word(held, room.new_progress(), room.new_checkpoint())


def _word(held: LeasedAttempt, progress: str | None = None, checkpoint: bytes | None = None) -> Renewal:
    return Renewal(held.lease.task, held.lease.attempt, held.lease.fence, progress, checkpoint)


def _settle_outputs(desk: LeasedAttempts, parcel: PollPayload, kept: dict[Key, int]) -> None:
    ends = {(one.task, one.attempt): one.start + len(one.body) for one in parcel.outputs}
    for key, end in ends.items():
        held = desk.held.get(key)
        if held is None or held.spool is None:
            continue
        before = held.spool.kept
        held.spool.keep(kept.get(key, end))
        if held.spool.kept == before:
            held.spool.cut()  # a server that keeps nothing of it would be sent the same for ever
        held.loud_since = None
        if not held.spool.pending:
            desk.loud.pop(key, None)


def _settle_renewals(
    desk: LeasedAttempts, polled: Polled, sent: float
) -> tuple[list[LeasedAttempt], list[LeasedAttempt]]:
    longer, stop = [], []
    for one in polled.renewed:
        held = desk.held.get((one.task, one.attempt))
        if held is None or held.report is not None:
            continue
        if one.lease_ms is not None:
            desk.renewed(held, sent, one.lease_ms)
            longer.append(held)
        if one.stop and not held.stopping:
            stop.append(held)
    return longer, stop


def _give_up(desk: LeasedAttempts, held: LeasedAttempt) -> None:
    held.ours = False
    if held.report is not None:
        desk.drop(held)
