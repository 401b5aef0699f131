"""The room where people end work: a task, some tasks with everything behind them, or a whole graph.

A canceled task counts as a failure for its dependents, and its handlers run. In a canceled graph nothing starts any
more: the fact is stored before the first task moves. Below a task, dependents are canceled before what they wait for,
so no handler among them starts either: whoever deals with a failure of a task is behind it. What has ended stays as it
is.
"""

from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.explain_text import counted
from taskyard.core.graph.state import changeable
from taskyard.core.ids import Key, text_of
from taskyard.core.states import STOPPED, Outcome, Reason, Signal, sources, step
from taskyard.core.structs import value
from taskyard.lifecycle import selection, server_tasks
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, NeedsSearch, Refusal
from taskyard.lifecycle.selection import Search, SelectedPages, VersionedSelection
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition, transition_by
from taskyard.store.connection import Repo
from taskyard.store.queries import TransactionConflict
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: The note "cancel these tasks", or every task of the graph where it names none.
CANCEL: Final = "cancel"

_CANCELABLE = sources(Signal.CANCEL)


@value
class _Part:
    """Some tasks of a graph with everything behind them, and what was named to mean them."""

    graph: int
    subject: int
    roots: tuple[int, ...]

    def told(self, total: int) -> str:
        """Say for the audit how much that is."""
        if self.subject != self.graph:
            return f"and all behind it, {counted(total, 'task')}"
        more = f" and {len(self.roots) - 1} more" if len(self.roots) > 1 else ""
        return f"only task {text_of(Key(self.roots[0]))}{more} and all behind, {counted(total, 'task')}"


def cancel(
    transaction: Transaction, commands: Sequence[Cancel], found: SelectedPages | None = None
) -> list[Done | Refusal | BulkOutcome | NeedsSearch]:
    """End tasks and graphs as people ask; `found` says how far they reach, where that is too far to look."""
    transaction.lock_tasks({one.task for one in commands if one.task is not None})
    return [_cancel(transaction, one, found) for one in commands]


def find(repo: Repo, one: Cancel) -> VersionedSelection:
    """Find out what is behind tasks that are to be canceled with all of it."""
    if one.task is None:
        assert one.graph is not None, "a cancel names a task or a graph"
        return selection.select_all(repo, one.graph, _behind(one.tasks))
    return selection.select_all(repo, repo.tasks.read([one.task])[0].graph, _behind([one.task]))


def stop_page(transaction: Transaction, note: Continuation) -> bool:
    """Cancel the graph inside a task that is to end; say that this was all."""
    _cancel_graph(transaction, note.graph, note.actor)
    selection.finish(transaction, note)
    return True


def cancel_page(transaction: Transaction, note: Continuation) -> bool:
    """Cancel some of the tasks of a note; say whether that was all."""
    if note.tasks:
        _end(transaction, selection.task_ids_of(note), note.actor)
        selection.finish(transaction, note)
        return True
    transaction.hushed.add(note.graph)
    seen = transaction.repo.tasks.page_any_state(note.graph, note.cursor, selection.LOOKED_MAX)
    ids = [id for id, state in seen if state in _CANCELABLE]
    page, left = ids[: selection.PAGE_MAX], ids[selection.PAGE_MAX :]
    _end(transaction, page, note.actor)
    done = len(seen) < selection.LOOKED_MAX and not left
    if done:
        selection.finish(transaction, note)
    else:
        transaction.repo.continuations.advance(note.id, page[-1] if left else seen[-1][0])
    return done


def defer_whole_graph(transaction: Transaction, graph: int, actor: str) -> None:
    """Leave a note to cancel every task of a graph that is canceled."""
    transaction.repo.continuations.add([(CANCEL, graph, None, None, None, "", actor)])
    transaction.adjust_counts(graph, active=1)


def _cancel(
    transaction: Transaction, one: Cancel, found: SelectedPages | None
) -> Done | Refusal | BulkOutcome | NeedsSearch:
    if one.task is None:
        assert one.graph is not None, "a cancel names a task or a graph"
        if not one.tasks:
            return _cancel_graph(transaction, one.graph, one.actor)
        return _cancel_part(transaction, one.graph, one, found)
    task = selection.visible_task(transaction, one.task)
    if task is None:
        return selection.not_found("task", one.task)
    if not one.subtree:
        return _cancel_task(transaction, task, one.actor)
    return _cancel_subtree(transaction, _Part(task.graph, task.id, (task.id,)), one.actor, found)


def _cancel_task(transaction: Transaction, task: TaskRecord, actor: str) -> Done | Refusal:
    answer = step(task.state, Signal.CANCEL)
    if answer.outcome is Outcome.ILLEGAL:
        return Refusal(Code.CONFLICT, f"cannot cancel task {text_of(Key(task.id))}: it is {task.state}")
    if answer.outcome is Outcome.MOVE:
        transaction.apply([_move(task)])
        server_tasks.stop_server_tasks(transaction, [task], actor)
        transaction.audit(actor, CANCEL, task.id)
    return Done(task.id, task.state, echo=answer.outcome is Outcome.ECHO)


def _cancel_part(
    transaction: Transaction, graph: int, one: Cancel, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    """End some tasks of a graph with everything behind them."""
    graphs = transaction.repo.graphs.peek([graph])
    if not graphs or graphs[0].loader is not None:
        return selection.not_found("graph", graph)
    transaction.lock_tasks(one.tasks)
    for id in one.tasks:
        task = selection.visible_task(transaction, id)
        if task is None or task.graph != graph:
            return selection.not_found(f"task in graph {text_of(Key(graph))} with the id", id)
    return _cancel_subtree(transaction, _Part(graph, graph, one.tasks), one.actor, found)


def _cancel_subtree(
    transaction: Transaction, part: _Part, actor: str, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    graph = part.graph
    if transaction.is_canceled(graph):
        return BulkOutcome(part.subject, 0, echo=True)
    if not changeable(transaction.graph(graph).state):
        return _over(transaction.graph(graph))
    found = selection.select_within_limit(transaction, graph, _behind(part.roots), found)
    if found is None:
        return NeedsSearch()
    fits = found.total <= selection.PAGE_MAX
    moved = _end(transaction, [id for page in found.pages for id in page], actor) if fits else 0
    if not fits:
        selection.defer(transaction, CANCEL, graph, found.pages, actor)
    if fits and not moved:
        return BulkOutcome(part.subject, 0, echo=True)
    transaction.audit(actor, CANCEL, part.subject, part.told(found.total))
    return BulkOutcome(part.subject, moved, promised=not fits, total=found.total)


def _cancel_graph(transaction: Transaction, id: int, actor: str) -> BulkOutcome | Refusal:
    """Look at the tasks first and at the graph then: tasks are always locked before their graph."""
    ids, fits = _cancelable(transaction, id)
    transaction.lock_tasks(ids if fits else ())
    found = transaction.repo.graphs.read([id])
    if not found or found[0].loader is not None:
        return selection.not_found("graph", id)
    if found[0].canceled_ms is not None:
        return BulkOutcome(id, 0, echo=True)
    if not changeable(found[0].state):
        return _over(found[0])
    if fits and not set(_cancelable(transaction, id)[0]) <= set(ids):
        raise TransactionConflict("a task of the graph was rerun meanwhile")
    transaction.cancel_graph(id)
    moved = _end(transaction, ids, actor) if fits else 0
    if not fits:
        defer_whole_graph(transaction, id, actor)
    transaction.audit(actor, CANCEL, id)
    return BulkOutcome(id, moved, promised=not fits)


def _cancelable(transaction: Transaction, graph: int) -> tuple[list[int], bool]:
    """Name what can be canceled in a graph, as far as one looks; tell whether that is all and fits."""
    seen = transaction.repo.tasks.page_any_state(graph, -1, selection.LOOKED_MAX + 1)
    ids = [id for id, state in seen if state in _CANCELABLE]
    return ids, len(seen) <= selection.LOOKED_MAX and len(ids) <= selection.PAGE_MAX


def _behind(tasks: Collection[int]) -> Search:
    return lambda looking: selection.subtree(looking, tasks)


def _over(graph: GraphRecord) -> Refusal:
    return Refusal(Code.CONFLICT, f"cannot cancel anything in graph {text_of(Key(graph.id))}: it is {graph.state}")


def _end(transaction: Transaction, ids: Collection[int], actor: str) -> int:
    """Cancel those of some tasks that can be; say how many. What is still being loaded is canceled when it is shown."""
    tasks = transaction.lock_tasks(ids).values()
    moves = [_move(task) for task in tasks if task.state in _CANCELABLE and not task.loading]
    transaction.apply(moves)
    server_tasks.stop_server_tasks(transaction, [move.task for move in moves], actor)
    return len(moves)


def _move(task: TaskRecord) -> Transition:
    stops = step(task.state, Signal.CANCEL).target in STOPPED
    return transition_by(task, Signal.CANCEL, Reason.STOP_ASKED if stops else None)
