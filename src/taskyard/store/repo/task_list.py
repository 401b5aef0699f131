"""Repository of what tasks are found by: tags, parents, the bots that had attempts, and indexes of `task`.

Newer tasks have smaller ids, so pages in the order of ids begin with the newest.
"""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.ids import BLOCK, STEP, block_of
from taskyard.core.states import State
from taskyard.store.queries import Row, Session

#: How many blocks one query reads for the tasks of a bot.
BLOCKS_MAX: Final = 32
_STATES = {state.value: state for state in State}


class TaskListRepo:
    """Tasks by tag, state, bot and graph, in pages of ids."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def with_tag(self, tag: str, after: int, count: int) -> list[int]:
        """Return at most `count` ids of tasks with a tag, after an id. A task that was deleted may be among them."""
        found: list[int] = []
        # Each run has a task at least, so `count` runs are enough.
        for first, last in self._session.fetch("select_tag_runs", tag, after, count):
            start = first if first > after else first + (after - first) // STEP * STEP + STEP
            found += range(start, min(last, start + (count - len(found) - 1) * STEP) + 1, STEP)
            if len(found) >= count:
                break
        return found

    def in_state(self, state: State, after: int, count: int) -> list[int]:
        """Return tasks after an id in one of the states of the index `task_gone_wrong`."""
        return _ids(self._session.fetch("select_tasks_gone_wrong", state.value, after, count))

    def held(self, after: int, count: int) -> list[int]:
        """Return tasks after an id that bots hold."""
        return _ids(self._session.fetch("select_held_tasks", after, count))

    def of_bot(self, bot: str, after: int, count: int) -> list[int]:
        """Return tasks after an id of which a bot had an attempt."""
        found: list[int] = []
        first, full = block_of(after), True
        while full and len(found) < count:
            blocks = _ids(self._session.fetch("select_blocks_of_bot", bot, first, BLOCKS_MAX))
            full = len(blocks) == BLOCKS_MAX
            if blocks:
                left = count - len(found)
                found += _ids(self._session.fetch("select_tasks_of_bot", bot, blocks, BLOCK, after, left))
                first = blocks[-1] + 1
        return found

    def of_graph(self, graph: int, after: int, count: int) -> list[int]:
        """Return tasks of a graph after an id."""
        return _ids(self._session.fetch("select_graph_task_ids", graph, after, count))

    def all(self, after: int, count: int) -> list[int]:
        """Return tasks after an id."""
        return _ids(self._session.fetch("select_task_ids", after, count))

    def tagged(self, ids: Collection[int], tag: str) -> list[int]:
        """Return those of some tasks that have a tag."""
        return _ids(self._session.fetch("select_tagged", ids, tag)) if ids else []

    def tried_by(self, ids: Collection[int], bot: str) -> list[int]:
        """Return those of some tasks of which a bot had an attempt."""
        return _ids(self._session.fetch("select_tried_by_bot", ids, bot)) if ids else []

    def visible(
        self, ids: Collection[int], states: Collection[State], pools: Collection[str] | None
    ) -> list[tuple[int, State]]:
        """Return those of some tasks that are loaded, in some states (all, if there are none) and pools (None: all)."""
        if not ids:
            return []
        wanted = [state.value for state in states]
        rows = self._session.fetch(
            "select_visible_tasks", ids, int(not wanted), wanted, int(pools is None), sorted(pools or ())
        )
        return [(row[0], _STATES[row[1]]) for row in rows]

    def owners(self, ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """Return who submitted tasks, and for whom they run."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_owners", ids)} if ids else {}

    def add_child(self, graph: int, parent: int, attempt: int) -> None:
        """Store that a graph ends with an attempt."""
        self._session.execute("insert_child", graph, parent, attempt)

    def parents(self, graphs: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return the attempts, as task and number, with which graphs end; graphs without one are left out."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_parents", graphs)} if graphs else {}

    def children(self, parent: int, count: int) -> list[int]:
        """Return graphs that end with attempts of a task, newest first."""
        return _ids(self._session.fetch("select_children", parent, count))

    def has_watched_children(self) -> bool:
        """Whether any graph waits for the end of an attempt."""
        return bool(self._session.fetch("has_watched_children"))

    def orphans(self, count: int) -> list[tuple[int, int, int]]:
        """Return graphs whose attempt has ended, with its task and number."""
        return [(row[0], row[1], row[2]) for row in self._session.fetch("select_orphans", count)]

    def forget_children(self, graphs: Collection[int]) -> None:
        """Do not return these graphs as orphans any more."""
        self._session.execute_many("forget_children", [(graph,) for graph in graphs])


def _ids(rows: Sequence[Row]) -> list[int]:
    return [row[0] for row in rows]
