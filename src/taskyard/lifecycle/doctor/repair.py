"""`repair` rewrites wrong counts from the rows that they count.

It does not trust the findings: it takes the locks of the code that keeps a count, counts again and writes that, with an
audit row for each count in the same transaction. Then it asks the gates of the tasks that it repaired, since they may
have missed their turn. A second repair changes nothing.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from taskyard.core.states import Signal, sources
from taskyard.lifecycle import subgraph
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.doctor import finding, fleet
from taskyard.lifecycle.doctor.check import GraphPage
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.invariants import settled_unnoticed, unasked_gate
from taskyard.lifecycle.doctor.recount import (
    GraphCounts,
    GraphFacts,
    graph_facts,
    recount_task,
    task_differences,
    task_facts,
)
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.doctor import TaskRow
from taskyard.store.repo.events import encode_fact, encode_transition

#: How many tasks one transaction repairs.
PAGE_MAX: Final = 200
#: The name of a repair in the audit.
REPAIR: Final = "repair"
#: The states of a task before admission.
_ADMISSIBLE: Final = sources(Signal.ADMIT)

#: Carries out one transaction.
Transact: TypeAlias = Callable[[Callable[[Transaction], None]], None]
Subject = TypeVar("Subject")


def repair(transact: Transact, findings: Iterable[Finding], actor: str = "") -> int:
    """Repair what can be repaired; return the number of those findings."""

    def run(step: Callable[[Transaction, Subject, str], None], subject: Subject) -> None:
        def act(transaction: Transaction) -> None:
            transaction.repo.cache.bypass()  # the cached rows may be right where the stored ones are wrong
            step(transaction, subject, actor)

        transact(act)

    mendable = [one for one in findings if one.mendable]
    tasks = {int(one.subject) for one in mendable if one.kind == finding.TASK}
    graphs = {int(one.subject) for one in mendable if one.kind == finding.GRAPH}
    others = [one for one in mendable if one.kind not in {finding.TASK, finding.GRAPH}]
    # First the tasks, then the graphs, which sum them up. Moves come last, when all counts are right.
    for page in _pages(tasks):
        run(_repair_tasks, page)
    for graph in sorted(graphs):
        run(_repair_graph, graph)
    for page in _pages(tasks):
        run(_ask_gates, page)
    for page in _pages(graphs):
        run(_end_parents, page)
    if others:
        run(_repair_fleet, others)
    return len(mendable)


def _pages(ids: Iterable[int]) -> Iterator[Sequence[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), PAGE_MAX):
        yield ordered[start : start + PAGE_MAX]


# Tasks.


def _repair_tasks(transaction: Transaction, ids: Sequence[int], actor: str) -> None:
    """Recount tasks while they are locked, and write that."""
    tasks, graphs = _locked(transaction, ids)
    facts = task_facts(transaction.repo, tasks, graphs)
    rows: list[TaskRow] = []
    for task in tasks:
        wanted = recount_task(task, facts, graphs[task.graph_id], transaction.now)
        found = list(task_differences(task, wanted))
        rows += [wanted] if found else []
        _audit(transaction, found, actor)
        if task.needs_admission != wanted.needs_admission:
            transaction.mark_dirty(task.id)  # the admission pass has to learn of it, or to forget it
    transaction.repo.doctor.repair_tasks(rows)


def _ask_gates(transaction: Transaction, ids: Sequence[int], actor: str) -> None:
    """Move the tasks that missed their turn while their counts were wrong."""
    locked, graphs = _locked(transaction, ids)
    tasks = [task for task in locked if graphs[task.graph_id].counts(task)]
    for task in tasks:
        _audit(transaction, unasked_gate(task, graphs[task.graph_id]), actor)
    records = transaction.lock_tasks([task.id for task in tasks]).values()
    for record in records:
        if record.needs_admission:
            transaction.mark_dirty(record.id)
        elif record.state in _ADMISSIBLE:
            transaction.request_admission(record)
    transaction.recheck_gates(records)
    transaction.apply()


def _locked(transaction: Transaction, ids: Sequence[int]) -> tuple[list[TaskRow], dict[int, GraphFacts]]:
    """Lock tasks, and read their graphs."""
    locked = transaction.repo.doctor.lock_tasks(ids)
    graphs = graph_facts(transaction.repo, transaction.repo.graphs.peek({task.graph_id for task in locked}))
    return [task for task in locked if task.graph_id in graphs], graphs


# Graphs.


def _repair_graph(transaction: Transaction, id: int, actor: str) -> None:
    """Recount a whole graph while it is locked. For a large one that takes longer than any move."""
    locked = transaction.repo.graphs.read([id])
    if not locked:
        return
    page = GraphPage(transaction.repo, {id: locked[0]}, transaction.now)
    deque(page.check_tasks(), maxlen=0)
    wrong = [one for one in page.check_graphs() if one.mendable]
    for graph, wanted in page.recounted() if wrong else ():
        _write_graph(transaction, graph, wanted)
    _audit(transaction, wrong, actor)


def _write_graph(transaction: Transaction, graph: GraphFacts, wanted: GraphCounts) -> None:
    id, published, moved_ms = graph.record.id, graph.replay.state, None
    if published is not None and published != wanted.state:
        # Subscribers were sent another state.
        turned = encode_fact(encode_transition(published, wanted.state, None), None, None, None)
        transaction.repo.events.add(transaction.now, [(id, wanted.events, [(id, [turned])])])
        wanted, moved_ms = wanted._replace(events=wanted.events + 1), transaction.now
    transaction.repo.doctor.repair_graphs([(id, *wanted, moved_ms)])


def _end_parents(transaction: Transaction, graphs: Sequence[int], actor: str) -> None:
    """End the tasks whose inner graph settled unnoticed while its counts were wrong."""
    for graph in transaction.repo.graphs.peek(transaction.repo.doctor.settled_inner(graphs)):
        subgraph.end_parent(transaction, graph)
        _audit(transaction, [settled_unnoticed(graph.id)], actor)


# The fleet, and everything else.


def _repair_fleet(transaction: Transaction, findings: Sequence[Finding], actor: str) -> None:
    """Check again under locks, and repair what is still wrong."""
    repo, wanted = transaction.repo, {(one.kind, one.subject) for one in findings}
    if any(one.kind in {finding.SERVICE, finding.QUEUE} for one in findings):
        repo.queues.lock_count()
    repo.bots.read(sorted({str(one.subject) for one in findings if one.kind == finding.BOT}))
    transaction.lock_tasks(sorted({int(one.subject) for one in findings if one.kind == finding.HOLD}))
    still = [one for one in fleet.counts(repo) if one.mendable and (one.kind, one.subject) in wanted]
    of: dict[str, list[Finding]] = defaultdict(list)
    for one in still:
        of[one.kind].append(one)
    repo.admission.delete_holds([int(one.subject) for one in of[finding.HOLD]])
    repo.doctor.repair_bot_queues([(one.subject, one.stored) for one in of[finding.BOT_QUEUE]])
    if finding.BOT in of:
        ids = {one.subject for one in of[finding.BOT]}
        repo.doctor.repair_bots([fleet.recount_bot(bot)[:4] for bot in fleet.bots(repo) if bot.id in ids])
        transaction.mark_dirty(None)
    if finding.QUEUE in of:
        ids = {one.subject for one in of[finding.QUEUE]}
        repo.doctor.repair_queues([fleet.queue_row(queue) for queue in repo.queues.after(0) if queue.id in ids])
        transaction.registry.forget()  # other servers learn of it when they are restarted
    if finding.SERVICE in of:
        repo.queues.add([], repo.doctor.queue_counts()[1])
    _audit(transaction, still, actor)


def _audit(transaction: Transaction, findings: Iterable[Finding], actor: str) -> None:
    """Audit what is repaired, with the task or the graph that it is about."""
    for one in findings:
        transaction.audit(actor, REPAIR, int(one.subject) if one.is_keyed else NO_SUBJECT, str(one))
