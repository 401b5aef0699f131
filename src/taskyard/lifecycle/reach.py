"""How far a person's wish reaches: which tasks, in which order, and in how many transactions.

What fits into one transaction is done there. What does not is left as notes of at most a thousand tasks each, which are
taken up one after the other. A note counts as active, so its graph cannot finish meanwhile. Nothing here moves a task.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Final

import msgspec

from taskyard.core.ids import Key, text_of
from taskyard.core.words import State
from taskyard.lifecycle.moves import TOLD_MAX, Corridor
from taskyard.lifecycle.outcomes import Code, Refusal
from taskyard.store.records import Note, TaskRecord
from taskyard.store.txn import Txn

#: How many tasks one transaction moves because a person wants it.
PAGE_MAX: Final = 1_000
#: How many edges are read at once.
EDGES_MAX: Final = 10_000

_IDS = msgspec.json.Decoder(list[int])


def seen(corridor: Corridor, id: int) -> TaskRecord | None:
    """Give a task that people can see: not one that is still being loaded."""
    task = corridor.look([id]).get(id)
    if task is None or task.hidden or corridor.graph(task.graph).loader is not None:
        return None
    return task


def every(txn: Txn, graph: int, states: Collection[State]) -> list[int]:
    """Name every task of a graph that is in one of `states`."""
    found: list[int] = []
    while True:
        page = txn.tasks.page(graph, states, found[-1] if found else -1, PAGE_MAX)
        found += page
        if len(page) < PAGE_MAX:
            return found


def subtree(txn: Txn, task: int) -> list[list[int]]:
    """Cut a task and everything behind it into pages, dependents before their prerequisites."""
    order: TopologicalSorter[int] = TopologicalSorter({task: ()})
    to_tell = Counter[int]()
    found, frontier = {task}, [task]
    while frontier:
        beyond: set[int] = set()
        for prerequisite, dependent, _ in _edges(txn, frontier):
            order.add(prerequisite, dependent)
            to_tell[prerequisite] += 1
            beyond.add(dependent)
        frontier = sorted(beyond - found)
        found |= beyond
    return _cut(order.static_order(), to_tell)


def in_order(txn: Txn, tasks: Sequence[int]) -> list[list[int]]:
    """Cut tasks into pages, prerequisites before their dependents."""
    order: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(tasks, ()))
    among, to_tell = set(tasks), Counter[int]()
    for prerequisite, dependent, _ in _edges(txn, tasks):
        to_tell[prerequisite] += 1
        if dependent in among:
            order.add(dependent, prerequisite)
    return _cut(order.static_order(), to_tell)


def promise(corridor: Corridor, kind: str, graph: int, pages: Sequence[Sequence[int]], actor: str) -> None:
    """Leave notes to move tasks later, in this order."""
    texts = [msgspec.json.encode(page).decode() for page in pages]
    corridor.txn.notes.add([(kind, graph, None, None, None, text, actor) for text in texts])
    corridor.count(graph, active=len(texts))


def promised(note: Note) -> list[int]:
    """Name the tasks that a note is about."""
    return _IDS.decode(note.tasks)


def keep_promise(corridor: Corridor, note: Note) -> None:
    """A note is done."""
    corridor.txn.notes.drop(note.id)
    corridor.count(note.graph, active=-1)


def unknown(what: str, id: int) -> Refusal:
    """Say that there is no such task or graph."""
    return Refusal(Code.NOT_FOUND, f"there is no {what} {text_of(Key(id))}")


def _edges(txn: Txn, prerequisites: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Read the out-edges of tasks, page by page."""
    for start in range(0, len(prerequisites), PAGE_MAX):
        some = prerequisites[start : start + PAGE_MAX]
        edges = txn.edges.beyond(some, (-1, -1, ""), EDGES_MAX)
        yield from edges
        while len(edges) == EDGES_MAX:
            edges = txn.edges.beyond(some, edges[-1], EDGES_MAX)
            yield from edges


def _cut(tasks: Iterable[int], to_tell: Mapping[int, int]) -> list[list[int]]:
    """Cut tasks into pages: each can be moved by one transaction, and what it has to tell can be told there too.

    Else a dependent in a page would still think that what it hangs on is where it was. Only a task that has more to
    tell than fits stands alone.
    """
    pages: list[list[int]] = []
    told = 0
    for task in tasks:
        told += to_tell[task]
        if not pages or len(pages[-1]) == PAGE_MAX or told > TOLD_MAX:
            pages.append([])
            told = to_tell[task]
        pages[-1].append(task)
    return pages
