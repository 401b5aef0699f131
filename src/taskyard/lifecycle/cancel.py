"""Cancel work: a task, some tasks with all their direct and indirect dependents, or a whole graph.

A canceled task counts as failed for its dependents, and its handlers run. In a canceled graph nothing starts any more:
that it is canceled is stored before the first task moves. In a subtree, dependents are canceled before their
prerequisites, so no handler among them starts either: the handlers of a task are its dependents. A task that has ended
stays as it is.
"""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.explain_text import counted
from taskyard.core.graph.state import changeable
from taskyard.core.ids import Key, text_of
from taskyard.core.states import STOPPED, Outcome, Reason, Signal, sources, step
from taskyard.core.structs import value
from taskyard.lifecycle import links, selection, server_tasks
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, NeedsSearch, Refusal
from taskyard.lifecycle.selection import Search, SelectedPages, VersionedSelection
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition, transition_by
from taskyard.store.connection import Repo
from taskyard.store.queries import TransactionConflict
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: The continuation "cancel these tasks", or every task of the graph if it names none.
CANCEL: Final = "cancel"
#: How many tasks of any graphs one transaction cancels.
TASKS_PER_CANCEL_MAX: Final = 200

_CANCELABLE = sources(Signal.CANCEL)


@value
class _Subtree:
    """Tasks of a graph with all their direct and indirect dependents, and the task or graph that the command names."""

    graph: int
    subject: int
    roots: tuple[int, ...]

    def audit_note(self, total: int) -> str:
        """Say for the audit how many tasks that are."""
        if self.subject != self.graph:
            return f"and all behind it, {counted(total, 'task')}"
        more = f" and {len(self.roots) - 1} more" if len(self.roots) > 1 else ""
        return f"only task {text_of(Key(self.roots[0]))}{more} and all behind, {counted(total, 'task')}"


def cancel(
    transaction: Transaction, commands: Sequence[Cancel], found: SelectedPages | None = None
) -> list[Done | Refusal | BulkOutcome | NeedsSearch]:
    """Cancel tasks and graphs. `found` has the tasks concerned, if they were too many for one transaction to find."""
    transaction.lock_tasks({one.task for one in commands if one.task is not None})
    return [_cancel(transaction, one, found) for one in commands]


def cancel_listed(transaction: Transaction, ids: Collection[int], actor: str) -> int:
    """Cancel those of some tasks of any graphs that can be, each as if it alone were canceled; return how many."""
    tasks = transaction.lock_tasks(ids)
    transaction.repo.graphs.prefetch({task.graph for task in tasks.values()})
    shown = [id for id in sorted(tasks) if selection.visible_task(transaction, id) is not None]
    chosen = [id for id in shown if step(tasks[id].state, Signal.CANCEL).outcome is Outcome.MOVE]
    canceled = _cancel_all(transaction, chosen, actor)
    for id in chosen:
        transaction.audit(actor, CANCEL, id)
    return canceled


def find(repo: Repo, one: Cancel) -> VersionedSelection:
    """Find the tasks of a subtree that is to be canceled, in a read transaction."""
    if one.task is None:
        assert one.graph is not None, "a cancel names a task or a graph"
        return selection.select_all(repo, one.graph, _subtree_of(one.tasks))
    return selection.select_all(repo, repo.tasks.read([one.task])[0].graph, _subtree_of([one.task]))


def stop_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Cancel the graph inside a task that is to end; the continuation is done then."""
    _cancel_graph(transaction, continuation.graph, continuation.actor)
    transaction.complete(continuation)
    return True


def release_update_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Cancel the update that a canceled launch needed, unless another one needs it; the continuation is done then."""
    graph = links.graph_to_release(transaction, continuation)
    if graph is not None:
        _cancel_graph(transaction, graph, continuation.actor)
    transaction.complete(continuation)
    return True


def cancel_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Cancel some tasks; return whether the continuation is done."""
    if continuation.tasks:
        _cancel_all(transaction, selection.task_ids_of(continuation), continuation.actor)
        transaction.complete(continuation)
        return True
    transaction.stop_propagation(continuation.graph)
    found = transaction.repo.tasks.page_any_state(continuation.graph, continuation.cursor, selection.LOOKED_MAX)
    ids = [id for id, state in found if state in _CANCELABLE]
    page, left = ids[: selection.PAGE_MAX], ids[selection.PAGE_MAX :]
    _cancel_all(transaction, page, continuation.actor)
    done = len(found) < selection.LOOKED_MAX and not left
    if done:
        transaction.complete(continuation)
    else:
        transaction.repo.continuations.advance(continuation.id, page[-1] if left else found[-1][0])
    return done


def defer_whole_graph(transaction: Transaction, graph: int, actor: str) -> None:
    """Leave a continuation that cancels every task of a canceled graph."""
    transaction.defer(CANCEL, graph, actor=actor)


def _cancel(
    transaction: Transaction, one: Cancel, found: SelectedPages | None
) -> Done | Refusal | BulkOutcome | NeedsSearch:
    if one.task is None:
        assert one.graph is not None, "a cancel names a task or a graph"
        if not one.tasks:
            return _cancel_graph(transaction, one.graph, one.actor)
        return _cancel_tasks_of(transaction, one.graph, one, found)
    task = selection.visible_task(transaction, one.task)
    if task is None:
        return selection.not_found("task", one.task)
    if not one.subtree:
        return _cancel_task(transaction, task, one.actor)
    return _cancel_subtree(transaction, _Subtree(task.graph, task.id, (task.id,)), one.actor, found)


def _cancel_task(transaction: Transaction, task: TaskRecord, actor: str) -> Done | Refusal:
    answer = step(task.state, Signal.CANCEL)
    if answer.outcome is Outcome.ILLEGAL:
        return Refusal(Code.CONFLICT, f"cannot cancel task {text_of(Key(task.id))}: it is {task.state}")
    if answer.outcome is Outcome.MOVE:
        transaction.apply([_transition(task)])
        server_tasks.stop_server_tasks(transaction, [task], actor)
        transaction.audit(actor, CANCEL, task.id)
    return Done(task.id, task.state, echo=answer.outcome is Outcome.ECHO)


def _cancel_tasks_of(
    transaction: Transaction, graph: int, one: Cancel, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    """Cancel tasks of a graph with all their dependents."""
    graphs = transaction.repo.graphs.peek([graph])
    if not graphs or graphs[0].loader is not None:
        return selection.not_found("graph", graph)
    transaction.lock_tasks(one.tasks)
    for id in one.tasks:
        task = selection.visible_task(transaction, id)
        if task is None or task.graph != graph:
            return selection.not_found(f"task in graph {text_of(Key(graph))} with the id", id)
    return _cancel_subtree(transaction, _Subtree(graph, graph, one.tasks), one.actor, found)


def _cancel_subtree(
    transaction: Transaction, subtree: _Subtree, actor: str, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    graph = subtree.graph
    if transaction.is_canceled(graph):
        return BulkOutcome(subtree.subject, 0, echo=True)
    if not changeable(transaction.graph(graph).state):
        return _refuse_ended(transaction.graph(graph))
    found = selection.select_within_limit(transaction, graph, _subtree_of(subtree.roots), found)
    if found is None:
        return NeedsSearch()
    fits = found.total <= selection.PAGE_MAX
    moved = _cancel_all(transaction, [id for page in found.pages for id in page], actor) if fits else 0
    if not fits:
        selection.defer(transaction, CANCEL, graph, found.pages, actor)
    if fits and not moved:
        return BulkOutcome(subtree.subject, 0, echo=True)
    transaction.audit(actor, CANCEL, subtree.subject, subtree.audit_note(found.total))
    return BulkOutcome(subtree.subject, moved, promised=not fits, total=found.total)


def _cancel_graph(transaction: Transaction, id: int, actor: str) -> BulkOutcome | Refusal:
    """Cancel a whole graph. The tasks are read first, because tasks are always locked before their graph."""
    ids, fits = _cancelable(transaction, id)
    transaction.lock_tasks(ids if fits else ())
    found = transaction.repo.graphs.read([id])
    if not found or found[0].loader is not None:
        return selection.not_found("graph", id)
    if found[0].canceled_ms is not None:
        return BulkOutcome(id, 0, echo=True)
    if not changeable(found[0].state):
        return _refuse_ended(found[0])
    if fits and not set(_cancelable(transaction, id)[0]) <= set(ids):
        raise TransactionConflict("a task of the graph was rerun meanwhile")
    transaction.cancel_graph(id)
    moved = _cancel_all(transaction, ids, actor) if fits else 0
    if not fits:
        defer_whole_graph(transaction, id, actor)
    transaction.audit(actor, CANCEL, id)
    return BulkOutcome(id, moved, promised=not fits)


def _cancelable(transaction: Transaction, graph: int) -> tuple[list[int], bool]:
    """Return tasks of a graph that can be canceled, and whether these are all and fit into one transaction."""
    found = transaction.repo.tasks.page_any_state(graph, -1, selection.LOOKED_MAX + 1)
    ids = [id for id, state in found if state in _CANCELABLE]
    return ids, len(found) <= selection.LOOKED_MAX and len(ids) <= selection.PAGE_MAX


def _subtree_of(tasks: Collection[int]) -> Search:
    return lambda reader: selection.subtree(reader, tasks)


def _refuse_ended(graph: GraphRecord) -> Refusal:
    return Refusal(Code.CONFLICT, f"cannot cancel anything in graph {text_of(Key(graph.id))}: it is {graph.state}")


def _cancel_all(transaction: Transaction, ids: Collection[int], actor: str) -> int:
    """Cancel those of some tasks that can be; return how many. Hidden tasks are canceled once they are visible."""
    tasks = transaction.lock_tasks(ids).values()
    transitions = [_transition(task) for task in tasks if task.state in _CANCELABLE and not task.loading]
    transaction.apply(transitions)
    server_tasks.stop_server_tasks(transaction, [one.task for one in transitions], actor)
    return len(transitions)


def _transition(task: TaskRecord) -> Transition:
    stops = step(task.state, Signal.CANCEL).target in STOPPED
    return transition_by(task, Signal.CANCEL, Reason.STOP_ASKED if stops else None)
