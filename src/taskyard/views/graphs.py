"""Graphs for people: one of them with its counts, or a page of them, the newest first. Nothing here writes.

A page is found by looking at so many graphs and no more: it may be shorter than was asked for, or empty, and still
say where the next one begins. Only a page that does not is the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from taskyard.core.graph.routing import routing_key
from taskyard.core.graph.verdict import Tally, settled
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.words import State
from taskyard.store.connection import Txn
from taskyard.store.repo.read import FIRST, GraphRow, Wanted
from taskyard.views import deadlock
from taskyard.wire.api import GraphView, Parent

#: How many graphs are looked at for one page.
LOOKED_MAX: Final = 5_000
#: How many labels an answer to a submission names; of a larger graph they are asked for in pages.
NAMES_MAX: Final = 10_000
#: How many labels, and how many sinks, the view of one graph names: whoever watches a graph asks for it often.
NAMED_MAX: Final = 1_000

#: Where a task is that does not keep its graph from being finished.
_DONE: Final = frozenset({State.SUCCESSFUL.text, State.SKIPPED.text})
_TAGS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_LABELS: Final = msgspec.json.Decoder(list[str])


def graph(txn: Txn, id: int, counts: bool, sight: deadlock.Sight, names_url: str | None = None) -> GraphView | None:
    """Show one graph, with how many of its tasks are in each state; None if there is none, or it is not whole.

    With `names_url` it has the names of its tasks, or that link if they are too many, and what it still requires.
    """
    row = txn.reading.graph(id)
    if row is None:
        return None
    by_state, assigned = txn.reading.counted(id) if counts else ({}, 0)
    view = replace(
        _view(row),
        counts=by_state,
        assigned=assigned,
        parent=_parent(txn, id),
        deadlock=deadlock.of_graph(txn, id, sight) if row.active else None,
    )
    return view if names_url is None else _with_names(txn, id, view, names_url)


def is_settled(txn: Txn, id: int) -> bool | None:
    """Tell whether nothing in a graph can move without a person; it costs the same for a graph of any size."""
    row = txn.reading.graph(id)
    return None if row is None else _view(row).settled


def counted(txn: Txn, views: Iterable[GraphView]) -> list[GraphView]:
    """Add to graphs how many of their tasks are in each state; all of their tasks are read for it."""
    found = ((one, *txn.reading.counted(key_of(one.id))) for one in views)
    return [replace(one, counts=by_state, assigned=assigned) for one, by_state, assigned in found]


def graphs(
    txn: Txn, wanted: Wanted, tags: Mapping[str, str], after: int, count: int
) -> tuple[list[GraphView], int | None]:
    """Show graphs beyond an id, and say where to go on; None at the end."""
    if not tags:
        rows = txn.reading.graphs(wanted, after, count + 1)
        return [_view(row) for row in rows[:count]], rows[count - 1].id if len(rows) > count else None
    rows = txn.reading.graphs(wanted, after, LOOKED_MAX)
    found = [(row.id, view) for row, view in zip(rows, map(_view, rows), strict=True) if _has(view, tags)]
    views = [view for _, view in found[:count]]
    if len(found) > count:
        return views, found[count - 1][0]
    return views, rows[-1].id if len(rows) == LOOKED_MAX else None


def names(txn: Txn, graph: int, after: int, count: int) -> tuple[dict[str, str], int | None]:
    """Give the ids of the tasks of a graph by label, beyond an id, and say where to go on."""
    found = txn.reading.names(graph, after, count + 1)
    return _named(found[:count]), found[count - 1][1] if len(found) > count else None


def all_names(txn: Txn, graph: int) -> dict[str, str]:
    """Give the ids of all tasks of a graph by label; none of them, if they are too many for one answer."""
    found = txn.reading.names(graph, FIRST, NAMES_MAX + 1)
    return _named(found) if len(found) <= NAMES_MAX else {}


def told_names(ids: Mapping[str, int]) -> dict[str, str]:
    """Give ids that are known by label as they are shown; none of them, if they are too many for one answer."""
    return _named(ids.items()) if len(ids) <= NAMES_MAX else {}


def _with_names(txn: Txn, id: int, view: GraphView, names_url: str) -> GraphView:
    """Add what the task-graph scheduler tells of a graph: its tasks by label, and the sinks that it still requires."""
    found, sinks = txn.reading.names(id, FIRST, NAMED_MAX + 1), txn.reading.sinks(id, _DONE, NAMED_MAX + 1)
    return replace(
        view,
        nameMapping=_named(found) if len(found) <= NAMED_MAX else {},
        namesUrl=names_url if len(found) > NAMED_MAX else None,
        requires=[text_of(Key(sink)) for sink in sinks[:NAMED_MAX]],
        requires_whole=len(sinks) <= NAMED_MAX,
    )


def _parent(txn: Txn, id: int) -> Parent | None:
    (record,) = txn.graphs.peek([id])
    if record.parent is None or record.parent_attempt is None:
        return None
    (task,) = txn.tasks.look([record.parent])
    return Parent(text_of(Key(task.id)), record.parent_attempt, text_of(Key(task.graph)))


def _named(found: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {label: text_of(Key(id)) for label, id in found}


def _has(view: GraphView, tags: Mapping[str, str]) -> bool:
    return all(view.tags.get(key) == value for key, value in tags.items())


def _view(row: GraphRow) -> GraphView:
    id = text_of(Key(row.id))
    return GraphView(
        id=id,
        name=row.name,
        state=row.state,
        settled=settled(Tally(row.active, row.behind, row.unhandled)),
        created_ms=row.created_ms,
        moved_ms=row.moved_ms,
        canceled_ms=row.canceled_ms,
        active=row.active,
        behind=row.behind,
        unhandled=row.unhandled,
        routing=routing_key(row.scheduler_id, id, row.routing, ""),
        description=row.description,
        tags=dict(_TAGS.decode(row.tags)),
        schedulerId=row.scheduler_id,
        rerun_of=None if row.rerun_of is None else text_of(Key(row.rerun_of)),
        rerun_from=[] if row.rerun_from is None else _LABELS.decode(row.rerun_from),
        reused=row.reused or 0,
    )
