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


def kind_of(topic: Topic, target: str) -> str:
    """Return the kind of an event, such as `task.running` or `graph.finished`."""
    return f"{topic}.{target}"


#: Every kind there is, for docs and for those who subscribe by name.
KINDS: Final[tuple[str, ...]] = tuple(
    kind_of(topic, state.text) for topic, states in ((Topic.TASK, State), (Topic.GRAPH, GraphState)) for state in states
)
