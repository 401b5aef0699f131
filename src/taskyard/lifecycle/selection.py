"""How far a person's wish reaches: which tasks, in which order, and in how many transactions.

A transaction looks no further than so many tasks and edges. A wish that reaches beyond that is answered with `Far`:
whoever asked finds out how far it reaches by a look at the store that stands in nobody's way, and asks again with what
was found. What fits into one transaction is moved there. What does not is left as notes of at most a thousand tasks
each, which are taken up one after the other. A note counts as active, so its graph cannot finish meanwhile. Nothing
here moves a task.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Final, TypeAlias, TypeVar

import msgspec

from taskyard.core.ids import Key, text_of
from taskyard.core.states import State
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.transaction import PROPAGATED_MAX, Transaction
from taskyard.store.connection import Repo
from taskyard.store.rows import Continuation, TaskRecord

#: How many tasks one transaction moves because a person wants it.
PAGE_MAX: Final = 500
#: How many rows are read at once.
ROWS_MAX: Final = 10_000

#: How many tasks or edges one transaction looks at because a person wants something: some 20 ms.
LOOKED_MAX: Final = 5_000

Row = TypeVar("Row")
#: Tasks for one transaction each, in order.
Pages: TypeAlias = list[list[int]]
Search: TypeAlias = "Callable[[GraphReader], Selection]"

_IDS = msgspec.json.Decoder(list[int])


class _TooFarError(Exception):
    """There is more to look at than one transaction may."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Tasks, which of them come after which, and how many others each of them has to tell."""

    order: "TopologicalSorter[int]"
    to_tell: Counter[int]
    beside: int = 0  # how many others it concerns

    def cut(self) -> Pages:
        """Cut them into pages: each can be moved by one transaction, and what it has to tell can be told there too.

        Else a dependent in a page would still think that what it hangs on is where it was. Only a task that has more
        to tell than fits stands alone.
        """
        pages: Pages = []
        told = 0
        for task in self.order.static_order():
            told += self.to_tell[task]
            if not pages or len(pages[-1]) == PAGE_MAX or told > PROPAGATED_MAX:
                pages.append([])
                told = self.to_tell[task]
            pages[-1].append(task)
        return pages


@dataclass(frozen=True, slots=True)
class VersionedSelection:
    """What a look at the store has seen; to cut it takes time, and nothing of the store."""

    extensions: int
    reached: Selection

    def cut(self) -> "SelectedPages":
        """Cut it into pages."""
        return SelectedPages(self.extensions, self.reached.cut(), self.reached.beside)


@dataclass(frozen=True, slots=True)
class SelectedPages:
    """How far a wish reaches, as it was found when its graph had been extended so often."""

    extensions: int
    pages: Pages
    beside: int = 0  # how many others it concerns

    @property
    def total(self) -> int:
        """How many tasks it reaches."""
        return sum(map(len, self.pages))


class GraphReader:
    """Looks at the tasks and edges of a graph, at no more of them than it may."""

    def __init__(self, repo: Repo, most: int | None) -> None:
        self._txn = repo
        self._left = most

    def tasks(self, graph: int, states: Collection[State]) -> list[tuple[int, State]]:
        """Name every task of a graph that is in one of `states`."""
        found: list[tuple[int, State]] = []
        after = -1
        while True:
            page = self._spend(self._txn.tasks.page_any_state(graph, after, self._count()))
            found += [one for one in page if one[1] in states]
            if len(page) < ROWS_MAX:
                return found
            after = page[-1][0]

    def edges(self, prerequisites: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Read the out-edges of tasks."""
        for start in range(0, len(prerequisites), PAGE_MAX):
            some = prerequisites[start : start + PAGE_MAX]
            edges = self._spend(self._txn.edges.page_after(some, (-1, -1, ""), self._count()))
            yield from edges
            while len(edges) >= ROWS_MAX:
                edges = self._spend(self._txn.edges.page_after(some, edges[-1], self._count()))
                yield from edges

    def _count(self) -> int:
        """Say how many rows to ask for: one more than there may be shows that there are too many."""
        return ROWS_MAX if self._left is None else min(ROWS_MAX, self._left + 1)

    def _spend(self, rows: list[Row]) -> list[Row]:
        if self._left is not None:
            self._left -= len(rows)
            if self._left < 0:
                raise _TooFarError
        return rows


def visible_task(transaction: Transaction, id: int) -> TaskRecord | None:
    """Give a task that people can see: not one that is still being loaded."""
    task = transaction.lock_tasks([id]).get(id)
    if task is None or task.loading or transaction.graph(task.graph).loader is not None:
        return None
    return task


def subtree(looking: GraphReader, tasks: Collection[int]) -> Selection:
    """Find tasks and everything behind them, dependents before their prerequisites."""
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(tasks, ()))
    to_tell = Counter[int]()
    found, frontier = set(tasks), sorted(tasks)
    while frontier:
        beyond: set[int] = set()
        for prerequisite, dependent, _ in looking.edges(frontier):
            order.add(prerequisite, dependent)
            to_tell[prerequisite] += 1
            beyond.add(dependent)
        frontier = sorted(beyond - found)
        found |= beyond
    return Selection(order, to_tell)


def in_dependency_order(
    looking: GraphReader, graph: int, states: frozenset[State], beside: frozenset[State]
) -> Selection:
    """Find every task of a graph in one of `states`, prerequisites before their dependents; count those `beside`."""
    seen = looking.tasks(graph, states | beside)
    tasks = [id for id, state in seen if state in states]
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(tasks, ()))
    among, to_tell = set(tasks), Counter[int]()
    for prerequisite, dependent, _ in looking.edges(tasks):
        to_tell[prerequisite] += 1
        if dependent in among:
            order.add(dependent, prerequisite)
    return Selection(order, to_tell, len(seen) - len(tasks))


def select_all(repo: Repo, graph: int, search: Search) -> VersionedSelection:
    """Find out how far a wish reaches, wherever that is: for a look at the store, never for a transaction."""
    return VersionedSelection(repo.graphs.peek([graph])[0].extensions, search(GraphReader(repo, None)))


def select_within_limit(
    transaction: Transaction, graph: int, search: Search, found: SelectedPages | None
) -> SelectedPages | None:
    """Give what was found, if the graph is still what it was, or look as far as a transaction may; None if too far."""
    extensions = transaction.graph(graph).extensions
    if found is not None:
        return found if found.extensions == extensions else None
    try:
        return VersionedSelection(extensions, search(GraphReader(transaction.repo, LOOKED_MAX))).cut()
    except _TooFarError:
        return None


def defer(transaction: Transaction, kind: str, graph: int, pages: Sequence[Sequence[int]], actor: str) -> None:
    """Leave notes to move tasks later, in this order."""
    texts = [msgspec.json.encode(page).decode() for page in pages]
    transaction.repo.continuations.add([(kind, graph, None, None, None, text, actor) for text in texts])
    transaction.adjust_counts(graph, active=len(texts))


def task_ids_of(note: Continuation) -> list[int]:
    """Name the tasks that a note is about."""
    return _IDS.decode(note.tasks)


def finish(transaction: Transaction, note: Continuation) -> None:
    """A note is done."""
    transaction.repo.continuations.delete(note.id)
    transaction.adjust_counts(note.graph, active=-1)


def not_found(what: str, id: int) -> Refusal:
    """Say that there is no such task or graph."""
    return Refusal(Code.NOT_FOUND, f"there is no {what} {text_of(Key(id))}")
