"""The state of a whole graph, from its tasks.

A graph is a dependent of its tasks: it keeps a `Tally`, moved by one with every move of a task, and never counts the
unfinished. `tally` counts afresh and is the oracle for those who keep one.
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


def handling(handlers: Iterable[Member]) -> Handling:
    """Judge a failure by its `failure` and `always` dependents."""
    handlers = tuple(handlers)
    if any(handler.ran and handler.state in ENDED for handler in handlers):
        return Handling.HANDLED
    # A handler behind a blocked task still gives hope here; once the graph settles, `verdict` sees through it.
    hoped = any(handler.state in ACTIVE or handler.state is State.UNSCHEDULED for handler in handlers)
    return Handling.HOPED if hoped else Handling.UNHANDLED


def tally(members: Mapping[str, Member], handlers: Mapping[str, Sequence[str]]) -> Tally:
    """Count a graph's tasks afresh; `handlers` names the `failure` and `always` dependents of each label."""
    return Tally(
        active=sum(member.state in ACTIVE for member in members.values()),
        behind=sum(member.state in BEHIND for member in members.values()),
        unhandled=sum(_unhandled(label, members, handlers) for label in members),
    )


def _unhandled(label: str, members: Mapping[str, Member], handlers: Mapping[str, Sequence[str]]) -> bool:
    if members[label].state not in UNSUCCESSFUL:
        return False
    return handling(members[handler] for handler in handlers.get(label, ())) is Handling.UNHANDLED
