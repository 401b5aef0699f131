"""Verbs about time: how long things took before, what is still to come, and what ended when. Nothing here writes."""

from collections.abc import Collection

from taskyard.core.values import value
from taskyard.core.words import Join, On, State
from taskyard.store.sessions import Session

_STATES = {state.value: state for state in State}
_JOINS = {join.value: join for join in Join}
_ONS = {on.value: on for on in On}


@value
class ComingRow:
    """A task that has not ended."""

    id: int
    state: State
    join: Join
    not_before_ms: int | None
    label: str
    claimed_ms: int | None  # since when it runs


@value
class EndedRow:
    """A prerequisite that has ended."""

    id: int
    on: On
    state: State
    ended_ms: int


class Times:
    """What the tables can be asked about time."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def called(self, name: str, after: int, count: int) -> list[int]:
        """Name older graphs of a name, the newest first; a graph without a name has none."""
        return [row[0] for row in self._session.rows("graphs_called", name, after, count)]

    def taken(self, graph: int, labels: Collection[str], states: Collection[State]) -> list[tuple[str, int]]:
        """Say how long the last attempts of those tasks of a graph took that are in one of some states."""
        rows = self._session.rows("times_taken", graph, labels, [state.value for state in states])
        return [(row[0], row[1]) for row in rows]

    def coming(self, graph: int, after: int, ended: Collection[State], count: int) -> list[ComingRow]:
        """Read tasks of a graph beyond an id that are in none of the states `ended`."""
        rows = self._session.rows("tasks_to_come", graph, after, [state.value for state in ended], count)
        return [ComingRow(row[0], _STATES[row[1]], _JOINS[row[2]], *row[3:]) for row in rows]

    def last(self, graph: int, states: Collection[State]) -> int | None:
        """Name the task of a graph that came last to one of some states."""
        found = self._session.rows("last_ended", graph, [state.value for state in states])
        return found[0][0] if found else None

    def before(self, task: int, states: Collection[State], count: int) -> list[EndedRow]:
        """Read those prerequisites of a task that are in one of some states, the last to come there first."""
        rows = self._session.rows("ended_before", task, [state.value for state in states], count)
        return [EndedRow(row[0], _ONS[row[1]], _STATES[row[2]], row[3]) for row in rows]
