"""Grant or deny approvals. Each is decided once.

A decision that comes too early is refused with what the approval waits for; one that comes too late with what was
decided, by whom and when.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from taskyard.core.durations import moment_text
from taskyard.core.graph.payload import Decision
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ENDED, LEASED, STOPPED, Kind
from taskyard.lifecycle import selection, server_attempts
from taskyard.lifecycle.commands import Approve, Code, Done, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.rows import TaskRecord

#: The audit actions.
APPROVE: Final = "approve"
DENY: Final = "deny"
#: The states in which an approval waits for a person.
_ASKING: Final = LEASED - STOPPED
_DECISION: Final = msgspec.json.Decoder(Decision)


def approve(transaction: Transaction, commands: Sequence[Approve]) -> list[Done | Refusal]:
    """Decide approvals."""
    transaction.lock_tasks({one.task for one in commands})
    return [_approve(transaction, one) for one in commands]


def _approve(transaction: Transaction, one: Approve) -> Done | Refusal:
    task = selection.visible_task(transaction, one.task)
    if task is None:
        return selection.not_found("task", one.task)
    if task.kind != Kind.APPROVAL.text or task.state not in _ASKING:
        verb, name = APPROVE if one.approved else DENY, text_of(Key(task.id))
        return Refusal(Code.CONFLICT, f"cannot {verb} task {name}: {_why_not(transaction, task)}")
    decision = Decision(one.approved, transaction.now, one.actor, one.comment)
    transaction.apply([server_attempts.decide(transaction, task, decision)])
    transaction.audit(one.actor, APPROVE if one.approved else DENY, task.id, one.comment)
    return Done(task.id, task.state)


def _why_not(transaction: Transaction, task: TaskRecord) -> str:
    if task.kind != Kind.APPROVAL.text:
        return f"it is no approval but a {task.kind}, and is not decided by people"
    if task.state not in ENDED:
        return f"it is {task.state} ({task.reason}), so the approval has not been requested yet"
    result = transaction.repo.read.last_results([task.id]).get(task.id)
    if result is None:
        return f"it is {task.state} ({task.reason}), and was not decided"
    return _decided_text(_DECISION.decode(result))


def _decided_text(decision: Decision) -> str:
    word = "approved" if decision.approved else "denied"
    at = moment_text(decision.at_ms)
    if decision.timed_out:
        return f"it was not answered in time, so it was {word} at {at}"
    return f"it was {word} by {decision.by or 'a person'} at {at}"
