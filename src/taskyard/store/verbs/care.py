"""Verbs about the store itself: its numbers as they are and as they could be counted, in pages, and how to mend them.

Nothing here judges: who compares the two is `lifecycle/care.py`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from taskyard.core.words import On, State
from taskyard.store.records import GraphRecord, TaskRecord, graph_record, task_record
from taskyard.store.sessions import Row, Session
from taskyard.store.verbs.fleet import QueueRow, dimensions_of_text
from taskyard.store.verbs.keeping import EventRow, event_rows

_STATES = {state.value: state for state in State}
_ONS = {on.value: on for on in On}


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
    ran_for: int | None
    handlers: int


@dataclass(frozen=True, slots=True)
class TellingRow:
    """How many notes about what a task has to tell are open, and what the latest tells its dependents."""

    task: int
    notes: int
    target: State | None  # None: its dependents know everything


@dataclass(frozen=True, slots=True)
class OpenRow:
    """An attempt that is the latest of its task, or open."""

    task: int
    number: int
    bot: str
    fence: int
    ended_ms: int | None


class Care:
    """What every table can be asked about its numbers."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    # Graphs and tasks.

    def graphs(self, after: int, count: int) -> list[GraphRecord]:
        """Read graphs, in pages by id."""
        return [graph_record(row) for row in self._session.rows("survey_graphs", after, count)]

    def tasks(self, graph: int, after: int, last: int, count: int) -> list[TaskRecord]:
        """Read tasks up to the graph `last`, in pages by graph and id; nobody is kept from them."""
        return [task_record(row) for row in self._session.rows("survey_tasks", graph, after, last, count)]

    def notes(self, first: int, last: int) -> dict[int, dict[str, int]]:
        """Count the open notes about a range of graphs, by kind."""
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for graph, kind, count in self._session.rows("survey_notes", first, last):
            found[graph][kind] = count
        return found

    def heard(self, ids: Collection[int], tell: str) -> list[HeardRow]:
        """Count what the in-edges of tasks have heard, with notes of the kind `tell` taken into account."""
        found = self._session.rows("survey_edges", ids, tell) if ids else []
        return [HeardRow(row[0], _ONS[row[1]], _STATES[row[2]], row[3]) for row in found]

    def handlers(self, ids: Collection[int], tell: str) -> list[DealtRow]:
        """Count the handlers of tasks that have heard all about them."""
        found = self._session.rows("survey_handlers", ids, str(On.SUCCESS), tell) if ids else []
        return [DealtRow(row[0], _STATES[row[1]], row[2], row[3]) for row in found]

    def tellings(self, ids: Collection[int], tell: str) -> list[TellingRow]:
        """Count the open notes about what tasks have to tell; those of the kind `tell` are for dependents."""
        found = self._session.rows("survey_tellings", ids, tell) if ids else []
        return [TellingRow(row[0], row[1], _STATES.get(row[2])) for row in found]

    def attempts(self, ids: Collection[int]) -> list[OpenRow]:
        """Read the latest attempt of tasks, and every open one, in order."""
        return [OpenRow(*row) for row in self._session.rows("survey_attempts", ids)] if ids else []

    def events(self, ids: Collection[int], subject: int, number: int, count: int) -> list[EventRow]:
        """Read what happened to tasks and graphs, in pages by subject and number."""
        found = self._session.rows("survey_events", ids, subject, number, count)
        return [event for row in found for event in event_rows(row)]

    # Everything else.

    def holds(self, held: State, after: int, count: int) -> list[tuple[int, State]]:
        """Read which tasks are said to be held though they are not in `held`, and where they are, in pages."""
        return [(row[0], _STATES[row[1]]) for row in self._session.rows("survey_holds", str(held), after, count)]

    def ran(self, count: int) -> list[tuple[int, int, int]]:
        """Read `success` edges for which a handler is said to have run: prerequisite, dependent, round."""
        return [(row[0], row[1], row[2]) for row in self._session.rows("survey_ran", str(On.SUCCESS), count)]

    def queues(self, after: int, count: int) -> list[QueueRow]:
        """Read queues, in pages by number."""
        found = self._session.rows("survey_queues", after, count)
        return [QueueRow(row[0], row[1], row[2], row[3], row[4], dimensions_of_text(row[5])) for row in found]

    def queue_counts(self) -> tuple[int, int, int]:
        """Say how many queues the service counts, how many there are, and the highest number of one."""
        row = self._session.rows("count_numbers")[0]
        return row[0], row[1], row[2]

    def bots(self, after: str, count: int) -> list[tuple[str, int, str | None]]:
        """Read bots, how many events they count, and the key of the newest, in pages."""
        return [(row[0], row[1], row[2]) for row in self._session.rows("survey_bots", after, count)]

    def bot_queues(self, bot: str, queue: int, count: int) -> list[Row]:
        """Read which queues bots are said to serve, in pages: bot, queue, what the bot has, what the queue asks for."""
        found = self._session.rows("survey_bot_queues", bot, queue, count)
        return [(row[0], row[1], dimensions_of_text(row[2] or ""), dimensions_of_text(row[3])) for row in found]

    def mutexes(self, states: Iterable[State], key: str, task: int, count: int) -> list[tuple[str, int, str | None]]:
        """Read the mutexes of tasks in some states, in pages: key, task, party."""
        found = self._session.rows("survey_mutexes", [str(one) for one in states], key, task, count)
        return [(row[0], row[1], row[2]) for row in found]

    def limits(self, states: Iterable[State]) -> dict[str, int]:
        """Sum up the demands of tasks in some states, by limit."""
        return {row[0]: row[1] for row in self._session.rows("survey_limits", [str(one) for one in states])}

    def pools(self, states: Iterable[State]) -> dict[str, tuple[int, int]]:
        """Sum up the weight of tasks in some states, by pool, and count them."""
        return {row[0]: (row[1], row[2]) for row in self._session.rows("survey_pools", [str(one) for one in states])}

    def strays(self, count: int) -> list[tuple[str, int, int]]:
        """Read what belongs to no attempt: table, task, attempt."""
        return [(row[0], row[1], row[2]) for row in self._session.rows("survey_strays", count)]

    # Mending.

    def mend_tasks(self, rows: Sequence[Row]) -> None:
        """Write what was counted afresh about tasks: id, then the columns in their order."""
        self._session.each("mend_tasks", rows)

    def mend_attempts(self, rows: Sequence[Row]) -> None:
        """Say that attempts are open: task, number, bot, fence."""
        self._session.each("mend_attempts", rows)

    def forget_ran(self, rows: Sequence[Row]) -> None:
        """Say that nobody ran for edges: prerequisite, on."""
        self._session.each("forget_ran", rows)

    def mend_queues(self, rows: Sequence[Row]) -> None:
        """Write what follows from the dimensions of queues: id, hash, root, pool."""
        self._session.each("mend_queues", rows)

    def unserve(self, rows: Sequence[Row]) -> None:
        """Say that bots do not serve queues: bot, queue."""
        self._session.each("unserve", rows)
