"""One task along one arrow: what a room hands to the corridor."""

from taskyard.core.budget import Life
from taskyard.core.machine import REASONS, Outcome, step
from taskyard.core.values import value
from taskyard.core.words import Millis, Reason, Signal
from taskyard.store.records import TaskRecord


@value
class Taker:
    """Who takes a task: a bot in one of its sessions, by one of its polls."""

    bot: str
    session: str
    poll: str
    until_ms: Millis | None  # the end of the lease; None if there is none, for what the server runs itself


@value
class Move:
    """One task along one arrow."""

    task: TaskRecord
    signal: Signal
    life: Life  # as it is afterwards
    reason: Reason
    taker: Taker | None = None
    exit_code: int | None = None


def move_by(task: TaskRecord, signal: Signal, reason: Reason | None = None) -> Move:
    """Make the move of a signal that changes nothing but the state."""
    answer = step(task.state, signal)
    assert answer.outcome is Outcome.MOVE, f"cannot {signal} a task that is {task.state}"
    return Move(task, signal, task.life.at(answer.target), reason or REASONS[signal])
