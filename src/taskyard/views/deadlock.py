"""Deadlocks between subgraphs: a task in one waits for a mutex that another holds, and the other way round.

A task that runs a subgraph holds its mutexes until the subgraph ends. If a task in the subgraph waits for a mutex of
another such task, and so on in a circle, none of them ever ends by itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from taskyard.core.admission.rules import excludes
from taskyard.core.graph.payload import GRAPH_KINDS
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ACTIVE, Kind, Reason, Signal, State, sources
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import TaskRecord
from taskyard.views.visibility import Visibility
from taskyard.wire.api import Deadlock, DeadlockStep

#: How many tasks that hold mutexes for a subgraph are looked at, and how many tasks of one graph.
HOLDERS_MAX: Final = 1_000
LOOKED_MAX: Final = 1_000
_GRAPHS: Final = frozenset(kind.text for kind in GRAPH_KINDS)
#: How deep subgraphs are followed.
DEPTH_MAX: Final = 16
_ADMISSIBLE: Final = sources(Signal.ADMIT)
#: The state of a task whose subgraph goes on; a task that is being stopped releases its mutexes.
_RUNNING: Final = frozenset({State.RUNNING})


def of_graph(repo: Repo, graph: int, visibility: Visibility) -> Deadlock | None:
    """Find the deadlock that keeps a graph from ending."""
    search = _DeadlockSearch(repo)
    if not search.holders:
        return None
    cycle = search.cycle(search.waits_in(graph))
    return None if cycle is None else _view(repo, cycle, visibility, stuck=search.is_stuck(graph))


def of_task(repo: Repo, task: TaskRecord, visibility: Visibility) -> Deadlock | None:
    """Find the deadlock that keeps a task from ending."""
    search = _DeadlockSearch(repo)
    if not search.holders:
        return None
    cycle = search.cycle(search.waits_of(task))
    return None if cycle is None else _view(repo, cycle, visibility, stuck=True)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A pending task, the mutex that it waits for, and the task that holds the mutex while its subgraph runs."""

    task: TaskRecord
    key: str
    holder: int


class _DeadlockSearch:
    """One search over all tasks that hold mutexes while their subgraphs run."""

    def __init__(self, repo: Repo) -> None:
        self._repo = repo
        ids = repo.read.subgraph_holders(SERVER.bot, Kind.GRAPH.text, HOLDERS_MAX)
        self.holders = {one.id: one for one in repo.tasks.read(ids) if one.state in _RUNNING} if ids else {}
        self._by_key: defaultdict[str, list[tuple[str | None, int]]] = defaultdict(list)
        for id, mutexes in repo.admission.mutexes_of(self.holders).items():
            for mutex in mutexes:
                self._by_key[mutex.key].append((mutex.party, id))
        self._waits: dict[int, list[_Wait]] = {}

    def cycle(self, waits: Sequence[_Wait]) -> list[_Wait] | None:
        """Find a circle of waits that is reachable from some waits; begin with one of these, if it is in the circle."""
        asked = {wait.task.id for wait in waits}
        done: set[int] = set()
        stack = [(wait, [wait]) for wait in reversed(waits)]
        while stack:
            wait, path = stack.pop()
            before = [one.holder for one in path[:-1]]
            if wait.holder in before:
                found = path[before.index(wait.holder) + 1 :]
                first = next((place for place, one in enumerate(found) if one.task.id in asked), 0)
                return found[first:] + found[:first]
            if wait.holder not in done:
                done.add(wait.holder)
                stack += [(one, [*path, one]) for one in reversed(self.waits_of(self.holders[wait.holder]))]
        return None

    def waits_of(self, task: TaskRecord) -> list[_Wait]:
        """Return what a task waits for, itself or in its subgraph."""
        if task.state in _ADMISSIBLE:
            return self._wanted([task])
        subgraphs = self._subgraphs([task])
        return [wait for graph in subgraphs for wait in self.waits_in(graph)]

    def waits_in(self, graph: int, depth: int = 0) -> list[_Wait]:
        """Return what the tasks of a graph and of its subgraphs wait for."""
        if graph not in self._waits:
            found = self._wanted(self._tasks(graph, _ADMISSIBLE))
            if depth < DEPTH_MAX:
                for inner in self._subgraphs(self._tasks(graph, _RUNNING)):
                    found += self.waits_in(inner, depth + 1)
            self._waits[graph] = found
        return self._waits[graph]

    def is_stuck(self, graph: int, depth: int = 0) -> bool:
        """Whether nothing in a graph can move until one of the deadlocked tasks is canceled."""
        active = self._tasks(graph, ACTIVE, LOOKED_MAX + 1)
        if len(active) > LOOKED_MAX or depth > DEPTH_MAX:
            return False
        return bool(active) and all(self._is_stuck(one, depth) for one in active)

    def _is_stuck(self, task: TaskRecord, depth: int) -> bool:
        if task.due_ms is not None:
            return False  # it will time out
        if task.state in _ADMISSIBLE:
            cycle = self.cycle(self._wanted([task]))
            return cycle is not None and all(self.holders[one.holder].due_ms is None for one in cycle)
        subgraphs = self._subgraphs([task])
        return bool(subgraphs) and all(self.is_stuck(graph, depth + 1) for graph in subgraphs)

    def _tasks(self, graph: int, states: Iterable[State], count: int = LOOKED_MAX) -> list[TaskRecord]:
        return self._repo.tasks.read(self._repo.tasks.page(graph, states, FIRST, count))

    def _subgraphs(self, tasks: Iterable[TaskRecord]) -> list[int]:
        """Return the subgraphs that the current attempts of tasks run."""
        attempts = {(one.id, one.life.attempt) for one in tasks if one.kind in _GRAPHS}
        found = self._repo.graphs.subgraphs({id for id, _ in attempts})
        return [graph for attempt, graph in found.items() if attempt in attempts]

    def _wanted(self, tasks: Sequence[TaskRecord]) -> list[_Wait]:
        holds = self._repo.admission.holds_of([one.id for one in tasks])
        held = [one for one in tasks if one.id in holds and holds[one.id].reason is Reason.MUTEX]
        mutexes = self._repo.admission.mutexes_of([one.id for one in held])
        return [
            _Wait(one, mutex.key, holder)
            for one in held
            for mutex in mutexes.get(one.id, ())
            for party, holder in self._by_key.get(mutex.key, ())
            if excludes(mutex.party, party)
        ]


def _view(repo: Repo, cycle: Sequence[_Wait], visibility: Visibility, stuck: bool) -> Deadlock:
    tasks = {wait.task.id: wait.task for wait in cycle}
    tasks |= {one.id: one for one in repo.tasks.read([wait.holder for wait in cycle])}
    seen = {graph for graph in {one.graph for one in tasks.values()} if visibility.graph(graph)}
    labels = repo.read.labels([one.id for one in tasks.values() if one.graph in seen])
    steps = [_step(wait, tasks[wait.holder], labels) for wait in cycle]
    return Deadlock(steps, stuck, _sentence(steps))


def _step(wait: _Wait, holder: TaskRecord, labels: dict[int, str]) -> DeadlockStep:
    return DeadlockStep(*_named(wait.task, labels), wait.key, *_named(holder, labels))


def _named(task: TaskRecord, labels: dict[int, str]) -> tuple[str | None, str, str]:
    if task.id not in labels:
        return None, "", ""
    return text_of(Key(task.id)), labels[task.id], text_of(Key(task.graph))


def _sentence(steps: Sequence[DeadlockStep]) -> str:
    """Return which task waits for which."""
    hidden = "a task that you may not see"
    parts = [
        f"{one.label or hidden} waits for mutex {one.mutex}, which {one.holder_label or hidden} holds until "
        f"{after.label or hidden} in it has ended"
        for one, after in zip(steps, [*steps[1:], steps[0]], strict=True)
    ]
    return f"deadlock: {'; '.join(parts)}. Cancel one of them"
