"""Repository of queries that only read: lists in pages, and what `why`, histories and forecasts need.

A query looks at what it was asked about and no further: it uses an index and has a limit. It takes no locks and does
not use the row cache.
"""

from collections.abc import Collection, Iterable
from typing import Final

from taskyard.core.matching import Dimensions
from taskyard.core.states import Join, On, Reason, State
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session
from taskyard.store.repo.bots import QueueRow, decode_dimensions, queue_row
from taskyard.store.repo.events import EventRow, event_rows

#: Sort before every id, and before every bot name.
FIRST: Final = -1
FIRST_NAME: Final = ""
#: The reason of a task that a bot has claimed but not begun.
_ASSIGNED: Final = Reason.ASSIGNED.text
_STATES = {state.value: state for state in State}
_JOINS = {join.value: join for join in Join}
_ONS = {on.value: on for on in On}


@value
class GraphRow:
    """A graph, with its submitted fields."""

    id: int
    state: str
    active: int
    behind: int
    unhandled: int
    created_ms: int
    moved_ms: int
    canceled_ms: int | None
    scheduler_id: str
    name: str
    routing: str
    description: str
    tags: str
    rerun_of: int | None = None
    rerun_from: str | None = None  # labels, as JSON
    reused: int | None = None


@value
class BotRow:
    """A bot, with its own settings and those of an admin combined."""

    id: str
    slots: int
    first_seen_ms: int
    last_seen_ms: int
    quarantined: str | None
    maintenance: str | None
    draining: int
    terminated: int
    dimensions: str
    busy: int  # how many tasks it holds
    missing: int
    ending: int
    assigned: int  # how many of those it has not begun
    version: str | None
    caches: str  # keys
    failures: int


@value
class LastAttemptRow:
    """The last attempt of a task, if there is one."""

    bot: str | None
    claimed_ms: int | None
    ended_ms: int | None
    exit_code: int | None
    has_result: bool


@value
class GraphFilter:
    """Which graphs to list; an empty text matches all, and None all pools."""

    state: str = ""
    name: str = ""
    pools: frozenset[str] | None = None


@value
class EndedAttempt:
    """The last attempt of a task, if it has ended."""

    number: int
    bot: str
    exit_code: int | None


@value
class DemandRow:
    """How many tasks of a queue wait and run, and since when the first created one exists that waits."""

    queue: int
    pool: str
    dimensions: Dimensions
    waiting: int
    oldest_ms: int | None
    no_bot: int
    running: int


@value
class QueuePosition:
    """The position of a task in the order of all tasks."""

    priority: int
    created_ms: int
    id: int


@value
class UnfinishedTaskRow:
    """A task that has not ended."""

    id: int
    state: State
    join: Join
    not_before_ms: int | None
    label: str
    claimed_ms: int | None  # since when it runs; None if it does not run


@value
class EndedPrerequisite:
    """A prerequisite that has ended."""

    id: int
    on: On
    state: State
    ended_ms: int


class ReadRepo:
    """Queries of views and other readers."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def graphs(self, wanted: GraphFilter, after: int, count: int) -> list[GraphRow]:
        """Return loaded graphs after an id, newest first."""
        pools = sorted(wanted.pools or ())
        every = int(wanted.pools is None)
        rows = self._session.fetch("select_graph_rows", after, wanted.state, wanted.name, every, pools, count)
        return [GraphRow(*row) for row in rows]

    def graph(self, id: int) -> GraphRow | None:
        """Return a graph, if it is loaded."""
        found = self._session.fetch("select_graph_row", id)
        return GraphRow(*found[0]) if found else None

    def counts(self, graph: int) -> dict[str, int]:
        """Count the tasks of a graph by state."""
        return self.counts_with_assigned(graph)[0]

    def counts_with_assigned(self, graph: int) -> tuple[dict[str, int], int]:
        """Count the tasks of a graph by state, and those that a bot has claimed but not begun."""
        rows = self._session.fetch("count_tasks_by_state", graph, _ASSIGNED)
        return {row[0]: row[1] for row in rows}, sum(row[2] for row in rows)

    def totals(self) -> dict[str, int]:
        """Count all tasks by state."""
        return {row[0]: row[1] for row in self._session.fetch("count_all_tasks_by_state")}

    def tasks(self, graph: int, after: int, state: str, count: int) -> list[int]:
        """Return ids of tasks of a graph after an id; an empty state matches all."""
        return [row[0] for row in self._session.fetch("select_loaded_task_page", graph, after, state, count)]

    def leased_of_kind(self, bot: str, kind: str, pools: frozenset[str] | None, after: int, count: int) -> list[int]:
        """Return tasks of one kind that a bot holds, after an id, in graphs of some pools, or of all (None)."""
        every, some = int(pools is None), sorted(pools or ())
        return [row[0] for row in self._session.fetch("select_leased_of_kind", bot, kind, after, every, some, count)]

    def labels_page(self, graph: int, after: int, count: int) -> list[tuple[str, int]]:
        """Return labels and ids of tasks of a graph after an id."""
        return [(row[0], row[1]) for row in self._session.fetch("select_labels_page", graph, after, count)]

    def size(self, graph: int, most: int) -> int:
        """Count the tasks of a graph, up to a number."""
        return int(self._session.fetch("count_loaded_tasks", graph, most)[0][0])

    def edges_of(self, graph: int, count: int) -> list[Row]:
        """Return edges of a graph: the prerequisite, the dependent, and on which end."""
        return list(self._session.fetch("select_edges_of_graph", graph, count))

    def states_of(self, graph: int, count: int) -> list[str]:
        """Return the states of the tasks of a graph, in the order of their ids."""
        return [row[0] for row in self._session.fetch("select_states_of_graph", graph, count)]

    def times_of(self, graph: int, count: int) -> list[Row]:
        """Return for each task of a graph its state, and the bot, the begin and the end of its last attempt."""
        return list(self._session.fetch("select_times_of_graph", graph, count))

    def sinks(self, graph: int, done: Collection[str], count: int) -> list[int]:
        """Return tasks of a graph without dependents, except for those in some states."""
        return [row[0] for row in self._session.fetch("select_sinks", graph, sorted(done), count)]

    def ids_ending_in(self, digits: str, count: int) -> tuple[list[int], list[int]]:
        """Return at most `count` graphs and as many tasks whose ids end in some hexadecimal digits."""
        arguments = (1 << 4 * len(digits)) - 1, int(digits, 16), count
        graphs = self._session.fetch("select_graphs_by_id_suffix", *arguments)
        return [row[0] for row in graphs], [
            row[0] for row in self._session.fetch("select_tasks_by_id_suffix", *arguments)
        ]

    def last_attempts(self, tasks: Collection[int]) -> dict[int, LastAttemptRow]:
        """Return the last attempts of tasks."""
        rows = self._session.fetch("select_last_attempts", tasks) if tasks else []
        return {
            id: LastAttemptRow(bot, began, ended, code, result == 1) for id, bot, began, ended, code, result in rows
        }

    def results(self, task: int) -> dict[int, str]:
        """Return the results of a task, by attempt."""
        return {row[0]: row[1] for row in self._session.fetch("select_results", task)}

    def last_results(self, tasks: Collection[int]) -> dict[int, str]:
        """Return the results of the last attempts of tasks."""
        return {row[0]: row[1] for row in self._session.fetch("select_last_results", tasks)} if tasks else {}

    def bots(self, after: str, count: int) -> list[BotRow]:
        """Return bots after an id."""
        return [BotRow(*row) for row in self._session.fetch("select_bot_page", after, count, _ASSIGNED)]

    def bot(self, id: str) -> BotRow | None:
        """Return one bot."""
        found = self._session.fetch("select_bot", id, _ASSIGNED)
        return BotRow(*found[0]) if found else None

    def queues_of_roots(self, roots: Collection[str], after: int, count: int) -> list[QueueRow]:
        """Return queues below some roots, after a queue number."""
        return [queue_row(row) for row in self._session.fetch("select_queues_of_roots", sorted(roots), after, count)]

    def waiting_in(self, queues: Collection[int], count: int) -> dict[int, int]:
        """Count the waiting tasks of queues, each up to `count`."""
        return {row[0]: row[1] for row in self._session.fetch("count_waiting", queues, count)} if queues else {}

    def oldest_waiting(self) -> list[tuple[int, int, int]]:
        """Return the queues in which tasks wait: how many, and when the first was created."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("count_waiting_by_queue", "")]

    def bot_settings(self, id: str) -> tuple[str | None, str | None, bool, bool]:
        """Return the settings that an admin gave to a bot: quarantined, maintenance, draining, terminated."""
        found = self._session.fetch("select_bot_settings", id)
        return (found[0][0], found[0][1], found[0][2] == 1, found[0][3] == 1) if found else (None, None, False, False)

    def bot_events(self, id: str, at_ms: int, after: str, count: int) -> list[Row]:
        """Return the events of a bot after one of them, newest first: id, time, kind, task, attempt, note."""
        return self._session.fetch("select_bot_event_page", id, at_ms, after, count)

    def bot_attempts(self, id: str, looked: int) -> list[Row]:
        """Return the attempts that a bot runs, and those it had among the `looked` attempts of the newest tasks.

        Each is task, number, claimed, ended, signal, reason.
        """
        return self._session.fetch("select_bot_attempts", id, looked)

    def aggregation(self, id: str) -> str | None:
        """Return the stored dimensions of all bots together."""
        found = self._session.fetch("select_aggregation", id)
        return str(found[0][0]) if found else None

    def prerequisites(self, task: int, states: Iterable[State], count: int) -> list[tuple[int, On, State]]:
        """Return at most `count` prerequisites of a task that are in one of `states`."""
        rows = self._session.fetch("select_prerequisites_in_states", task, [one.text for one in states], count)
        return [(row[0], On(row[1]), State(row[2])) for row in rows]

    def subgraph_holders(self, bot: str, kind: str, count: int) -> list[int]:
        """Return tasks of one kind that a bot holds and that have mutexes or limits."""
        return [row[0] for row in self._session.fetch("select_subgraph_holders", bot, kind, count)]

    def labels(self, tasks: Collection[int]) -> dict[int, str]:
        """Return the labels of tasks."""
        return {row[0]: row[1] for row in self._session.fetch("select_labels", tasks)} if tasks else {}

    def ended_attempts(self, tasks: Collection[int]) -> dict[int, EndedAttempt]:
        """Return the last attempts of tasks, where they have ended."""
        rows = self._session.fetch("select_ended_attempts", tasks) if tasks else ()
        return {row[0]: EndedAttempt(*row[1:]) for row in rows}

    def last_requests(self, subjects: Collection[int], action: str, count: int) -> list[tuple[int, str, int]]:
        """Return who requested an action on tasks and graphs, latest first: subject, actor, time."""
        rows = self._session.fetch("select_last_requests", subjects, action, count) if subjects else ()
        return [(row[0], row[1], row[2]) for row in rows]

    def audit_notes(self, tasks: Collection[int], action: str) -> dict[int, str]:
        """Return the latest note in the audit of tasks for an action."""
        return dict(self._session.fetch("select_audit_notes", tasks, action)) if tasks else {}

    def demand(self, pool: str, pending: Iterable[State], no_bot: Reason) -> list[DemandRow]:
        """Return how many tasks each queue of a pool has; of every pool if `pool` is empty."""
        session = self._session
        waiting = {row[0]: (row[1], row[2]) for row in session.fetch("count_waiting_by_queue", pool)}
        running = {row[0]: row[1] for row in session.fetch("count_leased_by_queue")}
        held = {
            row[0]: row[1] for row in session.fetch("count_held_by_queue", no_bot.text, [one.text for one in pending])
        }
        return [
            DemandRow(
                id, name, decode_dimensions(text), *waiting.get(id, (0, None)), held.get(id, 0), running.get(id, 0)
            )
            for id, name, text in session.fetch("select_queues_of_pool", pool)
            if id in waiting or id in held or id in running
        ]

    def queues_with_text(self, text: str) -> dict[int, Dimensions]:
        """Return the queues in whose dimensions a text occurs."""
        return {row[0]: decode_dimensions(row[1]) for row in self._session.fetch("select_queues_like", f"%{text}%")}

    def held_of_queues(self, queues: Collection[int]) -> list[tuple[str, int, int]]:
        """Return how many tasks of some queues bots hold: bot, queue, count."""
        rows = self._session.fetch("count_held_of_queues", queues) if queues else ()
        return [(row[0], row[1], row[2]) for row in rows]

    def kept_bots(self, states: Iterable[State]) -> dict[str, Dimensions]:
        """Return the bots that are kept free for a task in one of some states, each with what that needs."""
        rows = self._session.fetch("select_kept_bots", [one.text for one in states])
        return {row[0]: decode_dimensions(row[1]) for row in rows}

    def queues(self, ids: Collection[int]) -> dict[int, tuple[str, Dimensions]]:
        """Return the pools and the dimensions of queues."""
        rows = self._session.fetch("select_queues", ids) if ids else ()
        return {row[0]: (row[1], decode_dimensions(row[2])) for row in rows}

    def count_ahead(self, queue: int, turn: QueuePosition, count: int) -> int:
        """Count the tasks before another one in its queue, up to `count`."""
        return len(self._session.fetch("select_tasks_ahead", queue, turn.priority, turn.created_ms, turn.id, count))

    def pool_use(self, pool: str, states: Iterable[State]) -> int:
        """Sum the weights of tasks in a pool that are in one of `states`."""
        return int(self._session.fetch("sum_pool_use", pool, [one.text for one in states])[0][0])

    def limit_use(self, name: str, states: Iterable[State]) -> int:
        """Sum the use of a named limit by tasks that are in one of `states`."""
        return int(self._session.fetch("sum_limit_use", name, [one.text for one in states])[0][0])

    def place_in_line(self, name: str, reasons: Iterable[Reason], turn: QueuePosition, count: int) -> tuple[int, int]:
        """Count the tasks held for `reasons` before a task, in line for a pool or a mutex, and all that were looked at.

        Only the oldest `count` held tasks are looked at.
        """
        words, before = [one.text for one in reasons], (turn.priority, turn.created_ms, turn.id)
        row = self._session.fetch("count_held_before", name, words, *before, count)[0]
        return int(row[0]), int(row[1])

    def recent_events(self, subjects: Collection[int], count: int) -> list[EventRow]:
        """Return the latest events of tasks, oldest first: those of at most `count` transactions."""
        rows = self._session.fetch("select_recent_events", subjects, count) if subjects else ()
        return [event for row in reversed(rows) for event in event_rows(row)]

    def bot_event_kinds(self, bot: str, at_ms: int, count: int) -> list[str]:
        """Return the kinds of the events of a bot at a time, among its `count` newest events."""
        return [str(row[0]) for row in self._session.fetch("select_bot_event_kinds", bot, at_ms, count)]

    def mutex_rivals(self, key: str, task: int, count: int) -> list[int]:
        """Return the tasks with a mutex that are just older or newer than a task; at most `count` each."""
        older = self._session.fetch("select_older_mutex_rivals", key, task, count)
        return [row[0] for row in (*older, *self._session.fetch("select_newer_mutex_rivals", key, task, count))]

    def graphs_named(self, name: str, after: int, count: int) -> list[int]:
        """Return graphs of a name that are older than one, newest first; none for the empty name."""
        return [row[0] for row in self._session.fetch("select_older_graphs_by_name", name, after, count)]

    def attempt_durations(
        self, graph: int, labels: Collection[str], states: Collection[State]
    ) -> list[tuple[str, int]]:
        """Return how long the last attempts of tasks of a graph in some states took: label, milliseconds."""
        rows = self._session.fetch("select_attempt_durations", graph, labels, [state.value for state in states])
        return [(row[0], row[1]) for row in rows]

    def unfinished_tasks(self, graph: int, after: int, ended: Collection[State], count: int) -> list[UnfinishedTaskRow]:
        """Return tasks of a graph after an id that are in none of the states `ended`."""
        rows = self._session.fetch("select_unfinished_tasks", graph, after, [state.value for state in ended], count)
        return [UnfinishedTaskRow(row[0], _STATES[row[1]], _JOINS[row[2]], *row[3:]) for row in rows]

    def last_ended(self, graph: int, states: Collection[State]) -> int | None:
        """Return the task of a graph that reached one of some states last."""
        found = self._session.fetch("select_last_ended", graph, [state.value for state in states])
        return found[0][0] if found else None

    def ended_prerequisites(self, task: int, states: Collection[State], count: int) -> list[EndedPrerequisite]:
        """Return the prerequisites of a task that are in one of some states, latest first."""
        rows = self._session.fetch("select_ended_prerequisites", task, [state.value for state in states], count)
        return [EndedPrerequisite(row[0], _ONS[row[1]], _STATES[row[2]], row[3]) for row in rows]
