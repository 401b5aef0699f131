"""Graphs: one with its counts, a page of them, durations of tasks, and the critical path.

A page looks at a limited number of graphs: it may be shorter than requested, or empty, and still say where the next one
begins. Only a page that does not is the last.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from taskyard.core.critical_path import Before, Coming, Spell, decisive, forecast, ran_ms, remaining_ms, typical_ms
from taskyard.core.graph.gate import meets
from taskyard.core.graph.model import routing_key
from taskyard.core.graph.state import Tally, settled
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.states import ENDED, FINAL, UNSUCCESSFUL, GraphState, Millis, On, State
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST, GraphFilter, GraphRow, UnfinishedTaskRow
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.launches import launch_of, links_of
from taskyard.views.tasks import parent_view
from taskyard.views.visibility import Visibility
from taskyard.wire.api import CriticalPath, GraphView, Parent, PathTask

#: How many graphs are looked at for one page.
LOOKED_MAX: Final = 5_000
#: How many labels the answer to a submission has; those of a larger graph come in pages.
NAMES_MAX: Final = 10_000
#: How many labels and sinks the view of one graph has; fewer, because clients that watch a graph ask for it often.
NAMED_MAX: Final = 1_000

#: The states of tasks that do not keep their graph from being finished.
_DONE: Final = frozenset({State.SUCCESSFUL.text, State.SKIPPED.text})
_TAGS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_LABELS: Final = msgspec.json.Decoder(list[str])


def graph(repo: Repo, id: int, counts: bool, visibility: Visibility, names_url: str | None = None) -> GraphView | None:
    """Show one graph, with how many of its tasks are in each state; None if it does not exist or is not loaded.

    With `names_url` it has the names of its tasks, or that link if they are too many, and what it still requires.
    """
    row = repo.read.graph(id)
    if row is None:
        return None
    by_state, assigned = repo.read.counts_with_assigned(id) if counts else ({}, 0)
    view = replace(
        _view(row),
        counts=by_state,
        assigned=assigned,
        parent=_parent(repo, id),
        child_of=parent_view(repo, repo.task_list.parents([id]).get(id)),
        deadlock=deadlock.of_graph(repo, id, visibility) if row.active else None,
        launch=(launched := launch_of(repo, id)),
        links=links_of(repo, id) if launched is not None else [],
    )
    return view if names_url is None else _with_names(repo, id, view, names_url)


def brief(repo: Repo, id: int) -> GraphView | None:
    """Show one graph without counts, parent and deadlock: the cost does not depend on its size."""
    row = repo.read.graph(id)
    return None if row is None else _view(row)


def is_settled(repo: Repo, id: int) -> bool | None:
    """Whether nothing in a graph can move without a person; the cost does not depend on its size."""
    found = brief(repo, id)
    return None if found is None else found.settled


def with_counts(repo: Repo, views: Iterable[GraphView]) -> list[GraphView]:
    """Add to graphs how many of their tasks are in each state; this reads all their tasks."""
    found = ((one, *repo.read.counts_with_assigned(key_of(one.id))) for one in views)
    return [replace(one, counts=by_state, assigned=assigned) for one, by_state, assigned in found]


def graphs(
    repo: Repo, wanted: GraphFilter, tags: Mapping[str, str], after: int, count: int
) -> tuple[list[GraphView], int | None]:
    """Show graphs after an id; return where the next page begins, None at the end."""
    if not tags:
        rows = repo.read.graphs(wanted, after, count + 1)
        return [_view(row) for row in rows[:count]], rows[count - 1].id if len(rows) > count else None
    rows = repo.read.graphs(wanted, after, LOOKED_MAX)
    found = [(row.id, view) for row, view in zip(rows, map(_view, rows), strict=True) if _has(view, tags)]
    views = [view for _, view in found[:count]]
    if len(found) > count:
        return views, found[count - 1][0]
    return views, rows[-1].id if len(rows) == LOOKED_MAX else None


def names(repo: Repo, graph: int, after: int, count: int) -> tuple[dict[str, str], int | None]:
    """Return the ids of tasks of a graph by label, after an id; and where the next page begins."""
    found = repo.read.labels_page(graph, after, count + 1)
    return _named(found[:count]), found[count - 1][1] if len(found) > count else None


def all_names(repo: Repo, graph: int) -> dict[str, str]:
    """Return the ids of all tasks of a graph by label; nothing if they are too many for one answer."""
    found = repo.read.labels_page(graph, FIRST, NAMES_MAX + 1)
    return _named(found) if len(found) <= NAMES_MAX else {}


def shown_names(ids: Mapping[str, int]) -> dict[str, str]:
    """Encode ids by label; nothing if they are too many for one answer."""
    return _named(ids.items()) if len(ids) <= NAMES_MAX else {}


def _with_names(repo: Repo, id: int, view: GraphView, names_url: str) -> GraphView:
    """Add what the task-graph scheduler shows of a graph: its tasks by label, and the sinks that it still requires."""
    found, sinks = repo.read.labels_page(id, FIRST, NAMED_MAX + 1), repo.read.sinks(id, _DONE, NAMED_MAX + 1)
    return replace(
        view,
        nameMapping=_named(found) if len(found) <= NAMED_MAX else {},
        namesUrl=names_url if len(found) > NAMED_MAX else None,
        requires=[text_of(Key(sink)) for sink in sinks[:NAMED_MAX]],
        requires_whole=len(sinks) <= NAMED_MAX,
    )


def _parent(repo: Repo, id: int) -> Parent | None:
    (record,) = repo.graphs.peek([id])
    if record.parent is None or record.parent_attempt is None:
        return None
    return parent_view(repo, (record.parent, record.parent_attempt))


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


# The outline of a graph reads only its own row, so it costs the same for graphs of any size.


@dataclass(frozen=True, slots=True)
class GraphOutline:
    """A graph at one moment."""

    graph: int
    name: str
    state: GraphState
    active: int  # active tasks, and open continuations
    behind: int  # tasks that wait for others, or are blocked
    unhandled: int  # failed tasks that no handler has handled or still may handle
    settled: bool  # nothing in it can move without a person
    created_ms: Millis
    canceled_ms: Millis | None


def outline(repo: Repo, graph: int) -> GraphOutline | None:
    """Return the outline of a graph; None if it does not exist or is not loaded."""
    found, definition = repo.graphs.peek([graph]), repo.graphs.definition(graph)
    if not found or found[0].loader is not None or definition is None:
        return None
    one = found[0]
    counts = (one.tally.active, one.tally.behind, one.tally.unhandled)
    return GraphOutline(one.id, definition[1], one.state, *counts, settled(one.tally), one.created_ms, one.canceled_ms)


# How long tasks take: as long as those of the same label in the newest older graphs of the same name, up to limits. A
# graph without a name has no older graphs.

#: How many older graphs are looked at for durations.
GRAPHS_MAX: Final = 20
#: How many durations of a label are enough.
DURATIONS_MAX: Final = 10
#: How many labels one query looks up.
PAGE_MAX: Final = 500
#: How many labels are looked up in all: some seconds for the largest graphs.
GRAPHS_LOOKED_MAX: Final = 200_000


def typical(repo: Repo, graph: int, name: str, labels: Sequence[str], pools: frozenset[str] | None) -> dict[str, int]:
    """Return how long tasks usually take, by label, from older graphs in `pools` (None: all pools)."""
    took: dict[str, list[int]] = defaultdict(list)
    left = GRAPHS_LOOKED_MAX
    for older in _readable(repo, repo.read.graphs_named(name, graph, GRAPHS_MAX), pools):
        wanted = [label for label in labels if len(took[label]) < DURATIONS_MAX][:left]
        left -= len(wanted)
        for start in range(0, len(wanted), PAGE_MAX):
            # Only tasks in a final state, which is successful, tell how long a task takes.
            for label, ms in repo.read.attempt_durations(older, wanted[start : start + PAGE_MAX], FINAL):
                took[label].append(ms)
    found = {label: typical_ms(past) for label, past in took.items()}
    return {label: ms for label, ms in found.items() if ms is not None}


def _readable(repo: Repo, graphs: Collection[int], pools: frozenset[str] | None) -> list[int]:
    """Leave out graphs of other pools."""
    if pools is None:
        return list(graphs)
    known = repo.graphs.pools_of(list(graphs))
    return [one for one in graphs if not pools.isdisjoint(known[one])]


# The critical path: the chain of tasks that determined the end of a graph, or will. In a settled graph it is followed
# back from the task that ended last. In any other graph all tasks that have not ended are read.

#: How many tasks of a path are shown; the last ones, if the graph is settled.
PATH_MAX: Final = 1_000
#: How many prerequisites of a task are looked at, latest first.
BEFORE_MAX: Final = 1_000
#: How many rows one query reads.
ROWS_MAX: Final = 10_000
#: The states of tasks that ended, other than by being skipped.
_RAN: Final = UNSUCCESSFUL | FINAL


def critical_path(repo: Repo, graph: int, now: Millis, pools: frozenset[str] | None) -> CriticalPath | None:
    """Return the chain of tasks that determines the end of a graph, with durations from `pools` (None: all)."""
    row = repo.read.graph(graph)
    if row is None:
        return None
    if settled(Tally(row.active, row.behind, row.unhandled)):
        return _past(repo, row, now)
    return _future(repo, row, now, pools)


def _past(repo: Repo, row: GraphRow, now: Millis) -> CriticalPath:
    last = repo.read.last_ended(row.id, _RAN)
    path: list[PathTask] = []
    is_whole = True
    for task in _back(repo, row.created_ms, last):
        if len(path) == PATH_MAX:
            is_whole = False
            break
        path.append(task)
    path.reverse()
    ended_ms = path[-1].ended_ms if path else None
    running = sum(one.ran_ms or 0 for one in path)
    total = 0 if ended_ms is None else max(0, ended_ms - row.created_ms)
    return CriticalPath(
        graph_id=text_of(Key(row.id)),
        settled=True,
        at_ms=now,
        total_ms=total,
        path=path,
        whole=is_whole,
        ended_ms=ended_ms,
        running_ms=running,
        waiting_ms=max(0, total - running) if is_whole else None,
    )


def _back(repo: Repo, created_ms: int, last: int | None) -> Iterator[PathTask]:
    """Follow the path back from the task that ended last."""
    while last is not None:
        (record,) = repo.tasks.read([last])
        label = repo.tasks.definitions([last])[last][0]
        spells = [(row.round, Spell(row.claimed_ms, row.ended_ms or row.claimed_ms)) for row in repo.attempts.of(last)]
        began_ms = next((one.began_ms for round, one in spells if round == record.life.round), record.moved_ms)
        before = decisive(record.join, began_ms, _before(repo, last))
        ready_ms = created_ms if before is None else before.ended_ms
        ran = ran_ms(ready_ms, [one for _, one in spells])
        yield _past_task(record, label, (began_ms, ready_ms, ran))
        last = None if before is None else before.task


def _before(repo: Repo, task: int) -> list[Before]:
    rows = repo.read.ended_prerequisites(task, ENDED, BEFORE_MAX)
    return [Before(row.id, row.ended_ms, meets(row.on, row.state)) for row in rows]


def _past_task(record: TaskRecord, label: str, times: tuple[int, int, int]) -> PathTask:
    began_ms, ready_ms, ran = times
    return PathTask(
        task=text_of(Key(record.id)),
        label=label,
        state=record.state.text,
        began_ms=began_ms,
        ended_ms=record.moved_ms,
        ran_ms=ran,
        waited_ms=max(0, record.moved_ms - ready_ms - ran),
    )


def _future(repo: Repo, row: GraphRow, now: Millis, pools: frozenset[str] | None) -> CriticalPath:
    rows = {one.id: one for one in _coming(repo, row.id)}
    durations = typical(repo, row.id, row.name, list(dict.fromkeys(one.label for one in rows.values())), pools)
    coming = {id: _standing(one, durations.get(one.label), now) for id, one in rows.items()}
    expected = forecast(coming, _edges(repo, list(rows)))
    known_of = sum(rows[task].label in durations for task in expected.runs)
    path = [_future_task(rows[task], coming[task]) for task in expected.path[:PATH_MAX]]
    return CriticalPath(
        graph_id=text_of(Key(row.id)),
        settled=False,
        at_ms=now,
        total_ms=max(0, now - row.created_ms),
        path=path,
        whole=len(expected.path) <= PATH_MAX,
        expected_end_ms=now + expected.ends_in_ms if known_of else None,
        left=len(expected.runs),
        known=known_of,
        stuck=len(expected.stuck),
        confidence=round(known_of / len(expected.runs), 3) if expected.runs else None,
    )


def _coming(repo: Repo, graph: int) -> Iterator[UnfinishedTaskRow]:
    after = -1
    while page := repo.read.unfinished_tasks(graph, after, ENDED, ROWS_MAX):
        yield from page
        after = page[-1].id


def _standing(row: UnfinishedTaskRow, takes_ms: int | None, now: Millis) -> Coming:
    ran = 0 if row.claimed_ms is None else max(0, now - row.claimed_ms)
    pause = 0 if row.not_before_ms is None else max(0, row.not_before_ms - now)
    return Coming(row.state, row.join, takes_ms, ran, pause)


def _edges(repo: Repo, tasks: list[int]) -> Iterator[tuple[int, int, On]]:
    """Read the edges out of tasks."""
    for start in range(0, len(tasks), PAGE_MAX):
        some, after = tasks[start : start + PAGE_MAX], (-1, -1, "")
        while page := repo.edges.page_after(some, after, ROWS_MAX):
            for prerequisite, dependent, on in page:
                yield prerequisite, dependent, On(on)
            after = page[-1]


def _future_task(row: UnfinishedTaskRow, coming: Coming) -> PathTask:
    return PathTask(
        task=text_of(Key(row.id)),
        label=row.label,
        state=row.state.text,
        began_ms=row.claimed_ms,
        ran_ms=coming.ran_ms if row.claimed_ms is not None else None,
        expected_ms=coming.takes_ms,
        remaining_ms=None if coming.takes_ms is None else remaining_ms(coming),
    )
