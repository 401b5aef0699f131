"""The state of a whole graph, from its tasks.

A graph is a dependent of its tasks: it keeps a `Tally`, moved by one with every move of a task, and never counts the
unfinished. A task keeps `Handlers` in the same way, moved by what its handlers add (`counted`). `tally` counts afresh
and is the oracle for those who keep them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique

from taskyard.core.machine import ACTIVE, BEHIND, ENDED, UNSUCCESSFUL
from taskyard.core.words import GraphState, State


@dataclass(frozen=True, slots=True)
class Member:
    """One task as its graph sees it; `ran` says that an attempt of it started in this round, or a result was reused."""

    state: State
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """How many tasks of a graph are active, behind, or failed without a handler that ran or still may.

    A note to tell dependents later counts as active: until it is told, what is behind may be about to move.
    """

    active: int = 0
    behind: int = 0
    unhandled: int = 0


@dataclass(frozen=True, slots=True)
class Handlers:
    """How many `failure` and `always` dependents of one task ran, and how many still may."""

    ran: int = 0
    hoped: int = 0


@unique
class Handling(StrEnum):
    """What becomes of a failure: a dependent dealt with it, one still may, or nobody will."""

    HANDLED = "handled"
    HOPED = "hoped"
    UNHANDLED = "unhandled"


def verdict(tally: Tally, canceled: bool = False) -> GraphState:
    """Say where a graph is."""
    if canceled:
        return GraphState.CANCELED
    if tally.unhandled:
        return GraphState.BLOCKED
    if tally.active:
        return GraphState.RUNNING
    # With nothing active, whatever is behind hangs on a blocked task in the end: edges form no cycle.
    return GraphState.BLOCKED if tally.behind else GraphState.FINISHED


def settled(tally: Tally) -> bool:
    """Whether nothing in the graph can move without a person."""
    return tally.active == 0


def extensible(state: GraphState) -> bool:
    """Whether tasks can be added to a graph: not once it is finished or canceled."""
    return state in {GraphState.RUNNING, GraphState.BLOCKED}


def handling(handlers: Handlers) -> Handling:
    """Judge a failure by its `failure` and `always` dependents."""
    if handlers.ran:
        return Handling.HANDLED
    return Handling.HOPED if handlers.hoped else Handling.UNHANDLED


def counted(handler: Member) -> Handlers:
    """Say what one `failure` or `always` dependent adds to the counters of its prerequisite."""
    # A handler behind a blocked task still gives hope here; once the graph settles, `verdict` sees through it.
    hoped = handler.state in ACTIVE or handler.state is State.UNSCHEDULED
    return Handlers(ran=int(handler.ran and handler.state in ENDED), hoped=int(hoped))


def unhandled(state: State, handlers: Handlers) -> bool:
    """Whether a task in `state` counts as a failure that nobody deals with."""
    return state in UNSUCCESSFUL and handling(handlers) is Handling.UNHANDLED


def tally(members: Mapping[str, Member], handlers: Mapping[str, Sequence[str]]) -> Tally:
    """Count a graph's tasks afresh; `handlers` names the `failure` and `always` dependents of each label."""
    return Tally(
        active=sum(member.state in ACTIVE for member in members.values()),
        behind=sum(member.state in BEHIND for member in members.values()),
        unhandled=sum(
            unhandled(member.state, _sum(counted(members[handler]) for handler in handlers.get(label, ())))
            for label, member in members.items()
        ),
    )


def _sum(counts: Iterable[Handlers]) -> Handlers:
    listed = tuple(counts)
    return Handlers(sum(each.ran for each in listed), sum(each.hoped for each in listed))
