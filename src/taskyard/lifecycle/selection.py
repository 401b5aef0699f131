"""Which tasks a cancel or a rerun concerns, in which order, and in how many transactions.

One transaction reads only so many tasks and edges. A command that concerns more is answered with `NeedsSearch`: the
caller then searches outside a write transaction, where it blocks nothing, and repeats the command with what it found.
Tasks that fit into one transaction are moved there. Others are left as continuations of at most `PAGE_MAX` tasks each,
which are run one after the other. An open continuation counts as active, so the graph cannot finish meanwhile. This
module moves no task.
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

#: How many tasks one transaction moves for one command.
PAGE_MAX: Final = 500
#: How many rows one query reads.
ROWS_MAX: Final = 10_000
#: How many tasks or edges one transaction reads for one command: some 20 ms.
LOOKED_MAX: Final = 5_000

Row = TypeVar("Row")
#: Tasks for one transaction each, in order.
Pages: TypeAlias = list[list[int]]
Search: TypeAlias = "Callable[[GraphReader], Selection]"

_IDS = msgspec.json.Decoder(list[int])


class _TooManyRowsError(Exception):
    """The search needs more rows than one transaction may read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Tasks, which of them come after which, and how many out-edges each of them has."""

    order: "TopologicalSorter[int]"
    out_edges: Counter[int]
    others: int = 0  # how many other tasks the command concerns

    def pages(self) -> Pages:
        """Cut the tasks into pages: one transaction can move each, and propagate along all of its edges.

        Else a dependent in a page would still believe that its prerequisite is in the old state. A task with more edges
        than fit is alone in its page.
        """
        pages: Pages = []
        edges = 0
        for task in self.order.static_order():
            edges += self.out_edges[task]
            if not pages or len(pages[-1]) == PAGE_MAX or edges > PROPAGATED_MAX:
                pages.append([])
                edges = self.out_edges[task]
            pages[-1].append(task)
        return pages


@dataclass(frozen=True, slots=True)
class VersionedSelection:
    """A selection, and how often its graph had been extended. Cutting it takes time, but needs no store."""

    extensions: int
    selection: Selection

    def cut(self) -> "SelectedPages":
        """Cut it into pages."""
        return SelectedPages(self.extensions, self.selection.pages(), self.selection.others)


@dataclass(frozen=True, slots=True)
class SelectedPages:
    """The tasks that a command concerns, as found when their graph had been extended so often."""

    extensions: int
    pages: Pages
    others: int = 0  # how many other tasks the command concerns

    @property
    def total(self) -> int:
        """How many tasks it concerns."""
        return sum(map(len, self.pages))


class GraphReader:
    """Reads the tasks and edges of a graph, up to a number of rows."""

    def __init__(self, repo: Repo, rows_max: int | None) -> None:
        self._repo = repo
        self._left = rows_max

    def tasks(self, graph: int, states: Collection[State]) -> list[tuple[int, State]]:
        """Return every task of a graph that is in one of `states`."""
        found: list[tuple[int, State]] = []
        after = -1
        while True:
            page = self._spend(self._repo.tasks.page_any_state(graph, after, self._count()))
            found += [one for one in page if one[1] in states]
            if len(page) < ROWS_MAX:
                return found
            after = page[-1][0]

    def edges(self, prerequisites: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Read the out-edges of tasks."""
        for start in range(0, len(prerequisites), PAGE_MAX):
            some = prerequisites[start : start + PAGE_MAX]
            edges = self._spend(self._repo.edges.page_after(some, (-1, -1, ""), self._count()))
            yield from edges
            while len(edges) >= ROWS_MAX:
                edges = self._spend(self._repo.edges.page_after(some, edges[-1], self._count()))
                yield from edges

    def _count(self) -> int:
        """Return how many rows to request: one more than allowed shows that there are too many."""
        return ROWS_MAX if self._left is None else min(ROWS_MAX, self._left + 1)

    def _spend(self, rows: list[Row]) -> list[Row]:
        if self._left is not None:
            self._left -= len(rows)
            if self._left < 0:
                raise _TooManyRowsError
        return rows


def visible_task(transaction: Transaction, id: int) -> TaskRecord | None:
    """Return a task, unless it is still being loaded."""
    task = transaction.lock_tasks([id]).get(id)
    if task is None or task.loading or transaction.graph(task.graph).loader is not None:
        return None
    return task


def subtree(reader: GraphReader, tasks: Collection[int]) -> Selection:
    """Select tasks and all their direct and indirect dependents, dependents before their prerequisites."""
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(tasks, ()))
    out_edges = Counter[int]()
    found, frontier = set(tasks), sorted(tasks)
    while frontier:
        dependents: set[int] = set()
        for prerequisite, dependent, _ in reader.edges(frontier):
            order.add(prerequisite, dependent)
            out_edges[prerequisite] += 1
            dependents.add(dependent)
        frontier = sorted(dependents - found)
        found |= dependents
    return Selection(order, out_edges)


def in_dependency_order(
    reader: GraphReader, graph: int, states: frozenset[State], others: frozenset[State]
) -> Selection:
    """Select every task of a graph in one of `states`, prerequisites first; count those in `others`."""
    found = reader.tasks(graph, states | others)
    tasks = [id for id, state in found if state in states]
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(tasks, ()))
    selected, out_edges = set(tasks), Counter[int]()
    for prerequisite, dependent, _ in reader.edges(tasks):
        out_edges[prerequisite] += 1
        if dependent in selected:
            order.add(dependent, prerequisite)
    return Selection(order, out_edges, len(found) - len(tasks))


def select_all(repo: Repo, graph: int, search: Search) -> VersionedSelection:
    """Search without a limit: in a read transaction only."""
    return VersionedSelection(repo.graphs.peek([graph])[0].extensions, search(GraphReader(repo, None)))


def select_within_limit(
    transaction: Transaction, graph: int, search: Search, found: SelectedPages | None
) -> SelectedPages | None:
    """Return what was found before, if the graph has not been extended since, or search here.

    Return None if that needs more rows than one transaction may read.
    """
    extensions = transaction.graph(graph).extensions
    if found is not None:
        return found if found.extensions == extensions else None
    try:
        return VersionedSelection(extensions, search(GraphReader(transaction.repo, LOOKED_MAX))).cut()
    except _TooManyRowsError:
        return None


def defer(transaction: Transaction, kind: str, graph: int, pages: Sequence[Sequence[int]], actor: str) -> None:
    """Leave continuations that move tasks later, in this order."""
    transaction.defer(kind, graph, [msgspec.json.encode(page).decode() for page in pages], actor)


def task_ids_of(continuation: Continuation) -> list[int]:
    """Return the tasks that a continuation moves."""
    return _IDS.decode(continuation.tasks)


def not_found(what: str, id: int) -> Refusal:
    """Say that there is no such task or graph."""
    return Refusal(Code.NOT_FOUND, f"there is no {what} {text_of(Key(id))}")
