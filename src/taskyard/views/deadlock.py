"""Workflows that wait for each other: a task in one wants a mutex that another holds, and the other way round.

A task with a graph inside holds its mutexes until that graph is done. If a task in there waits for a mutex of another
such task, and so on round to the first, none of them ever ends by itself. Nothing here writes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from taskyard.core.admission.rules import excludes
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ACTIVE, Kind, Reason, Signal, State, sources
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import TaskRecord
from taskyard.wire.api import Deadlock, DeadlockStep

#: How many tasks that hold mutexes for the graph inside them are looked at, and how many tasks of one graph.
HOLDERS_MAX: Final = 1_000
LOOKED_MAX: Final = 1_000
#: How deep graphs inside graphs are followed.
DEPTH_MAX: Final = 16
_ADMISSIBLE: Final = sources(Signal.ADMIT)
#: Where a task is whose graph inside may go on; one that is being ended gives its mutexes back.
_RUNNING: Final = frozenset({State.RUNNING})


class Sight(Protocol):
    """What the asker may see."""

    def graph(self, graph: int) -> bool:
        """Tell whether they may see a graph."""


def of_graph(repo: Repo, graph: int, sight: Sight) -> Deadlock | None:
    """Find the deadlock that keeps a graph from its end."""
    look = _Look(repo)
    if not look.holders:
        return None
    cycle = look.cycle(look.waits_in(graph))
    return None if cycle is None else _told(repo, cycle, sight, stuck=look.is_stuck(graph))


def of_task(repo: Repo, task: TaskRecord, sight: Sight) -> Deadlock | None:
    """Find the deadlock that keeps a task from its end."""
    look = _Look(repo)
    if not look.holders:
        return None
    cycle = look.cycle(look.waits_of(task))
    return None if cycle is None else _told(repo, cycle, sight, stuck=True)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A pending task, the mutex that it wants, and the task that holds that for the graph inside it."""

    task: TaskRecord
    key: str
    holder: int


class _Look:
    """One look at all that holds mutexes for a graph inside."""

    def __init__(self, repo: Repo) -> None:
        self._txn = repo
        ids = repo.read.subgraph_holders(SERVER.bot, Kind.GRAPH.text, HOLDERS_MAX)
        self.holders = {one.id: one for one in repo.tasks.read(ids) if one.state in _RUNNING} if ids else {}
        self._by_key: defaultdict[str, list[tuple[str | None, int]]] = defaultdict(list)
        for id, mutexes in repo.admission.mutexes_of(self.holders).items():
            for mutex in mutexes:
                self._by_key[mutex.key].append((mutex.party, id))
        self._waits: dict[int, list[_Wait]] = {}

    def cycle(self, waits: Sequence[_Wait]) -> list[_Wait] | None:
        """Find waits that lead from a holder to itself, from some waits on; with one of these first, if it can be."""
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
        """What a task waits for, itself or in the graph inside it."""
        if task.state in _ADMISSIBLE:
            return self._wanted([task])
        inside = self._inside([task])
        return [wait for graph in inside for wait in self.waits_in(graph)]

    def waits_in(self, graph: int, depth: int = 0) -> list[_Wait]:
        """What the tasks of a graph wait for, and those of graphs inside it."""
        if graph not in self._waits:
            found = self._wanted(self._tasks(graph, _ADMISSIBLE))
            if depth < DEPTH_MAX:
                for inner in self._inside(self._tasks(graph, _RUNNING)):
                    found += self.waits_in(inner, depth + 1)
            self._waits[graph] = found
        return self._waits[graph]

    def is_stuck(self, graph: int, depth: int = 0) -> bool:
        """Whether nothing in a graph can move until somebody ends one of the tasks that wait for each other."""
        active = self._tasks(graph, ACTIVE, LOOKED_MAX + 1)
        if len(active) > LOOKED_MAX or depth > DEPTH_MAX:
            return False
        return bool(active) and all(self._is_stuck(one, depth) for one in active)

    def _is_stuck(self, task: TaskRecord, depth: int) -> bool:
        if task.due_ms is not None:
            return False  # its time is over some day
        if task.state in _ADMISSIBLE:
            cycle = self.cycle(self._wanted([task]))
            return cycle is not None and all(self.holders[one.holder].due_ms is None for one in cycle)
        inside = self._inside([task])
        return bool(inside) and all(self.is_stuck(graph, depth + 1) for graph in inside)

    def _tasks(self, graph: int, states: Iterable[State], count: int = LOOKED_MAX) -> list[TaskRecord]:
        return self._txn.tasks.read(self._txn.tasks.page(graph, states, FIRST, count))

    def _inside(self, tasks: Iterable[TaskRecord]) -> list[int]:
        """Name the graphs that the attempts of some tasks are."""
        attempts = {(one.id, one.life.attempt) for one in tasks if one.kind == Kind.GRAPH.text}
        found = self._txn.graphs.subgraphs({id for id, _ in attempts})
        return [graph for attempt, graph in found.items() if attempt in attempts]

    def _wanted(self, tasks: Sequence[TaskRecord]) -> list[_Wait]:
        holds = self._txn.admission.holds_of([one.id for one in tasks])
        held = [one for one in tasks if one.id in holds and holds[one.id].reason is Reason.MUTEX]
        mutexes = self._txn.admission.mutexes_of([one.id for one in held])
        return [
            _Wait(one, mutex.key, holder)
            for one in held
            for mutex in mutexes.get(one.id, ())
            for party, holder in self._by_key.get(mutex.key, ())
            if excludes(mutex.party, party)
        ]


def _told(repo: Repo, cycle: Sequence[_Wait], sight: Sight, stuck: bool) -> Deadlock:
    tasks = {wait.task.id: wait.task for wait in cycle}
    tasks |= {one.id: one for one in repo.tasks.read([wait.holder for wait in cycle])}
    seen = {graph for graph in {one.graph for one in tasks.values()} if sight.graph(graph)}
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
    """Say who waits for whom."""
    hidden = "a task that you may not see"
    said = [
        f"{one.label or hidden} waits for mutex {one.mutex}, which {one.holder_label or hidden} holds until "
        f"{after.label or hidden} in it has ended"
        for one, after in zip(steps, [*steps[1:], steps[0]], strict=True)
    ]
    return f"deadlock: {'; '.join(said)}. Cancel one of them"
