"""The messages that a message broker carries, and the names of its exchanges and queues.

A server publishes `TaskMessage` and `GraphMessage`, one for each event. Everything else about a task is at the API.
`docs/events.md` has their JSON Schemas.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from taskyard.core.events import KINDS, Topic

#: Part of the name of each exchange and queue. It changes when messages change so that old readers cannot read them.
VERSION: Final = "v1"
#: The word in a kind of event, and in the name of its exchange, for what it is about.
_EXCHANGES: Final = {Topic.TASK: "task", Topic.GRAPH: "task-graph"}

_Graph: TypeAlias = Annotated[str, Meta(description="the graph, or the one that the task is in")]
_Id: TypeAlias = Annotated[str, Meta(description="the same whenever the message is repeated: `GRAPH-NUMBER`")]
_Number: TypeAlias = Annotated[int, Meta(description="within the graph: its events are ordered by it", ge=1)]
_Kind: TypeAlias = Annotated[str, Meta(description="what moved, and its new state")]
_When: TypeAlias = Annotated[int, Meta(description="when it happened, in milliseconds since 1970")]
_Scheduler: TypeAlias = Annotated[str, Meta(description="the `schedulerId` of the graph")]


class TaskMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task moved."""

    id: _Id
    number: _Number
    kind: _Kind
    at_ms: _When
    scheduler_id: _Scheduler
    graph_id: _Graph
    task: Annotated[str, Meta(description="the task")]
    label: Annotated[str | None, Meta(description="its label; null if the task was deleted meanwhile")]
    source: Annotated[str, Meta(description="its state before")]
    target: Annotated[str, Meta(description="its state now")]
    signal: Annotated[str, Meta(description="what happened to it")]
    attempt: Annotated[int | None, Meta(description="which attempt it was about, if one")]
    bot: Annotated[str | None, Meta(description="whose attempt")]
    reason: Annotated[str | None, Meta(description="everything finer than a state")]
    version: Literal[1] = 1


class BlockingTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task that blocks a graph: it failed for good, and nothing handles that."""

    task: str
    label: str | None


class GraphMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a graph changed, or it got more tasks."""

    id: _Id
    number: _Number
    kind: _Kind
    at_ms: _When
    scheduler_id: _Scheduler
    graph_id: _Graph
    source: Annotated[str | None, Meta(description="its state before; null at its birth")]
    target: Annotated[str, Meta(description="its state now")]
    signal: Annotated[str | None, Meta(description="`extend` if it got more tasks, else null")]
    blocked_by: Annotated[BlockingTask | None, Meta(description="of `graph.blocked`: the task that failed last")] = None
    version: Literal[1] = 1


#: Every message, for the docs.
SCHEMAS: Final = (TaskMessage, GraphMessage)


def exchange_of(scheduler_id: str, kind: str) -> str:
    """Return the exchange for a kind of event: `taskyard/v1/task-graph-blocked` for `graph.blocked`."""
    topic, _, state = kind.partition(".")
    return f"{scheduler_id}/{VERSION}/{_EXCHANGES[Topic(topic)]}-{state}"


def exchanges(scheduler_id: str) -> list[str]:
    """Return the topic exchanges to which events are published."""
    return [exchange_of(scheduler_id, kind) for kind in KINDS]


def publisher_queue(scheduler_id: str) -> str:
    """Return the queue that only the connection may use which publishes: by it the broker admits one at a time."""
    return f"{scheduler_id}/{VERSION}/publisher"
