"""The first guard: may a task be released, given how its prerequisites ended?

An edge follows its prerequisite (`known`, `edge_after`); the edges of a task open, break or close its gate (`gate`);
`signals` returns what that means for a task in its present state. Once a task is released its met edges are latched: it
is never taken back. Until then nothing is latched: a task that still waits also waits for a rerun of a prerequisite.
"""

from enum import StrEnum, unique
from itertools import product

from taskyard.core.states import BEHIND, Impossible, Join, On, Propagation, Signal, State, propagation_of
from taskyard.core.structs import value


@unique
class EdgeState(StrEnum):
    """The state of an edge."""

    AWAITED = "awaited"  # not decided yet
    MET = "met"  # the condition came true
    BROKEN = "broken"  # it did not, but a rerun of the prerequisite can mend it
    IMPOSSIBLE = "impossible"  # it never will, unless the prerequisite itself is mended


@value
class Edges:
    """How many in-edges of one task are in each state."""

    awaited: int = 0
    met: int = 0
    broken: int = 0
    impossible: int = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return self.awaited + self.met + self.broken + self.impossible


_EDGE_AFTER = {
    (Propagation.SUCCESS, On.SUCCESS): EdgeState.MET,
    (Propagation.SUCCESS, On.FAILURE): EdgeState.IMPOSSIBLE,  # `successful` has no arrow out
    (Propagation.SUCCESS, On.ALWAYS): EdgeState.MET,
    (Propagation.FAILURE, On.SUCCESS): EdgeState.BROKEN,
    (Propagation.FAILURE, On.FAILURE): EdgeState.MET,
    (Propagation.FAILURE, On.ALWAYS): EdgeState.MET,
    (Propagation.SKIP, On.SUCCESS): EdgeState.IMPOSSIBLE,
    (Propagation.SKIP, On.FAILURE): EdgeState.IMPOSSIBLE,
    (Propagation.SKIP, On.ALWAYS): EdgeState.IMPOSSIBLE,
    (Propagation.MEND, On.SUCCESS): EdgeState.AWAITED,
    (Propagation.MEND, On.FAILURE): EdgeState.AWAITED,
    (Propagation.MEND, On.ALWAYS): EdgeState.AWAITED,
}


def known(on: On, state: State) -> EdgeState:
    """Return the state of an edge from a prerequisite in `state`, for a new task or one that is rerun."""
    return _KNOWN[on, state]


def meets(on: On, state: State) -> bool:
    """Whether a prerequisite in `state` meets an edge."""
    return _KNOWN[on, state] is EdgeState.MET


def edge_after(edge: EdgeState, on: On, propagation: Propagation, under_way: bool = False) -> EdgeState:
    """Return the state of an edge after a propagation to it; `under_way` says that its task is active.

    A delayed propagation has to use the present state, `propagation_of(state) or MEND`. So pages of dependents can be
    repeated, in any order.
    """
    return edge if under_way and edge is EdgeState.MET else _EDGE_AFTER[propagation, on]


def shift(edges: Edges, on: On, source: State, target: State) -> Edges:
    """Return the edge counts of a task after the prerequisite of one edge has moved."""
    awaited, met, broken, impossible = change = _SHIFTS[on, source, target]
    if change is _STILL:
        return edges
    return Edges(edges.awaited + awaited, edges.met + met, edges.broken + broken, edges.impossible + impossible)


def gate(edges: Edges, join: Join = Join.ALL, on_impossible: Impossible = Impossible.HOLD) -> Signal | None:
    """Return the signal that a task's edges demand: RELEASE, BLOCK, DOOM or SKIP; None while all is still possible.

    Only whether a count is zero matters, so tasks with the same zeros can share an answer.
    """
    if _open(edges, join):
        return _RELEASE
    if not _shut(edges, join):
        return None
    return _ASKED[on_impossible] if _mendable(edges, join) else Signal.SKIP


def signals(state: State, asked: Signal | None, graph_canceled: bool = False) -> tuple[Signal, ...]:
    """Return the signals, in order, that move a task from `state` to where its gate wants it."""
    if graph_canceled:
        return ()  # a canceled graph starts nothing, not even a handler of the cancel
    if state is _UNSCHEDULED:
        return (asked,) if asked else ()
    if state not in _SHUT_BY or asked is _SHUT_BY[state]:
        return ()  # released or ended, or just where the gate wants it
    if asked is Signal.SKIP:
        return (Signal.SKIP,)  # what was mendable is not any more
    return (Signal.MEND, asked) if asked else (Signal.MEND,)


#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
_RELEASE = Signal.RELEASE
_UNSCHEDULED = State.UNSCHEDULED
#: The states in which the gate moves a task. In the others its edges are counted and matter again after a rerun.
LISTENING = BEHIND | {State.SKIPPED}
_KNOWN = {
    (on, state): _EDGE_AFTER[found, on] if (found := propagation_of(state)) else EdgeState.AWAITED
    for on, state in product(On, State)
}
_STILL = (0, 0, 0, 0)


def _shift(before: EdgeState, after: EdgeState) -> tuple[int, int, int, int]:
    awaited, met, broken, impossible = ((after is one) - (before is one) for one in EdgeState)
    return _STILL if before is after else (awaited, met, broken, impossible)


#: How the counts in `Edges` change when a prerequisite moves.
_SHIFTS = {
    (on, source, target): _shift(_KNOWN[on, source], _KNOWN[on, target])
    for on, source, target in product(On, State, State)
}
_ASKED = {Impossible.HOLD: Signal.BLOCK, Impossible.FAIL: Signal.DOOM, Impossible.SKIP: Signal.SKIP}
#: The states that wait for a mend, and the signal that led there.
_SHUT_BY = {State.BLOCKED: Signal.BLOCK, State.SKIPPED: Signal.SKIP}


def _open(edges: Edges, join: Join) -> bool:
    undone = edges.awaited + edges.broken + edges.impossible
    return undone == 0 or (join is Join.ANY and edges.met > 0)


def _shut(edges: Edges, join: Join) -> bool:
    """Whether the condition cannot come true any more without a rerun."""
    if join is Join.ANY:
        return edges.awaited == 0
    return edges.broken + edges.impossible > 0


def _mendable(edges: Edges, join: Join) -> bool:
    """Whether reruns of failed prerequisites could still open the gate."""
    return edges.broken > 0 if join is Join.ANY else edges.impossible == 0
