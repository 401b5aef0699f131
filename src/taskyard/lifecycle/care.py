"""The room where the store is looked after: `doctor` recounts every number, `repair` mends what can be mended.

The doctor only reads. Give it a look at the store (`store.read()`), which is one moment, and others go on writing
meanwhile. A repair does not believe what was found: it takes the locks that the keepers of a number take, counts again
and writes that. Then it asks the gates of those it mended, since they may have missed their turn.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias

from taskyard.core.machine import LEASED
from taskyard.core.words import Millis, On
from taskyard.lifecycle import finding, queues
from taskyard.lifecycle.finding import Finding
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.recount import (
    GRAPHS_MAX,
    Evidence,
    Survey,
    Totals,
    evidence,
    graph_findings,
    recounted,
    stored,
)
from taskyard.lifecycle.strays import HELD, events_of_bot, queue_row, strays
from taskyard.store.records import GraphRecord, TaskRecord
from taskyard.store.sessions import Row
from taskyard.store.txn import Txn
from taskyard.store.verbs.care import OpenRow
from taskyard.store.verbs.keeping import fact, spelled

#: Whoever has more to find mends these first and asks again.
FINDINGS_MAX: Final = 10_000
#: How many tasks one transaction mends.
PAGE_MAX: Final = 200

#: Carries out one transaction.
Transact: TypeAlias = Callable[[Callable[[Corridor], None]], None]


def doctor(txn: Txn, now: Millis) -> list[Finding]:
    """Recount every stored number; say what does not follow from the rest, at most `FINDINGS_MAX` of it."""
    return list(islice(_found(txn, now), FINDINGS_MAX))


def repair(transact: Transact, findings: Iterable[Finding], actor: str = "") -> int:
    """Mend what can be mended; say how many findings that were."""
    transact = _afresh(transact)
    mendable = [one for one in findings if one.mendable]
    tasks = sorted({int(one.subject) for one in mendable if one.kind in {finding.TASK, finding.ATTEMPT}})
    # First every row on its own, then the graphs, which follow from them; moves come last, when all numbers are good.
    for page in _pages(tasks):
        transact(lambda corridor, page=page: _mend_tasks(corridor, page))  # type: ignore[misc]
    for graph in sorted({int(one.subject) for one in mendable if one.kind == finding.GRAPH}):
        transact(lambda corridor, graph=graph: _mend_graph(corridor, graph))  # type: ignore[misc]
    for page in _pages(tasks):
        transact(lambda corridor, page=page: _ask(corridor, page))  # type: ignore[misc]
    transact(lambda corridor: _mend_strays(corridor, mendable))
    transact(lambda corridor: _audit(corridor, mendable, actor))
    return len(mendable)


def _afresh(transact: Transact) -> Transact:
    """Go by what is stored: what is known by heart may be better than that, and what is mended is not known yet."""

    def carry_out(act: Callable[[Corridor], None]) -> None:
        def distrusting(corridor: Corridor) -> None:
            corridor.txn.memory.distrust()
            act(corridor)

        transact(distrusting)

    return carry_out


def _found(txn: Txn, now: Millis) -> Iterator[Finding]:
    after = -1
    while page := txn.care.graphs(after, GRAPHS_MAX):
        survey = Survey(txn, {graph.id: graph for graph in page}, now)
        yield from survey.tasks()
        for graph, totals in survey.totals():
            yield from graph_findings(graph, totals)
        after = page[-1].id
    yield from strays(txn)


# Tasks and their attempts.


def _mend_tasks(corridor: Corridor, ids: Sequence[int]) -> None:
    """Count again what is about tasks that nobody else can move now, and write it."""
    tasks = list(corridor.look(ids).values())
    known_of = evidence(corridor.txn, tasks, {task.graph for task in tasks if corridor.canceled(task.graph)})
    rows: list[Row] = []
    for task in tasks:
        numbers = recounted(task, known_of, corridor.now)
        if numbers.queue_id is None:
            numbers = replace(numbers, queue_id=_queue(corridor, task, known_of))
        if numbers != stored(task):
            rows.append((task.id, *numbers.row()))
        _mend_attempts(corridor, task, numbers.attempt, known_of.attempts.get(task.id, ()))
    corridor.txn.care.mend_tasks(rows)


def _queue(corridor: Corridor, task: TaskRecord, known_of: Evidence) -> int:
    """Find or make the queue of the slice that a task is on."""
    slices = known_of.definitions[task.id].slices
    if task.life.slice_index >= len(slices):
        return task.queue  # it is on a slice that it does not have: nobody can say where it belongs
    dimensions = slices[task.life.slice_index].dimensions
    return queues.ensure(corridor.txn, [dimensions])[dimensions]


def _mend_attempts(corridor: Corridor, task: TaskRecord, number: int, attempts: Sequence[OpenRow]) -> None:
    """The latest attempt of a leased task is open and its bot's; every other one ended as its event says."""
    for row in attempts:
        leased = row.number == number and task.state in LEASED
        if leased and (row.bot, row.fence, row.ended_ms) != (task.bot, task.fence, None):
            corridor.txn.care.mend_attempts([(task.id, number, task.bot, task.fence)])
        elif not leased and row.ended_ms is None:
            corridor.txn.attempts.end([_end(corridor, task, row.number)])


def _end(corridor: Corridor, task: TaskRecord, number: int) -> Row:
    """Say how an attempt ended: as the event says that took its task from a bot, else when the task last moved."""
    end: Row = (task.id, number, task.moved_ms, None, None, None)
    after = 0
    while page := corridor.txn.events.of(task.id, after, PAGE_MAX):
        for event in page:
            if event.attempt == number and event.source in LEASED and event.target not in LEASED:
                end = (task.id, number, event.at_ms, event.signal, event.reason, None)
        after = page[-1].number
    return end


def _ask(corridor: Corridor, ids: Sequence[int]) -> None:
    """Let those go who missed their turn while their numbers were wrong."""
    tasks = [task for task in corridor.look(ids).values() if corridor.graph(task.graph).loader is None]
    corridor.stirred += [task.id for task in tasks if task.contends]
    corridor.ask(tasks)
    corridor.send()


# Graphs.


def _mend_graph(corridor: Corridor, id: int) -> None:
    """Count a whole graph while it is kept from others. For a large one that takes longer than a move ever does."""
    found = corridor.txn.graphs.look([id])
    if not found:
        return
    survey = Survey(corridor.txn, {id: found[0]}, corridor.now)
    deque(survey.tasks(), maxlen=0)
    for graph, totals in survey.totals():
        _write_graph(corridor, graph, totals)


def _write_graph(corridor: Corridor, graph: GraphRecord, totals: Totals) -> None:
    newest = totals.newest
    if totals.told is not None and totals.told != totals.state:
        # Others were told something that was not so.
        told = fact(corridor.now, spelled(totals.told, totals.state, None), None, None, None)
        corridor.txn.events.add([(graph.id, newest, {graph.id: [told]})])
        newest += 1
    row = (graph.id, totals.state, totals.active, totals.behind, totals.unhandled, newest, corridor.now)
    corridor.txn.graphs.turn([row])


# Everything else.


def _mend_strays(corridor: Corridor, findings: Sequence[Finding]) -> None:
    of = {kind: [one for one in findings if one.kind == kind] for kind in {one.kind for one in findings}}
    held = corridor.look(sorted({int(one.subject) for one in of.get(finding.HOLD, ())}))
    corridor.txn.passes.drop_holds([id for id, task in held.items() if task.state not in HELD])
    edges = sorted({one.subject for one in of.get(finding.EDGE, ())})
    corridor.txn.care.forget_ran([(prerequisite, str(On.SUCCESS)) for prerequisite in edges])
    _mend_bots(corridor, sorted({str(one.subject) for one in of.get(finding.BOT, ())}))
    corridor.txn.care.unserve([(one.subject, one.stored) for one in of.get(finding.BOT_QUEUE, ())])
    if finding.SERVICE in of or finding.QUEUE in of:
        _mend_queues(corridor, {int(one.subject) for one in of.get(finding.QUEUE, ())})


def _mend_bots(corridor: Corridor, ids: Sequence[str]) -> None:
    txn = corridor.txn
    newest = {id: next((row[1] for row in txn.bots.events(id, 1)), None) for id in txn.bots.look(ids)}
    txn.bots.count_events([(id, events_of_bot(key)) for id, key in newest.items()])


def _mend_queues(corridor: Corridor, ids: set[int]) -> None:
    """Write what follows from the dimensions of queues. Other servers go on with what they remember until restarted."""
    txn = corridor.txn
    txn.queues.lock()
    txn.care.mend_queues([queue_row(queue) for queue in txn.queues.after(0) if queue.id in ids])
    txn.queues.add([], txn.care.queue_counts()[2])
    corridor.registry.forget()


def _audit(corridor: Corridor, findings: Sequence[Finding], actor: str) -> None:
    """Note what was mended, with the task or the graph that it was about."""
    keyed = [one for one in findings if one.kind in {finding.TASK, finding.ATTEMPT, finding.GRAPH, finding.EDGE}]
    corridor.txn.events.add_audits([(corridor.now, actor, "repair", int(one.subject), str(one)) for one in keyed])


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), PAGE_MAX):
        yield ids[start : start + PAGE_MAX]


__all__ = ["FINDINGS_MAX", "Finding", "doctor", "repair"]
