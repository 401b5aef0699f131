"""The room where the server takes its own work: what does nothing begins and ends here, what asks a person begins.

What has a graph inside begins with that graph (`lifecycle/inner.py`).
"""

from collections.abc import Sequence
from typing import Final

from taskyard.core import budget
from taskyard.core.graph.approval import patience_ms
from taskyard.core.machine import REASONS
from taskyard.core.words import Kind, Reason, Signal
from taskyard.lifecycle import own_attempts
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.commands import Choose
from taskyard.lifecycle.move import Move
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.own_attempts import SERVER
from taskyard.store.records import TaskRecord

#: What is served here, and of that what asks a person.
_SERVED: Final = (Kind.NOOP.text, Kind.APPROVAL.text)
_ASKING: Final = Kind.APPROVAL.text
_CLAIMED: Final = REASONS[Signal.CLAIM]


def serve_own(corridor: Corridor, count: int = 500, choose: Choose = list) -> int:
    """Begin those of the first `count` tasks of the server's own whom `choose` names, and end what does nothing.

    Says how many. Those that this releases are found by the next call.
    """
    ids = choose(corridor.txn.tasks.waiting(SERVER_QUEUE, _SERVED, count))
    tasks = [task for task in corridor.look(ids).values() if not budget.past(task.rules.deadline_ms, corridor.now)]
    asking = [task for task in tasks if task.kind == _ASKING]
    idle = [task for task in tasks if task.kind != _ASKING] if asking else tasks
    corridor.send([Move(one, Signal.CLAIM, budget.claimed(one.life), _CLAIMED, SERVER) for one in idle])
    corridor.send([_done(corridor, task) for task in idle])
    if asking:
        _ask(corridor, asking)
    return len(tasks)


def _done(corridor: Corridor, task: TaskRecord) -> Move:
    ruling = budget.report(task.life, task.rules, task.life.attempt, Signal.SUCCEED, corridor.now)
    return Move(task, Signal.SUCCEED, ruling.life_after, REASONS[Signal.SUCCEED])


def _ask(corridor: Corridor, tasks: Sequence[TaskRecord]) -> None:
    spans = {id: patience_ms(payload) for id, payload in own_attempts.payloads(corridor, tasks).items()}
    corridor.send([own_attempts.begun(corridor, task, spans[task.id], Reason.APPROVAL) for task in tasks])
