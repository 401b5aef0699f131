"""The messages that a message broker carries, and the names of its exchanges and queues.

A server publishes `TaskMessage` and `GraphMessage`, one for each event. Everything else about a task is at the API. To
the workers of external pools it sends `Announcement`, and they report with the others. `docs/events.md` has their JSON
Schemas.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from taskyard.core.events import KINDS, Topic
from taskyard.wire.attempt_limits import RESULT_MAX
from taskyard.wire.bot_protocol import EXIT_CODE_MAX, EXIT_CODE_MIN, NUMBER_MAX, Progress

#: Part of the name of each exchange and queue. It changes when messages change so that old readers cannot read them.
VERSION: Final = "v1"
#: The word in a kind of event, and in the name of its exchange, for what it is about.
_EXCHANGES: Final = {Topic.TASK: "task", Topic.GRAPH: "task-graph"}

#: Longer than any run token.
TOKEN_MAX: Final = 256

_ExitCode: TypeAlias = Annotated[int, Meta(ge=EXIT_CODE_MIN, le=EXIT_CODE_MAX)]
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


# What workers of an external pool get, and what they send.


_Task: TypeAlias = Annotated[str, Meta(description="the task", pattern="^[0-9a-f]{16}$")]
_Attempt: TypeAlias = Annotated[int, Meta(description="which attempt of it", ge=1, le=NUMBER_MAX)]
_Fence: TypeAlias = Annotated[int, Meta(description="as it was announced", ge=0, le=NUMBER_MAX)]
_Token: TypeAlias = Annotated[str, Meta(description="the run token that was announced", max_length=TOKEN_MAX)]


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An attempt of a task, for one of the workers of its pool."""

    task: _Task
    attempt: _Attempt
    fence: Annotated[int, Meta(description="to be sent back with every report")]
    token: Annotated[str, Meta(description="the run token: to be sent back, and for the API")]
    graph_id: _Graph
    label: Annotated[str, Meta(description="the label of the task")]
    pool: Annotated[str, Meta(description="the external pool")]
    lease_ms: Annotated[int, Meta(description="how long the lease lasts from now on, and after each heartbeat")]
    payload: msgspec.Raw
    inputs: Annotated[msgspec.Raw | UnsetType, Meta(description="the results of its prerequisites, by label")] = UNSET
    inputs_apart: Annotated[bool, Meta(description="the inputs are too large: they are at the API")] = False
    checkpoint: Annotated[bytes | None, Meta(description="of an earlier attempt, in Base64")] = None
    version: Literal[1] = 1


class WorkerHeartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="heartbeat"):
    """A worker runs an attempt: the lease gets its full length again."""

    task: _Task
    attempt: _Attempt
    fence: _Fence
    token: _Token
    progress: Progress | None = None


class WorkerCompleted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="completed"):
    """An attempt succeeded; its result, if any, is JSON."""

    task: _Task
    attempt: _Attempt
    fence: _Fence
    token: _Token
    result: Annotated[msgspec.Raw | UnsetType, Meta(description="any JSON")] = UNSET
    exit_code: _ExitCode | None = None


class WorkerFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="failed"):
    """An attempt failed by its own fault; the reruns of the task decide what follows."""

    task: _Task
    attempt: _Attempt
    fence: _Fence
    token: _Token
    result: Annotated[msgspec.Raw | UnsetType, Meta(description="any JSON")] = UNSET
    exit_code: _ExitCode | None = None


#: What a worker may report.
WorkerMessage: TypeAlias = WorkerHeartbeat | WorkerCompleted | WorkerFailed

#: Every message, for the docs.
SCHEMAS: Final = (TaskMessage, GraphMessage, Announcement, WorkerHeartbeat, WorkerCompleted, WorkerFailed)
#: How long a message of a worker may be: one with the longest result.
WORKER_MESSAGE_MAX: Final = RESULT_MAX + 16_384


def pool_exchange(scheduler_id: str, pool: str) -> str:
    """Return the direct exchange, and the queue bound to it, to which tasks of an external pool are announced."""
    return f"{scheduler_id}/{VERSION}/tasks/{pool}"


def reports_queue(scheduler_id: str) -> str:
    """Return the queue to which workers report."""
    return f"{scheduler_id}/{VERSION}/reports"


def unreadable_queue(scheduler_id: str) -> str:
    """Return the queue of reports that could not be read; each has a header `fault`."""
    return f"{scheduler_id}/{VERSION}/reports.unreadable"


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
