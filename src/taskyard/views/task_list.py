"""Tasks of all graphs by tag, state, bot, user and time, in pages; and how many there are.

Each condition that has an index gives its next tasks after an id, in the order of ids. The index that reaches farthest
excludes most tasks, so its tasks are checked against the other conditions. A page looks at a limited number of tasks:
it may be shorter than requested, or empty, and still say where the next one begins.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import Final, TypeAlias

from taskyard.core.ids import LAST_MS, last_key_since
from taskyard.core.states import GONE_WRONG, LEASED, Millis, State
from taskyard.core.structs import value
from taskyard.store.connection import Repo

#: How many tasks one step takes from an index. The first step of a page takes as many as the page has, and each further
#: one four times as many: often all tasks match, and to look at 500 takes most of the time (`benchmarks.listing`).
STEP_MAX: Final = 500
#: How many tasks are looked at for one page: some 10 ms.
LOOKED_MAX: Final = 5_000
#: How many tasks are looked at for one count: some 100 ms.
COUNTED_MAX: Final = 50_000
#: A function that returns tasks after an id, at most so many.
Index: TypeAlias = Callable[[int, int], list[int]]


@value
class TaskFilter:
    """Which tasks to list; what is empty matches all, and None all pools."""

    tags: tuple[str, ...] = ()  # all must match
    states: frozenset[State] = frozenset()
    bot: str = ""  # had an attempt of it
    graph: int | None = None
    since_ms: Millis = Millis(0)  # submitted then or later
    until_ms: Millis = Millis(LAST_MS)  # submitted before
    pools: frozenset[str] | None = None

    @property
    def first(self) -> int:
        """The id after which the tasks begin."""
        return last_key_since(self.until_ms) if self.until_ms < LAST_MS else -1

    @property
    def last(self) -> int:
        """The last id that a task may have."""
        return last_key_since(self.since_ms)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some tasks with their states, and after which id to go on; None at the end."""

    tasks: list[tuple[int, State]]
    next: int | None


def listed(repo: Repo, wanted: TaskFilter, after: int, count: int) -> ListedPage:
    """Return tasks after an id, newest first."""
    found: list[tuple[int, State]] = []
    looked = 0
    after = max(after, wanted.first)
    for ids, tasks, more in _steps(repo, wanted, after, count + 1):
        found += tasks
        looked += len(ids)
        if len(found) > count:
            return ListedPage(found[:count], found[count - 1][0])
        if not more:
            break
        if looked >= LOOKED_MAX:
            return ListedPage(found, ids[-1])
    return ListedPage(found, None)


def counted(repo: Repo, wanted: TaskFilter, after: int) -> tuple[Counter[str], int | None]:
    """Count tasks after an id by state, up to a number; return where to go on."""
    found = Counter[str]()
    looked = 0
    for ids, tasks, more in _steps(repo, wanted, max(after, wanted.first), STEP_MAX):
        found.update(state.text for _, state in tasks)
        looked += len(ids)
        if more and looked >= COUNTED_MAX:
            return found, ids[-1]
    return found, None


def _steps(
    repo: Repo, wanted: TaskFilter, after: int, size: int
) -> Iterator[tuple[list[int], list[tuple[int, State]], bool]]:
    """Yield the tasks of each step: those that were looked at, those that match, and whether there may be more."""
    indexes = _indexes(repo, wanted)
    more, size = True, min(size, STEP_MAX)
    while more:
        ids, place, more = _next(indexes, after, size)
        if ids and ids[-1] >= wanted.last:
            ids, more = [id for id in ids if id <= wanted.last], False
        # Tags have the first indexes; the tasks of one have its tag.
        other_tags = [tag for number, tag in enumerate(wanted.tags) if number != place]
        yield ids, _matching(repo, wanted, ids, other_tags), more
        size = min(size * 4, STEP_MAX)
        if ids:
            after = ids[-1]


def _next(indexes: list[Index], after: int, size: int) -> tuple[list[int], int, bool]:
    """Return the next tasks of the index that excludes most, the place of that index, and whether it has more."""
    steps = [(index(after, size), place) for place, index in enumerate(indexes)]
    ended = [step for step in steps if len(step[0]) < size]
    if ended:
        return *min(ended, key=lambda step: len(step[0])), False
    return *max(steps, key=lambda step: step[0][-1]), True


def _indexes(repo: Repo, wanted: TaskFilter) -> list[Index]:
    """Return the indexes of the conditions, those of tags first; that of all tasks, if no condition has one."""
    found: list[Index] = [partial(repo.task_list.with_tag, tag) for tag in wanted.tags]
    if wanted.graph is not None:
        found.append(partial(repo.task_list.of_graph, wanted.graph))
    if wanted.bot:
        found.append(partial(repo.task_list.of_bot, wanted.bot))
    if wanted.states and wanted.states <= GONE_WRONG | LEASED:
        found.append(partial(_in_states, repo, wanted.states))
    return found or [repo.task_list.all]


def _in_states(repo: Repo, states: frozenset[State], after: int, count: int) -> list[int]:
    parts = [repo.task_list.in_state(state, after, count) for state in states & GONE_WRONG]
    if states & LEASED:
        parts.append(repo.task_list.held(after, count))
    return list(merge(*parts))[:count]


def _matching(repo: Repo, wanted: TaskFilter, ids: list[int], tags: Collection[str]) -> list[tuple[int, State]]:
    """Return those of some tasks that meet every condition; `tags` are those that have to be looked at."""
    for tag in tags:
        ids = repo.task_list.tagged(ids, tag)
    if wanted.bot:
        ids = repo.task_list.tried_by(ids, wanted.bot)
    if wanted.graph is not None:
        ids = [one.id for one in repo.tasks.read(ids) if one.graph == wanted.graph]
    return repo.task_list.visible(ids, wanted.states, wanted.pools)
