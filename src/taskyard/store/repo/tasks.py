"""Repositories of graphs, tasks, edges, attempts and reruns.

`read` takes row locks, which a read-only transaction leaves out; `get` uses the row cache; `peek` never locks.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum, auto
from hashlib import sha256
from itertools import accumulate
from typing import Final

import msgspec

from taskyard.core.graph.state import Tally
from taskyard.core.ids import BLOCK
from taskyard.core.states import FINAL, GraphState, Millis, On, Signal, State
from taskyard.core.structs import struct_replace, value
from taskyard.store.queries import SQLITE, Row, Session, statements
from taskyard.store.row_cache import RowCache
from taskyard.store.rows import GraphRecord, TaskRecord, graph_record, new_task_record, task_record

#: Who loads a graph that is being purged: it is hidden like one that is not loaded yet.
PURGED: Final = "purged"
#: How many edges are deleted with a page of tasks; one task may have more.
DELETED_EDGES_MAX: Final = 4_000

_ONS = {on.value: on for on in On}
_STATES = {state.value: state for state in State}
_NEW = State.UNSCHEDULED.text
_STATE, _AWAITED = (
    [name for name, _ in statements(SQLITE)["insert_tasks"].parameters].index(name) for name in ("state", "awaited")
)
_DELETES = (
    "delete_edges_into", "delete_edges_out_of", "delete_mutexes", "delete_limits", "delete_task_secrets",
    "delete_secret_bytes", "delete_definitions", "delete_reuses", "delete_copied_results", "delete_input_trees",
    "delete_attempt_files", "delete_artifacts", "delete_task_tags", "delete_links", "delete_resource_updates",
    "delete_reuse_followers", "clear_reuse_sources", "delete_reuse_sources", "delete_own_reuse_keys", "delete_tasks",
)  # fmt: skip


class MoveKind(IntEnum):
    """Which columns of a task its moves can have changed."""

    ANY = auto()
    READY = auto()  # released, admitted or both
    STARTED = auto()  # its attempt began
    SENT = auto()  # released and admitted, and its attempt began
    ENDED = auto()  # its attempt succeeded


#: The statement for each kind of moves, and the method that gives its parameters.
_STATEMENTS = {
    MoveKind.ANY: ("move_tasks", TaskRecord.move_row),
    MoveKind.READY: ("move_ready_tasks", TaskRecord.ready_row),
    MoveKind.STARTED: ("move_started_tasks", TaskRecord.started_row),
    MoveKind.SENT: ("move_sent_tasks", TaskRecord.sent_row),
    MoveKind.ENDED: ("move_ended_tasks", TaskRecord.ended_row),
}


class TaskRepo:
    """The table `task`, and the tables with one row or more per task."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def read(self, ids: Collection[int]) -> list[TaskRecord]:
        """Read and lock tasks, in order of their ids."""
        return [task_record(row) for row in self._session.fetch("lock_tasks", ids)] if ids else []

    def prefetch(self, ids: Collection[int]) -> None:
        """Hint that `get` follows."""
        missing = [id for id in ids if id not in self._cache.tasks]
        if missing:
            self._session.prefetch("lock_tasks", missing)

    def get(self, ids: Collection[int]) -> dict[int, TaskRecord]:
        """Return tasks as this transaction has changed them: from the cache, or read and locked."""
        known = self._cache.tasks
        found = {id: known[id] for id in ids if id in known}
        if len(found) < len(ids):
            for task in self.read([id for id in ids if id not in known]):
                known[task.id] = task
            found = {id: known[id] for id in ids if id in known}
        return found

    def cached(self, id: int) -> TaskRecord | None:
        """Return a task from the cache; its changes may not be written yet."""
        return self._cache.tasks.get(id)

    def write_moved(self, moved: Sequence[tuple[TaskRecord, State]], kind: MoveKind = MoveKind.ANY) -> None:
        """Write tasks that moved, each with the state it left last; conflict if one has moved in the meantime.

        `kind` says which columns changed.
        """
        name, parameters_of = _STATEMENTS[kind]
        self._session.update_all(name, [parameters_of(task, source) for task, source in moved])
        for task, _ in moved:
            task.stored = task.life.state

    def write_edge_counts(self, tasks: Sequence[TaskRecord]) -> None:
        """Write the edge counts of tasks."""
        rows = [(t.id, t.edges.awaited, t.edges.met, t.edges.broken, t.edges.impossible) for t in tasks]
        self._session.execute_many("update_edge_counts", rows)

    def write_unmoved(self, changed: Sequence[TaskRecord]) -> None:
        """Write tasks that changed without moving."""
        self._session.update_all("update_unmoved_tasks", [task.unmoved_row() for task in changed])

    def add(self, rows: Sequence[Row]) -> None:
        """Insert new tasks. Those that wait for no other task are needed next, so they are cached."""
        self._session.execute_many("insert_tasks", rows)
        if self._cache.has_room(len(rows)):
            roots = (row for row in rows if row[_AWAITED] == 0 and row[_STATE] == _NEW)
            self._cache.tasks |= {row[0]: new_task_record(row) for row in roots}

    def add_definitions(self, rows: Sequence[Row]) -> None:
        """Insert definitions: id, graph, label, definition, digest, submitter, user."""
        self._session.execute_many("insert_definitions", rows)

    def add_mutexes(self, rows: Sequence[Row]) -> None:
        """Insert mutexes: task, key, party."""
        self._session.execute_many("insert_mutexes", rows)

    def add_limits(self, rows: Sequence[Row]) -> None:
        """Insert used limits: task, name, amount."""
        self._session.execute_many("insert_limits", rows)

    def add_tags(self, rows: Sequence[Row]) -> None:
        """Insert tags: tag, last and first task of a run."""
        self._session.execute_many("insert_task_tags", rows)

    def definitions(self, ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """Return the label and the definition of tasks."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_definitions", ids)} if ids else {}

    def owned_definitions(self, ids: Collection[int]) -> dict[int, tuple[str, str, str]]:
        """Return the label, the definition and the submitter of tasks."""
        return (
            {row[0]: (row[1], row[2], row[3]) for row in self._session.fetch("select_definitions", ids)} if ids else {}
        )

    def definitions_of(self, graph: int) -> list[tuple[int, str, str, str | None]]:
        """Return the definitions of all tasks of a graph: id, label, definition, digest."""
        return [
            (row[0], row[1], row[2], row[3]) for row in self._session.fetch("select_graph_tasks_definitions", graph)
        ]

    def with_labels(self, graph: int, labels: Collection[str]) -> dict[str, int]:
        """Return the ids of tasks of a graph by label."""
        return {row[0]: row[1] for row in self._session.fetch("select_tasks_by_label", graph, labels)} if labels else {}

    def page(self, graph: int, states: Iterable[State], after: int, count: int) -> list[int]:
        """Return ids of tasks of a graph that are in one of `states`, after an id."""
        found = self._session.fetch("select_task_page", graph, [str(state) for state in states], after, count)
        return [row[0] for row in found]

    def page_any_state(self, graph: int, after: int, count: int) -> list[tuple[int, State]]:
        """Return ids and states of tasks of a graph, after an id; the cost depends on `count` alone."""
        return [
            (row[0], _STATES[row[1]]) for row in self._session.fetch("select_task_states_page", graph, after, count)
        ]

    def roots(self, graph: int, state: State, after: int, count: int) -> list[tuple[int, bool]]:
        """Return ids of tasks of a graph, after an id, and whether each is in `state` and waits for no other task."""
        return [
            (row[0], row[1] == 1) for row in self._session.fetch("select_roots_page", graph, str(state), after, count)
        ]

    def loading(self, graph: int, after: int, count: int) -> list[int]:
        """Return ids of tasks of a graph that are still being loaded, after an id."""
        return [row[0] for row in self._session.fetch("select_loading_page", graph, after, count)]

    def mark_loaded(self, ids: Collection[int]) -> None:
        """Mark tasks as loaded."""
        self._session.execute_many("mark_tasks_loaded", [(id,) for id in ids])
        self._cache.mark_stale()

    def due(self, now: Millis, count: int) -> dict[int, Millis]:
        """Return the tasks whose timer has run out, and when it did; longest due first."""
        return {row[0]: row[1] for row in self._session.fetch("select_due_tasks", now, count)}

    def holders(self, ids: Collection[int]) -> list[str]:
        """Return the bots that hold some of these tasks; it takes no lock."""
        return [row[0] for row in self._session.fetch("select_holders", ids)] if ids else []

    def leased_by(self, bots: Collection[str], count: int) -> list[tuple[int, str]]:
        """Return at most `count` tasks that bots hold: task, bot."""
        return [(row[0], row[1]) for row in self._session.fetch("select_leased_tasks", bots, count)] if bots else []

    def leased_with_session(self, bots: Collection[str], count: int) -> list[tuple[int, str, str]]:
        """Return at most `count` tasks that bots hold: task, bot, and the session that claimed it."""
        return (
            [(row[0], row[1], row[2]) for row in self._session.fetch("select_leased_tasks_with_session", bots, count)]
            if bots
            else []
        )

    def end_leases(self, rows: Sequence[Row]) -> None:
        """End leases of bots; timeouts do the rest.

        A row: bot, prefix of session names, the session that keeps its leases, lease end, due time.
        """
        self._session.execute_many(
            "end_leases", [(bot, sessions, kept, "/", until, due) for bot, sessions, kept, until, due in rows]
        )
        self._cache.mark_stale()

    def claim_candidates(self, queues: Collection[int], count: int) -> list[Row]:
        """Return the first `count` waiting tasks of each queue: id, queue, priority, created, bot to avoid."""
        return self._session.fetch("claim_candidates", queues, count) if queues else []

    def claim_window(self, queues: Collection[int], count: int) -> list[Row]:
        """Return the same tasks as `claim_candidates`, with two more columns: since when each waits, and its caches."""
        return self._session.fetch("claim_window", queues, count) if queues else []

    def any_with_caches(self, queues: Collection[int], count: int) -> bool:
        """Tell whether one of the first `count` waiting tasks of any of these queues uses caches."""
        return bool(queues and self._session.fetch("select_any_with_caches", queues, count))

    def caches_of(self, ids: Collection[int]) -> dict[int, str]:
        """Return the keys of the caches that tasks use; tasks without caches are left out."""
        return {row[0]: row[1] for row in self._session.fetch("select_task_caches", ids)} if ids else {}

    def first_queues(self, queues: Collection[int], count: int) -> list[Row]:
        """Return the queues whose first tasks come first, up to a count: queue, and priority, created, id of that task.

        The first task of a queue may be one that cannot be claimed.
        """
        return self._session.fetch("first_queues", queues, count)

    def waiting_of_kinds(self, queue: int, kinds: Collection[str], count: int) -> list[int]:
        """Return and lock the first `count` waiting tasks of some kinds in a queue."""
        return [row[0] for row in self._session.fetch("claim_kinds", queue, kinds, count)]

    def delete(self, ids: Collection[int]) -> None:
        """Delete tasks that were never visible, and all rows that belong to them."""
        for name in _DELETES if ids else ():
            self._session.execute(name, ids)
        self._cache.mark_stale()


class GraphRepo:
    """The tables `graph`, `graph_definition` and `graph_pool`."""

    __slots__ = ("_cache", "_session", "_tasks")

    def __init__(self, session: Session, cache: RowCache, tasks: TaskRepo) -> None:
        self._session = session
        self._cache = cache
        self._tasks = tasks

    def get(self, id: int) -> GraphRecord:
        """Return a graph from the cache, or read it without a lock."""
        known = self._cache.graphs.get(id)
        if known is None:
            (known,) = self.peek([id])
            self._cache.graphs[id] = known
        return known

    def prefetch(self, ids: Collection[int]) -> None:
        """Hint that `get` follows for each of these."""
        for id in ids:
            if id not in self._cache.graphs:
                self._session.prefetch("select_graphs", [id])

    def get_locked(self, ids: Collection[int]) -> list[GraphRecord]:
        """Return graphs as they are now, in order of their ids, safe from other transactions until this one ends."""
        if not self._cache.is_authoritative:
            return self.read(ids)
        return [self.get(id) for id in sorted(ids)]

    def read(self, ids: Collection[int]) -> list[GraphRecord]:
        """Read and lock graphs, in order of their ids."""
        return [graph_record(row) for row in self._session.fetch("lock_graphs", ids)] if ids else []

    def peek(self, ids: Collection[int]) -> list[GraphRecord]:
        """Read graphs without locking them."""
        return [graph_record(row) for row in self._session.fetch("select_graphs", ids)] if ids else []

    def write_states(self, rows: Sequence[Row]) -> None:
        """Write graphs after their tasks moved: id, state, active, behind, unhandled, events, moved."""
        self._session.execute_many("update_graph_states", rows)
        graphs = self._cache.graphs
        for id, state, active, behind, unhandled, events, _ in rows:
            known = graphs.get(id)
            if known is not None:
                tally = Tally(active, behind, unhandled)
                graphs[id] = struct_replace(known, state=GraphState(state), tally=tally, events=events)

    def add(self, id: int, state: str, now: Millis, loader: str, inside: tuple[int, int] | None = None) -> bool:
        """Insert an empty graph; False if the id exists, or the attempt that it is `inside` of has a graph already."""
        return self._session.execute("insert_graph", id, state, now, loader, *(inside or (None, None))) == 1

    def subgraphs(self, tasks: Collection[int]) -> dict[tuple[int, int], int]:
        """Return the completely loaded graphs that attempts of tasks run, by task and attempt."""
        return {(row[0], row[1]): row[2] for row in self._session.fetch("select_subgraphs", tasks)} if tasks else {}

    def add_definition(self, id: int, row: Row) -> None:
        """Insert the submitted fields of a graph: scheduler, name, routing, description, tags, digest."""
        self._session.execute("insert_graph_definition", id, *row)

    def pools_of(self, graphs: Collection[int]) -> dict[int, frozenset[str]]:
        """Return the pools in which tasks of graphs may run; unknown graphs are left out."""
        found: dict[int, set[str]] = defaultdict(set)
        for graph, pool in self._session.fetch("select_graph_pools", graphs) if graphs else ():
            found[graph].add(pool)
        return {graph: frozenset(pools) for graph, pools in found.items()}

    def add_pools(self, id: int, pools: Collection[str]) -> None:
        """Add pools in which tasks of a graph may run."""
        self._session.execute_many("insert_graph_pools", [(id, pool) for pool in sorted(pools)])

    def definition(self, id: int) -> Row | None:
        """Return the submitted fields of a graph."""
        found = self._session.fetch("select_graph_definition", id)
        return found[0] if found else None

    def set_loader(self, id: int, loader: str | None) -> None:
        """Set who loads a graph; None once it is loaded."""
        self._session.execute("update_loader", id, loader)
        self._cache.graphs.pop(id, None)

    def set_created(self, id: int, now: Millis) -> None:
        """Set when a graph was loaded completely."""
        self._session.execute("update_created", id, now)
        self._cache.graphs.pop(id, None)

    def count_extension(self, id: int, extensions: int) -> None:
        """Set how often a graph was extended."""
        self._session.execute("update_extensions", id, extensions)
        self._cache.graphs.pop(id, None)

    def mark_canceled(self, id: int, now: Millis) -> bool:
        """Mark a graph as canceled; False if it was canceled before."""
        self._cache.graphs.pop(id, None)
        return self._session.execute("update_canceled", id, now) == 1

    def loading(self, before: Millis, count: int) -> list[tuple[int, str]]:
        """Return graphs whose loading began before a time and has not ended, with their loaders."""
        found = self._session.fetch("select_stale_loads", before, PURGED, count)
        return [(row[0], row[1]) for row in found]

    def delete_page(self, id: int, count: int) -> bool:
        """Delete tasks of a graph that is not loaded completely, and at last the graph; True once it is deleted."""
        found = self._session.fetch("select_loaded_page", id, count)
        edges = list(accumulate(row[1] for row in found))
        ids = [row[0] for row in found[: max(1, bisect(edges, DELETED_EDGES_MAX))]]
        self._tasks.delete(ids)
        gone = len(ids) == len(found) < count
        if gone:
            self._session.execute("delete_graph_definition", id)
            self._session.execute("delete_graph_pools", id)
            self._session.execute("delete_rerun", id)
            self._session.execute("delete_child", id)
            self._session.execute("delete_launch", id)
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
    """One edge, with the state of its prerequisite."""

    prerequisite: int
    dependent: int
    on: On
    handled_round: int | None
    state: State  # of the prerequisite
    open_continuations: int  # of the prerequisite


class EdgeRepo:
    """The table `edge`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Insert edges: prerequisite, dependent, on."""
        self._session.execute_many("insert_edges", rows)

    def prefetch(self, prerequisites: Collection[int], count: int) -> None:
        """Hint that `out_of` follows."""
        self._session.prefetch("select_edges_out_of", prerequisites, count)

    def out_of(self, prerequisites: Collection[int], count: int) -> list[EdgeRow]:
        """Return at most `count` edges out of tasks, by prerequisite and dependent."""
        return _edges(self._session.fetch("select_edges_out_of", prerequisites, count))

    def page_out_of(self, prerequisite: int, cursor: int, count: int) -> list[EdgeRow]:
        """Return at most `count` edges out of one task, to dependents from `cursor` on."""
        return _edges(self._session.fetch("select_edges_out_of_page", prerequisite, cursor, count))

    def with_dependents(self, ids: Collection[int]) -> set[int]:
        """Return those of these tasks that have dependents."""
        return {row[0] for row in self._session.fetch("select_tasks_with_dependents", ids)} if ids else set()

    def page_after(self, prerequisites: Collection[int], after: Row, count: int) -> list[tuple[int, int, str]]:
        """Return at most `count` edges out of tasks, after one of them: prerequisite, dependent, on."""
        return [
            (row[0], row[1], row[2]) for row in self._session.fetch("select_edges_after", prerequisites, *after, count)
        ]

    def into(self, dependents: Collection[int]) -> list[InEdge]:
        """Return the edges into tasks, with the states of their prerequisites."""
        return _in_edges(self._session.fetch("select_edges_into", dependents)) if dependents else []

    def into_handlers(self, dependents: Collection[int]) -> list[InEdge]:
        """Return the edges by which these tasks may handle a failure that exists or can still occur."""
        if not dependents:
            return []
        return _in_edges(
            self._session.fetch(
                "select_edges_into_handlers", dependents, On.SUCCESS.value, [state.value for state in FINAL]
            )
        )

    def page_into(self, dependent: int, cursor: int, count: int) -> list[InEdge]:
        """Return at most `count` edges into one task, from prerequisites from `cursor` on."""
        return _in_edges(self._session.fetch("select_edges_into_page", dependent, cursor, count))

    def set_handled_rounds(self, rows: Sequence[Row]) -> None:
        """Set for which round of its prerequisite a failure handler ran: prerequisite, dependent, on, round."""
        self._session.execute_many("update_handled_rounds", rows)


def _edges(rows: Sequence[Row]) -> list[EdgeRow]:
    return [EdgeRow(row[0], row[1], _ONS[row[2]], row[3]) for row in rows]


def _in_edges(rows: Sequence[Row]) -> list[InEdge]:
    return [InEdge(row[0], row[1], _ONS[row[2]], row[3], _STATES[row[4]], row[5]) for row in rows]


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
    snapshot: int | None = None  # the id of what its bot was then
    claim_fence: int | None = None  # the fence of its claim, if a later session has adopted it


class AttemptRepo:
    """The tables `attempt`, `attempt_block` and `result`."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def add(self, rows: Sequence[Row]) -> None:
        """Insert attempts: task, number, bot, session, poll, fence, round, slice, claimed, snapshot of the bot."""
        if not rows:
            return
        self._session.execute_many("insert_attempts", rows)
        unknown = self._cache.unknown_blocks({(row[2], row[0] // BLOCK) for row in rows})
        # Two servers insert equal ones in one order, so they cannot wait for each other.
        self._session.execute_many("insert_attempt_blocks", unknown)

    def end(self, rows: Sequence[Row]) -> None:
        """End attempts that are open: task, number, ended, signal, reason, exit code."""
        self._session.update_all("end_attempts", rows)

    def count_lost(self, task: int, round: int, reasons: Collection[str]) -> int:
        """Count the attempts of a task that were lost in a round for one of some reasons."""
        return int(self._session.fetch("count_lost_attempts", task, round, Signal.LOSE.text, reasons)[0][0])

    def lost_by(self, task: int, round: int, spared: Collection[str]) -> list[str]:
        """Return the bots that lost a task in a round, except for some reasons."""
        return [row[0] for row in self._session.fetch("select_losing_bots", task, round, Signal.LOSE.text, spared)]

    def add_results(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Store results: task, attempt, body."""
        self._session.execute_many(
            "upsert_results",
            [(*row, digest_of_result(row[2]) if len(row[2]) > UNDIGESTED_MAX else None) for row in rows],
        )

    def of(self, task: int) -> list[AttemptRow]:
        """Return all attempts of a task."""
        return [AttemptRow(*row) for row in self._session.fetch("select_attempts", task)]

    def open_of(self, tasks: Collection[int]) -> dict[int, tuple[int, str, int]]:
        """Return the open attempt of each task: its number, its session, and the fence of its claim."""
        rows = self._session.fetch("select_open_attempts", tasks) if tasks else ()
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def adopt(self, rows: Sequence[Row]) -> None:
        """Move open attempts to another session: task, number, session, fence."""
        self._session.execute_many("adopt_attempts", rows)

    def leased_by_poll(self, bots: Collection[str]) -> list[tuple[str, str, int]]:
        """Return the tasks that bots hold: bot, the poll that gave the task, task."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_leases_by_poll", bots)] if bots else []


_LABELS = msgspec.json.Decoder(tuple[str, ...])
#: Up to so many characters a result is read for the key of an idempotent task; of a longer one its stored digest is.
UNDIGESTED_MAX: Final = 1_024


def digest_of_result(body: str) -> str:
    """Return the SHA-256 of a result."""
    return sha256(body.encode()).hexdigest()


@value
class ReusedAttempt:
    """The attempt whose end and result another task has taken over."""

    task: int
    graph: int
    attempt: int
    took_ms: int | None = None  # None while it is not known, or once its row is deleted


@value
class ReuseKeyRow:
    """A key of idempotent tasks: the task that leads it, and the newest result."""

    key: str
    leader: int | None
    source: int | None
    source_graph: int | None
    attempt: int | None
    size: int | None  # of the result, in characters; None if there is none
    finished_ms: Millis | None


@value
class ReusePolicyRow:
    """For how long a pool reuses results, and whether across submitters."""

    pool: str
    window_ms: int | None  # None: as long as by default
    shared: bool


@value
class RerunRow:
    """A graph that runs another graph again."""

    source: int
    labels: tuple[str, ...]  # the tasks from which it runs again
    to_run: int  # how many tasks of the new graph run
    reused: int  # how many reuse an attempt


@value
class FinishedTaskRow:
    """A task of an older graph, with what is needed to reuse its last attempt."""

    id: int
    state: State
    attempt: int
    size: int | None  # of its last result, in characters
    source: ReusedAttempt | None  # the attempt that it reuses itself


class ReuseRepo:
    """The tables `graph_rerun` and `task_reuse`, and the keys of idempotent tasks."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_rerun(self, graph: int, row: RerunRow) -> None:
        """Store that a graph runs another graph again."""
        labels = msgspec.json.encode(row.labels).decode()
        self._session.execute("insert_rerun", graph, row.source, labels, row.to_run, row.reused)

    def rerun(self, graph: int) -> RerunRow | None:
        """Return which graph a graph runs again."""
        found = self._session.fetch("select_rerun", graph)
        return RerunRow(found[0][0], _LABELS.decode(found[0][1]), *found[0][2:]) if found else None

    def add(self, rows: Sequence[Row]) -> None:
        """Insert reused attempts: task, reused task, its graph, attempt."""
        self._session.execute_many("insert_reuses", rows)

    def copy_results(self, rows: Sequence[Row]) -> None:
        """Copy the results of reused attempts: task, reused task, attempt."""
        self._session.execute_many("copy_results", rows)

    def copy_reused_results(self, ids: Collection[int]) -> None:
        """Copy the results of the attempts that tasks reuse, where there are any."""
        if ids:
            self._session.execute("copy_reused_results", ids)

    def sources(self, ids: Collection[int]) -> dict[int, ReusedAttempt]:
        """Return the reused attempts of tasks; tasks that reuse none are left out."""
        return {row[0]: ReusedAttempt(*row[1:]) for row in self._session.fetch("select_reuses", ids)} if ids else {}

    def originals(self, ids: Collection[int]) -> dict[int, int]:
        """Return the task that really ran, for each of these that reuses an attempt."""
        return {row[0]: row[1] for row in self._session.fetch("select_originals", ids)} if ids else {}

    def received(self, ids: Collection[int]) -> list[tuple[int, str, str | None, str | None]]:
        """Return the results of the prerequisites of tasks: task, label, body, or instead of a long one its digest."""
        return [(row[0], row[1], row[2], row[3]) for row in self._session.fetch("select_received", ids)] if ids else []

    def lock_keys(self, keys: Collection[str]) -> dict[str, ReuseKeyRow]:
        """Read and lock keys; those of which nothing is known are left out."""
        return _keys(self._session.fetch("lock_reuse_keys", keys)) if keys else {}

    def lock_led(self, tasks: Collection[int]) -> dict[str, ReuseKeyRow]:
        """Read and lock the keys that tasks lead."""
        return _keys(self._session.fetch("lock_led_keys", tasks)) if tasks else {}

    def reserve(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Insert the keys of new tasks: key, priority, task. An equal task may have one already, or come first."""
        self._session.execute_many("reserve_reuse_keys", [(key, task) for key, _, task in sorted(rows)])

    def with_keys(self, tasks: Collection[int]) -> set[int]:
        """Return those of some tasks that have a key of which no result is known."""
        return {row[0] for row in self._session.fetch("select_with_reuse_keys", tasks)} if tasks else set()

    def keys_of(self, tasks: Collection[int]) -> list[tuple[str, int]]:
        """Return the keys that some tasks have: key, task."""
        found = self._session.fetch("select_own_reuse_keys", tasks) if tasks else []
        return [(row[0], row[1]) for row in found]

    def drop_reserved(self, keys: Collection[str]) -> None:
        """Delete keys that were inserted for new tasks which have other keys by now."""
        if keys:
            self._session.execute("delete_reserved_reuse_keys", keys)

    def with_results(self, tasks: Collection[int]) -> set[int]:
        """Return those of some tasks of which a prerequisite has a result, of any attempt."""
        return {row[0] for row in self._session.fetch("select_with_results", tasks)} if tasks else set()

    def states(self, tasks: Collection[int]) -> list[tuple[int, State, str]]:
        """Return the states of tasks, and their reasons."""
        return _states(self._session.fetch("select_leader_states", tasks)) if tasks else []

    def lock_states(self, tasks: Collection[int]) -> list[tuple[int, State, str]]:
        """Return the same of tasks that no other transaction moves before this one ends."""
        return _states(self._session.fetch("lock_leader_states", tasks)) if tasks else []

    def lead(self, rows: Sequence[tuple[str, int]], locked: Collection[str]) -> None:
        """Give keys that have none a leader: `locked` ones, and new ones; conflict if one of these exists by now."""
        new = [row for row in rows if row[0] not in locked] if locked else rows
        self._session.update_all("insert_reuse_keys", new)
        if len(new) < len(rows):
            self._session.execute_many("change_reuse_leaders", [row for row in rows if row[0] in locked])

    def change_leaders(self, rows: Sequence[tuple[str, int | None]]) -> None:
        """Give locked keys another leader, or none; one without a leader and a result is deleted."""
        self._session.execute_many("change_reuse_leaders", rows)
        idle = [key for key, leader in rows if leader is None]
        if idle:
            self._session.execute("delete_idle_reuse_keys", idle)

    def finish(self, rows: Sequence[tuple[str, int, int, int, Millis, int]]) -> None:
        """Store that the leaders of locked keys succeeded: key, task, its graph, attempt, when, size of a file."""
        self._session.execute_many("finish_reuse_keys", rows)

    def forget(self, tasks: Collection[int]) -> None:
        """Forget the results of tasks that are deleted, so that none is reused any more, and their keys."""
        if tasks:
            self._session.execute("delete_own_reuse_keys", tasks)
            self._session.execute("clear_reuse_sources", tasks)
            self._session.execute("delete_reuse_sources", tasks)

    def add_followers(self, rows: Sequence[tuple[int, str, int, int]]) -> None:
        """Insert tasks that wait for the leader of a locked key: task, key, priority, created."""
        self._session.execute_many("insert_reuse_followers", rows)

    def followers(self, keys: Collection[str], count: int) -> list[tuple[str, int]]:
        """Return the first tasks that wait for the leaders of keys, by key: key, task."""
        found = self._session.fetch("select_reuse_followers", keys, count) if keys else []
        return [(row[0], row[1]) for row in found]

    def delete_followers(self, tasks: Collection[int]) -> None:
        """Delete that tasks wait for a leader."""
        if tasks:
            self._session.execute("delete_reuse_followers", tasks)

    def leaders(self, followers: Collection[int]) -> dict[int, int]:
        """Return the leaders that tasks wait for."""
        return {row[0]: row[1] for row in self._session.fetch("select_reuse_leaders", followers)} if followers else {}

    def policies(self) -> list[ReusePolicyRow]:
        """Return what pools allow that are configured."""
        return [ReusePolicyRow(row[0], row[1], row[2] == 1) for row in self._session.fetch("select_reuse_policies")]

    def set_policy(self, row: ReusePolicyRow) -> None:
        """Configure a pool."""
        self._session.execute("upsert_reuse_policy", row.pool, row.window_ms, int(row.shared))

    def finished_tasks(self, graph: int, after: int, count: int) -> list[FinishedTaskRow]:
        """Return tasks of a graph after an id."""
        return [
            FinishedTaskRow(
                row[0], _STATES[row[1]], row[2], row[3], None if row[4] is None else ReusedAttempt(*row[4:])
            )
            for row in self._session.fetch("select_finished_tasks", graph, after, count)
        ]


def _states(rows: Sequence[Row]) -> list[tuple[int, State, str]]:
    return [(row[0], _STATES[row[1]], row[2]) for row in rows]


def _keys(rows: Sequence[Row]) -> dict[str, ReuseKeyRow]:
    return {row[0]: ReuseKeyRow(*row) for row in rows}
