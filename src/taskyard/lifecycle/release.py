"""What happens to a task that just became pending: it gets its slice, and is admitted at once if nothing holds it.

A task without mutexes and limits, whose pool has no capacity, needs no admission pass: the transaction that made it
pending also puts it into its queue. Every other task is left to the next pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import Life, Ruling
from taskyard.core.graph.model import Task
from taskyard.core.reuse import Course
from taskyard.core.reuse import Ruling as SliceRuling
from taskyard.core.states import ENDED, REASONS, Outcome, Reason, Signal
from taskyard.lifecycle import queues, reuse
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.transition import Transition
from taskyard.store.rows import TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
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
    idempotent: list[tuple[TaskRecord, Signal]] = []
    for task, signal in tasks:
        if task.rules.idempotent and signal in reuse.JUDGED:
            idempotent.append((task, signal))
            continue
        transition = _choose_slice(transaction, task) if signal is _RELEASE else None
        transition = transition or _admit(transaction, task)
        if transition is not None:
            transitions.append(transition)
    return [*transitions, *_admit_idempotent(transaction, idempotent)] if idempotent else transitions


def capacity_by_slice(transaction: "Transaction", task: TaskRecord) -> list[bool]:
    """Return for each slice of a task whether a bot was seen that could serve it."""
    slices = _definition(transaction, task).slices
    return [transaction.has_capacity(one.dimensions) for one in slices]


def move_to_slice(transaction: "Transaction", task: TaskRecord, life: Life) -> None:
    """Put a task into the queue of the slice that it has in `life`."""
    if life.slice_index != task.life.slice_index:
        dimensions = _definition(transaction, task).slices[life.slice_index].dimensions
        task.queue = queues.ensure(transaction.repo, [dimensions], transaction.now)[dimensions]


def _choose_slice(transaction: "Transaction", task: TaskRecord) -> Transition | None:
    """Begin with the first slice that a bot could serve, or that waits for one."""
    for one in task.rules.slices:
        if not one.wait_for_capacity:
            break
    else:
        return None
    ruling = attempt_policy.choose_slice(task.life, task.rules, capacity_by_slice(transaction, task))
    return _to_slice(transaction, task, ruling) if ruling.outcome is Outcome.MOVE else None


def _to_slice(transaction: "Transaction", task: TaskRecord, ruling: Ruling) -> Transition:
    """Go on with another slice, or end because no bot can serve any."""
    move_to_slice(transaction, task, ruling.life_after)
    if ruling.target in ENDED:
        # Other bots may be there by the time a person asks, so what is missing now is stored.
        wanted = tuple(one.dimensions for one in _definition(transaction, task).slices)
        transaction.audit(SCHEDULER, NO_BOT, task.id, transaction.missing_dimensions(wanted))
        if task.is_constrained:
            transaction.repo.secrets.drop_bytes([task.id])
    return Transition(task, Signal.EXPIRE, ruling.life_after, ruling.reason or Reason.NO_BOT)


def _admit_idempotent(transaction: "Transaction", asked: Sequence[tuple[TaskRecord, Signal]]) -> list[Transition]:
    """Let idempotent tasks reuse a result, wait for an equal task, or go on like any other."""
    signals = {task.id: signal for task, signal in asked}
    ready = reuse.ready(transaction, [task for task, _ in asked])
    early = reuse.early(transaction, [task for task in ready if signals[task.id] is Signal.RELEASE])
    rulings: Mapping[int, SliceRuling | None] = {}
    if len(early.final) < len(ready):
        judged = [task for task in ready if task.id not in early.final]
        serves = {task.id: _serves(transaction, task) for task in judged}
        rulings = reuse.judge(transaction, judged, serves, early)
    found = [
        _carry_out(transaction, task, rulings[task.id], signals[task.id])
        if task.id in rulings
        else _admit(transaction, task)
        for task in ready
    ]
    return [transition for transition in found if transition is not None]


def _serves(transaction: "Transaction", task: TaskRecord) -> Sequence[bool]:
    """Tell for each slice of a task whether a bot was seen that could serve it, or it waits for one."""
    waits = [one.wait_for_capacity for one in task.rules.slices]
    if all(waits):
        return waits
    return [one or seen for one, seen in zip(waits, capacity_by_slice(transaction, task), strict=True)]


def _carry_out(
    transaction: "Transaction", task: TaskRecord, ruling: SliceRuling | None, signal: Signal
) -> Transition | None:
    index = None if ruling is None else ruling.index
    if ruling is None or index != task.life.slice_index:
        capacity = [place == index for place in range(len(task.rules.slices))]
        chosen = attempt_policy.choose_slice(task.life, task.rules, capacity)
        if ruling is None and signal is Signal.EXPIRE:  # its slices have waited, each for its time
            why = attempt_policy.why_expired(task.life, task.rules, transaction.now)
            return Transition(task, signal, chosen.life_after, why)
        return _to_slice(transaction, task, chosen)
    if ruling.course is Course.REUSE:
        return reuse.reused(task)
    return _admit(transaction, task) if ruling.course is Course.RUN else None


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
