"""Attempts that are lost with their bots, or given back: whether they had begun, and whether that costs a retry.

An attempt that had not begun costs nothing if its bot says so. If only the silence of the bot suggests it, or the bot
could not renew the lease, it costs nothing twice in a round: a task that kills its bot at once looks just the same.
"""

from collections.abc import Collection
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import POISON_BOTS, SPARED, SPARED_MAX, Ruling
from taskyard.core.states import REASONS, Outcome, Reason, Signal
from taskyard.lifecycle.commands import Begun
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.rows import TaskRecord

#: The reason of a leased task that its bot has not begun.
_ASSIGNED: Final = Reason.ASSIGNED.text
_SPARED: Final = sorted(reason.text for reason in SPARED)


def free_reason(transaction: Transaction, task: TaskRecord) -> Reason | None:
    """Return the reason why an attempt that is lost with its bot costs no retry; None if it costs one."""
    if task.reason != _ASSIGNED:
        return None
    return Reason.RETURNED if has_free_losses_left(transaction, task) else None


def costs_nothing(transaction: Transaction, task: TaskRecord, why: Reason) -> bool:
    """Whether an attempt costs no retry whose bot reports that it was lost for this reason."""
    may_be = why is Reason.UNRENEWED or (why is Reason.RETURNED and task.reason == _ASSIGNED)
    return may_be and has_free_losses_left(transaction, task)


def has_free_losses_left(transaction: Transaction, task: TaskRecord) -> bool:
    """Whether another lost attempt of a task may cost nothing in this round."""
    return transaction.repo.attempts.count_lost(task.id, task.life.round, _SPARED) < SPARED_MAX


def is_poison(transaction: Transaction, task: TaskRecord) -> bool:
    """Whether a task that is about to be lost has then lost so many bots that no other bot should meet it."""
    if task.life.retries_used + 1 < POISON_BOTS:
        return False
    lost_by = transaction.repo.attempts.lost_by(task.id, task.life.round, _SPARED)
    return len({*lost_by, task.bot}) >= POISON_BOTS


def transition_of(transaction: Transaction, task: TaskRecord, begun: Collection[Begun] | None) -> Transition | None:
    """Return the end of an attempt whose bot is gone; `begun` are the attempts that the bot had begun, if known."""
    life, rules, now = task.life, task.rules, transaction.now
    if begun is not None and task.reason == _ASSIGNED and Begun(task.id, life.attempt, task.fence) not in begun:
        return _moved(task, Signal.RETURN, attempt_policy.report(life, rules, life.attempt, Signal.RETURN, now))
    why = free_reason(transaction, task) if begun is None else None
    task.avoid_bot = task.bot
    if why is not None:
        return _moved(task, Signal.LOSE, attempt_policy.spare(life, rules, why, now))
    if is_poison(transaction, task):
        return _moved(task, Signal.LOSE, attempt_policy.poisoned(life, rules, now))
    return _moved(task, Signal.LOSE, attempt_policy.report(life, rules, life.attempt, Signal.LOSE, now))


def _moved(task: TaskRecord, signal: Signal, ruling: Ruling) -> Transition | None:
    if ruling.outcome is not Outcome.MOVE:
        return None
    return Transition(task, signal, ruling.life_after, ruling.reason or REASONS[signal])
