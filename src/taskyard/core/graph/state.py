"""The state of a whole graph, from its tasks.

A graph is a dependent of its tasks: its `Tally` is adjusted with every transition of a task, and unfinished tasks are
never counted. A failed task keeps `Handlers` in the same way. `tally` counts from scratch, for doctor and tests.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, unique

from taskyard.core.states import ACTIVE, BEHIND, ENDED, UNSUCCESSFUL, GraphState, State
from taskyard.core.structs import value


@value
class Member:
    """One task as its graph sees it."""

    state: State
    round: int = 1


@value
class Handler:
    """A `failure` or `always` dependent, as the task it may handle sees it."""

    state: State
    handled_round: int | None = None  # the round of that task whose failure was there when this one last ran to its end


@value
class Tally:
    """How many tasks of a graph are active, behind, or failed without a handler that ran or still may.

    A continuation counts as active, because the dependents that it will reach may be about to move.
    """

    active: int = 0
    behind: int = 0
    unhandled: int = 0


@value
class Handlers:
    """How many handlers of a failure ran for it, and how many still may.

    They are counted when a task fails, each dependent once however many edges it has, and adjusted by what each of them
    adds (`counted`) as long as the task stays failed.
    """

    ran: int = 0
    open: int = 0


@unique
class Handling(StrEnum):
    """What happens to a failure: a handler ran for it, one still may, or none will."""

    HANDLED = "handled"
    OPEN = "open"
    UNHANDLED = "unhandled"


def verdict(tally: Tally, canceled: bool = False) -> GraphState:
    """Return the state of a graph."""
    if canceled:
        return GraphState.CANCELING if tally.active else GraphState.CANCELED
    if tally.unhandled:
        return GraphState.BLOCKED
    if tally.active:
        return GraphState.RUNNING
    # With nothing active, each task behind depends on a blocked one in the end, because edges form no cycle.
    return GraphState.BLOCKED if tally.behind else GraphState.FINISHED


def settled(tally: Tally) -> bool:
    """Whether nothing in the graph can move without a person."""
    return tally.active == 0


def changeable(state: GraphState) -> bool:
    """Whether tasks can be added to a graph or rerun: not once it is finished, canceled or about to be."""
    return state in {GraphState.RUNNING, GraphState.BLOCKED}


def over(state: GraphState) -> bool:
    """Whether a graph stays in a state for good."""
    return state in {GraphState.FINISHED, GraphState.CANCELED}


def succeeded(state: GraphState) -> bool:
    """Whether a settled graph is finished."""
    return state is GraphState.FINISHED


def handling(handlers: Handlers) -> Handling:
    """Judge a failure by its handlers."""
    if handlers.ran:
        return Handling.HANDLED
    return Handling.OPEN if handlers.open else Handling.UNHANDLED


def counted(handler: Handler, round: int) -> Handlers:
    """Return what one handler adds for a failure in this round; a run for an earlier failure does not count."""
    ran = handler.handled_round == round and handler.state in ENDED
    return Handlers(ran=int(ran), open=int(handler.state in _MAY_STILL_RUN))


def matters(source: State, target: State) -> bool:
    """Whether a move of a handler can change what it adds: not while it only comes closer to running."""
    return not (source in _MAY_STILL_RUN and target in _MAY_STILL_RUN)


def unhandled(state: State, handlers: Handlers) -> bool:
    """Whether a task in `state` counts as an unhandled failure."""
    return state in UNSUCCESSFUL and handling(handlers) is Handling.UNHANDLED


#: A handler in one of these states may still run. One behind a blocked task counts too; once the graph is settled,
#: `verdict` does not count it.
_MAY_STILL_RUN = ACTIVE | {State.UNSCHEDULED}


def tally(members: Mapping[str, Member], handlers: Mapping[str, Sequence[Handler]]) -> Tally:
    """Count a graph's tasks from scratch; `handlers` has the handlers of each label."""
    return Tally(
        active=sum(member.state in ACTIVE for member in members.values()),
        behind=sum(member.state in BEHIND for member in members.values()),
        unhandled=sum(
            unhandled(member.state, handlers_of(member, handlers.get(label, ()))) for label, member in members.items()
        ),
    )


def handlers_of(member: Member, handlers: Iterable[Handler]) -> Handlers:
    """Count the handlers of one task from scratch."""
    counts = [counted(handler, member.round) for handler in handlers]
    return Handlers(sum(each.ran for each in counts), sum(each.open for each in counts))
