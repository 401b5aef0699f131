"""The critical path of a graph: the chain of tasks that determined its end, or is going to. Nothing here writes.

Of a settled graph it is followed back from what ended last. Of one that moves, everything is read that has not ended,
so it is worked out only for who asks.
"""

from collections.abc import Iterator
from typing import Final

from taskyard.core.critical_path import Before, Coming, Spell, decisive, forecast, ran_ms, remaining_ms
from taskyard.core.graph.gate import meets
from taskyard.core.graph.verdict import Tally, settled
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import ENDED, FINAL, UNSUCCESSFUL
from taskyard.core.words import Millis, On
from taskyard.store.connection import Txn
from taskyard.store.repo.read import ComingRow, GraphRow
from taskyard.store.rows import TaskRecord
from taskyard.views.durations import typical
from taskyard.wire.api import CriticalPath, PathTask

#: How many tasks of a path are told; of the path of a settled graph those are the last.
PATH_MAX: Final = 1_000
#: How many prerequisites of a task are looked at: those that ended last.
BEFORE_MAX: Final = 1_000
#: How many rows are read at once.
ROWS_MAX: Final = 10_000
#: Of how many tasks edges are read at once.
PAGE_MAX: Final = 500
#: Ended, and was not only passed over.
_RAN: Final = UNSUCCESSFUL | FINAL


def critical_path(txn: Txn, graph: int, now: Millis, pools: frozenset[str] | None) -> CriticalPath | None:
    """Tell what determines the end of a graph; how long things take is known from graphs in `pools`, None for all."""
    row = txn.reading.graph(graph)
    if row is None:
        return None
    if settled(Tally(row.active, row.behind, row.unhandled)):
        return _past(txn, row, now)
    return _future(txn, row, now, pools)


# Looking back.


def _past(txn: Txn, row: GraphRow, now: Millis) -> CriticalPath:
    last = txn.times.last(row.id, _RAN)
    path: list[PathTask] = []
    is_whole = True
    for told in _back(txn, row.created_ms, last):
        if len(path) == PATH_MAX:
            is_whole = False
            break
        path.append(told)
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


def _back(txn: Txn, created_ms: int, last: int | None) -> Iterator[PathTask]:
    """Follow the path back from what ended last."""
    while last is not None:
        (record,) = txn.tasks.look([last])
        label = txn.tasks.definitions([last])[last][0]
        spells = [(row.round, Spell(row.claimed_ms, row.ended_ms or row.claimed_ms)) for row in txn.attempts.of(last)]
        began_ms = next((one.began_ms for round, one in spells if round == record.life.round), record.moved_ms)
        before = decisive(record.join, began_ms, _before(txn, last))
        ready_ms = created_ms if before is None else before.ended_ms
        ran = ran_ms(ready_ms, [one for _, one in spells])
        yield _told_past(record, label, (began_ms, ready_ms, ran))
        last = None if before is None else before.task


def _before(txn: Txn, task: int) -> list[Before]:
    rows = txn.times.before(task, ENDED, BEFORE_MAX)
    return [Before(row.id, row.ended_ms, meets(row.on, row.state)) for row in rows]


def _told_past(record: TaskRecord, label: str, times: tuple[int, int, int]) -> PathTask:
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


# Looking forward.


def _future(txn: Txn, row: GraphRow, now: Millis, pools: frozenset[str] | None) -> CriticalPath:
    rows = {one.id: one for one in _coming(txn, row.id)}
    takes = typical(txn, row.id, row.name, list(dict.fromkeys(one.label for one in rows.values())), pools)
    coming = {id: _standing(one, takes.get(one.label), now) for id, one in rows.items()}
    told = forecast(coming, _edges(txn, list(rows)))
    known_of = sum(rows[task].label in takes for task in told.runs)
    path = [_told_future(rows[task], coming[task]) for task in told.path[:PATH_MAX]]
    return CriticalPath(
        graph_id=text_of(Key(row.id)),
        settled=False,
        at_ms=now,
        total_ms=max(0, now - row.created_ms),
        path=path,
        whole=len(told.path) <= PATH_MAX,
        expected_end_ms=now + told.ends_in_ms if known_of else None,
        left=len(told.runs),
        known=known_of,
        stuck=len(told.stuck),
        confidence=round(known_of / len(told.runs), 3) if told.runs else None,
    )


def _coming(txn: Txn, graph: int) -> Iterator[ComingRow]:
    after = -1
    while page := txn.times.coming(graph, after, ENDED, ROWS_MAX):
        yield from page
        after = page[-1].id


def _standing(row: ComingRow, takes_ms: int | None, now: Millis) -> Coming:
    ran = 0 if row.claimed_ms is None else max(0, now - row.claimed_ms)
    pause = 0 if row.not_before_ms is None else max(0, row.not_before_ms - now)
    return Coming(row.state, row.join, takes_ms, ran, pause)


def _edges(txn: Txn, tasks: list[int]) -> Iterator[tuple[int, int, On]]:
    """Read the out-edges of tasks."""
    for start in range(0, len(tasks), PAGE_MAX):
        some, after = tasks[start : start + PAGE_MAX], (-1, -1, "")
        while page := txn.edges.beyond(some, after, ROWS_MAX):
            for prerequisite, dependent, on in page:
                yield prerequisite, dependent, On(on)
            after = page[-1]


def _told_future(row: ComingRow, coming: Coming) -> PathTask:
    return PathTask(
        task=text_of(Key(row.id)),
        label=row.label,
        state=row.state.text,
        began_ms=row.claimed_ms,
        ran_ms=coming.ran_ms if row.claimed_ms is not None else None,
        expected_ms=coming.takes_ms,
        remaining_ms=None if coming.takes_ms is None else remaining_ms(coming),
    )
