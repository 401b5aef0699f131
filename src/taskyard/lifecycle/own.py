"""The room where the server takes its own work: a task that does nothing begins and ends in one transaction."""

from typing import Final

from taskyard.core import budget
from taskyard.core.machine import REASONS
from taskyard.core.words import Kind, Signal
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.commands import Choose
from taskyard.lifecycle.move import Move, Taker
from taskyard.lifecycle.moves import Corridor
from taskyard.store.records import TaskRecord

#: Who an attempt of the server's own belongs to. It has no lease: nothing can be lost.
SERVER: Final = Taker("server", "", "", None)


def serve_own(corridor: Corridor, count: int = 500, choose: Choose = list) -> int:
    """Carry out those of the first `count` tasks that do nothing whom `choose` names; say how many.

    Those that this releases are found by the next call.
    """
    ids = choose(corridor.txn.tasks.waiting(SERVER_QUEUE, str(Kind.NOOP), count))
    tasks = [task for task in corridor.look(ids).values() if not budget.past(task.rules.deadline_ms, corridor.now)]
    corridor.send([Move(one, Signal.CLAIM, budget.claimed(one.life), REASONS[Signal.CLAIM], SERVER) for one in tasks])
    corridor.send([_done(corridor, task) for task in tasks])
    return len(tasks)


def _done(corridor: Corridor, task: TaskRecord) -> Move:
    ruling = budget.report(task.life, task.rules, task.life.attempt, Signal.SUCCEED, corridor.now)
    return Move(task, Signal.SUCCEED, ruling.life_after, REASONS[Signal.SUCCEED])
