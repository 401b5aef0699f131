"""Verbs about the work: tasks, graphs, edges."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum, auto
from itertools import accumulate
from typing import Final

import msgspec

from taskyard.core.graph.state import Tally
from taskyard.core.states import FINAL, GraphState, Millis, On, Signal, State
from taskyard.core.structs import struct_replace, value
from taskyard.store.queries import SQLITE, Row, Session, statements
from taskyard.store.row_cache import RowCache
from taskyard.store.rows import GraphRecord, TaskRecord, graph_record, new_task_record, task_record

#: How many edges are dropped with a page of tasks; one task may have more.
DROPPED_EDGES_MAX: Final = 4_000

_ONS = {on.value: on for on in On}
_STATES = {state.value: state for state in State}
_BORN = State.UNSCHEDULED.text
_STATE, _AWAITED = (
    [name for name, _ in statements(SQLITE)["insert_tasks"].parameters].index(name) for name in ("state", "awaited")
)
_DELETES = (
    "delete_edges_into", "delete_edges_out_of", "delete_mutexes", "delete_limits", "delete_definitions",
    "delete_reuses", "delete_copied_results", "delete_tasks",
)  # fmt: skip


class MoveKind(IntEnum):
    """Which columns of a task its moves can have changed."""

    ANY = auto()
    READY = auto()  # it was released, admitted or both
    STARTED = auto()  # its attempt began
    SENT = auto()  # it was released and admitted, and its attempt began
    ENDED = auto()  # its attempt ended well


#: The statement for each shape, and how a task is spelled for it.
_SHAPED = {
    MoveKind.ANY: ("move_tasks", TaskRecord.carried),
    MoveKind.READY: ("move_ready_tasks", TaskRecord.ready),
    MoveKind.STARTED: ("move_started_tasks", TaskRecord.started),
    MoveKind.SENT: ("move_sent_tasks", TaskRecord.sent),
    MoveKind.ENDED: ("move_ended_tasks", TaskRecord.ended),
}


class TaskRepo:
    """What the table `task` and those beside it can be asked and told."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def read(self, ids: Collection[int]) -> list[TaskRecord]:
        """Read tasks, in the order of their ids; nobody else moves them before this transaction ends."""
        return [task_record(row) for row in self._session.fetch("lock_tasks", ids)] if ids else []

    def prefetch(self, ids: Collection[int]) -> None:
        """Hint: these will be recalled."""
        unknown = [id for id in ids if id not in self._cache.tasks]
        if unknown:
            self._session.prefetch("lock_tasks", unknown)

    def get(self, ids: Collection[int]) -> dict[int, TaskRecord]:
        """Give tasks as this transaction has made them; whoever is not known by heart is looked at."""
        known = self._cache.tasks
        found = {id: known[id] for id in ids if id in known}
        if len(found) < len(ids):
            for task in self.read([id for id in ids if id not in known]):
                known[task.id] = task
            found = {id: known[id] for id in ids if id in known}
        return found

    def cached(self, id: int) -> TaskRecord | None:
        """Give a task if it is known by heart: it may not be written yet."""
        return self._cache.tasks.get(id)

    def write_moved(self, moved: Sequence[tuple[TaskRecord, State]], shape: MoveKind = MoveKind.ANY) -> None:
        """Write tasks that moved, each with the last state it came from; refuse if one is not where it was looked at.

        The `shape` says which columns changed.
        """
        name, spelled = _SHAPED[shape]
        self._session.update_all(name, [spelled(task, source) for task, source in moved])
        for task, _ in moved:
            task.stored = task.life.state

    def write_edge_counts(self, tasks: Sequence[TaskRecord]) -> None:
        """Write what the edges of tasks know."""
        rows = [(t.id, t.edges.awaited, t.edges.met, t.edges.broken, t.edges.impossible) for t in tasks]
        self._session.execute_many("update_edge_counts", rows)

    def write_unmoved(self, changed: Sequence[TaskRecord]) -> None:
        """Write what changed about tasks that did not move."""
        self._session.update_all("update_unmoved_tasks", [task.kept() for task in changed])

    def add(self, rows: Sequence[Row]) -> None:
        """Insert tasks as they are born. Those that await nobody are wanted next, so they are known at once."""
        self._session.execute_many("insert_tasks", rows)
        if self._cache.has_room(len(rows)):
            free = (row for row in rows if row[_AWAITED] == 0 and row[_STATE] == _BORN)
            self._cache.tasks |= {row[0]: new_task_record(row) for row in free}

    def add_definitions(self, rows: Sequence[Row]) -> None:
        """Insert what was asked for: id, graph, label, definition, digest, submitter."""
        self._session.execute_many("insert_definitions", rows)

    def add_mutexes(self, rows: Sequence[Row]) -> None:
        """Insert mutexes: task, key, party."""
        self._session.execute_many("insert_mutexes", rows)

    def add_limits(self, rows: Sequence[Row]) -> None:
        """Insert demands: task, name, amount."""
        self._session.execute_many("insert_limits", rows)

    def definitions(self, ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """Read the label and the definition of tasks."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_definitions", ids)} if ids else {}

    def owned_definitions(self, ids: Collection[int]) -> dict[int, tuple[str, str, str]]:
        """Read the label and the definition of tasks, and who submitted them."""
        return (
            {row[0]: (row[1], row[2], row[3]) for row in self._session.fetch("select_definitions", ids)} if ids else {}
        )

    def definitions_of(self, graph: int) -> list[tuple[int, str, str, str | None]]:
        """Read every definition of a graph: id, label, definition, digest."""
        return [
            (row[0], row[1], row[2], row[3]) for row in self._session.fetch("select_graph_tasks_definitions", graph)
        ]

    def with_labels(self, graph: int, labels: Collection[str]) -> dict[str, int]:
        """Find tasks of a graph by their labels."""
        return {row[0]: row[1] for row in self._session.fetch("select_tasks_by_label", graph, labels)} if labels else {}

    def page(self, graph: int, states: Iterable[State], after: int, count: int) -> list[int]:
        """Name tasks of a graph that are in one of `states`, with ids beyond `after`."""
        found = self._session.fetch("select_task_page", graph, [str(state) for state in states], after, count)
        return [row[0] for row in found]

    def page_any_state(self, graph: int, after: int, count: int) -> list[tuple[int, State]]:
        """Read where the next tasks of a graph are, with ids beyond `after`: what it costs follows from `count`."""
        return [
            (row[0], _STATES[row[1]]) for row in self._session.fetch("select_task_states_page", graph, after, count)
        ]

    def roots(self, graph: int, state: State, after: int, count: int) -> list[tuple[int, bool]]:
        """Name `count` tasks of a graph beyond `after`, and tell of each whether it is in `state` and awaits nobody."""
        return [
            (row[0], row[1] == 1) for row in self._session.fetch("select_roots_page", graph, str(state), after, count)
        ]

    def loading(self, graph: int, after: int, count: int) -> list[int]:
        """Name tasks of a graph that are still being loaded, with ids beyond `after`."""
        return [row[0] for row in self._session.fetch("select_loading_page", graph, after, count)]

    def mark_loaded(self, ids: Collection[int]) -> None:
        """Tasks are loaded."""
        self._session.execute_many("mark_tasks_loaded", [(id,) for id in ids])
        self._cache.mark_stale()

    def due(self, now: Millis, count: int) -> dict[int, Millis]:
        """Name the tasks about which the clock has something to say, and since when; the longest due first."""
        return {row[0]: row[1] for row in self._session.fetch("select_due_tasks", now, count)}

    def leased_by(self, bots: Collection[str], count: int) -> list[tuple[int, str]]:
        """Name at most `count` of what bots have."""
        return [(row[0], row[1]) for row in self._session.fetch("select_leased_tasks", bots, count)] if bots else []

    def leased_with_session(self, bots: Collection[str], count: int) -> list[tuple[int, str, str]]:
        """Name at most `count` of what bots have: task, bot, and the session in which it was taken."""
        return (
            [(row[0], row[1], row[2]) for row in self._session.fetch("select_leased_tasks_with_session", bots, count)]
            if bots
            else []
        )

    def end_leases(self, rows: Sequence[Row]) -> None:
        """End leases of bots, and leave the rest to the clock: bot, how the names of the sessions begin, until, due."""
        self._session.execute_many(
            "end_leases", [(bot, sessions, "/", until, due) for bot, sessions, until, due in rows]
        )
        self._cache.mark_stale()

    def claim_candidates(self, queues: Collection[int], count: int) -> list[Row]:
        """Name the first `count` of each queue: id, queue, priority, created, avoid_bot."""
        return self._session.fetch("claim_candidates", queues, count) if queues else []

    def waiting_of_kinds(self, queue: int, kinds: Collection[str], count: int) -> list[int]:
        """Name the first `count` of some kinds that wait in a queue; nobody else takes them up meanwhile."""
        return [row[0] for row in self._session.fetch("claim_kinds", queue, kinds, count)]

    def delete(self, ids: Collection[int]) -> None:
        """Forget tasks that nobody ever saw, and everything beside them."""
        for name in _DELETES if ids else ():
            self._session.execute(name, ids)
        self._cache.mark_stale()


class GraphRepo:
    """What the table `graph` and the one beside it can be asked and told."""

    __slots__ = ("_cache", "_session", "_tasks")

    def __init__(self, session: Session, cache: RowCache, tasks: TaskRepo) -> None:
        self._session = session
        self._cache = cache
        self._tasks = tasks

    def get(self, id: int) -> GraphRecord:
        """Give a graph as it was when this transaction first asked, or as the only writer knows it."""
        known = self._cache.graphs.get(id)
        if known is None:
            (known,) = self.peek([id])
            self._cache.graphs[id] = known
        return known

    def prefetch(self, ids: Collection[int]) -> None:
        """Hint: these will be recalled, each by itself."""
        for id in ids:
            if id not in self._cache.graphs:
                self._session.prefetch("select_graphs", [id])

    def get_locked(self, ids: Collection[int]) -> list[GraphRecord]:
        """Give graphs as they are now, in the order of their ids; nobody else changes them before this ends."""
        if not self._cache.is_authoritative:
            return self.read(ids)
        return [self.get(id) for id in sorted(ids)]

    def read(self, ids: Collection[int]) -> list[GraphRecord]:
        """Read graphs, in the order of their ids; nobody else changes them before this transaction ends."""
        return [graph_record(row) for row in self._session.fetch("lock_graphs", ids)] if ids else []

    def peek(self, ids: Collection[int]) -> list[GraphRecord]:
        """Read graphs as they are now, and keep nobody from changing them."""
        return [graph_record(row) for row in self._session.fetch("select_graphs", ids)] if ids else []

    def write_states(self, rows: Sequence[Row]) -> None:
        """Write what the moves of their tasks made of graphs: id, state, active, behind, unhandled, events, moved."""
        self._session.execute_many("update_graph_states", rows)
        graphs = self._cache.graphs
        for id, state, active, behind, unhandled, events, _ in rows:
            known = graphs.get(id)
            if known is not None:
                tally = Tally(active, behind, unhandled)
                graphs[id] = struct_replace(known, state=GraphState(state), tally=tally, events=events)

    def add(self, id: int, state: str, now: Millis, loader: str, inside: tuple[int, int] | None = None) -> bool:
        """Insert an empty graph that `loader` loads; tell whether it is new, and the first `inside` an attempt."""
        return self._session.execute("insert_graph", id, state, now, loader, *(inside or (None, None))) == 1

    def subgraphs(self, tasks: Collection[int]) -> dict[tuple[int, int], int]:
        """Find the whole graphs that attempts of tasks are, by task and attempt."""
        return {(row[0], row[1]): row[2] for row in self._session.fetch("select_subgraphs", tasks)} if tasks else {}

    def add_definition(self, id: int, row: Row) -> None:
        """Insert what was said about a graph: scheduler, name, routing, description, tags, digest."""
        self._session.execute("insert_graph_definition", id, *row)

    def pools_of(self, graphs: Collection[int]) -> dict[int, frozenset[str]]:
        """Read in which pools the tasks of graphs may run; graphs of which nothing is known are left out."""
        found: dict[int, set[str]] = defaultdict(set)
        for graph, pool in self._session.fetch("select_graph_pools", graphs) if graphs else ():
            found[graph].add(pool)
        return {graph: frozenset(pools) for graph, pools in found.items()}

    def add_pools(self, id: int, pools: Collection[str]) -> None:
        """Say in which pools tasks of a graph may run; nothing for those that are known."""
        self._session.execute_many("insert_graph_pools", [(id, pool) for pool in sorted(pools)])

    def definition(self, id: int) -> Row | None:
        """Read what was said about a graph."""
        found = self._session.fetch("select_graph_definition", id)
        return found[0] if found else None

    def set_loader(self, id: int, loader: str | None) -> None:
        """Say who loads a graph; nobody once it is whole."""
        self._session.execute("update_loader", id, loader)
        self._cache.graphs.pop(id, None)

    def set_created(self, id: int, now: Millis) -> None:
        """Say when a graph became whole."""
        self._session.execute("update_created", id, now)
        self._cache.graphs.pop(id, None)

    def count_extension(self, id: int, extensions: int) -> None:
        """Say how often a graph was extended."""
        self._session.execute("update_extensions", id, extensions)
        self._cache.graphs.pop(id, None)

    def mark_canceled(self, id: int, now: Millis) -> bool:
        """Keep the fact that a graph is canceled; tell whether it is news."""
        self._cache.graphs.pop(id, None)
        return self._session.execute("update_canceled", id, now) == 1

    def loading(self, before: Millis, count: int) -> list[tuple[int, str]]:
        """Name graphs whose loading began before a moment and never ended, with their loaders."""
        return [(row[0], row[1]) for row in self._session.fetch("select_stale_loads", before, count)]

    def delete_page(self, id: int, count: int) -> bool:
        """Forget tasks of a graph that never became whole, and the graph with the last; tell whether it is gone."""
        found = self._session.fetch("select_loaded_page", id, count)
        edges = list(accumulate(row[1] for row in found))
        ids = [row[0] for row in found[: max(1, bisect(edges, DROPPED_EDGES_MAX))]]
        self._tasks.delete(ids)
        gone = len(ids) == len(found) < count
        if gone:
            self._session.execute("delete_graph_definition", id)
            self._session.execute("delete_graph_pools", id)
            self._session.execute("delete_rerun", id)
            self._session.execute("delete_unloaded_graph", id)
            self._cache.graphs.pop(id, None)
        return gone


@value
class EdgeRow:
    """One edge."""

    prerequisite: int
    dependent: int
    on: On
    handled_round: int | None


@value
class InEdge:
    """One edge as its dependent sees it."""

    prerequisite: int
    dependent: int
    on: On
    handled_round: int | None
    state: State  # where the prerequisite is
    open_continuations: int  # how many notes of the prerequisite are open


class EdgeRepo:
    """What the table `edge` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Insert edges: prerequisite, dependent, on."""
        self._session.execute_many("insert_edges", rows)

    def prefetch(self, prerequisites: Collection[int], count: int) -> None:
        """Hint: these out-edges will be read."""
        self._session.prefetch("select_edges_out_of", prerequisites, count)

    def out_of(self, prerequisites: Collection[int], count: int) -> list[EdgeRow]:
        """Read at most `count` out-edges of tasks, by prerequisite and dependent."""
        return _edges(self._session.fetch("select_edges_out_of", prerequisites, count))

    def page_out_of(self, prerequisite: int, cursor: int, count: int) -> list[EdgeRow]:
        """Read at most `count` out-edges of one task, to dependents from `cursor` on."""
        return _edges(self._session.fetch("select_edges_out_of_page", prerequisite, cursor, count))

    def with_dependents(self, ids: Collection[int]) -> set[int]:
        """Name those of some tasks that somebody hangs on."""
        return {row[0] for row in self._session.fetch("select_tasks_with_dependents", ids)} if ids else set()

    def page_after(self, prerequisites: Collection[int], after: Row, count: int) -> list[tuple[int, int, str]]:
        """Read at most `count` out-edges of tasks beyond one of them: prerequisite, dependent, on."""
        return [
            (row[0], row[1], row[2]) for row in self._session.fetch("select_edges_after", prerequisites, *after, count)
        ]

    def into(self, dependents: Collection[int]) -> list[InEdge]:
        """Read the in-edges of tasks, and where their prerequisites are."""
        return _in_edges(self._session.fetch("select_edges_into", dependents)) if dependents else []

    def into_handlers(self, dependents: Collection[int]) -> list[InEdge]:
        """Read those in-edges of tasks over which they can deal with a failure that is there or may come."""
        if not dependents:
            return []
        return _in_edges(
            self._session.fetch(
                "select_edges_into_handlers", dependents, On.SUCCESS.value, [state.value for state in FINAL]
            )
        )

    def page_into(self, dependent: int, cursor: int, count: int) -> list[InEdge]:
        """Read at most `count` in-edges of one task, from prerequisites from `cursor` on."""
        return _in_edges(self._session.fetch("select_edges_into_page", dependent, cursor, count))

    def set_handled_rounds(self, rows: Sequence[Row]) -> None:
        """Keep for which round of its prerequisite a handler ran: prerequisite, dependent, on, round."""
        self._session.execute_many("update_handled_rounds", rows)


def _edges(rows: Sequence[Row]) -> list[EdgeRow]:
    return [EdgeRow(row[0], row[1], _ONS[row[2]], row[3]) for row in rows]


def _in_edges(rows: Sequence[Row]) -> list[InEdge]:
    return [InEdge(row[0], row[1], _ONS[row[2]], row[3], _STATES[row[4]], row[5]) for row in rows]


# Verbs about attempts: who took a task, when, and how that ended.


@value
class AttemptRow:
    """One attempt, as it was claimed and as it ended."""

    number: int
    bot: str
    session: str
    poll: str
    fence: int
    round: int
    slice_index: int
    claimed_ms: int
    ended_ms: int | None
    signal: str | None
    reason: str | None
    exit_code: int | None


class AttemptRepo:
    """What the table `attempt` and those beside it can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Insert attempts: task, number, bot, session, poll, fence, round, slice, claimed."""
        self._session.execute_many("insert_attempts", rows)

    def end(self, rows: Sequence[Row]) -> None:
        """Write how attempts ended, once each: task, number, ended, signal, reason, exit code."""
        self._session.update_all("end_attempts", rows)

    def count_lost(self, task: int, round: int, reasons: Collection[str]) -> int:
        """Count the attempts of a task that ended in a round for one of these reasons, and not by their bot's word."""
        return int(self._session.fetch("count_lost_attempts", task, round, Signal.LOSE.text, reasons)[0][0])

    def add_results(self, rows: Sequence[Row]) -> None:
        """Keep what attempts published: task, attempt, body."""
        self._session.execute_many("upsert_results", rows)

    def of(self, task: int) -> list[AttemptRow]:
        """Read every attempt of a task."""
        return [AttemptRow(*row) for row in self._session.fetch("select_attempts", task)]

    def leased_by_poll(self, bots: Collection[str]) -> list[tuple[str, str, int]]:
        """Name what bots still have: bot, the poll that gave it, task."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_leases_by_poll", bots)] if bots else []


# Verbs about graphs that run others again, and about tasks that are done because others were.


_LABELS = msgspec.json.Decoder(tuple[str, ...])


@value
class ReusedAttempt:
    """The attempt of a task that another one has its end from."""

    task: int
    graph: int
    attempt: int


@value
class RerunRow:
    """A graph that runs another again."""

    source: int
    labels: tuple[str, ...]  # from where on
    to_run: int  # how many tasks were born to run,
    reused: int  # and how many done


@value
class FinishedTaskRow:
    """A task, as somebody who might take over what it has done needs to know it."""

    id: int
    state: State
    attempt: int
    size: int | None  # of what it published, in characters
    source: ReusedAttempt | None  # where it has that from itself


class ReuseRepo:
    """What the tables `graph_rerun` and `task_reuse` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_rerun(self, graph: int, row: RerunRow) -> None:
        """Say that a graph runs another again."""
        labels = msgspec.json.encode(row.labels).decode()
        self._session.execute("insert_rerun", graph, row.source, labels, row.to_run, row.reused)

    def rerun(self, graph: int) -> RerunRow | None:
        """Read which graph a graph runs again."""
        found = self._session.fetch("select_rerun", graph)
        return RerunRow(found[0][0], _LABELS.decode(found[0][1]), *found[0][2:]) if found else None

    def add(self, rows: Sequence[Row]) -> None:
        """Say what tasks have their ends from: task, source, its graph, attempt."""
        self._session.execute_many("insert_reuses", rows)

    def copy_results(self, rows: Sequence[Row]) -> None:
        """Let tasks publish what others have published: task, the other, its attempt."""
        self._session.execute_many("copy_results", rows)

    def sources(self, ids: Collection[int]) -> dict[int, ReusedAttempt]:
        """Read what tasks have their ends from; whoever has run is not named."""
        return {row[0]: ReusedAttempt(*row[1:]) for row in self._session.fetch("select_reuses", ids)} if ids else {}

    def finished_tasks(self, graph: int, after: int, count: int) -> list[FinishedTaskRow]:
        """Read tasks of a graph beyond an id."""
        return [
            FinishedTaskRow(
                row[0], _STATES[row[1]], row[2], row[3], None if row[4] is None else ReusedAttempt(*row[4:])
            )
            for row in self._session.fetch("select_finished_tasks", graph, after, count)
        ]
