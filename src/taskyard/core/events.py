"""Events: the names of what is published about tasks and graphs.

Every transition of a task and every change of a graph's state is one event, written with the change itself and
published later, at least once and in order per graph. `wire.api.EventView` is its shape.
"""

from enum import StrEnum, unique
from typing import Final

from taskyard.core.states import GraphState, State


@unique
class Topic(StrEnum):
    """What an event is about; with the new state it makes the event's kind."""

    TASK = "task"
    GRAPH = "graph"


#: The signal of the event that a graph got more tasks. Its state stays as it is.
EXTEND: Final = "extend"
#: The last word of the kind of that event.
_EXTENDED: Final = "extended"


def kind_of(topic: Topic, target: str, signal: str | None = None) -> str:
    """Return the kind of an event, such as `task.running` or `graph.finished`."""
    return f"{topic}.{_EXTENDED if signal == EXTEND else target}"


#: Every kind there is, for docs and for those who subscribe by name.
KINDS: Final[tuple[str, ...]] = (
    *(kind_of(Topic.TASK, state.text) for state in State),
    *(kind_of(Topic.GRAPH, state.text) for state in GraphState),
    kind_of(Topic.GRAPH, GraphState.RUNNING.text, EXTEND),
)
