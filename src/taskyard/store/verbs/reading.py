"""Verbs for whoever only reads: lists in pages, and what attempts left. Rows come as the database gives them.

Nothing here is needed to decide anything, so nothing here is locked or known by heart.
"""

from collections.abc import Collection
from typing import Final

from taskyard.core.values import value
from taskyard.core.words import Reason
from taskyard.store.sessions import Row, Session

#: Before every key, and before every bot's.
FIRST: Final = -1
FIRST_NAME: Final = ""
#: Why a task is where it is while a bot has it in hand and has not begun it.
_ASSIGNED: Final = Reason.ASSIGNED.text


@value
class GraphRow:
    """A graph in outline, with what was said about it."""

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
    """A bot as it stands: its own word and that of an admin together."""

    id: str
    slots: int
    first_seen_ms: int
    last_seen_ms: int
    quarantined: str | None
    maintenance: str | None
    draining: int
    terminated: int
    dimensions: str
    busy: int  # how many tasks it has in hand
    missing: int
    ending: int
    assigned: int  # how many of those that it has in hand it has not begun


@value
class RunRow:
    """The last attempt of a task, if it had any."""

    bot: str | None
    claimed_ms: int | None
    ended_ms: int | None
    exit_code: int | None
    has_result: bool


@value
class Wanted:
    """Which graphs are asked for; an empty word asks for any, and no list of pools for those of all."""

    state: str = ""
    name: str = ""
    pools: frozenset[str] | None = None


class Reading:
    """What the tables can be asked by who only reads."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def graphs(self, wanted: Wanted, after: int, count: int) -> list[GraphRow]:
        """Read whole graphs beyond an id, the newest first."""
        pools = sorted(wanted.pools or ())
        every = int(wanted.pools is None)
        rows = self._session.rows("read_graphs", after, wanted.state, wanted.name, every, pools, count)
        return [GraphRow(*row) for row in rows]

    def graph(self, id: int) -> GraphRow | None:
        """Read a graph, if it is whole."""
        found = self._session.rows("read_graph", id)
        return GraphRow(*found[0]) if found else None

    def counts(self, graph: int) -> dict[str, int]:
        """Count the tasks of a graph by state."""
        return self.counted(graph)[0]

    def counted(self, graph: int) -> tuple[dict[str, int], int]:
        """Count the tasks of a graph by state, and those that a bot has in hand and has not begun."""
        rows = self._session.rows("read_counts", graph, _ASSIGNED)
        return {row[0]: row[1] for row in rows}, sum(row[2] for row in rows)

    def totals(self) -> dict[str, int]:
        """Count all tasks by state."""
        return {row[0]: row[1] for row in self._session.rows("read_totals")}

    def tasks(self, graph: int, after: int, state: str, count: int) -> list[int]:
        """Name tasks of a graph beyond an id; an empty state asks for any."""
        return [row[0] for row in self._session.rows("read_tasks", graph, after, state, count)]

    def running(self, bot: str, kind: str, pools: frozenset[str] | None, after: int, count: int) -> list[int]:
        """Name what a bot runs of one kind beyond an id, in graphs of some pools, or of all (None)."""
        every, some = int(pools is None), sorted(pools or ())
        return [row[0] for row in self._session.rows("read_running", bot, kind, after, every, some, count)]

    def names(self, graph: int, after: int, count: int) -> list[tuple[str, int]]:
        """Read labels and ids of tasks of a graph beyond an id."""
        return [(row[0], row[1]) for row in self._session.rows("read_names", graph, after, count)]

    def sinks(self, graph: int, done: Collection[str], count: int) -> list[int]:
        """Name tasks of a graph that nothing requires, but for those in some states."""
        return [row[0] for row in self._session.rows("read_sinks", graph, sorted(done), count)]

    def ending(self, digits: str, count: int) -> tuple[list[int], list[int]]:
        """Name graphs and tasks whose ids end in some hexadecimal digits, as many of each, in no order."""
        said = (1 << 4 * len(digits)) - 1, int(digits, 16), count
        graphs = self._session.rows("read_graphs_ending", *said)
        return [row[0] for row in graphs], [row[0] for row in self._session.rows("read_tasks_ending", *said)]

    def runs(self, tasks: Collection[int]) -> dict[int, RunRow]:
        """Read the last attempts of tasks."""
        rows = self._session.rows("read_runs", tasks) if tasks else []
        return {id: RunRow(bot, began, ended, code, result == 1) for id, bot, began, ended, code, result in rows}

    def results(self, task: int) -> dict[int, str]:
        """Read what the attempts of a task published."""
        return {row[0]: row[1] for row in self._session.rows("read_results", task)}

    def last_results(self, tasks: Collection[int]) -> dict[int, str]:
        """Read what the last attempts of tasks published."""
        return {row[0]: row[1] for row in self._session.rows("read_last_results", tasks)} if tasks else {}

    def bots(self, after: str, count: int) -> list[BotRow]:
        """Read bots beyond an id."""
        return [BotRow(*row) for row in self._session.rows("read_bots", after, count, _ASSIGNED)]

    def bot(self, id: str) -> BotRow | None:
        """Read one bot."""
        found = self._session.rows("read_bot", id, _ASSIGNED)
        return BotRow(*found[0]) if found else None

    def bot_settings(self, id: str) -> tuple[str | None, str | None, bool, bool]:
        """Read what an admin said about a bot: quarantined, maintenance, draining, terminated."""
        found = self._session.rows("read_bot_settings", id)
        return (found[0][0], found[0][1], found[0][2] == 1, found[0][3] == 1) if found else (None, None, False, False)

    def bot_events(self, id: str, at_ms: int, after: str, count: int) -> list[Row]:
        """Read what was noted of a bot beyond an event, the newest first: id, at, kind, task, attempt, note."""
        return self._session.rows("read_bot_events", id, at_ms, after, count)

    def bot_attempts(self, id: str, looked: int) -> list[Row]:
        """Read what a bot has in hand, and what it had of so many attempts of the newest tasks.

        Each is task, number, claimed, ended, signal, reason.
        """
        return self._session.rows("read_bot_attempts", id, looked)

    def aggregation(self, id: str) -> str | None:
        """Read which dimensions the bots had when they were last put together."""
        found = self._session.rows("read_aggregation", id)
        return str(found[0][0]) if found else None

    def set_aggregation(self, id: str, dimensions: str) -> None:
        """Keep which dimensions the bots have."""
        self._session.run("set_aggregation", id, dimensions)
