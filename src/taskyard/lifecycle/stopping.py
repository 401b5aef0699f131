"""What the server runs itself and has to end before its time: a person cancels it, or its time is over.

A bot would be told and would say when it is done. Here nobody else is: an approval ends at once, and a task with a
graph inside when that graph has come to rest.
"""

from collections.abc import Iterable

from taskyard.core import budget
from taskyard.core.graph.approval import by_silence, question
from taskyard.core.machine import STOPPED
from taskyard.core.words import Kind, Millis, Reason, Signal
from taskyard.lifecycle import inner, own_attempts
from taskyard.lifecycle.births import SERVER_QUEUE
from taskyard.lifecycle.move import Move
from taskyard.lifecycle.moves import Corridor
from taskyard.store.records import TaskRecord


def end_own(corridor: Corridor, tasks: Iterable[TaskRecord], actor: str) -> None:
    """End those of some canceled tasks that the server runs itself."""
    stopped = [task for task in tasks if task.queue == SERVER_QUEUE and task.state in STOPPED]
    around = [task for task in stopped if task.kind == Kind.GRAPH.text]
    ends = [_end(corridor, task) for task in stopped if task.kind != Kind.GRAPH.text]
    if around:
        inner.stop(corridor, around, actor)
    if ends:
        corridor.send(ends)


def time_out(corridor: Corridor, task: TaskRecord) -> Move | None:
    """End a task of the server's own whose time is over; None if it is not, or if its graph has to end first."""
    if task.lease_until_ms is None:
        return None
    ends_ms = budget.given_again_at(Millis(task.lease_until_ms))
    if ends_ms > corridor.now:
        return None
    if task.kind == Kind.GRAPH.text:
        inner.stop(corridor, [task], own_attempts.SERVER.bot)
        return None
    # What was first counts: the server may have been away, and notice it late.
    if budget.past(task.rules.deadline_ms, ends_ms):
        return own_attempts.ended(corridor, task, Signal.DEADLINE, Reason.DEADLINE)
    asked = question(own_attempts.payloads(corridor, [task])[task.id])
    return own_attempts.decided(corridor, task, by_silence(asked, corridor.now))


def _end(corridor: Corridor, task: TaskRecord) -> Move:
    return own_attempts.ended(corridor, task, Signal.FAIL, Reason.ASKED)
