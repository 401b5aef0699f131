"""One task along one arrow: what a room hands to the corridor."""

from typing import Final

from taskyard.core.budget import Life
from taskyard.core.machine import REASONS, Outcome, step
from taskyard.core.values import value
from taskyard.core.words import Millis, Reason, Signal
from taskyard.store.records import TaskRecord

#: By a name of its own: a word is slow to get at through its class.
_MOVE: Final = Outcome.MOVE


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
    life = task.life
    answer = step(life.state, signal)
    assert answer.outcome is _MOVE, f"cannot {signal} a task that is {life.state}"
    return Move(task, signal, life.at(answer.target), reason or REASONS[signal])
