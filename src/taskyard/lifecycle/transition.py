"""One task along one arrow: what a room hands to the corridor."""

from collections.abc import Mapping
from typing import Final

from taskyard.core.attempt_policy import Life
from taskyard.core.graph.gate import LISTENING
from taskyard.core.states import (
    ARROWS,
    HOLDING,
    LEASED,
    REASONS,
    UNSUCCESSFUL,
    Millis,
    Outcome,
    Reason,
    Signal,
    State,
    effects,
    step,
)
from taskyard.core.structs import value
from taskyard.store.repo.events import encode_transition
from taskyard.store.repo.tasks import MoveKind
from taskyard.store.rows import TaskRecord

#: By a name of its own: a word is slow to get at through its class.
_MOVE: Final = Outcome.MOVE


@value
class Claimant:
    """Who takes a task: a bot in one of its sessions, by one of its polls."""

    bot: str
    session: str
    poll: str
    until_ms: Millis | None  # the end of the lease; None if there is none, for what the server runs itself


@value
class Transition:
    """One task along one arrow."""

    task: TaskRecord
    signal: Signal
    life: Life  # as it is afterwards
    reason: Reason
    taker: Claimant | None = None
    exit_code: int | None = None


def transition_by(task: TaskRecord, signal: Signal, reason: Reason | None = None) -> Transition:
    """Make the move of a signal that changes nothing but the state."""
    life = task.life
    answer = step(life.state, signal)
    assert answer.outcome is _MOVE, f"cannot {signal} a task that is {life.state}"
    return Transition(task, signal, life.at(answer.target), reason or REASONS[signal])


# Ways: everything about a move that follows from its arrow alone, compiled once.
#
# The machine says what follows from the two ends of a move, the sheet which columns it can change, the history how it
# is spelled. A task's life is four moves at least, so none of that is worked out again for each.


#: Which columns of a task a signal can change; every other signal can change any.
_SHAPES: Final[Mapping[Signal, MoveKind]] = {
    Signal.RELEASE: MoveKind.READY,
    Signal.ADMIT: MoveKind.READY,
    Signal.CLAIM: MoveKind.STARTED,
    Signal.SUCCEED: MoveKind.ENDED,
}


#: In a queue.
_QUEUED: Final = HOLDING - LEASED


@value
class CompiledArrow:
    """One arrow, to its target or again."""

    shape: MoveKind  # which columns it can change
    active: int  # how the graph's counts change
    behind: int
    leased: int  # +1: an attempt begins, -1: one ends
    counts: bool  # what the graph counts changes by it
    fails: bool  # an end of it is a failure, so somebody may have to deal with it
    tells: bool  # dependents have to hear of it
    listens: bool  # it leads to where prerequisites are waited for
    concerns_bots: bool  # it leads into a queue, or
    stops: bool  # its bot has to end what it runs
    judged: bool  # the admission guard has to judge it
    stirs: bool  # a pass of admission has to hear of it
    is_over: bool  # nothing follows from it but what a pass has to hear
    spelled: str  # source, target and signal, as an event tells them


def _way(source: State, signal: Signal, target: State) -> CompiledArrow:
    follows = effects(source, target)
    stops = source in LEASED and target in LEASED
    fails = source in UNSUCCESSFUL or target in UNSUCCESSFUL
    tells, listens, stirs = follows.tell is not None, target in LISTENING, bool(follows.pending or follows.holding)
    return CompiledArrow(
        MoveKind.ANY if target in UNSUCCESSFUL else _SHAPES.get(signal, MoveKind.ANY),
        follows.active,
        follows.behind,
        follows.leased,
        counts=fails or follows.active != 0 or follows.behind != 0,
        fails=fails,
        tells=tells,
        listens=listens,
        concerns_bots=stops or target in _QUEUED,
        stops=stops,
        judged=follows.judged,
        stirs=stirs,
        is_over=not (tells or listens or follows.judged),
        spelled=encode_transition(source.text, target.text, signal.text),
    )


#: Every way there is, by source, signal and target.
COMPILED_ARROWS: Final[Mapping[tuple[State, Signal, State], CompiledArrow]] = {
    (arrow.source, arrow.signal, end): _way(arrow.source, arrow.signal, end)
    for arrow in ARROWS
    for end in (arrow.target, arrow.again)
    if end is not None
}
