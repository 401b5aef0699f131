"""A transition: one task along one arrow of the state machine."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from taskyard.core.attempt_policy import Life
from taskyard.core.graph.gate import LISTENING
from taskyard.core.states import (
    ACTIVE,
    ARROWS,
    ENDED,
    GONE_WRONG,
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

#: A task, and from which state to which it went.
StateChange: TypeAlias = tuple[TaskRecord, State, State]
#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
_MOVE: Final = Outcome.MOVE
#: In a queue.
_QUEUED: Final = HOLDING - LEASED


@value
class Claimant:
    """Who claims a task: a bot, in one of its sessions, by one of its polls."""

    bot: str
    session: str
    poll: str
    until_ms: Millis | None  # the end of the lease; None if there is none, for what the server runs itself
    snapshot: int | None = None  # what the bot is now


@value
class Transition:
    """One task along one arrow."""

    task: TaskRecord
    signal: Signal
    life: Life  # as it is afterwards
    reason: Reason
    claimant: Claimant | None = None
    exit_code: int | None = None


def transition_by(task: TaskRecord, signal: Signal, reason: Reason | None = None) -> Transition:
    """Make the transition of a signal that changes only the state."""
    life = task.life
    answer = step(life.state, signal)
    assert answer.outcome is _MOVE, f"cannot {signal} a task that is {life.state}"
    return Transition(task, signal, life.at(answer.target), reason or REASONS[signal])


@value
class CompiledArrow:
    """All that follows from an arrow alone. A task has four transitions or more, so this is computed once."""

    kind: MoveKind  # which columns it can change
    active: int  # how the counts of the graph change
    behind: int
    leased: int  # +1: an attempt begins, -1: one ends
    counts: bool  # it changes a count of the graph
    fails: bool  # the task is failed before or after it, so handlers may have to be counted
    propagates: bool  # it is propagated to dependents
    listens: bool  # it leads to a state in which the task waits for prerequisites
    concerns_bots: bool  # it leads into a queue, or
    stops: bool  # the bot has to stop the attempt
    judged: bool  # the task has to be admitted
    dirties: bool  # an admission pass has to look at the task
    is_over: bool  # nothing follows from it, except that an admission pass may have to look
    leaves_key: bool  # an idempotent task ends, or goes on with another slice
    is_consequence: bool  # it follows from what happened to a prerequisite
    encoded: str  # source, target and signal, as an event has them


#: Which columns of a task a signal can change; every other signal can change any.
_KINDS: Final[Mapping[Signal, MoveKind]] = {
    Signal.RELEASE: MoveKind.READY,
    Signal.ADMIT: MoveKind.READY,
    Signal.CLAIM: MoveKind.STARTED,
    Signal.SUCCEED: MoveKind.ENDED,
}


#: What a task gets from its gate.
_GATE_SIGNALS: Final = frozenset({Signal.RELEASE, Signal.BLOCK, Signal.DOOM, Signal.SKIP, Signal.MEND})


def _compile(source: State, signal: Signal, target: State) -> CompiledArrow:
    follows = effects(source, target)
    stops = source in LEASED and target in LEASED
    fails = source in UNSUCCESSFUL or target in UNSUCCESSFUL
    propagates, listens = follows.propagates is not None, target in LISTENING
    return CompiledArrow(
        MoveKind.ANY if {source, target} & GONE_WRONG else _KINDS.get(signal, MoveKind.ANY),
        follows.active,
        follows.behind,
        follows.leased,
        counts=fails or follows.active != 0 or follows.behind != 0,
        fails=fails,
        propagates=propagates,
        listens=listens,
        concerns_bots=stops or target in _QUEUED,
        stops=stops,
        judged=follows.judged,
        dirties=bool(follows.pending or follows.holding),
        is_over=not (propagates or listens or follows.judged),
        leaves_key=(target in ENDED or (source in ACTIVE and signal is Signal.EXPIRE))
        and source not in ENDED
        and signal is not Signal.REUSE,
        is_consequence=signal in _GATE_SIGNALS,
        encoded=encode_transition(source.text, target.text, signal.text),
    )


#: Every arrow, by source, signal and target.
COMPILED_ARROWS: Final[Mapping[tuple[State, Signal, State], CompiledArrow]] = {
    (arrow.source, arrow.signal, end): _compile(arrow.source, arrow.signal, end)
    for arrow in ARROWS
    for end in (arrow.target, arrow.again)
    if end is not None
}
