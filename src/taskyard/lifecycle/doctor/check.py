"""The room where the store is looked after: `doctor` recounts every number, `repair` mends what can be mended.

The doctor only reads. Give it a look at the store (`store.read()`), which is one moment, and others go on writing
meanwhile. A repair does not believe what was found: it takes the locks that the keepers of a number take, counts again
and writes that, with an audit row for each number in the same transaction. Then it asks the gates of those it mended,
since they may have missed their turn. Done again it changes nothing more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from taskyard.core.states import Millis, Signal, sources
from taskyard.lifecycle import queues, subgraph
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.doctor import evidence, finding, fleet
from taskyard.lifecycle.doctor.evidence import Evidence, Whole, gather, wholes
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.graphs import GRAPHS_MAX, Survey, Totals, attempts_of, placed, unheard
from taskyard.lifecycle.doctor.history import attempt_findings
from taskyard.lifecycle.doctor.recount import NO_QUEUE, differences, recounted, stuck
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import TaskRow
from taskyard.store.repo.events import ServerRow, encode_fact, encode_transition
from taskyard.store.rows import GraphRecord

#: Whoever has more to find mends these first and asks again.
FINDINGS_MAX: Final = 10_000
#: How many tasks one transaction mends.
PAGE_MAX: Final = 200
#: What the audit calls it.
REPAIR: Final = "repair"
#: Where a task stands before admission.
_ADMISSIBLE: Final = sources(Signal.ADMIT)

#: Carries out one transaction.
Transact: TypeAlias = Callable[[Callable[[Transaction], None]], None]


def doctor(repo: Repo, now: Millis) -> list[Finding]:
    """Recount every stored number; say what does not follow from the rest, at most `FINDINGS_MAX` of it."""
    return list(islice(_found(repo, now), FINDINGS_MAX))


def repair(transact: Transact, findings: Iterable[Finding], actor: str = "") -> int:
    """Mend what can be mended; say how many findings that were."""
    transact = _afresh(transact)
    mendable = [one for one in findings if one.mendable]
    tasks = {int(one.subject) for one in mendable if one.kind in finding.OF_TASKS}
    graphs = {int(one.subject) for one in mendable if one.kind == finding.GRAPH}
    # First what numbers follow from, then every row on its own, then the graphs, which follow from them; moves come
    # last, when all numbers are good.
    handled: dict[int, int] = {}
    for page in _pages(tasks):
        transact(lambda transaction, page=page: handled.update(_mend_belongings(transaction, page, actor)))  # type: ignore[misc]
    tasks.update(handled)
    for page in _pages(tasks):
        transact(lambda transaction, page=page: _mend_tasks(transaction, page, actor))  # type: ignore[misc]
    for graph in sorted(graphs.union(handled.values())):
        transact(lambda transaction, graph=graph: _mend_graph(transaction, graph, actor))  # type: ignore[misc]
    for page in _pages(tasks):
        transact(lambda transaction, page=page: _ask(transaction, page, actor))  # type: ignore[misc]
    for page in _pages(graphs):
        transact(lambda transaction, page=page: _tell(transaction, page, actor))  # type: ignore[misc]
    if any(one.kind not in finding.OF_TASKS | {finding.GRAPH} for one in mendable):
        transact(lambda transaction: _mend_strays(transaction, mendable, actor))
    return len(mendable)


def _afresh(transact: Transact) -> Transact:
    """Go by what is stored: what is known by heart may be better than that, and what is mended is not known yet."""

    def carry_out(act: Callable[[Transaction], None]) -> None:
        def distrusting(transaction: Transaction) -> None:
            transaction.repo.cache.bypass()
            act(transaction)

        transact(distrusting)

    return carry_out


def _found(repo: Repo, now: Millis) -> Iterator[Finding]:
    after = -1
    while page := repo.doctor.graphs(after, GRAPHS_MAX):
        survey = Survey(repo, {graph.id: graph for graph in page}, now)
        yield from survey.tasks()
        yield from survey.graph_findings()
        after = page[-1].id
    yield from fleet.strays(repo)


# Tasks, and what belongs to them.


def _mend_belongings(transaction: Transaction, ids: Sequence[int], actor: str) -> dict[int, int]:
    """Write the rows beside tasks as they should be, while neither they nor what they wait for can move.

    Say whose handlers have to be counted again for that, and in which graphs.
    """
    tasks, known, _ = _gathered(transaction, ids)
    handled = {id: task.graph_id for task in tasks for (id, _), _ in evidence.edges_to_mend(task, known)}
    if handled:
        transaction.repo.doctor.hold_tasks(sorted(handled))
        tasks, known, _ = _gathered(transaction, ids)
    for task in tasks:
        found = evidence.mend(transaction.repo, task, known)
        _audit(transaction, found, actor)
        if found:
            transaction.mark_dirty(task.id)
    return handled


def _mend_tasks(transaction: Transaction, ids: Sequence[int], actor: str) -> None:
    """Count again what is about tasks that nobody else can move now, and write it."""
    tasks, known, graphs = _gathered(transaction, ids)
    rows: list[TaskRow] = []
    for task in tasks:
        want = placed(recounted(task, known, graphs[task.graph_id], transaction.now), known)
        found = list(differences(task, want))
        if found:
            rows.append(want._replace(queue_id=_queue(transaction, want, known)) if want.queue_id == NO_QUEUE else want)
        _audit(transaction, [*found, *_mend_attempts(transaction, task, known)], actor)
        if task.needs_admission != want.needs_admission:
            transaction.mark_dirty(task.id)  # a pass that knew it has to forget it, or to learn of it
    transaction.repo.doctor.mend_tasks(rows)


def _gathered(transaction: Transaction, ids: Sequence[int]) -> tuple[list[TaskRow], Evidence, dict[int, Whole]]:
    """Read tasks that nobody else can move from now on, and what their numbers follow from."""
    held = transaction.repo.doctor.hold_tasks(ids)
    graphs = wholes(transaction.repo, transaction.repo.graphs.peek({task.graph_id for task in held}))
    tasks = [task for task in held if task.graph_id in graphs]
    return tasks, gather(transaction.repo, tasks, graphs), graphs


def _queue(transaction: Transaction, task: TaskRow, known: Evidence) -> int:
    """Make the queue of the slice that a task is on."""
    dimensions = known.definitions[task.id].slices[task.slice_index].dimensions
    return queues.ensure(transaction.repo, [dimensions])[dimensions]


def _mend_attempts(transaction: Transaction, task: TaskRow, known: Evidence) -> list[Finding]:
    tried, wanted = known.tried.get(task.id, ()), attempts_of(task, known)
    transaction.repo.doctor.mend_attempts([want for have, want in zip(tried, wanted, strict=True) if have != want])
    found = attempt_findings(task, known.pasts[task.id], tried, wanted)
    return [one for one in found if one.mendable]


def _ask(transaction: Transaction, ids: Sequence[int], actor: str) -> None:
    """Let those go who missed their turn while their numbers were wrong."""
    held, _, graphs = _gathered(transaction, ids)
    tasks = [task for task in held if not (graphs[task.graph_id].is_loading or task.loading)]
    for task in tasks:
        _audit(transaction, stuck(task, graphs[task.graph_id]), actor)
    records = transaction.lock_tasks([task.id for task in tasks]).values()
    transaction.stirred += [task.id for task in records if task.needs_admission]
    transaction.to_admit += [
        (task, Signal.ADMIT) for task in records if task.state in _ADMISSIBLE and not task.needs_admission
    ]
    transaction.recheck_gates(records)
    transaction.apply()


def _tell(transaction: Transaction, graphs: Sequence[int], actor: str) -> None:
    """Let tasks hear of the graphs inside them that came to rest unheard while their numbers were wrong."""
    for graph in transaction.repo.graphs.peek(transaction.repo.doctor.unheard(graphs)):
        subgraph.end_parent(transaction, graph)
        _audit(transaction, [unheard(graph.id)], actor)


# Graphs.


def _mend_graph(transaction: Transaction, id: int, actor: str) -> None:
    """Count a whole graph while it is kept from others. For a large one that takes longer than a move ever does."""
    found = transaction.repo.graphs.read([id])
    if not found:
        return
    survey = Survey(transaction.repo, {id: found[0]}, transaction.now)
    deque(survey.tasks(), maxlen=0)
    wrong = [one for one in survey.graph_findings() if one.mendable]
    for graph, totals in survey.totals() if wrong else ():
        _write_graph(transaction, graph, totals)
    _audit(transaction, wrong, actor)


def _write_graph(transaction: Transaction, graph: GraphRecord, totals: Totals) -> None:
    events, moved_ms = totals.events, totals.moved_ms
    if totals.turned is not None and totals.turned != totals.state:
        # Others were told something that was not so.
        turned = encode_fact(encode_transition(totals.turned, totals.state, None), None, None, None)
        transaction.repo.events.add(transaction.now, [(graph.id, events, {graph.id: [turned]})])
        events, moved_ms = events + 1, transaction.now
    counts = (totals.active, totals.behind, totals.unhandled, events, totals.events_published, totals.extensions)
    row = (graph.id, totals.state, *counts, totals.created_ms, moved_ms, totals.canceled_ms, totals.loader)
    transaction.repo.doctor.mend_graphs([row])
    transaction.repo.doctor.mend_events([(graph.id, graph.id)])


# Everything else.


def _mend_strays(transaction: Transaction, findings: Sequence[Finding], actor: str) -> None:
    """Look for strays again, and mend those that are still there."""
    kinds = {one.kind for one in findings}
    if kinds & {finding.SERVICE, finding.QUEUE}:
        transaction.repo.queues.lock_count()
    transaction.repo.bots.read(sorted({str(one.subject) for one in findings if one.kind == finding.BOT}))
    transaction.lock_tasks(sorted({int(one.subject) for one in findings if one.kind == finding.HOLD}))
    wanted = {(one.kind, one.subject) for one in findings}
    now = fleet.mendable_strays(transaction.repo, kinds)
    still = [one for one in now if one.mendable and (one.kind, one.subject) in wanted]
    of = {kind: [one for one in still if one.kind == kind] for kind in kinds}
    transaction.repo.admission.delete_holds([int(one.subject) for one in of.get(finding.HOLD, ())])
    transaction.repo.doctor.unserve([(one.subject, one.stored) for one in of.get(finding.BOT_QUEUE, ())])
    _mend_bots(transaction, {str(one.subject) for one in of.get(finding.BOT, ())})
    _mend_queues(transaction, {int(one.subject) for one in of.get(finding.QUEUE, ())})
    _mend_service(transaction, {(str(one.subject), one.column) for one in of.get(finding.SERVICE, ())})
    _audit(transaction, still, actor)


def _mend_bots(transaction: Transaction, ids: set[str]) -> None:
    if not ids:
        return
    wanted = [fleet.counted_bot(bot) for bot in fleet.bots(transaction.repo) if bot.id in ids]
    transaction.repo.doctor.mend_bots([bot[:5] for bot in wanted])
    transaction.mark_dirty(None)


def _mend_queues(transaction: Transaction, ids: set[int]) -> None:
    """Write what follows from the dimensions of queues. Other servers go on with what they remember until restarted."""
    if not ids:
        return
    mended = [fleet.queue_row(queue) for queue in transaction.repo.queues.after(0) if queue.id in ids]
    transaction.repo.doctor.mend_queues(mended)
    transaction.registry.forget()


def _mend_service(transaction: Transaction, wrong: set[tuple[str, str]]) -> None:
    if ("here", "queues") in wrong:
        transaction.repo.queues.add([], transaction.repo.doctor.queue_counts()[2])
    for name, server in transaction.repo.servers.all().items() if wrong else ():
        if (name or "here", "since_ms") in wrong:
            transaction.repo.servers.save(ServerRow(name, server.seen_ms, server.seen_ms))


def _audit(transaction: Transaction, findings: Iterable[Finding], actor: str) -> None:
    """Note what is mended, with the task or the graph that it is about."""
    for one in findings:
        transaction.audit(actor, REPAIR, int(one.subject) if one.is_keyed else NO_SUBJECT, str(one))


def _pages(ids: Iterable[int]) -> Iterator[Sequence[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), PAGE_MAX):
        yield ordered[start : start + PAGE_MAX]


__all__ = ["FINDINGS_MAX", "Finding", "doctor", "repair"]
