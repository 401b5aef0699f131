"""What a transaction has moved and changed, and not yet written.

Several moves of one task are written as one: from where it was looked at to where it ended, with the last arrow. And
what many tasks went through is written by one statement, so the cost of a transaction follows its tasks, not its steps.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from taskyard.core.budget import due_at
from taskyard.core.machine import QUEUED
from taskyard.core.words import Millis, State
from taskyard.store.records import TaskRecord
from taskyard.store.txn import Txn
from taskyard.store.verbs.work import Shape

if TYPE_CHECKING:
    from taskyard.store.sessions import Row

#: What one shape after another comes to; any other pair comes to anything.
_TOGETHER: Final[Mapping[tuple[Shape, Shape], Shape]] = {
    (Shape.READY, Shape.READY): Shape.READY,
    (Shape.READY, Shape.STARTED): Shape.SENT,
}
#: The shapes that write what edges know.
_WITH_EDGES: Final = frozenset({Shape.READY, Shape.SENT})
_ANY: Final = Shape.ANY


class Sheet:
    """Tasks that moved, tasks that changed, attempts that began and ended."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._moved: dict[int, tuple[TaskRecord, State, Shape]] = {}
        self._changed: dict[int, TaskRecord] = {}
        self._recounted: dict[int, TaskRecord] = {}
        self.begun: list[Row] = []  # attempts
        self.ended: list[Row] = []

    def move(self, task: TaskRecord, source: State, shape: Shape) -> None:
        """A task came from `source` to where it is, by a move that can change the columns of `shape`."""
        id = task.id
        if id in self._moved:
            shape = _TOGETHER.get((self._moved[id][2], shape), _ANY)
        self._moved[id] = (task, source, shape)

    def change(self, task: TaskRecord) -> None:
        """Something about a task changed."""
        self._changed[task.id] = task

    def recount(self, tasks: Mapping[int, TaskRecord]) -> None:
        """The edges of tasks know something else."""
        self._recounted.update(tasks)

    def fresh(self) -> list[TaskRecord]:
        """Name the tasks that stand in a queue, and of which the database does not know it yet."""
        return [task for task, _, _ in self._moved.values() if task.life.state in QUEUED and task.stored not in QUEUED]

    def write(self, txn: Txn, now: Millis) -> list[TaskRecord]:
        """Write everything, and be empty again; name those that moved or changed."""
        moved, changed = self._moved, self._changed
        if moved:
            self._write_moves(txn, now)
        written = [task for task, _, _ in moved.values()]
        if changed:
            kept = [task for id, task in changed.items() if id not in moved]
            txn.tasks.keep(kept)
            written += kept
        txn.tasks.recount([task for id, task in self._recounted.items() if id not in moved and id not in changed])
        txn.attempts.begin(self.begun)
        txn.attempts.end(self.ended)
        self._clear()
        return written

    def _write_moves(self, txn: Txn, now: Millis) -> None:
        by_shape: dict[Shape, list[tuple[TaskRecord, State]]] = defaultdict(list)
        for id, (task, source, shape) in self._moved.items():
            task.due_ms = due_at(task.life, task.rules, task.lease_until_ms, now)
            whole = id in self._changed or (id in self._recounted and shape not in _WITH_EDGES)
            by_shape[_ANY if whole else shape].append((task, source))
        for shape, moved in by_shape.items():
            txn.tasks.carry(moved, shape)
