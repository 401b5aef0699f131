"""Everything that the numbers of some tasks follow from, read at once: what was asked for, what happened, what is open.

Nothing here compares or writes anything. What cannot be read is left out, and proves nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import msgspec

from taskyard.core.graph.gate import Edges, EdgeState, known
from taskyard.core.graph.model import Mutex, Task
from taskyard.core.graph.state import Handler, Handlers, counted
from taskyard.core.ids import Key, text_of
from taskyard.core.states import UNSUCCESSFUL, On
from taskyard.lifecycle.admission.writes import UNENTERED
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.doctor import finding
from taskyard.lifecycle.doctor.finding import Finding, Value
from taskyard.lifecycle.doctor.history import BORN, End, Past, pasts, rounds_handled
from taskyard.lifecycle.failure_handlers import PROPAGATE, REPORT_RUN
from taskyard.lifecycle.rows import DROP, LOAD, SHOW
from taskyard.store.connection import Repo
from taskyard.store.repo.bots import encode_dimensions
from taskyard.store.repo.doctor import AskedRow, TaskRow, TellingRow, TriedRow
from taskyard.store.rows import GraphRecord

#: How many attempts are read at once, and how many pasts are in memory beside those of the tasks in question.
ATTEMPTS_MAX: Final = 5_000
PASTS_MAX: Final = 500
#: While one of these is open about a graph, some of its tasks may be hidden.
_HIDING: Final = frozenset({LOAD, SHOW, DROP})

#: The in-edges of a task: by prerequisite and end, for which round of the prerequisite the task ran.
InEdges: TypeAlias = Mapping[tuple[int, str], int | None]
#: For which round of a prerequisite a task can have run last, the earliest first; empty where nobody knows.
Rounds: TypeAlias = tuple[int | None, ...]


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
        return task.loading == 1 and not past.events and not _HIDING.isdisjoint(self.notes)

    def loses(self, task: TaskRow) -> bool:
        """Tell whether a task may be about to be dropped, page by page, and its prerequisites are gone before it."""
        return self.is_loading or (task.loading == 1 and DROP in self.notes)


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
    since_ms: int  # since when the server is up that was started last


def wholes(repo: Repo, records: Sequence[GraphRecord]) -> dict[int, Whole]:
    """Read what is known about graphs."""
    if not records:
        return {}
    ids = [one.id for one in records]
    told, notes = pasts(repo, ids, None), repo.doctor.notes(min(ids), max(ids))
    return {one.id: Whole(one, told[one.id], notes.get(one.id, {})) for one in records}


def gather(repo: Repo, tasks: Sequence[TaskRow], graphs: Mapping[int, Whole]) -> Evidence:
    """Read what the numbers of tasks follow from; `graphs` has the graph of each."""
    ids = [task.id for task in tasks]
    asked, told = repo.doctor.definitions(ids), pasts(repo, ids, BORN)
    definitions = dict(_readable(asked.values()))
    edges, wanted, unnamed = _edges(repo, tasks, definitions, graphs, told)
    right = [task for task in tasks if task.id not in wanted or wanted[task.id].keys() == edges[task.id].keys()]
    telling = [task for task in tasks if not graphs[task.graph_id].is_hushed]
    return Evidence(
        asked,
        definitions,
        told,
        _tried(repo, ids),
        edges,
        wanted,
        unnamed,
        repo.admission.mutexes_of(ids),
        repo.admission.limits_of(ids),
        _heard(repo, [task.id for task in right if _follows(task, graphs[task.graph_id], len(edges[task.id]))]),
        _handlers(repo, {task.id: told[task.id].round for task in telling if task.state in UNSUCCESSFUL}),
        {row.task: row for row in repo.doctor.tellings(ids, PROPAGATE)},
        repo.queues.with_dimensions(
            {encode_dimensions(one.dimensions) for each in definitions.values() for one in each.slices}
        ),
        {pool.name: pool.from_bots or pool.capacity is not None for pool in repo.admission.pools()},
        repo.doctor.is_stirred(UNENTERED),
        repo.doctor.seen({task.bot_id for task in tasks if task.bot_id is not None}),
        max((one.since_ms for one in repo.servers.all().values()), default=0),
    )


def _readable(asked: Iterable[AskedRow]) -> Iterable[tuple[int, Task]]:
    for row in asked:
        try:
            yield row.id, decoded(row.definition)
        except msgspec.MsgspecError:
            continue


def _follows(task: TaskRow, graph: Whole, edges: int) -> bool:
    """Tell whether what the edges of a task know follows from its prerequisites now, or is wrong by any account.

    In a canceled graph nobody is told anything: what edges knew then is kept, and only its sum can be wrong.
    """
    if graph.loses(task):
        return False
    return not graph.is_hushed or task.awaited + task.met + task.broken + task.impossible != edges


def _tried(repo: Repo, ids: Sequence[int]) -> dict[int, list[TriedRow]]:
    found: dict[int, list[TriedRow]] = defaultdict(list)
    task, number = -1, 0
    while ids and (page := repo.doctor.attempts(ids, task, number, ATTEMPTS_MAX)):
        for row in page:
            found[row.task_id].append(row)
        task, number = page[-1].task_id, page[-1].number
    return found


# Edges.


def _edges(
    repo: Repo,
    tasks: Sequence[TaskRow],
    definitions: Mapping[int, Task],
    graphs: Mapping[int, Whole],
    told: Mapping[int, Past],
) -> tuple[dict[int, InEdges], dict[int, InEdges], dict[int, list[str]]]:
    """Read the in-edges of tasks; say which they should be, and which labels are missing for that.

    In a canceled graph nobody notes any more who dealt with what.
    """
    found = repo.doctor.edges([task.id for task in tasks])
    stored: dict[int, InEdges] = {task.id: found.get(task.id, {}) for task in tasks}
    defined = [task for task in tasks if task.id in definitions and not graphs[task.graph_id].loses(task)]
    named = _named(repo, defined, definitions)
    unnamed = {
        task.id: [edge.task for edge in definitions[task.id].requires if edge.task not in named[task.graph_id]]
        for task in defined
    }
    heard = [task for task in defined if not graphs[task.graph_id].is_hushed and told[task.id].is_whole(task.state)]
    ran = _rounds(repo, heard, definitions, named, told)
    wanted: dict[int, InEdges] = {}
    for task in defined:
        if not unnamed[task.id]:
            ends = [(named[task.graph_id][edge.task], edge.on) for edge in definitions[task.id].requires]
            wanted[task.id] = _ran_for(ends, stored[task.id], ran.get(task.id))
    return stored, wanted, {id: labels for id, labels in unnamed.items() if labels}


def _named(repo: Repo, tasks: Iterable[TaskRow], definitions: Mapping[int, Task]) -> dict[int, dict[str, int]]:
    """Find the ids of the labels that tasks require, by graph."""
    labels: dict[int, set[str]] = defaultdict(set)
    for task in tasks:
        labels[task.graph_id].update(edge.task for edge in definitions[task.id].requires)
    return {graph: repo.tasks.with_labels(graph, wanted) for graph, wanted in labels.items()}


def _rounds(
    repo: Repo,
    tasks: Iterable[TaskRow],
    definitions: Mapping[int, Task],
    named: Mapping[int, Mapping[str, int]],
    told: Mapping[int, Past],
) -> dict[int, dict[int, Rounds]]:
    """Say for which round of each prerequisite the handlers among tasks can have run last, as the events tell it.

    A prerequisite that an open note has not reached has not heard of the latest run.
    """
    handled = {
        task.id: {
            named[task.graph_id][edge.task]
            for edge in definitions[task.id].requires
            if edge.on is not On.SUCCESS and edge.task in named[task.graph_id]
        }
        for task in tasks
    }
    ran = [id for id, prerequisites in handled.items() if prerequisites and told[id].runs]
    failures = _failures(repo, sorted({prerequisite for id in ran for prerequisite in handled[id]}))
    late = [note for note in repo.continuations.of_tasks(ran) if note.kind == REPORT_RUN]
    rounds: dict[int, dict[int, Rounds]] = {id: dict.fromkeys(handled[id], (None,)) for id in handled}
    for id in ran:
        runs, cursors = told[id].runs, [note.cursor for note in late if note.task == id]
        for prerequisite in handled[id]:
            known_runs = runs[: len(runs) - sum(cursor <= prerequisite for cursor in cursors)]
            failed = failures[prerequisite]
            rounds[id][prerequisite] = () if failed is None else rounds_handled(known_runs, failed)
    return rounds


def _failures(repo: Repo, ids: Sequence[int]) -> dict[int, Sequence[End] | None]:
    """Read when tasks ended badly; None of those whose events do not follow from each other."""
    found: dict[int, Sequence[End] | None] = {}
    for start in range(0, len(ids), PASTS_MAX):
        for id, past in pasts(repo, ids[start : start + PASTS_MAX], BORN).items():
            found[id] = past.failures if past.torn is None else None
    return found


def _ran_for(ends: Sequence[tuple[int, On]], stored: InEdges, rounds: Mapping[int, Rounds] | None) -> InEdges:
    """Give in-edges with the round for which their task ran; without `rounds` as they are stored.

    Where the events allow several, the one that is stored is believed. If none of them is, it is the earliest: so a
    failure rather blocks its graph than is forgotten.
    """
    kept: dict[int, set[int | None]] = defaultdict(set)
    for id, on in ends:
        if on is not On.SUCCESS and (id, on.text) in stored:
            kept[id].add(stored[id, on.text])
    wanted: dict[tuple[int, str], int | None] = {}
    for id, on in ends:
        possible = () if rounds is None else rounds.get(id, (None,))
        fitting = kept[id].intersection(possible)
        told = next(iter(fitting if len(fitting) == 1 else possible), stored.get((id, on.text)))
        wanted[id, on.text] = None if on is On.SUCCESS else told
    return wanted


def _heard(repo: Repo, ids: Sequence[int]) -> dict[int, Edges]:
    counts: dict[int, dict[EdgeState, int]] = {id: dict.fromkeys(EdgeState, 0) for id in ids}
    for row in repo.doctor.heard(ids, PROPAGATE):
        counts[row.task][known(row.on, row.state)] += row.edges
    return {id: Edges(*each.values()) for id, each in counts.items()}


def _handlers(repo: Repo, rounds: Mapping[int, int]) -> dict[int, Handlers]:
    found = dict.fromkeys(rounds, Handlers())
    for row in repo.doctor.handlers(list(rounds), PROPAGATE):
        adds, had = counted(Handler(row.state, row.handled_round), rounds[row.task]), found[row.task]
        found[row.task] = Handlers(had.ran + adds.ran * row.handlers, had.hoped + adds.hoped * row.handlers)
    return found


# What belongs to a task and stands in rows of its own: its name, its graph, its edges, its mutexes and its demands.
#
# All of it follows from the definition, which is the truth. To which graph a task belongs is said in three places, and
# two of them outvote the third.


Name = TypeVar("Name", bound=Hashable)
Kept = TypeVar("Kept")


def graph_of(task: TaskRow, known: Evidence) -> int | None:
    """Say to which graph a task belongs: as most of its row, its definition and its events say; None if none do."""
    asked, told = known.asked.get(task.id), known.pasts[task.id].graphs
    said = Counter([task.graph_id])
    said.update([] if asked is None else [asked.graph_id])
    said.update([told.most_common(1)[0][0]] if told else [])
    (graph, votes), *_ = said.most_common(1)
    return graph if votes > 1 or len(said) == 1 else None


def belongings(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    """Say what is wrong with the rows beside a task."""
    yield from _graphs(task, known)
    definition = known.definitions.get(task.id)
    if definition is None:
        return
    if known.asked[task.id].label != definition.label:
        yield Finding(finding.DEFINITION, task.id, "label", known.asked[task.id].label, definition.label)
    for label in known.unnamed.get(task.id, ()):
        yield Finding(finding.EDGE, task.id, f"to {label}", None, "a task of that name", mendable=False)
    yield from _belongings_edges(task, known)
    for key, have, want in _unlike(_mutexes(task, known), {one.key: _party(one.party) for one in definition.mutexes}):
        yield Finding(finding.TASK_MUTEX, task.id, key, have, want)
    for name, before, after in _unlike(dict(known.limits.get(task.id, ())), dict(definition.limits)):
        yield Finding(finding.TASK_LIMIT, task.id, name, before, after)


def mend(repo: Repo, task: TaskRow, known: Evidence) -> list[Finding]:
    """Write the rows beside a task as they should be; say what was wrong with them."""
    found = [one for one in belongings(task, known) if one.mendable]
    kinds = {one.kind for one in found}
    graph, definition = graph_of(task, known), known.definitions.get(task.id)
    if finding.EVENT in kinds and graph is not None:
        repo.doctor.mend_events([(task.id, graph)])
    if finding.DEFINITION in kinds:
        asked = known.asked[task.id]
        label = asked.label if definition is None else definition.label
        repo.doctor.mend_definitions([(task.id, asked.graph_id if graph is None else graph, label)])
    if finding.EDGE in kinds:
        _mend_edges(repo, task, known)
    if definition is not None and finding.TASK_MUTEX in kinds:
        mutexes = {one.key: one.party for one in definition.mutexes}
        gone = [(task.id, key) for key in _mutexes(task, known) if key not in mutexes]
        repo.doctor.mend_mutexes([(task.id, *one) for one in mutexes.items()], gone)
    if definition is not None and finding.TASK_LIMIT in kinds:
        limits = dict(definition.limits)
        unasked = [(task.id, name) for name, _ in known.limits.get(task.id, ()) if name not in limits]
        repo.doctor.mend_limits([(task.id, *one) for one in limits.items()], unasked)
    return found


def edges_to_mend(task: TaskRow, known: Evidence) -> set[tuple[tuple[int, str], int | None]]:
    """Give the in-edges of a task that are there and should not be so, and those that should be and are not there."""
    have = known.edges[task.id]
    return set(have.items() ^ known.wanted.get(task.id, have).items())


def _graphs(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    graph, asked = graph_of(task, known), known.asked.get(task.id)
    if graph is None:
        other = None if asked is None else text_of(Key(asked.graph_id))
        yield Finding(finding.TASK, task.id, "graph_id", text_of(Key(task.graph_id)), other, mendable=False)
        return
    wrong = {one for one in known.pasts[task.id].graphs if one != graph}
    for kind, stored in (
        (finding.DEFINITION, graph if asked is None else asked.graph_id),
        (finding.EVENT, next(iter(wrong), graph)),
    ):
        if stored != graph:
            yield Finding(kind, task.id, "graph_id", text_of(Key(stored)), text_of(Key(graph)))


def _belongings_edges(task: TaskRow, known: Evidence) -> Iterator[Finding]:
    have, want = known.edges[task.id], known.wanted.get(task.id)
    if want is None:
        return
    for prerequisite, on in sorted(have.keys() | want.keys()):
        end, name = (prerequisite, on), text_of(Key(prerequisite))
        if (end in have) is not (end in want):
            words = ("there", None) if end in have else (None, "there")
            yield Finding(finding.EDGE, task.id, f"{on} of {name}", *words)
        elif have[end] != want[end]:
            yield Finding(finding.EDGE, task.id, f"handled_round {on} of {name}", have[end], want[end])


def _mend_edges(repo: Repo, task: TaskRow, known: Evidence) -> None:
    want, wrong = known.wanted.get(task.id, {}), edges_to_mend(task, known)
    there = [
        (id, task.id, on, handled_round)
        for (id, on), handled_round in want.items()
        if ((id, on), handled_round) in wrong
    ]
    gone = [(id, task.id, on) for (id, on), _ in wrong if (id, on) not in want]
    repo.doctor.mend_edges(there, gone)


def _mutexes(task: TaskRow, known: Evidence) -> dict[str, Value]:
    return {one.key: _party(one.party) for one in known.mutexes.get(task.id, ())}


def _party(party: str | None) -> Value:
    return "alone" if party is None else f"shared by {party}"


def _unlike(have: Mapping[Name, Kept], want: Mapping[Name, Kept]) -> Iterator[tuple[Name, Kept | None, Kept | None]]:
    """Name what two mappings do not have alike."""
    for name in sorted({*have, *want}, key=str):
        if have.get(name) != want.get(name):
            yield name, have.get(name), want.get(name)
