"""Everything that the numbers of some tasks follow from, read at once: what was asked for, what happened, what is open.

Nothing here compares or writes anything. What cannot be read is left out, and proves nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from taskyard.core.graph.document import Mutex, Task
from taskyard.core.graph.gate import LISTENING, Edges, EdgeState, known
from taskyard.core.graph.verdict import Handler, Handlers, counted
from taskyard.core.machine import UNSUCCESSFUL
from taskyard.core.words import On
from taskyard.lifecycle.agenda import UNENTERED
from taskyard.lifecycle.births import DROP, LOAD, SHOW
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.past import BORN, Past, pasts
from taskyard.lifecycle.telling import TELL
from taskyard.store.records import GraphRecord
from taskyard.store.txn import Txn
from taskyard.store.verbs.care import AskedRow, TaskRow, TellingRow, TriedRow
from taskyard.store.verbs.fleet import dimensions_text

#: How many attempts are read at once.
ATTEMPTS_MAX: Final = 5_000
#: While one of these is open about a graph, some of its tasks may be hidden.
_HIDING: Final = frozenset({LOAD, SHOW, DROP})

#: The in-edges of a task: by prerequisite and end, for which round of the prerequisite the task ran.
InEdges: TypeAlias = Mapping[tuple[int, str], int | None]


@dataclass(frozen=True, slots=True)
class Whole:
    """A graph as it is stored, with its past and the notes that are open about it."""

    record: GraphRecord
    past: Past
    notes: Mapping[str, int]

    @property
    def is_loading(self) -> bool:
        """Whether it is still being loaded: its first event comes with the commit that opens it."""
        return self.record.loader is not None and not self.past.events

    @property
    def canceled_ms(self) -> int | None:
        """When it was canceled, as its events tell it."""
        is_told = self.past.events > 0 and self.past.torn is None
        return self.past.canceled_ms if is_told else self.record.canceled_ms

    @property
    def is_hushed(self) -> bool:
        """Whether it is canceled: then nobody in it is told anything."""
        return self.canceled_ms is not None

    def hides(self, task: TaskRow, past: Past) -> bool:
        """Tell whether a task is still being loaded: nothing happens to it before it is shown."""
        return task.hidden == 1 and not past.events and not _HIDING.isdisjoint(self.notes)

    def loses(self, task: TaskRow) -> bool:
        """Tell whether a task may be about to be dropped, page by page, and its prerequisites are gone before it."""
        return self.is_loading or (task.hidden == 1 and DROP in self.notes)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the numbers of some tasks follow from."""

    asked: Mapping[int, AskedRow]
    definitions: Mapping[int, Task]  # those that can be read
    pasts: Mapping[int, Past]
    tried: Mapping[int, Sequence[TriedRow]]
    edges: Mapping[int, InEdges]  # as they are stored
    wanted: Mapping[int, InEdges]  # as they should be, where that is known
    unnamed: Mapping[int, Sequence[str]]  # labels that tasks require and nobody has
    mutexes: Mapping[int, Sequence[Mutex]]
    limits: Mapping[int, Sequence[tuple[str, int]]]
    heard: Mapping[int, Edges]
    handlers: Mapping[int, Handlers]
    tellings: Mapping[int, TellingRow]
    queues: Mapping[str, int]
    pools: Mapping[str, bool]  # whether each pool that was ever described has a capacity
    unentered: bool  # some pool has tasks that do not know of its capacity, and a pass will tell them
    seen: Mapping[str, int]  # when bots were last heard of
    since_ms: int  # since when the service is up


def wholes(txn: Txn, records: Sequence[GraphRecord]) -> dict[int, Whole]:
    """Read what is known about graphs."""
    if not records:
        return {}
    ids = [one.id for one in records]
    told, notes = pasts(txn, ids, None), txn.care.notes(min(ids), max(ids))
    return {one.id: Whole(one, told[one.id], notes.get(one.id, {})) for one in records}


def gather(txn: Txn, tasks: Sequence[TaskRow], graphs: Mapping[int, Whole]) -> Evidence:
    """Read what the numbers of tasks follow from; `graphs` has the graph of each."""
    ids = [task.id for task in tasks]
    asked, told = txn.care.definitions(ids), pasts(txn, ids, BORN)
    definitions = dict(_readable(asked.values()))
    edges, wanted, unnamed = _edges(txn, tasks, definitions, graphs, told)
    right = [task for task in tasks if task.id not in wanted or wanted[task.id].keys() == edges[task.id].keys()]
    telling = [task for task in tasks if not graphs[task.graph_id].is_hushed]
    return Evidence(
        asked,
        definitions,
        told,
        _tried(txn, ids),
        edges,
        wanted,
        unnamed,
        txn.passes.mutexes_of(ids),
        txn.passes.limits_of(ids),
        _heard(txn, [task.id for task in right if _follows(task, graphs[task.graph_id], len(edges[task.id]))]),
        _handlers(txn, {task.id: told[task.id].round for task in telling if task.state in UNSUCCESSFUL}),
        {row.task: row for row in txn.care.tellings(ids, TELL)},
        txn.queues.with_dimensions(
            {dimensions_text(one.dimensions) for each in definitions.values() for one in each.slices}
        ),
        {pool.name: pool.from_bots or pool.capacity is not None for pool in txn.passes.pools()},
        txn.care.is_stirred(UNENTERED),
        txn.care.seen({task.bot_id for task in tasks if task.bot_id is not None}),
        txn.notes.service().since_ms,
    )


def _readable(asked: Iterable[AskedRow]) -> Iterable[tuple[int, Task]]:
    for row in asked:
        try:
            yield row.id, decoded(row.definition)
        except msgspec.MsgspecError:
            continue


def _follows(task: TaskRow, graph: Whole, edges: int) -> bool:
    """Tell whether what the edges of a task know follows from its prerequisites now, or is wrong by any account.

    Who is under way or ended is told nothing: what its edges knew then is kept, and only its sum can be wrong.
    """
    if graph.loses(task):
        return False
    listens = task.state in LISTENING and not graph.is_hushed
    return listens or task.awaited + task.met + task.broken + task.impossible != edges


def _tried(txn: Txn, ids: Sequence[int]) -> dict[int, list[TriedRow]]:
    found: dict[int, list[TriedRow]] = defaultdict(list)
    task, number = -1, 0
    while ids and (page := txn.care.attempts(ids, task, number, ATTEMPTS_MAX)):
        for row in page:
            found[row.task_id].append(row)
        task, number = page[-1].task_id, page[-1].number
    return found


# Edges.


def _edges(
    txn: Txn,
    tasks: Sequence[TaskRow],
    definitions: Mapping[int, Task],
    graphs: Mapping[int, Whole],
    told: Mapping[int, Past],
) -> tuple[dict[int, InEdges], dict[int, InEdges], dict[int, list[str]]]:
    """Read the in-edges of tasks; say which they should be, and which labels are missing for that.

    In a canceled graph nobody notes any more who dealt with what.
    """
    found = txn.care.edges([task.id for task in tasks])
    stored: dict[int, InEdges] = {task.id: found.get(task.id, {}) for task in tasks}
    defined = [task for task in tasks if task.id in definitions and not graphs[task.graph_id].loses(task)]
    named = _named(txn, defined, definitions)
    unnamed = {
        task.id: [edge.task for edge in definitions[task.id].requires if edge.task not in named[task.graph_id]]
        for task in defined
    }
    ran = _rounds(txn, [task for task in defined if not graphs[task.graph_id].is_hushed], definitions, named, told)
    wanted: dict[int, InEdges] = {}
    for task in defined:
        if not unnamed[task.id]:
            ends = [(named[task.graph_id][edge.task], edge.on) for edge in definitions[task.id].requires]
            is_told = not graphs[task.graph_id].is_hushed and told[task.id].is_whole(task.state)
            kept = ran[task.id] if is_told else stored[task.id]
            wanted[task.id] = {
                (id, on.text): kept.get((id, on.text)) if on is not On.SUCCESS else None for id, on in ends
            }
    return stored, wanted, {id: labels for id, labels in unnamed.items() if labels}


def _named(txn: Txn, tasks: Iterable[TaskRow], definitions: Mapping[int, Task]) -> dict[int, dict[str, int]]:
    """Find the ids of the labels that tasks require, by graph."""
    labels: dict[int, set[str]] = defaultdict(set)
    for task in tasks:
        labels[task.graph_id].update(edge.task for edge in definitions[task.id].requires)
    return {graph: txn.tasks.with_labels(graph, wanted) for graph, wanted in labels.items()}


def _rounds(
    txn: Txn,
    tasks: Iterable[TaskRow],
    definitions: Mapping[int, Task],
    named: Mapping[int, Mapping[str, int]],
    told: Mapping[int, Past],
) -> dict[int, dict[tuple[int, str], int | None]]:
    """Say for which round of each prerequisite the handlers among tasks last ran, as the events tell it."""
    handling = {
        task.id: [
            (named[task.graph_id][edge.task], edge.on.text)
            for edge in definitions[task.id].requires
            if edge.on is not On.SUCCESS and edge.task in named[task.graph_id]
        ]
        for task in tasks
    }
    ran = {id: ends for id, ends in handling.items() if ends and told[id].ran_until}
    before = pasts(txn, sorted({prerequisite for ends in ran.values() for prerequisite, _ in ends}), BORN)
    rounds: dict[int, dict[tuple[int, str], int | None]] = {id: {} for id in handling}
    for id, ends in ran.items():
        rounds[id] = {end: before[end[0]].round_at(told[id].ran_until) for end in ends}
    return rounds


def _heard(txn: Txn, ids: Sequence[int]) -> dict[int, Edges]:
    counts: dict[int, dict[EdgeState, int]] = {id: dict.fromkeys(EdgeState, 0) for id in ids}
    for row in txn.care.heard(ids, TELL):
        counts[row.task][known(row.on, row.state)] += row.edges
    return {id: Edges(*each.values()) for id, each in counts.items()}


def _handlers(txn: Txn, rounds: Mapping[int, int]) -> dict[int, Handlers]:
    found = dict.fromkeys(rounds, Handlers())
    for row in txn.care.handlers(list(rounds), TELL):
        adds, had = counted(Handler(row.state, row.ran_for), rounds[row.task]), found[row.task]
        found[row.task] = Handlers(had.ran + adds.ran * row.handlers, had.hoped + adds.hoped * row.handlers)
    return found
