"""The room where leases go on: a bot says that it is still at its attempts, and hears if one should stop."""

from collections.abc import Sequence
from typing import Final

from taskyard.core import budget
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import LEASED, STOPPED
from taskyard.core.words import Millis, Reason, Signal
from taskyard.lifecycle.commands import Begun, Renewal
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Refusal, Renewed
from taskyard.store.records import TaskRecord

#: How a bot itself says that an attempt has ended.
_ASSIGNED: Final = Reason.ASSIGNED.text
_RESULTS: Final = frozenset({Signal.SUCCEED, Signal.FAIL})


def renew(corridor: Corridor, renewals: Sequence[tuple[str, Renewal]]) -> list[Renewed | Refusal]:
    """Lengthen leases; each renewal comes with the bot that sent it."""
    tasks = corridor.look({renewal.task for _, renewal in renewals})
    return [_renew(corridor, tasks.get(renewal.task), bot, renewal) for bot, renewal in renewals]


def _renew(corridor: Corridor, task: TaskRecord | None, bot: str, renewal: Renewal) -> Renewed | Refusal:
    if task is None or (renewal.attempt, renewal.fence) != (task.life.attempt, task.fence):
        return _lost(renewal)
    if task.state not in LEASED:
        # A renewal that its own result has overtaken is welcome; what the clock has ended is lost.
        return Renewed(task.id, renewal.attempt, None) if task.life.ended in _RESULTS else _lost(renewal)
    if task.bot != bot:
        return _lost(renewal)
    assert task.lease_until_ms is not None, "what a bot has is leased"
    until = budget.lease_until(corridor.now, corridor.lease_ms, task.rules.deadline_ms)
    if until is not None and until > task.lease_until_ms:
        task.lease_until_ms = until
        task.due_ms = budget.due_at(task.life, task.rules, until, corridor.now)
        corridor.change(task)
    # Past its deadline a lease is not lengthened, but it is the bot's: how the attempt ends is about to be told.
    return Renewed(task.id, renewal.attempt, Millis(task.lease_until_ms), stop=task.state in STOPPED)


def begin(corridor: Corridor, begun: Sequence[tuple[str, Begun]]) -> None:
    """Note which attempts have begun; each comes with the bot that says so. What is not the bot's changes nothing."""
    tasks = corridor.look({one.task for _, one in begun})
    for bot, one in begun:
        task = tasks.get(one.task)
        if task is None or task.reason != _ASSIGNED:
            continue
        if (task.bot, task.life.attempt, task.fence) == (bot, one.attempt, one.fence):
            task.reason = Reason.UNDER_WAY.text
            corridor.change(task)


def _lost(renewal: Renewal) -> Refusal:
    return Refusal(
        Code.LEASE_LOST, f"attempt {renewal.attempt} of task {text_of(Key(renewal.task))} is not yours any more"
    )
