"""Events: the names and contents of what is published about tasks and graphs.

Every transition of a task and every change of a graph's state is one event, written with the change itself and
published later, at least once and in order per graph.
"""

from dataclasses import dataclass
from enum import StrEnum, unique

from taskyard.core.states import BotId, GraphId, GraphState, Millis, Reason, Signal, State, TaskId


@unique
class Topic(StrEnum):
    """What an event is about; with the new state it makes the event's kind."""

    TASK = "task"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Event:
    """One fact: what moved, from where to where, why, and by whom."""

    topic: Topic  # what it is about: a task or a graph
    graph: GraphId  # the graph, or the one that the task is in
    at: Millis  # when
    target: State | GraphState  # where it is now
    source: State | GraphState | None = None  # where it was; nothing at birth
    task: TaskId | None = None  # the task, if it is about one
    signal: Signal | None = None  # what happened to the task
    attempt: int | None = None  # which attempt it was about, if one
    bot: BotId | None = None  # whose attempt
    reason: Reason | None = None  # everything finer than a state

    @property
    def kind(self) -> str:
        """The event's name, such as `task.running` or `graph.finished`."""
        return f"{self.topic}.{self.target}"


#: Every kind there is, for docs and for those who subscribe by name.
KINDS: tuple[str, ...] = tuple(
    f"{topic}.{state}" for topic, states in ((Topic.TASK, State), (Topic.GRAPH, GraphState)) for state in states
)


def graph_turned(graph: GraphId, before: GraphState | None, after: GraphState, at: Millis) -> Event | None:
    """Give the event of a graph's change of state, once per change; None when it stayed."""
    if before is after:
        return None
    return Event(Topic.GRAPH, graph, at, target=after, source=before)
