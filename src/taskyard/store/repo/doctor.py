"""Verbs about the store itself: its numbers as they are and as they could be counted, in pages, and how to mend them.

Rows are given as they are stored: what cannot be read as what it should be is given, too. Nothing here judges: who
compares the two is `lifecycle/doctor/check.py`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from taskyard.core.states import On, State
from taskyard.store.queries import Row, Session
from taskyard.store.repo.bots import QueueRow, decode_dimensions
from taskyard.store.repo.events import UNREADABLE, EventRow, MalformedFacts, event_rows
from taskyard.store.rows import GraphRecord, graph_record

_STATES = {state.value: state for state in State}
_ONS = {on.value: on for on in On}


class TaskRow(NamedTuple):
    """A task as it is stored: every column of its row."""

    id: int
    graph_id: int
    previous_state: str | None
    state: str
    reason: str
    moved_ms: int
    attempt: int
    began_after: int
    ended: str | None
    round: int
    reruns_used: int
    retries_used: int
    slice_index: int
    waits_since_ms: int | None
    not_before_ms: int | None
    rules: str
    kind: str
    priority: int
    created_ms: int
    weight: int
    join_rule: str
    on_impossible: str
    is_handler: int
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
    queue_id: int
    bot_id: str | None
    avoid_bot: str | None
    fence: int
    lease_until_ms: int | None
    due_ms: int | None


class TriedRow(NamedTuple):
    """An attempt as it is stored, without what only its bot knows of it."""

    task_id: int
    number: int
    bot_id: str
    fence: int
    round: int
    slice_index: int
    claimed_ms: int
    ended_ms: int | None
    signal: str | None
    reason: str | None
    exit_code: int | None


class AskedRow(NamedTuple):
    """What was asked for, as it is stored."""

    id: int
    graph_id: int
    label: str
    definition: str


class GraphSide(NamedTuple):
    """What else there is of a graph: since when it is where it is, what others were told, its audit and definition."""

    moved_ms: int
    events_published: int
    extensions: int
    is_defined: bool


class BotRow(NamedTuple):
    """A bot as it is said to be, and what its events say of the same."""

    id: str
    events: int
    first_seen_ms: int
    terminated: int
    missing: int
    newest: str | None  # the key of its newest event
    first_ms: int | None  # when its first happened
    left: str | None  # the last of those that say whether it has left,
    missed: str | None  # and of those that say whether it was missed


@dataclass(frozen=True, slots=True)
class HeardRow:
    """How many edges of a task know its prerequisites in one state."""

    task: int
    on: On
    state: State
    edges: int


@dataclass(frozen=True, slots=True)
class DealtRow:
    """How many handlers of a task are in one state and ran for one round."""

    task: int
    state: State
    handled_round: int | None
    handlers: int


@dataclass(frozen=True, slots=True)
class TellingRow:
    """How many notes about what a task has to tell are open, and what the latest tells its dependents."""

    task: int
    notes: int
    target: State | None  # None: its dependents know everything


class DoctorRepo:
    """What every table can be asked about its numbers."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    # Graphs and tasks.

    def graphs(self, after: int, count: int) -> list[GraphRecord]:
        """Read graphs, in pages by id."""
        return [graph_record(row) for row in self._session.fetch("survey_graphs", after, count)]

    def sides(self, ids: Collection[int], grown: Collection[str]) -> dict[int, GraphSide]:
        """Read what stands beside graphs; `grown` names the actions of the audit that extended one."""
        found = self._session.fetch("survey_records", ids, grown) if ids else []
        return {row[0]: GraphSide(row[1], row[2], row[3], row[4] == 1) for row in found}

    def tasks(self, graph: int, after: int, last: int, count: int) -> list[TaskRow]:
        """Read tasks up to the graph `last`, in pages by graph and id; nobody is kept from them."""
        return [TaskRow(*row) for row in self._session.fetch("survey_tasks", graph, after, last, count)]

    def hold_tasks(self, ids: Collection[int]) -> list[TaskRow]:
        """Read tasks, in the order of their ids; nobody else moves them before this transaction ends."""
        return [TaskRow(*row) for row in self._session.fetch("hold_tasks", ids)] if ids else []

    def definitions(self, ids: Collection[int]) -> dict[int, AskedRow]:
        """Read what was asked for."""
        found = self._session.fetch("survey_definitions", ids) if ids else []
        return {row[0]: AskedRow(*row) for row in found}

    def edges(self, ids: Collection[int]) -> dict[int, dict[tuple[int, str], int | None]]:
        """Read the in-edges of tasks: by prerequisite and end, for which round the task ran."""
        found: dict[int, dict[tuple[int, str], int | None]] = defaultdict(dict)
        for dependent, prerequisite, on, handled_round in self._session.fetch("survey_in_edges", ids) if ids else ():
            found[dependent][prerequisite, on] = handled_round
        return found

    def is_stirred(self, task: int) -> bool:
        """Tell whether a pass has to look at a task, or at what stands in the place of one."""
        return bool(self._session.fetch("survey_stirs", task))

    def seen(self, bots: Collection[str]) -> dict[str, int]:
        """Read when bots were last heard of."""
        return {row[0]: row[1] for row in self._session.fetch("survey_seen", bots)} if bots else {}

    def notes(self, first: int, last: int) -> dict[int, dict[str, int]]:
        """Count the open notes about a range of graphs, by kind."""
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for graph, kind, count in self._session.fetch("survey_notes", first, last):
            found[graph][kind] = count
        return found

    def heard(self, ids: Collection[int], tell: str) -> list[HeardRow]:
        """Count what the in-edges of tasks have heard, with notes of the kind `tell` taken into account."""
        found = self._session.fetch("survey_edges", ids, tell) if ids else []
        return [HeardRow(row[0], _ONS[row[1]], _STATES[row[2]], row[3]) for row in found]

    def handlers(self, ids: Collection[int], tell: str) -> list[DealtRow]:
        """Count the handlers of tasks that have heard all about them."""
        found = self._session.fetch("survey_handlers", ids, str(On.SUCCESS), tell) if ids else []
        return [DealtRow(row[0], _STATES[row[1]], row[2], row[3]) for row in found]

    def tellings(self, ids: Collection[int], tell: str) -> list[TellingRow]:
        """Count the open notes about what tasks have to tell; those of the kind `tell` are for dependents."""
        found = self._session.fetch("survey_tellings", ids, tell) if ids else []
        return [TellingRow(row[0], row[1], _STATES.get(row[2])) for row in found]

    def attempts(self, ids: Collection[int], task: int, number: int, count: int) -> list[TriedRow]:
        """Read the attempts of tasks, in pages by task and number."""
        return [TriedRow(*row) for row in self._session.fetch("survey_attempts", ids, task, number, count)]

    def events(self, ids: Collection[int], subject: int, number: int, count: int) -> list[EventRow]:
        """Read what happened to tasks and graphs, in pages by subject and number."""
        found = self._session.fetch("survey_events", ids, subject, number, count)
        return [event for row in found for event in _events(row)]

    # Everything else.

    def holds(self, held: State, after: int, count: int) -> list[tuple[int, State]]:
        """Read which tasks are said to be held though they are not in `held`, and where they are, in pages."""
        return [(row[0], _STATES[row[1]]) for row in self._session.fetch("survey_holds", str(held), after, count)]

    def queues(self, after: int, count: int) -> list[QueueRow]:
        """Read queues, in pages by number."""
        found = self._session.fetch("survey_queues", after, count)
        return [QueueRow(row[0], row[1], row[2], row[3], row[4], decode_dimensions(row[5])) for row in found]

    def queue_counts(self) -> tuple[int, int, int]:
        """Say how many queues the service counts, how many there are, and the highest number of one."""
        row = self._session.fetch("count_numbers")[0]
        return row[0], row[1], row[2]

    def bots(self, after: str, kinds: tuple[str, str, str], count: int) -> list[BotRow]:
        """Read bots and what their events say of them, in pages; `kinds` says that one came, left, or was missed."""
        return [BotRow(*row) for row in self._session.fetch("survey_bots", after, *kinds, count)]

    def bot_queues(self, bot: str, queue: int, count: int) -> list[Row]:
        """Read which queues bots are said to serve, in pages: bot, queue, what the bot has, what the queue asks for."""
        found = self._session.fetch("survey_bot_queues", bot, queue, count)
        return [(row[0], row[1], decode_dimensions(row[2] or ""), decode_dimensions(row[3])) for row in found]

    def mutexes(self, states: Iterable[State], key: str, task: int, count: int) -> list[tuple[str, int, str | None]]:
        """Read the mutexes of tasks in some states, in pages: key, task, party."""
        found = self._session.fetch("survey_mutexes", [str(one) for one in states], key, task, count)
        return [(row[0], row[1], row[2]) for row in found]

    def limits(self, states: Iterable[State]) -> dict[str, int]:
        """Sum up the demands of tasks in some states, by limit."""
        return {row[0]: row[1] for row in self._session.fetch("survey_limits", [str(one) for one in states])}

    def pools(self, states: Iterable[State]) -> dict[str, tuple[int, int]]:
        """Sum up the weight of tasks in some states, by pool, and count them."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("survey_pools", [str(one) for one in states])}

    def strays(self, count: int) -> list[tuple[str, int, int]]:
        """Read what belongs to no attempt: table, task, attempt."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("survey_strays", count)]

    def hollow(self, bot: str, kind: str, count: int) -> list[int]:
        """Name what a bot runs of one kind that has a graph inside, where that graph is missing."""
        return [row[0] for row in self._session.fetch("survey_hollow", bot, kind, count)]

    def unheard(self, ids: Collection[int]) -> list[int]:
        """Name those of some graphs that are at rest inside an attempt that goes on."""
        return [row[0] for row in self._session.fetch("survey_unheard", ids)] if ids else []

    # Mending.

    def mend_tasks(self, rows: Sequence[TaskRow]) -> None:
        """Write tasks as they were counted afresh; refuse if one has moved on."""
        self._session.update_all("mend_tasks", rows)

    def mend_attempts(self, rows: Sequence[TriedRow]) -> None:
        """Write attempts as they were counted afresh."""
        self._session.execute_many("mend_attempts", [row[:-1] for row in rows])

    def mend_graphs(self, rows: Sequence[Row]) -> None:
        """Write graphs: id, state, active, behind, unhandled, events, told, extensions, and then when and by whom."""
        self._session.execute_many("mend_graphs", rows)

    def mend_definitions(self, rows: Sequence[Row]) -> None:
        """Write to which graphs definitions belong, and what they are called: id, graph, label."""
        self._session.execute_many("mend_definitions", rows)

    def mend_events(self, rows: Sequence[Row]) -> None:
        """Write to which graphs events belong: subject, graph."""
        self._session.execute_many("mend_events", rows)

    def mend_edges(self, there: Sequence[Row], gone: Sequence[Row]) -> None:
        """Put edges where they should be, and take others away: prerequisite, dependent, on, and ran for."""
        self._session.execute_many("put_edges", there)
        self._session.execute_many("take_edges", gone)

    def mend_mutexes(self, there: Sequence[Row], gone: Sequence[Row]) -> None:
        """Put mutexes where they should be, and take others away: task, key, and party."""
        self._session.execute_many("put_mutexes", there)
        self._session.execute_many("take_mutexes", gone)

    def mend_limits(self, there: Sequence[Row], gone: Sequence[Row]) -> None:
        """Put demands where they should be, and take others away: task, name, and amount."""
        self._session.execute_many("put_limits", there)
        self._session.execute_many("take_limits", gone)

    def mend_bots(self, rows: Sequence[Row]) -> None:
        """Write what the events of bots say: id, events, first seen, terminated, missing."""
        self._session.execute_many("mend_bots", rows)

    def mend_queues(self, rows: Sequence[Row]) -> None:
        """Write what follows from the dimensions of queues: id, hash, root, pool."""
        self._session.execute_many("mend_queues", rows)

    def unserve(self, rows: Sequence[Row]) -> None:
        """Say that bots do not serve queues: bot, queue."""
        self._session.execute_many("unserve", rows)


def _events(row: Row) -> list[EventRow]:
    try:
        return event_rows(row)
    except MalformedFacts:
        return [EventRow(row[0], row[1], row[2], 0, None, UNREADABLE, None, None, None, None)]
