"""Whole graphs, counted afresh with all of their tasks, in pages, so that any store fits into memory.

The numbers of a graph are sums over its tasks, so its tasks come first. What is only being loaded counts nothing yet.
Nothing here writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.graph.state import Handlers, Tally, unhandled, verdict
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ACTIVE, BEHIND, Millis, State
from taskyard.lifecycle.doctor import finding
from taskyard.lifecycle.doctor.evidence import Evidence, Whole, belongings, gather, graph_of, wholes
from taskyard.lifecycle.doctor.finding import Finding, Value
from taskyard.lifecycle.doctor.history import Past, attempt_findings, recounted_attempts
from taskyard.lifecycle.doctor.recount import differences, recounted, stuck, unmendable
from taskyard.lifecycle.rows import DROP, LOAD
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import GraphSide, TaskRow, TriedRow
from taskyard.store.rows import GraphRecord

#: How many graphs are summed up at once, and how many tasks are in memory.
GRAPHS_MAX: Final = 500
TASKS_MAX: Final = 500
#: How the audit tells that a graph was extended, and that an extension was given up.
GROWN: Final = ("extend", DROP)


@dataclass(slots=True)
class _Sum:
    active: int = 0
    behind: int = 0
    unhandled: int = 0
    events: int = 0
    newest: int = 0
    births: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Totals:
    """A graph as it should be, in the order of `mend_graphs`; then what its events are worth."""

    state: str
    active: int
    behind: int
    unhandled: int
    events: int  # the number of its newest event
    events_published: int  # the number of the newest that others were told
    extensions: int
    created_ms: int
    moved_ms: int
    canceled_ms: int | None
    loader: str | None
    turned: str | None  # the state to which its newest event led
    counted: int  # how many events there are


@dataclass(slots=True)
class Survey:
    """Some graphs with all of their tasks: `tasks` has to be walked to its end before the graphs are known."""

    repo: Repo
    graphs: Mapping[int, GraphRecord]  # all there are between the first and the last of them
    now: Millis
    wholes: Mapping[int, Whole] = field(init=False)
    _sides: Mapping[int, GraphSide] = field(init=False)
    _sums: dict[int, _Sum] = field(init=False)

    def __post_init__(self) -> None:
        self.wholes = wholes(self.repo, list(self.graphs.values()))
        self._sides = self.repo.doctor.sides(list(self.graphs), GROWN)
        self._sums = {id: _Sum() for id in self.graphs}

    def tasks(self) -> Iterator[Finding]:
        """Say what is wrong with the tasks."""
        graph, after, last = min(self.graphs), -1, max(self.graphs)
        while page := self.repo.doctor.tasks(graph, after, last, TASKS_MAX):
            tasks = [task for task in page if task.graph_id in self.graphs]
            known = gather(self.repo, tasks, self.wholes)
            for task in tasks:
                yield from self._task(task, known)
            graph, after = page[-1].graph_id, page[-1].id

    def totals(self) -> Iterator[tuple[GraphRecord, Totals]]:
        """Give each graph with its numbers as they should be."""
        for id, graph in self.graphs.items():
            yield graph, self._totals(self.wholes[id])

    def graph_findings(self) -> Iterator[Finding]:
        """Say what is wrong with the graphs."""
        for graph, totals in self.totals():
            yield from _graph_findings(self.wholes[graph.id], self._sides[graph.id], totals)
        for id in self.repo.doctor.unheard([id for id, graph in self.graphs.items() if graph.parent is not None]):
            yield unheard(id)

    def _task(self, task: TaskRow, known: Evidence) -> Iterator[Finding]:
        graph = self.wholes[task.graph_id]
        want = placed(recounted(task, known, graph, self.now), known)
        self._add(want, known.pasts[task.id])
        yield from differences(task, want)
        yield from unmendable(task, known)
        yield from belongings(task, known)
        yield from stuck(want, graph)
        yield from _attempts(task, known)

    def _add(self, task: TaskRow, past: Past) -> None:
        into = self._sums.get(task.graph_id)
        if into is None:
            return  # it belongs to another graph, which is counted another time
        into.events += past.events
        into.newest = max(into.newest, past.newest)
        into.births.add(task.created_ms)
        if not (self.wholes[task.graph_id].is_loading or task.loading):
            into.active += task.state in ACTIVE
            into.behind += task.state in BEHIND
            into.unhandled += unhandled(State(task.state), Handlers(task.handlers_ran, task.handlers_open))

    def _totals(self, graph: Whole) -> Totals:
        into, record, own, side = self._sums[graph.record.id], graph.record, graph.past, self._sides[graph.record.id]
        # A note is a promise that something moves by itself.
        tally = Tally(into.active + sum(graph.notes.values()), into.behind, into.unhandled)
        is_loading, newest = graph.is_loading, max(into.newest, own.newest)
        created = (
            record.created_ms if is_loading or record.created_ms in into.births or not into.births else min(into.births)
        )
        return Totals(
            str(record.state if is_loading else verdict(tally, graph.is_hushed)),
            tally.active,
            tally.behind,
            tally.unhandled,
            newest,
            side.events_published
            if 0 <= side.events_published <= newest
            else 0,  # what may have been published is published again
            record.extensions if is_loading else side.extensions + graph.notes.get(LOAD, 0),
            created,
            side.moved_ms if is_loading else _moved(own, created, side),
            graph.canceled_ms,
            record.loader if is_loading else None,
            own.state,
            into.events + own.events,
        )


def unheard(graph: int) -> Finding:
    """Say that a graph is at rest inside a task that goes on."""
    return Finding(finding.GRAPH, graph, "rest", "unheard", "heard by its task")


def placed(task: TaskRow, known: Evidence) -> TaskRow:
    """Give a task with the graph that it belongs to."""
    graph = graph_of(task, known)
    return task if graph is None else task._replace(graph_id=graph)


def _attempts(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    """Say what is wrong with the attempts of a task, if its events can tell."""
    if known.pasts[task.id].is_whole(task.state):
        yield from attempt_findings(task, known.pasts[task.id], known.tried.get(task.id, ()), attempts_of(task, known))


def attempts_of(task: TaskRow, known: Evidence) -> Sequence[TriedRow]:
    """Give the attempts of a task as they should be."""
    past, tried = known.pasts[task.id], known.tried.get(task.id, ())
    definition = known.definitions.get(task.id)
    if not past.is_whole(task.state):
        return tried
    return recounted_attempts(task, past, tried, () if definition is None else definition.slices)


def _moved(own: Past, created: int, side: GraphSide) -> int:
    """Say since when a graph is where it is: its birth moves it nowhere."""
    if own.moved_ms is None or own.torn is not None:
        return side.moved_ms
    return created if own.events == 1 else own.moved_ms


def _graph_findings(graph: Whole, side: GraphSide, totals: Totals) -> Iterator[Finding]:
    record = graph.record
    pairs: tuple[tuple[str, Value, Value], ...] = (
        ("state", str(record.state), totals.state),
        ("active", record.tally.active, totals.active),
        ("behind", record.tally.behind, totals.behind),
        ("unhandled", record.tally.unhandled, totals.unhandled),
        ("events", record.events, totals.events),
        ("events_published", side.events_published, totals.events_published),
        ("extensions", record.extensions, totals.extensions),
        ("created_ms", record.created_ms, totals.created_ms),
        ("moved_ms", side.moved_ms, totals.moved_ms),
        ("canceled_ms", record.canceled_ms, totals.canceled_ms),
        ("loader", record.loader, totals.loader),
        ("graph of events", text_of(Key(_other(graph))), text_of(Key(record.id))),
    )
    for column, have, want in pairs:
        if have != want:
            yield Finding(finding.GRAPH, record.id, column, have, want)
    torn = graph.past.torn
    if torn is not None:
        told = f"from {torn.source} to {torn.target}"
        yield Finding(
            finding.GRAPH, record.id, f"event {torn.number}", told, "a turn from where it was", mendable=False
        )
    if totals.counted != totals.events:
        yield Finding(finding.GRAPH, record.id, "number of events", totals.counted, totals.events, mendable=False)
    if not side.is_defined:
        yield Finding(finding.GRAPH, record.id, "definition", None, "there", mendable=False)


def _other(graph: Whole) -> int:
    """Name a graph that its events are said to be of, if it is another one."""
    return next((id for id in graph.past.graphs if id != graph.record.id), graph.record.id)
