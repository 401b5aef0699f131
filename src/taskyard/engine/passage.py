"""A corridor that can tell, once it is closed, what it leaves for others to do.

What it tells is a hint: it makes things happen at once that would happen within a sweep anyway.
"""

from dataclasses import dataclass
from typing import Final

from taskyard.core.machine import HOLDING, LEASED
from taskyard.core.words import Kind, Millis
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.transaction import Server, Transaction
from taskyard.store.txn import Txn

#: In a queue.
_QUEUED: Final = HOLDING - LEASED
_GRAPH: Final = Kind.GRAPH.text
#: Later than any moment.
_NEVER: Final = Millis(2**63)


@dataclass(frozen=True, slots=True)
class Left:
    """What a transaction left to do."""

    stirs: bool = False  # a pass of admission has something to look at
    promises: bool = False  # notes are open
    own: bool = False  # something is queued that the server runs itself,
    inner: bool = False  # or that has a graph inside
    turned: tuple[int, ...] = ()  # graphs that came into another state, or to rest
    due_ms: Millis | None = None  # when the clock first has something to say about a task that it wrote


class Passage(Transaction):
    """One transaction of the engine."""

    def __init__(self, txn: Txn, now: Millis, registry: Registry, lease_ms: int, server: Server) -> None:
        super().__init__(txn, now, registry, lease_ms, server)
        self.promised = False  # somebody knows that notes were left
        self.serves_all = False  # polls that wait get whatever is in their queues

    def left(self) -> Left:
        """Tell what there is to do now."""
        promised, own, inner, due = self.promised or self.noted, False, False, _NEVER
        for task in self.written:
            if task.due_ms is not None and task.due_ms < due:
                due = task.due_ms
            if task.telling:
                promised = True
            if task.queue == SERVER_QUEUE and task.life.state in _QUEUED:
                if task.kind == _GRAPH:
                    inner = True
                else:
                    own = True
        turned = tuple(self.turned)
        return Left(bool(self.stirred), promised, own, inner, turned, None if due is _NEVER else due)
