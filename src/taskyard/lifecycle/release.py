"""What happens to a task that just became pending: it gets its slice, and is admitted at once if nothing holds it.

A task without mutexes and limits, whose pool has no capacity, needs no admission pass: the transaction that made it
pending also puts it into its queue. Every other task is left to the next pass.
"""

from collections.abc import Iterable
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

#: Bound here, because access through the enum class is slow.
_RELEASE: Final = Signal.RELEASE
_ADMIT: Final = Signal.ADMIT
_ADMITTED: Final = REASONS[_ADMIT]
#: The action by which the audit says why no bot could run a task, and its actor.
NO_BOT: Final = "no_bot"
SCHEDULER: Final = "scheduler"


def admit(transaction: "Transaction", tasks: Iterable[tuple[TaskRecord, Signal]]) -> list[Transition]:
    """Return the transitions of pending tasks that nothing holds; leave the others to an admission pass.

    With each task comes the signal that made it pending.
    """
    transitions = []
    for task, signal in tasks:
        transition = _choose_slice(transaction, task) if signal is _RELEASE else None
        transition = transition or _admit(transaction, task)
        if transition is not None:
            transitions.append(transition)
    return transitions


def capacity_by_slice(transaction: "Transaction", task: TaskRecord) -> list[bool]:
    """Tell for each slice of a task whether a bot was seen that could serve it."""
    slices = _definition(transaction, task).slices
    return [transaction.has_capacity(one.dimensions) for one in slices]


def move_to_slice(transaction: "Transaction", task: TaskRecord, life: Life) -> None:
    """Put a task into the queue of the slice that it has in `life`."""
    if life.slice_index != task.life.slice_index:
        text = encode_dimensions(_definition(transaction, task).slices[life.slice_index].dimensions)
        task.queue = transaction.repo.queues.with_dimensions([text])[text]


def _choose_slice(transaction: "Transaction", task: TaskRecord) -> Transition | None:
    """Begin with the first slice that a bot could serve, or that waits for one."""
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
        # Other bots may be there by the time a person asks, so what is missing now is stored.
        wanted = tuple(one.dimensions for one in _definition(transaction, task).slices)
        transaction.audit(SCHEDULER, NO_BOT, task.id, transaction.missing_dimensions(wanted))
    return Transition(task, Signal.EXPIRE, ruling.life_after, ruling.reason or Reason.NO_BOT)


def _admit(transaction: "Transaction", task: TaskRecord) -> Transition | None:
    needs_admission = task.is_constrained or (task.weight > 0 and transaction.has_pool_limit(task.queue))
    if needs_admission is not task.needs_admission:
        task.needs_admission = needs_admission
        transaction.mark_changed(task)
        transaction.mark_dirty(task.id)  # a pass that has the task in memory has to forget it
    elif needs_admission:
        transaction.mark_dirty(task.id)
    if needs_admission:
        return None
    begins = task.life.not_before_ms
    if transaction.is_canceled(task.graph) or (begins is not None and begins > transaction.now):
        return None
    return Transition(task, _ADMIT, attempt_policy.admitted(task.life, transaction.now), _ADMITTED)


def _definition(transaction: "Transaction", task: TaskRecord) -> Task:
    return decoded(transaction.repo.tasks.definitions([task.id])[task.id][1])
