"""Make messages for a broker of the events of the stream."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from taskyard.core.events import KINDS, Topic, kind_of
from taskyard.core.graph.model import routing_key
from taskyard.core.ids import Key, text_of
from taskyard.core.states import UNSUCCESSFUL, GraphState
from taskyard.core.structs import value
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.wire.messages import BlockingTask, GraphMessage, TaskMessage, exchange_of

#: How many tasks and graphs are remembered: the events of a task mostly come shortly after one another.
REMEMBERED_MAX: Final = 20_000
#: How many events before that of a blocked graph are searched for the task that blocks it.
SEARCHED_MAX: Final = 10_000
_PAGE: Final = 200
_FAILED: Final = frozenset(str(state) for state in UNSUCCESSFUL)
_BLOCKED: Final = str(GraphState.BLOCKED)
_ENCODER: Final = msgspec.json.Encoder()


class _Definition(msgspec.Struct):
    """The part of a stored definition that a message needs."""

    routing: str = ""


_READER: Final = msgspec.json.Decoder(_Definition)


@value
class OutgoingMessage:
    """A message, and where it goes."""

    exchange: str
    routing_key: str
    id: str
    kind: str
    body: bytes
    reply_to: str = ""  # the queue of the answers; empty: there are none
    expires_ms: int = 0  # how long the message means anything; 0: for ever
    fault: str = ""  # why it could not be read


@value
class _KnownGraph:
    """What the messages of a graph need."""

    text: str
    scheduler_id: str
    routing: str


@value
class _KnownTask:
    """What the messages of a task need."""

    text: str
    label: str | None
    key: str  # of routing


class MessageBuilder:
    """Makes messages; remembers what they need of tasks and graphs, which never changes."""

    def __init__(self, scheduler_id: str) -> None:
        self._scheduler_id = scheduler_id
        self._tasks: dict[int, _KnownTask] = {}
        self._graphs: dict[int, _KnownGraph] = {}
        self._exchanges = {kind: exchange_of(scheduler_id, kind) for kind in KINDS}

    def build(self, repo: Repo, events: Sequence[EventRow]) -> list[OutgoingMessage]:
        """Make the message of each event."""
        self._learn(repo, events)
        return [self._of_graph(repo, one) if one.subject == one.graph else self._of_task(one) for one in events]

    def _learn(self, repo: Repo, events: Sequence[EventRow]) -> None:
        if len(self._tasks) > REMEMBERED_MAX or len(self._graphs) > REMEMBERED_MAX:
            self._tasks.clear()
            self._graphs.clear()
        for id in {one.graph for one in events} - self._graphs.keys():
            row = repo.graphs.definition(id)
            scheduler_id, routing = (self._scheduler_id, "") if row is None else (row[0], row[2])
            self._graphs[id] = _KnownGraph(text_of(Key(id)), scheduler_id, routing)
        tasks = {
            one.subject: one.graph for one in events if one.subject != one.graph and one.subject not in self._tasks
        }
        found = repo.tasks.definitions(tasks)
        for id, graph_id in tasks.items():
            graph, (label, text) = self._graphs[graph_id], found.get(id, (None, "{}"))
            key = routing_key(graph.scheduler_id, graph.text, graph.routing, _READER.decode(text).routing)
            self._tasks[id] = _KnownTask(text_of(Key(id)), label, key)

    def _of_task(self, event: EventRow) -> OutgoingMessage:
        graph, task = self._graphs[event.graph], self._tasks[event.subject]
        kind = kind_of(Topic.TASK, event.target)
        message = TaskMessage(
            f"{graph.text}-{event.number}", event.number, kind, event.at_ms, graph.scheduler_id, graph.text, task.text,
            task.label, event.source or "", event.target, event.signal or "", event.attempt, event.bot, event.reason,
        )  # fmt: skip
        return self._addressed(message, task.key)

    def _of_graph(self, repo: Repo, event: EventRow) -> OutgoingMessage:
        graph = self._graphs[event.graph]
        kind = kind_of(Topic.GRAPH, event.target, event.signal)
        blocked_by = _blocking_task(repo, event) if event.target == _BLOCKED and event.signal is None else None
        message = GraphMessage(
            f"{graph.text}-{event.number}", event.number, kind, event.at_ms, graph.scheduler_id, graph.text,
            event.source, event.target, event.signal, blocked_by,
        )  # fmt: skip
        return self._addressed(message, routing_key(graph.scheduler_id, graph.text, graph.routing, ""))

    def _addressed(self, message: TaskMessage | GraphMessage, key: str) -> OutgoingMessage:
        return OutgoingMessage(self._exchanges[message.kind], key, message.id, message.kind, _ENCODER.encode(message))


def _blocking_task(repo: Repo, blocked: EventRow) -> BlockingTask | None:
    """Find the task that failed last before its graph became blocked: the answer is the same at each repeat."""
    upto = blocked.number
    while upto > max(1, blocked.number - SEARCHED_MAX):
        first = max(0, upto - 1 - _PAGE)
        found = [one for one in repo.events.in_graph(blocked.graph, first, _PAGE) if one.number < upto]
        failed = [one.subject for one in found if one.subject != blocked.graph and one.target in _FAILED]
        if failed:
            labels: Mapping[int, str] = repo.read.labels({failed[-1]})
            return BlockingTask(text_of(Key(failed[-1])), labels.get(failed[-1]))
        upto = first + 1
    return None
