"""The transitions by which attempts of server tasks begin and end.

Such an attempt belongs to no bot and has no lease to renew, so none is lost if a server dies. If it has a timeout, that
is stored as the end of its lease. These functions apply nothing: they return the transition.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from taskyard.core import attempt_policy
from taskyard.core.graph.model import Payload
from taskyard.core.graph.payload import Decision
from taskyard.core.states import REASONS, Reason, Signal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Claimant, Transition
from taskyard.store.rows import TaskRecord

#: The claimant of server tasks. No bot may have this name.
SERVER: Final = Claimant("server", "", "", None)
_CLAIMED: Final = REASONS[Signal.CLAIM]


def payloads(transaction: Transaction, tasks: Sequence[TaskRecord]) -> Mapping[int, Payload]:
    """Read the payloads of server tasks; each has one slice."""
    texts = transaction.repo.tasks.definitions([task.id for task in tasks])
    return {id: decoded(text).slices[0].payload for id, (_, text) in texts.items()}


def begin(transaction: Transaction, task: TaskRecord, timeout_ms: int | None, reason: Reason = _CLAIMED) -> Transition:
    """Begin an attempt of a server task."""
    until = attempt_policy.own_lease(transaction.now, timeout_ms, task.rules.deadline_ms)
    taker = Claimant(SERVER.bot, SERVER.session, SERVER.poll, until)
    return Transition(task, Signal.CLAIM, attempt_policy.claimed(task.life), reason, taker)


def end(
    transaction: Transaction, task: TaskRecord, signal: Signal, reason: Reason, result: str | None = None
) -> Transition:
    """End an attempt of a server task, with its result; `reason` holds unless the policy has a better one."""
    if result is not None:
        transaction.repo.attempts.add_results([(task.id, task.life.attempt, result)])
    ruling = attempt_policy.report(task.life, task.rules, task.life.attempt, signal, transaction.now)
    known = None if ruling.reason is Reason.DONE else ruling.reason
    return Transition(task, signal, ruling.life_after, known or reason)


def decide(transaction: Transaction, task: TaskRecord, decision: Decision) -> Transition:
    """End an approval by a decision."""
    signal = Signal.SUCCEED if decision.approved else Signal.FAIL
    said = Reason.DONE if decision.approved else Reason.DENIED
    reason = Reason.TIMED_OUT if decision.timed_out else said
    return end(transaction, task, signal, reason, msgspec.json.encode(decision).decode())
