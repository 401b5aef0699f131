"""Verbs about graphs that run others again, and about tasks that are done because others were."""

from collections.abc import Collection, Sequence

import msgspec

from taskyard.core.values import value
from taskyard.core.words import State
from taskyard.store.sessions import Row, Session

_STATES = {state.value: state for state in State}
_LABELS = msgspec.json.Decoder(tuple[str, ...])


@value
class Source:
    """The attempt of a task that another one has its end from."""

    task: int
    graph: int
    attempt: int


@value
class RerunRow:
    """A graph that runs another again."""

    source: int
    labels: tuple[str, ...]  # from where on
    again: int  # how many tasks were born to run,
    reused: int  # and how many done


@value
class DoneRow:
    """A task, as somebody who might take over what it has done needs to know it."""

    id: int
    state: State
    attempt: int
    size: int | None  # of what it published, in characters
    source: Source | None  # where it has that from itself


class Reuses:
    """What the tables `graph_rerun` and `task_reuse` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, graph: int, row: RerunRow) -> None:
        """Say that a graph runs another again."""
        labels = msgspec.json.encode(row.labels).decode()
        self._session.run("add_rerun", graph, row.source, labels, row.again, row.reused)

    def rerun(self, graph: int) -> RerunRow | None:
        """Read which graph a graph runs again."""
        found = self._session.rows("rerun_of", graph)
        return RerunRow(found[0][0], _LABELS.decode(found[0][1]), *found[0][2:]) if found else None

    def add(self, rows: Sequence[Row]) -> None:
        """Say what tasks have their ends from: task, source, its graph, attempt."""
        self._session.each("add_reuses", rows)

    def copy_results(self, rows: Sequence[Row]) -> None:
        """Let tasks publish what others have published: task, the other, its attempt."""
        self._session.each("copy_results", rows)

    def sources(self, ids: Collection[int]) -> dict[int, Source]:
        """Read what tasks have their ends from; whoever has run is not named."""
        return {row[0]: Source(*row[1:]) for row in self._session.rows("reuses", ids)} if ids else {}

    def done(self, graph: int, after: int, count: int) -> list[DoneRow]:
        """Read tasks of a graph beyond an id."""
        return [
            DoneRow(row[0], _STATES[row[1]], row[2], row[3], None if row[4] is None else Source(*row[4:]))
            for row in self._session.rows("done_in", graph, after, count)
        ]
