"""What happens to a task that just became pending: it finds its slice, and is admitted at once if nothing holds it.

A task with no mutex, no limit and a pool without capacity is never seen by a pass: it goes on to its queue in the very
transaction that made it pending. Every other one is left to the next pass.
"""

from typing import TYPE_CHECKING, Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import Life
from taskyard.core.graph.model import Task
from taskyard.core.states import ENDED, REASONS, Outcome, Reason, Signal
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.transition import Transition
from taskyard.store.repo.bots import encode_dimensions
from taskyard.store.rows import TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: The words of every life, by names of their own: a word is slow to get at through its class.
_RELEASE: Final = Signal.RELEASE
_ADMIT: Final = Signal.ADMIT
_LET_IN: Final = REASONS[_ADMIT]
#: How the audit tells why no bot could run a task, and who says so.
NO_BOT: Final = "no_bot"
SCHEDULER: Final = "scheduler"


def transitions_of(transaction: "Transaction") -> list[Transition]:
    """Move on those that became pending and that nothing holds; leave the others to a pass."""
    ready, transaction.to_admit = transaction.to_admit, []
    moves = []
    for task, signal in ready:
        move = _on_its_slice(transaction, task) if signal is _RELEASE else None
        move = move or _admitted(transaction, task)
        if move is not None:
            moves.append(move)
    return moves


def capacity_by_slice(transaction: "Transaction", task: TaskRecord) -> list[bool]:
    """Tell for each slice of a task whether a bot was seen that could serve it."""
    slices = _definition(transaction, task).slices
    return [transaction.has_capacity(one.dimensions) for one in slices]


def move_to_slice(transaction: "Transaction", task: TaskRecord, life: Life) -> None:
    """Let a task wait in the queue of the slice that it is on in `life`."""
    if life.slice_index != task.life.slice_index:
        text = encode_dimensions(_definition(transaction, task).slices[life.slice_index].dimensions)
        task.queue = transaction.repo.queues.with_dimensions([text])[text]


def _on_its_slice(transaction: "Transaction", task: TaskRecord) -> Transition | None:
    """Begin with the first slice that some bot could serve, or that waits for one."""
    for one in task.rules.slices:
        if not one.wait_for_capacity:
            break
    else:
        return None
    ruling = attempt_policy.choose_slice(task.life, task.rules, capacity_by_slice(transaction, task))
    if ruling.outcome is not Outcome.MOVE:
        return None
    move_to_slice(transaction, task, ruling.life_after)
    if ruling.target in ENDED:
        # The fleet is another one by the time somebody asks: what is missing now is kept.
        asked = tuple(one.dimensions for one in _definition(transaction, task).slices)
        transaction.audit(SCHEDULER, NO_BOT, task.id, transaction.missing_dimensions(asked))
    return Transition(task, Signal.EXPIRE, ruling.life_after, ruling.reason or Reason.NO_BOT)


def _admitted(transaction: "Transaction", task: TaskRecord) -> Transition | None:
    needs_admission = task.is_constrained or (task.weight > 0 and transaction.has_pool_limit(task.queue))
    if needs_admission is not task.needs_admission:
        task.needs_admission = needs_admission
        transaction.mark_changed(task)
        transaction.mark_dirty(task.id)  # a pass that knew it has to forget it
    elif needs_admission:
        transaction.mark_dirty(task.id)
    if needs_admission:
        return None
    begins = task.life.not_before_ms
    if transaction.is_canceled(task.graph) or (begins is not None and begins > transaction.now):
        return None
    return Transition(task, _ADMIT, attempt_policy.admitted(task.life, transaction.now), _LET_IN)


def _definition(transaction: "Transaction", task: TaskRecord) -> Task:
    return decoded(transaction.repo.tasks.definitions([task.id])[task.id][1])
