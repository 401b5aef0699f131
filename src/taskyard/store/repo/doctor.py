"""The doctor's queries: stored counts and the rows that they count, in pages, and the statements of a repair.

Rows come as they are stored, damaged ones too. `lifecycle/doctor` compares them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from taskyard.core.graph.state import Handler
from taskyard.core.ids import BLOCK
from taskyard.core.states import On, State
from taskyard.store.queries import Row, Session
from taskyard.store.repo.bots import QueueRow, decode_dimensions
from taskyard.store.repo.events import UNREADABLE, EventRow, MalformedFacts, event_rows
from taskyard.store.rows import GraphRecord, graph_record

_STATES = {state.value: state for state in State}
_ONS = {on.value: on for on in On}
#: The columns of a task that a repair writes, after its key and the state that it must still be in.
_REPAIRED = attrgetter(
    "id", "state", "awaited", "met", "broken", "impossible", "handlers_ran", "handlers_open",
    "open_continuations", "needs_admission", "due_ms",
)  # fmt: skip


class TaskRow(NamedTuple):
    """The stored counts of a task, and the columns that they are checked against."""

    id: int
    graph_id: int
    state: str
    reason: str
    moved_ms: int
    attempt: int
    round: int
    reruns_used: int
    retries_used: int
    slice_index: int
    waits_since_ms: int | None
    not_before_ms: int | None
    rules: str
    weight: int
    join_rule: str
    on_impossible: str
    is_constrained: int
    awaited: int
    met: int
    broken: int
    impossible: int
    handlers_ran: int
    handlers_open: int
    loading: int
    open_continuations: int
    needs_admission: int
    pool: str  # of its queue
    bot_id: str | None
    fence: int
    lease_until_ms: int | None
    due_ms: int | None


class CheckedAttempt(NamedTuple):
    """An attempt, as far as events and its task say the same."""

    task_id: int
    number: int
    bot_id: str
    fence: int
    claimed_ms: int
    ended_ms: int | None
    signal: str | None
    block: int | None  # of `attempt_block`


class GraphExtras(NamedTuple):
    """What is stored about a graph beside its record."""

    events_published: int  # the newest event that is published
    extensions: int  # in the audit
    is_defined: bool


class CheckedBot(NamedTuple):
    """The stored numbers of a bot, and what its events say of the same."""

    id: str
    events: int
    terminated: int
    missing: int
    newest: str | None  # the key of its newest event
    left: str | None  # the kind of the last event that says whether it is terminated
    missed: str | None  # the kind of the last event that says whether it is missing


class DoctorRepo:
    """Reads of every stored count and of what it counts, and the writes of a repair."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    # Graphs and tasks.

    def graphs(self, after: int, count: int) -> list[GraphRecord]:
        """Read graphs, in pages by id."""
        return [graph_record(row) for row in self._session.fetch("check_graphs", after, count)]

    def extras(self, ids: Collection[int], grown: Collection[str]) -> dict[int, GraphExtras]:
        """Read what is stored beside the records of graphs; `grown` names the audited actions that extend one."""
        found = self._session.fetch("check_graph_extras", ids, grown) if ids else []
        return {row[0]: GraphExtras(row[1], row[2], row[3] == 1) for row in found}

    def tasks(self, graph: int, after: int, last: int, count: int) -> list[TaskRow]:
        """Read tasks up to the graph `last`, in pages by graph and id, without a lock."""
        return [TaskRow(*row) for row in self._session.fetch("check_tasks", graph, after, last, count)]

    def lock_tasks(self, ids: Collection[int]) -> list[TaskRow]:
        """Read tasks in the order of their ids, and lock them until this transaction ends."""
        return [TaskRow(*row) for row in self._session.fetch("check_tasks_locked", ids)] if ids else []

    def definitions(self, ids: Collection[int]) -> dict[int, tuple[int, str]]:
        """Read the definitions of tasks, as text, and the graphs that they say they belong to: graph, definition."""
        found = self._session.fetch("check_definitions", ids) if ids else []
        return {row[0]: (row[1], row[2]) for row in found}

    def is_dirty(self, task: int) -> bool:
        """Whether the next admission pass has to look at a task."""
        return bool(self._session.fetch("check_dirty", task))

    def graph_continuations(self, first: int, last: int) -> dict[int, dict[str, int]]:
        """Count the open continuations of a range of graphs, by kind."""
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for graph, kind, count in self._session.fetch("check_graph_continuations", first, last):
            found[graph][kind] = count
        return found

    def edge_counts(self, ids: Collection[int], propagate: str) -> list[tuple[int, On, State, int]]:
        """Count in-edges by the state of the prerequisite that they know: task, end, state, count.

        Continuations of the kind `propagate` have yet to tell some of them a later state.
        """
        found = self._session.fetch("check_edges", ids, propagate) if ids else []
        return [(row[0], _ONS[row[1]], _STATES[row[2]], row[3]) for row in found]

    def handler_counts(self, ids: Collection[int], propagate: str) -> list[tuple[int, Handler, int]]:
        """Count the handlers of failed tasks that know of the failure: task, handler, count of those that are alike."""
        found = self._session.fetch("check_handlers", ids, str(On.SUCCESS), propagate) if ids else []
        return [(row[0], Handler(_STATES[row[1]], row[2]), row[3]) for row in found]

    def open_continuations(self, ids: Collection[int], propagate: str) -> dict[int, tuple[int, State | None]]:
        """Count the open continuations of tasks, and give the state that the latest propagates, if any does."""
        found = self._session.fetch("check_task_continuations", ids, propagate) if ids else []
        return {row[0]: (row[1], _STATES.get(row[2])) for row in found}

    def attempts(self, ids: Collection[int], task: int, number: int, count: int) -> list[CheckedAttempt]:
        """Read the attempts of tasks, in pages by task and number."""
        found = self._session.fetch("check_attempts", ids, task, number, count, BLOCK)
        return [CheckedAttempt(*row) for row in found]

    def events(self, ids: Collection[int], subject: int, number: int, count: int) -> list[EventRow]:
        """Read the events of tasks and graphs, in pages by subject and number."""
        found = self._session.fetch("check_events", ids, subject, number, count)
        return [event for row in found for event in _events(row)]

    # The fleet, admission, and rows without an owner.

    def holds(self, held: State, after: int, count: int) -> list[tuple[int, State]]:
        """Read which tasks have a hold though they are not in `held`, and their states, in pages."""
        return [(row[0], _STATES[row[1]]) for row in self._session.fetch("check_holds", str(held), after, count)]

    def queues(self, after: int, count: int) -> list[QueueRow]:
        """Read queues, in pages by number."""
        found = self._session.fetch("check_queues", after, count)
        return [QueueRow(row[0], row[1], row[2], row[3], row[4], decode_dimensions(row[5])) for row in found]

    def queue_counts(self) -> tuple[int, int]:
        """Return the stored number of the newest queue, and the highest number of one."""
        row = self._session.fetch("check_queue_counts")[0]
        return row[0], row[1]

    def bots(self, after: str, kinds: tuple[str, str, str], count: int) -> list[CheckedBot]:
        """Read bots and what their events say, in pages; `kinds` of events: connected, ended, missing."""
        return [CheckedBot(*row) for row in self._session.fetch("check_bots", after, *kinds, count)]

    def bot_queues(self, bot: str, queue: int, count: int) -> list[Row]:
        """Read which queues bots serve, in pages: bot, queue, the dimensions of the bot, those of the queue."""
        found = self._session.fetch("check_bot_queues", bot, queue, count)
        return [(row[0], row[1], decode_dimensions(row[2] or ""), decode_dimensions(row[3])) for row in found]

    def mutexes(self, states: Iterable[State], key: str, task: int, count: int) -> list[tuple[str, int, str | None]]:
        """Read the mutexes of tasks in some states, in pages: key, task, party."""
        found = self._session.fetch("check_mutexes", [str(one) for one in states], key, task, count)
        return [(row[0], row[1], row[2]) for row in found]

    def limits(self, states: Iterable[State]) -> dict[str, int]:
        """Sum up what tasks in some states use of each named limit."""
        return {row[0]: row[1] for row in self._session.fetch("check_limits", [str(one) for one in states])}

    def pools(self, states: Iterable[State]) -> dict[str, tuple[int, int]]:
        """Sum up the weight of tasks in some states, by pool, and count them."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("check_pools", [str(one) for one in states])}

    def orphans(self, count: int) -> list[tuple[str, int, int]]:
        """Read rows whose attempt does not exist: table, task, attempt."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("check_orphans", count)]

    def wrong_marks(self, states: Collection[str], count: int) -> list[tuple[int, str | None, str]]:
        """Name the tasks whose mark of having gone wrong differs from their state: task, mark, state."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("check_gone_wrong", states, count)]

    def queueless(self, count: int) -> list[int]:
        """Return tasks whose queue does not exist."""
        return [row[0] for row in self._session.fetch("check_queueless", count)]

    def missing_inner(self, bot: str, kind: str, count: int) -> list[int]:
        """Return the tasks that a bot runs, of a kind that has a graph inside, where that graph is missing."""
        return [row[0] for row in self._session.fetch("check_missing_inner", bot, kind, count)]

    def forgotten_followers(self, state: str, reason: str, active: Collection[str], kind: str, count: int) -> list[int]:
        """Return tasks that wait for an equal one, with neither a leader nor a continuation of this kind."""
        return [row[0] for row in self._session.fetch("check_followers", state, reason, sorted(active), kind, count)]

    def ended_leaders(self, active: Collection[str], count: int) -> list[tuple[int, str]]:
        """Return tasks that lead a key although they are in none of these states: task, state; empty if it is gone."""
        return [(row[0], row[1]) for row in self._session.fetch("check_leaders", sorted(active), count)]

    def settled_inner(self, ids: Collection[int]) -> list[int]:
        """Return those of some graphs that have settled inside an attempt that is still running."""
        return [row[0] for row in self._session.fetch("check_settled_inner", ids)] if ids else []

    # Repair.

    def repair_tasks(self, rows: Sequence[TaskRow]) -> None:
        """Write the recounted counts of tasks; fail if one has moved."""
        self._session.update_all("repair_tasks", list(map(_REPAIRED, rows)))

    def repair_graphs(self, rows: Sequence[Row]) -> None:
        """Write the recounted counts of graphs: id, state, three counts, events, published, extensions, now or None."""
        self._session.execute_many("repair_graphs", rows)

    def repair_bots(self, rows: Sequence[Row]) -> None:
        """Write what the events of bots say: id, events, terminated, missing."""
        self._session.execute_many("repair_bots", rows)

    def repair_queues(self, rows: Sequence[Row]) -> None:
        """Write what follows from the dimensions of queues: id, hash, root, pool."""
        self._session.execute_many("repair_queues", rows)

    def repair_bot_queues(self, rows: Sequence[Row]) -> None:
        """Delete which bots serve which queues: bot, queue."""
        self._session.execute_many("repair_bot_queues", rows)


def _events(row: Row) -> list[EventRow]:
    try:
        return event_rows(row)
    except MalformedFacts:
        return [EventRow(row[0], row[1], row[2], 0, None, UNREADABLE, None, None, None, None)]
