"""Rerun failed work: one task, or all that failed in a graph.

A rerun opens a new round of a task, with fresh budgets, on the first slice. The transaction releases what the failure
had blocked. A task that failed by policy, because of the failure, has failed too, so a rerun of the graph includes it.
"""

from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.explain_text import counted
from taskyard.core.graph.state import changeable
from taskyard.core.ids import Key, text_of
from taskyard.core.states import REASONS, SHUT, Impossible, Outcome, Signal, sources
from taskyard.lifecycle import release, selection
from taskyard.lifecycle.commands import BulkOutcome, Code, Done, NeedsSearch, Refusal, Rerun
from taskyard.lifecycle.failure_handlers import PROPAGATE, REPORT_RUN
from taskyard.lifecycle.selection import Search, SelectedPages, VersionedSelection
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.connection import Repo
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: The continuation "rerun these tasks".
RERUN: Final = "rerun"

_RERUNNABLE = sources(Signal.RERUN)


def rerun(
    transaction: Transaction, commands: Sequence[Rerun], found: SelectedPages | None = None
) -> list[Done | Refusal | BulkOutcome | NeedsSearch]:
    """Rerun tasks and graphs. `found` has the tasks concerned, if they were too many for one transaction to find."""
    transaction.lock_tasks({one.task for one in commands if one.task is not None})
    return [_rerun(transaction, one, found) for one in commands]


def find(repo: Repo, one: Rerun) -> VersionedSelection:
    """Find the failed tasks of a graph, in a read transaction."""
    assert one.graph is not None, "a single task needs no search"
    return selection.select_all(repo, one.graph, _failed_in(one.graph))


def rerun_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Rerun the tasks of a continuation; it is done then."""
    if not transaction.is_canceled(continuation.graph):
        _rerun_tasks(transaction, selection.task_ids_of(continuation))
    transaction.complete(continuation)
    return True


def _rerun(
    transaction: Transaction, one: Rerun, found: SelectedPages | None
) -> Done | Refusal | BulkOutcome | NeedsSearch:
    if one.task is None:
        assert one.graph is not None, "a rerun names a task or a graph"
        return _rerun_graph(transaction, one.graph, one.actor, found)
    task = selection.visible_task(transaction, one.task)
    return selection.not_found("task", one.task) if task is None else _rerun_task(transaction, task, one.actor)


def _rerun_task(transaction: Transaction, task: TaskRecord, actor: str) -> Done | Refusal | BulkOutcome:
    refusal = _refuse_ended(transaction.graph(task.graph))
    if refusal is not None:
        return refusal
    ruling = attempt_policy.rerun(task.life, task.rules, transaction.now)
    if ruling.outcome is Outcome.ILLEGAL:
        late = attempt_policy.past(task.rules.deadline_ms, transaction.now)
        why = "its deadline has passed" if late else f"it is {task.state}"
        return Refusal(Code.CONFLICT, f"cannot rerun task {text_of(Key(task.id))}: {why}")
    if ruling.outcome is Outcome.MOVE:
        transaction.audit(actor, RERUN, task.id)
        if (
            _could_fail_again(transaction, task)
            or transaction.repo.continuations.first(task.graph, REPORT_RUN) is not None
        ):
            selection.defer(transaction, RERUN, task.graph, [[task.id]], actor)
            return BulkOutcome(task.id, 0, promised=True)
        _rerun_tasks(transaction, [task.id])
    return Done(task.id, task.state, echo=ruling.outcome is Outcome.ECHO)


def _rerun_graph(
    transaction: Transaction, id: int, actor: str, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    graphs = transaction.repo.graphs.peek([id])
    if not graphs or graphs[0].loader is not None:
        return selection.not_found("graph", id)
    refusal = _refuse_ended(transaction.graph(id))
    if refusal is not None:
        return refusal
    found = selection.select_within_limit(transaction, id, _failed_in(id), found)
    if found is None:
        return NeedsSearch()
    pages = found.pages
    fits = len(pages) <= 1 and not any(
        transaction.repo.continuations.first(id, kind) for kind in (PROPAGATE, REPORT_RUN)
    )
    moved = sum(_rerun_tasks(transaction, page) for page in pages) if fits else 0
    if not fits:
        selection.defer(transaction, RERUN, id, pages, actor)
    if moved or not fits:
        transaction.audit(actor, RERUN, id, counted(found.total, "task"))
    if fits and not moved:
        return BulkOutcome(id, 0, echo=True)
    tasks = tuple(islice(chain.from_iterable(pages), selection.PAGE_MAX))
    return BulkOutcome(id, moved, promised=not fits, total=found.total, unblocked=found.others, tasks=tasks)


def _failed_in(graph: int) -> Search:
    # A task that failed by policy would fail again if it were rerun before its prerequisites.
    return lambda reader: selection.in_dependency_order(reader, graph, _RERUNNABLE, SHUT)


def _could_fail_again(transaction: Transaction, task: TaskRecord) -> bool:
    """Whether a task fails by policy and may not know yet that its prerequisite is rerun."""
    return (
        task.on_impossible is Impossible.FAIL
        and transaction.repo.continuations.first(task.graph, PROPAGATE) is not None
    )


def _refuse_ended(graph: GraphRecord) -> Refusal | None:
    """Refuse a graph that has ended. If it ends later, `Transaction.finish` raises a conflict."""
    if changeable(graph.state) and graph.canceled_ms is None:
        return None
    state = graph.state if graph.canceled_ms is None else "canceled"
    text = f"graph {text_of(Key(graph.id))} is {state}: run it again from a label on, as a new graph"
    return Refusal(Code.CONFLICT, text)


def _rerun_tasks(transaction: Transaction, ids: Collection[int]) -> int:
    """Open a new round of those of some tasks that can have one; return how many."""
    transitions = []
    for task in transaction.lock_tasks(ids).values():
        ruling = attempt_policy.rerun(task.life, task.rules, transaction.now)
        if ruling.outcome is Outcome.MOVE and not task.loading:
            release.move_to_slice(transaction, task, ruling.life_after)
            transitions.append(Transition(task, Signal.RERUN, ruling.life_after, REASONS[Signal.RERUN]))
    transaction.note_reruns(one.task.graph for one in transitions)
    transaction.apply(transitions)
    return len(transitions)
