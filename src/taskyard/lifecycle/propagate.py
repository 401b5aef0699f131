"""Propagate the transitions of tasks to their dependents.

A dependent counts on its own row what its edges know, also while it runs and after it has ended: so a rerun finds the
right counts, and no transaction has to count unfinished prerequisites. If a task has more dependents than fit into one
transaction, a continuation is left, and the dependents are updated page by page.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskyard.core.graph.gate import Edges, EdgeState, known, shift
from taskyard.core.graph.state import Handlers
from taskyard.core.states import UNSUCCESSFUL, On, State
from taskyard.lifecycle import failure_handlers
from taskyard.lifecycle.failure_handlers import PROPAGATE, TO_DEPENDENTS
from taskyard.lifecycle.transition import StateChange
from taskyard.store.repo.tasks import EdgeRow, InEdge
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: Along how many edges one page propagates.
PAGE_MAX: Final = 1_000
#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
_SUCCESS: Final = On.SUCCESS


def prefetch(transaction: "Transaction", tasks: Mapping[int, TaskRecord]) -> None:
    """Request at once what will be read when these tasks end, if nothing can change it until then."""
    transaction.repo.graphs.prefetch({task.graph for task in tasks.values()})
    if tasks and not any(task.is_handler or task.open_continuations for task in tasks.values()):
        transaction.repo.edges.prefetch(tasks, transaction.edge_budget + 1)


def to_dependents(transaction: "Transaction", changes: Sequence[StateChange], edges_max: int) -> int:
    """Update the dependents of tasks, along `edges_max` edges at most; return along how many.

    What does not fit is left as continuations. So is what a task has to propagate while it has an open continuation:
    dependents learn of its transitions in order.
    """
    waiting = failure_handlers.continuations_of(transaction, [task for task, _, _ in changes], TO_DEPENDENTS)
    now = {change[0].id: change for change in changes if change[0].id not in waiting}
    edges = transaction.repo.edges.out_of(now, edges_max + 1) if now else []
    if len(edges) > edges_max:
        # Some edges of the last prerequisite may be missing, and those of later ones were not read.
        reached = edges[-1].prerequisite
        edges = [edge for edge in edges if edge.prerequisite < reached]
        left = transaction.repo.edges.with_dependents([id for id in now if id >= reached])
        now = {id: change for id, change in now.items() if id not in left}
    _update(transaction, edges, now, counts_handlers=True)
    if len(now) < len(changes):
        _defer(transaction, [change for change in changes if change[0].id not in now])
    return len(edges)


def run_page(transaction: "Transaction", continuation: Continuation) -> bool:
    """Update one page of dependents; return whether the continuation is done.

    The transitions that follow are left to `transaction.apply`.
    """
    assert continuation.task is not None
    assert continuation.source is not None
    assert continuation.target is not None
    task = transaction.lock_tasks([continuation.task])[continuation.task]
    edges = transaction.repo.edges.page_out_of(task.id, continuation.cursor, PAGE_MAX + 1)
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = failure_handlers.whole_groups(edges, lambda edge: edge.dependent)
    open_ones = failure_handlers.continuations_of(transaction, [task], TO_DEPENDENTS)[task.id]
    is_latest = open_ones[-1].id == continuation.id
    change = (task, State(continuation.source), State(continuation.target))
    _update(transaction, edges, {task.id: change}, counts_handlers=is_latest)
    if done:
        _complete(transaction, task, continuation, is_latest)
    else:
        transaction.repo.continuations.advance(continuation.id, edges[-1].dependent + 1)
    return done


def edges_of_new_tasks(transaction: "Transaction", dependents: Sequence[int]) -> dict[int, Edges]:
    """Count what the edges of new tasks know."""
    found = transaction.repo.edges.into(dependents)
    continuations = failure_handlers.continuations_about(
        transaction, {edge.prerequisite for edge in found if _has_continuations(transaction, edge)}, TO_DEPENDENTS
    )
    counts: dict[int, dict[EdgeState, int]] = defaultdict(lambda: dict.fromkeys(EdgeState, 0))
    for edge in found:
        prerequisite = transaction.known_task(edge.prerequisite)
        state = edge.state if prerequisite is None else prerequisite.state
        state = failure_handlers.state_known_to(edge.dependent, state, continuations.get(edge.prerequisite, ()))
        counts[edge.dependent][known(edge.on, state)] += 1
    return {id: Edges(*counts[id].values()) if id in counts else Edges() for id in dependents}


def _update(
    transaction: "Transaction", edges: Sequence[EdgeRow], changes: Mapping[int, StateChange], *, counts_handlers: bool
) -> None:
    """Update the edge counts of dependents, and have their gates looked at.

    `counts_handlers` says whether these changes are the latest of their tasks, so that handlers of failures are
    counted now.
    """
    if edges:
        transaction.repo.admission.prefetch_pools()  # tasks that are released now need them
    dependents = transaction.lock_tasks({edge.dependent for edge in edges})
    handlers: list[EdgeRow] = []
    changed: dict[int, TaskRecord] = {}
    for edge in edges:
        on, dependent = edge.on, dependents[edge.dependent]
        _, source, target = changes[edge.prerequisite]
        if on is not _SUCCESS and counts_handlers and target in UNSUCCESSFUL:
            handlers.append(edge)
        old = dependent.edges
        new = shift(old, on, source, target)
        if new is not old:
            dependent.edges = new
            changed[dependent.id] = dependent
    transaction.mark_edges_changed(changed)
    transaction.recheck_gates(changed.values())
    if handlers:
        failed = {id: task for id, (task, _, _) in changes.items()}
        failure_handlers.count_handlers(transaction, failed, handlers, dependents)


def _defer(transaction: "Transaction", changes: Sequence[StateChange]) -> None:
    """Leave continuations. Until they are done, a failed task counts as one that may still be handled."""
    failure_handlers.defer(transaction, [(PROPAGATE, *change) for change in changes])
    for task, _, target in changes:
        if target in UNSUCCESSFUL:
            transaction.set_handlers(task, Handlers(task.handlers.ran, task.handlers.open + 1))


def _complete(transaction: "Transaction", task: TaskRecord, continuation: Continuation, is_latest: bool) -> None:
    failure_handlers.complete(transaction, task, continuation)
    if is_latest and continuation.target in UNSUCCESSFUL:
        transaction.set_handlers(task, Handlers(task.handlers.ran, task.handlers.open - 1))


def _has_continuations(transaction: "Transaction", edge: InEdge) -> bool:
    prerequisite = transaction.known_task(edge.prerequisite)
    return bool(edge.open_continuations if prerequisite is None else prerequisite.open_continuations)
