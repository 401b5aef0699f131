"""The first guard: may a task be released, given how its prerequisites ended?

An edge follows its prerequisite (`known`, `hear`); a task's edges together open, break or close its gate (`gate`);
`signals` says what that means for a task in its present state. Once a task is under way its met edges are latched: a
released task is never called back. Until then nothing is: whoever still waits, waits for a rerun too.
"""

from enum import StrEnum, unique
from itertools import product

from taskyard.core.states import BEHIND, Impossible, Join, On, Signal, State, Tell, heard
from taskyard.core.structs import value


@unique
class EdgeState(StrEnum):
    """What an edge knows of its prerequisite."""

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


_HEARD = {
    (Tell.SUCCESS, On.SUCCESS): EdgeState.MET,
    (Tell.SUCCESS, On.FAILURE): EdgeState.IMPOSSIBLE,  # `successful` has no arrow out
    (Tell.SUCCESS, On.ALWAYS): EdgeState.MET,
    (Tell.FAILURE, On.SUCCESS): EdgeState.BROKEN,
    (Tell.FAILURE, On.FAILURE): EdgeState.MET,
    (Tell.FAILURE, On.ALWAYS): EdgeState.MET,
    (Tell.SKIP, On.SUCCESS): EdgeState.IMPOSSIBLE,
    (Tell.SKIP, On.FAILURE): EdgeState.IMPOSSIBLE,
    (Tell.SKIP, On.ALWAYS): EdgeState.IMPOSSIBLE,
    (Tell.MEND, On.SUCCESS): EdgeState.AWAITED,
    (Tell.MEND, On.FAILURE): EdgeState.AWAITED,
    (Tell.MEND, On.ALWAYS): EdgeState.AWAITED,
}


def known(on: On, state: State) -> EdgeState:
    """Say what an edge knows of a prerequisite in `state`: that of a new task, or of one that is rerun."""
    return _KNOWN[on, state]


def meets(on: On, state: State) -> bool:
    """Tell whether a prerequisite in `state` meets an edge."""
    return _KNOWN[on, state] is EdgeState.MET


def hear(edge: EdgeState, on: On, tell: Tell, under_way: bool = False) -> EdgeState:
    """Say what an edge knows after its prerequisite told `tell`; `under_way` says that its task is active.

    What is told later than it happened has to be what holds by then, `heard(state) or MEND`: so any page of dependents
    can be told again, and in any order.
    """
    return edge if under_way and edge is EdgeState.MET else _HEARD[tell, on]


def shift(edges: Edges, on: On, source: State, target: State) -> Edges:
    """Count the edges of a task anew, after the prerequisite of one of them went on."""
    awaited, met, broken, impossible = change = _SHIFTS[on, source, target]
    if change is _STILL:
        return edges
    return Edges(edges.awaited + awaited, edges.met + met, edges.broken + broken, edges.impossible + impossible)


def gate(edges: Edges, join: Join = Join.ALL, on_impossible: Impossible = Impossible.HOLD) -> Signal | None:
    """Say what a task's edges ask for: RELEASE, BLOCK, DOOM or SKIP; None while everything is still possible.

    It only matters which of the counts are zero, so tasks can be asked in groups.
    """
    if _open(edges, join):
        return _RELEASE
    if not _shut(edges, join):
        return None
    return _ASKED[on_impossible] if _mendable(edges, join) else Signal.SKIP


def signals(state: State, asked: Signal | None, graph_canceled: bool = False) -> tuple[Signal, ...]:
    """Turn what the gate asks for into the signals that take a task there from `state`, in order."""
    if graph_canceled:
        return ()  # a canceled graph starts nothing, not even a handler of the cancel
    if state is _UNSCHEDULED:
        return (asked,) if asked else ()
    if state not in _SHUT_BY or asked is _SHUT_BY[state]:
        return ()  # released or ended, or just where the gate wants it
    if asked is Signal.SKIP:
        return (Signal.SKIP,)  # what was mendable is not any more
    return (Signal.MEND, asked) if asked else (Signal.MEND,)


#: Aliases of the words on the hot path: a global is faster than an attribute of the enum.
_RELEASE = Signal.RELEASE
_UNSCHEDULED = State.UNSCHEDULED
#: The states in which the gate moves a task. In the others its edges are counted and matter again after a rerun.
LISTENING = BEHIND | {State.SKIPPED}
_KNOWN = {
    (on, state): _HEARD[told, on] if (told := heard(state)) else EdgeState.AWAITED for on, state in product(On, State)
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
    """Whether the condition can no longer come true as things are."""
    if join is Join.ANY:
        return edges.awaited == 0
    return edges.broken + edges.impossible > 0


def _mendable(edges: Edges, join: Join) -> bool:
    """Whether reruns of failed prerequisites could still open the gate."""
    return edges.broken > 0 if join is Join.ANY else edges.impossible == 0
