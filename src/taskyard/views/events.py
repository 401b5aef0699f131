"""Events of tasks and graphs, as they are published."""

from collections.abc import Mapping, Sequence

from taskyard.core.events import Topic, kind_of
from taskyard.core.ids import Key, text_of
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.wire.api import EventView


def graph_events(repo: Repo, graph: int, after: int, count: int) -> tuple[list[EventView], int | None]:
    """Show events in a graph after a number, the oldest first; return where the next page begins, if there is one."""
    found = repo.events.in_graph(graph, after, count + 1)
    shown = found[:count]
    return event_views(repo, shown), shown[-1].number if len(found) > count else None


def event_views(repo: Repo, events: Sequence[EventRow]) -> list[EventView]:
    """Show events, in the same order."""
    labels = repo.read.labels({one.subject for one in events if one.subject != one.graph})
    return [_view(one, labels) for one in events]


def _view(event: EventRow, labels: Mapping[int, str]) -> EventView:
    graph = text_of(Key(event.graph))
    is_task = event.subject != event.graph
    return EventView(
        id=f"{graph}-{event.number}",
        number=event.number,
        kind=kind_of(Topic.TASK if is_task else Topic.GRAPH, event.target, event.signal),
        at_ms=event.at_ms,
        graph_id=graph,
        task=text_of(Key(event.subject)) if is_task else None,
        label=labels.get(event.subject),
        source=event.source,
        target=event.target,
        signal=event.signal,
        attempt=event.attempt,
        bot=event.bot,
        reason=event.reason,
    )
