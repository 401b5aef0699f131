"""Verbs for whoever asks why: who is in the way of a task, how much is in use, who stands before it, what moved it.

Each looks at what is asked about and no further: by an index, up to a count. Nothing here decides anything.
"""

from collections.abc import Collection, Iterable

from taskyard.core.matching import Dimensions
from taskyard.core.values import value
from taskyard.core.words import On, Reason, State
from taskyard.store.sessions import Session
from taskyard.store.verbs.fleet import dimensions_of_text
from taskyard.store.verbs.keeping import EventRow, event_rows


@value
class LastAttempt:
    """The last attempt of a task, if it has ended."""

    number: int
    bot: str
    exit_code: int | None


@value
class Turn:
    """Where a task stands in the one order of everything."""

    priority: int
    created_ms: int
    id: int


class Explaining:
    """What the tables can be asked about one task and what is around it."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def prerequisites(self, task: int, states: Iterable[State], count: int) -> list[tuple[int, On, State]]:
        """Read at most `count` prerequisites of a task that are in one of `states`."""
        rows = self._session.rows("read_prerequisites", task, [one.text for one in states], count)
        return [(row[0], On(row[1]), State(row[2])) for row in rows]

    def holders_for_a_graph(self, bot: str, kind: str, count: int) -> list[int]:
        """Name tasks of one kind that somebody runs and that name mutexes or limits."""
        return [row[0] for row in self._session.rows("read_holders_for_a_graph", bot, kind, count)]

    def labels(self, tasks: Collection[int]) -> dict[int, str]:
        """Read the labels of tasks."""
        return {row[0]: row[1] for row in self._session.rows("read_labels", tasks)} if tasks else {}

    def endings(self, tasks: Collection[int]) -> dict[int, LastAttempt]:
        """Read how the last attempts of tasks ended."""
        rows = self._session.rows("read_endings", tasks) if tasks else ()
        return {row[0]: LastAttempt(*row[1:]) for row in rows}

    def wishes(self, subjects: Collection[int], action: str, count: int) -> list[tuple[int, str, int]]:
        """Read who asked for something about tasks and graphs, the last first: subject, actor, at."""
        rows = self._session.rows("read_wishes", subjects, action, count) if subjects else ()
        return [(row[0], row[1], row[2]) for row in rows]

    def remarks(self, tasks: Collection[int], action: str) -> dict[int, str]:
        """Read what was noted last with something about tasks."""
        return dict(self._session.rows("read_remarks", tasks, action)) if tasks else {}

    def queues(self, ids: Collection[int]) -> dict[int, tuple[str, Dimensions]]:
        """Read the pools and the dimensions of queues."""
        rows = self._session.rows("read_queues", ids) if ids else ()
        return {row[0]: (row[1], dimensions_of_text(row[2])) for row in rows}

    def ahead(self, queue: int, turn: Turn, count: int) -> int:
        """Count who waits before a task in its queue, up to `count`."""
        return len(self._session.rows("read_ahead", queue, turn.priority, turn.created_ms, turn.id, count))

    def pool_use(self, pool: str, states: Iterable[State]) -> int:
        """Add up the weights of those in a pool that are in one of `states`."""
        return int(self._session.rows("read_pool_use", pool, [one.text for one in states])[0][0])

    def limit_use(self, name: str, states: Iterable[State]) -> int:
        """Add up what those take of a named limit that are in one of `states`."""
        return int(self._session.rows("read_limit_use", name, [one.text for one in states])[0][0])

    def line(self, pool: str, reasons: Iterable[Reason], turn: Turn, count: int) -> tuple[int, int]:
        """Count who is held for `reasons` before a task in the line for its pool, and how many were looked at for it.

        Only the oldest `count` of all that are held are looked at.
        """
        words, before = [one.text for one in reasons], (turn.priority, turn.created_ms, turn.id)
        row = self._session.rows("read_line", pool, words, *before, count)[0]
        return int(row[0]), int(row[1])

    def happened(self, subjects: Collection[int], count: int) -> list[EventRow]:
        """Read what last happened to some tasks, of each in order: the newest `count` transactions."""
        rows = self._session.rows("read_happened", subjects, count) if subjects else ()
        return [event for row in reversed(rows) for event in event_rows(row)]

    def bot_words(self, bot: str, at_ms: int, count: int) -> list[str]:
        """Read which kinds of events a bot had at a moment, among its newest `count`."""
        return [str(row[0]) for row in self._session.rows("read_bot_words", bot, at_ms, count)]

    def rivals(self, key: str, task: int, count: int) -> list[int]:
        """Name the tasks that name a mutex and came just before or after a task; at most `count` each."""
        older = self._session.rows("read_older_rivals", key, task, count)
        return [row[0] for row in (*older, *self._session.rows("read_newer_rivals", key, task, count))]
