"""Recounts of the stored counts of tasks and graphs, from the rows that they count and by the rules of the core."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.graph.gate import Edges, EdgeState, known
from taskyard.core.graph.state import Handlers, Tally, counted, unhandled, verdict
from taskyard.core.reuse import waits_apart
from taskyard.core.states import ACTIVE, BEHIND, UNSUCCESSFUL, Millis, State
from taskyard.lifecycle.admission.writes import UNENTERED
from taskyard.lifecycle.doctor.finding import GRAPH, TASK, Finding, differences
from taskyard.lifecycle.doctor.replay import Replay, replays
from taskyard.lifecycle.failure_handlers import PROPAGATE
from taskyard.lifecycle.rows import DROP, LOAD, SHOW
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import GraphExtras, TaskRow
from taskyard.store.rows import GraphRecord, decode_rules

#: How the audit calls an extension of a graph, and one that was dropped.
GROWN: Final = ("extend", DROP)
#: The states of a graph that was canceled.
_CANCELED: Final = frozenset(str(verdict(Tally(active), canceled=True)) for active in (0, 1))
#: While one of these continuations is open for a graph, some of its tasks may be `loading`.
_LOADING: Final = frozenset({LOAD, SHOW, DROP})


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A graph with its events and its open continuations."""

    record: GraphRecord
    extras: GraphExtras
    replay: Replay
    continuations: Mapping[str, int]  # how many of each kind are open

    @property
    def is_loading(self) -> bool:
        """Whether it is still being loaded: its first event comes with the commit that opens it."""
        return self.record.loader is not None and not self.replay.count

    @property
    def is_canceled(self) -> bool:
        """Whether it was canceled: then nothing is propagated between its tasks any more."""
        return self.record.canceled_ms is not None

    @property
    def is_cancel_disputed(self) -> bool:
        """Whether its row and its events disagree on whether it was canceled."""
        return self.replay.gap is None and not self.is_loading and self.is_canceled != (self.replay.state in _CANCELED)

    @property
    def may_have_loading_tasks(self) -> bool:
        """Whether an extension of it is being loaded or dropped."""
        return not _LOADING.isdisjoint(self.continuations)

    def counts(self, task: TaskRow) -> bool:
        """Whether a task of it counts: not while it is still being loaded."""
        return not (self.is_loading or task.loading)


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the stored counts of some tasks follow from."""

    edges: Mapping[int, Edges]
    handlers: Mapping[int, Handlers]
    continuations: Mapping[int, tuple[int, State | None]]  # how many are open, and the state that they propagate
    limited: Mapping[str, bool]  # whether each pool that was ever described has a capacity
    is_entering: bool  # the next pass has yet to mark the tasks of a pool that got a capacity


def graph_facts(repo: Repo, records: Sequence[GraphRecord]) -> dict[int, GraphFacts]:
    """Read what the counts of graphs follow from."""
    if not records:
        return {}
    ids = [one.id for one in records]
    events, continuations = replays(repo, ids, of_tasks=False), repo.doctor.graph_continuations(min(ids), max(ids))
    extras = repo.doctor.extras(ids, GROWN)
    return {one.id: GraphFacts(one, extras[one.id], events[one.id], continuations.get(one.id, {})) for one in records}


def task_facts(repo: Repo, tasks: Sequence[TaskRow], graphs: Mapping[int, GraphFacts]) -> TaskFacts:
    """Read what the counts of tasks follow from; `graphs` has the graph of each."""
    failed = [task for task in tasks if task.state in UNSUCCESSFUL and not graphs[task.graph_id].is_canceled]
    return TaskFacts(
        _count_edges(repo, [task.id for task in tasks if graphs[task.graph_id].counts(task)]),
        _count_handlers(repo, {task.id: task.round for task in failed}),
        repo.doctor.open_continuations([task.id for task in tasks], PROPAGATE),
        {pool.name: pool.from_bots or pool.capacity is not None for pool in repo.admission.pools()},
        repo.doctor.is_dirty(UNENTERED),
    )


def _count_edges(repo: Repo, ids: Collection[int]) -> dict[int, Edges]:
    counts: dict[int, dict[EdgeState, int]] = {id: dict.fromkeys(EdgeState, 0) for id in ids}
    for task, on, state, edges in repo.doctor.edge_counts(ids, PROPAGATE):
        counts[task][known(on, state)] += edges
    return {id: Edges(*each.values()) for id, each in counts.items()}


def _count_handlers(repo: Repo, rounds: Mapping[int, int]) -> dict[int, Handlers]:
    found = dict.fromkeys(rounds, Handlers())
    for task, handler, count in repo.doctor.handler_counts(list(rounds), PROPAGATE):
        adds, had = counted(handler, rounds[task]), found[task]
        found[task] = Handlers(had.ran + adds.ran * count, had.open + adds.open * count)
    return found


# Tasks.


def recount_task(task: TaskRow, facts: TaskFacts, graph: GraphFacts, now: Millis) -> TaskRow:
    """Return a task with all of its counts as they should be."""
    edges, handlers = _edges(task, facts, graph), _handlers(task, facts)
    return task._replace(
        awaited=edges.awaited,
        met=edges.met,
        broken=edges.broken,
        impossible=edges.impossible,
        handlers_ran=handlers.ran,
        handlers_open=handlers.open,
        open_continuations=facts.continuations.get(task.id, (0, None))[0],
        needs_admission=_needs_admission(task, facts),
        due_ms=_due_ms(task, now),
    )


def task_differences(stored: TaskRow, wanted: TaskRow) -> Iterator[Finding]:
    """Report the counts of a task that are wrong."""
    return differences(TASK, stored.id, TaskRow._fields, stored, wanted)


def rules_of(task: TaskRow) -> Rules | None:
    """Read the rules of a task; None if they are damaged."""
    try:
        return decode_rules(task.rules)
    except (msgspec.MsgspecError, ValueError):
        return None


def _edges(task: TaskRow, facts: TaskFacts, graph: GraphFacts) -> Edges:
    stored = Edges(task.awaited, task.met, task.broken, task.impossible)
    found = facts.edges.get(task.id, stored)
    # A canceled graph keeps what its edges knew when it was canceled; only the sum of that can be wrong.
    return stored if graph.is_canceled and found.count == stored.count else found


def _handlers(task: TaskRow, facts: TaskFacts) -> Handlers:
    """Count the handlers of a task. A failure that is still being propagated has one more that may run."""
    handlers = facts.handlers.get(task.id)
    if handlers is None:
        return Handlers(task.handlers_ran, task.handlers_open)
    _, propagated = facts.continuations.get(task.id, (0, None))
    return Handlers(handlers.ran, handlers.open + (propagated in UNSUCCESSFUL))


def _needs_admission(task: TaskRow, facts: TaskFacts) -> int:
    """Whether an admission pass has to admit a task. That is decided when it becomes pending."""
    if task.state not in ACTIVE:
        return task.needs_admission
    if waits_apart(State(task.state), task.reason):
        return 0
    if task.is_constrained:
        return 1
    is_limited = facts.limited.get(task.pool) if task.weight else None
    if is_limited is None:
        return 0
    # A pool that lost its capacity leaves the tasks it has to the passes.
    return 1 if is_limited and not facts.is_entering else task.needs_admission


def _due_ms(task: TaskRow, now: Millis) -> int | None:
    """Return when the clock has to look at a task: as it was when the task moved, or as it is by now."""
    rules = rules_of(task)
    if rules is None or not 0 <= task.slice_index < len(rules.slices):
        return task.due_ms
    waits, begins, until = map(_millis, (task.waits_since_ms, task.not_before_ms, task.lease_until_ms))
    life = Life(State(task.state), slice_index=task.slice_index, waits_since_ms=waits, not_before_ms=begins)
    then, today = (attempt_policy.due_at(life, rules, until, at) for at in (Millis(task.moved_ms), now))
    if task.due_ms is not None and today is not None and today <= now and today < task.due_ms <= now + fleet.SWEEP_MS:
        return task.due_ms  # it is overdue, could not be handled, and was put off until the next sweep
    return task.due_ms if task.due_ms in {then, today} else then


def _millis(value: int | None) -> Millis | None:
    return None if value is None else Millis(value)


# Graphs.


@dataclass(slots=True)
class GraphSum:
    """Sums over the tasks of a graph."""

    active: int = 0
    behind: int = 0
    unhandled: int = 0
    events: int = 0
    newest: int = 0

    def add(self, task: TaskRow, replay: Replay, is_counted: bool) -> None:
        """Add a task."""
        self.events += replay.count
        self.newest = max(self.newest, replay.newest)
        if is_counted:
            self.active += task.state in ACTIVE
            self.behind += task.state in BEHIND
            self.unhandled += unhandled(State(task.state), Handlers(task.handlers_ran, task.handlers_open))


class GraphCounts(NamedTuple):
    """The counts of a graph, and the state that follows from them."""

    state: str
    active: int
    behind: int
    unhandled: int
    events: int  # the number of its newest event
    events_published: int  # the number of the newest event that is published
    extensions: int


def recount_graph(graph: GraphFacts, tasks: GraphSum) -> GraphCounts:
    """Return the counts of a graph as they should be."""
    record, published = graph.record, graph.extras.events_published
    # A continuation counts as active: it is about to move something.
    tally = Tally(tasks.active + sum(graph.continuations.values()), tasks.behind, tasks.unhandled)
    newest = max(tasks.newest, graph.replay.newest)
    return GraphCounts(
        str(record.state if graph.is_loading or graph.is_cancel_disputed else verdict(tally, graph.is_canceled)),
        tally.active,
        tally.behind,
        tally.unhandled,
        newest,
        published if 0 <= published <= newest else 0,  # rather publish an event twice than never
        record.extensions if graph.is_loading else graph.extras.extensions + graph.continuations.get(LOAD, 0),
    )


def graph_differences(graph: GraphFacts, wanted: GraphCounts) -> Iterator[Finding]:
    """Report the counts of a graph that are wrong."""
    record, tally = graph.record, graph.record.tally
    counts = (str(record.state), tally.active, tally.behind, tally.unhandled, record.events)
    stored = (*counts, graph.extras.events_published, record.extensions)
    return differences(GRAPH, record.id, GraphCounts._fields, stored, wanted)
