"""The room where people have failed work tried again: one task, or all that failed in a graph.

A rerun opens a new round with every budget fresh, on the first slice. Whatever the failure had blocked is mended by
the corridor; whatever it had failed by policy has failed too, and so is rerun with the graph.
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

#: The note "rerun these tasks".
RERUN: Final = "rerun"

_RERUNNABLE = sources(Signal.RERUN)


def rerun(
    transaction: Transaction, commands: Sequence[Rerun], found: SelectedPages | None = None
) -> list[Done | Refusal | BulkOutcome | NeedsSearch]:
    """Try tasks and graphs again as people ask; `found` says how far they reach, where that is too far to look."""
    transaction.lock_tasks({one.task for one in commands if one.task is not None})
    return [_rerun(transaction, one, found) for one in commands]


def find(repo: Repo, one: Rerun) -> VersionedSelection:
    """Find out what has failed in a graph."""
    assert one.graph is not None, "a task is near enough"
    return selection.select_all(repo, one.graph, _failed_in(one.graph))


def rerun_page(transaction: Transaction, note: Continuation) -> bool:
    """Rerun the tasks of a note; say that this was all."""
    if not transaction.is_canceled(note.graph):
        _again(transaction, selection.task_ids_of(note))
    selection.finish(transaction, note)
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
    refusal = _closed(transaction.graph(task.graph))
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
            _would_fail_unheard(transaction, task)
            or transaction.repo.continuations.first(task.graph, REPORT_RUN) is not None
        ):
            selection.defer(transaction, RERUN, task.graph, [[task.id]], actor)
            return BulkOutcome(task.id, 0, promised=True)
        _again(transaction, [task.id])
    return Done(task.id, task.state, echo=ruling.outcome is Outcome.ECHO)


def _rerun_graph(
    transaction: Transaction, id: int, actor: str, found: SelectedPages | None
) -> BulkOutcome | Refusal | NeedsSearch:
    graphs = transaction.repo.graphs.peek([id])
    if not graphs or graphs[0].loader is not None:
        return selection.not_found("graph", id)
    refusal = _closed(transaction.graph(id))
    if refusal is not None:
        return refusal
    found = selection.select_within_limit(transaction, id, _failed_in(id), found)
    if found is None:
        return NeedsSearch()
    pages = found.pages
    fits = len(pages) <= 1 and not any(
        transaction.repo.continuations.first(id, kind) for kind in (PROPAGATE, REPORT_RUN)
    )
    moved = sum(_again(transaction, page) for page in pages) if fits else 0
    if not fits:
        selection.defer(transaction, RERUN, id, pages, actor)
    if moved or not fits:
        transaction.audit(actor, RERUN, id, counted(found.total, "task"))
    if fits and not moved:
        return BulkOutcome(id, 0, echo=True)
    tasks = tuple(islice(chain.from_iterable(pages), selection.PAGE_MAX))
    return BulkOutcome(id, moved, promised=not fits, total=found.total, unblocked=found.beside, tasks=tasks)


def _failed_in(graph: int) -> Search:
    # A task that failed by policy would do so again if it were rerun before it hears that what it hangs on was.
    return lambda looking: selection.in_dependency_order(looking, graph, _RERUNNABLE, SHUT)


def _would_fail_unheard(transaction: Transaction, task: TaskRecord) -> bool:
    """Tell whether a task fails by policy and somebody in its graph has still something to tell, maybe a mend."""
    return (
        task.on_impossible is Impossible.FAIL
        and transaction.repo.continuations.first(task.graph, PROPAGATE) is not None
    )


def _closed(graph: GraphRecord) -> Refusal | None:
    """Refuse what is over. Should the graph end meanwhile, the corridor notices and all of this is tried again."""
    if changeable(graph.state) and graph.canceled_ms is None:
        return None
    state = graph.state if graph.canceled_ms is None else "canceled"
    text = f"graph {text_of(Key(graph.id))} is {state}: run it again from a label on, as a new graph"
    return Refusal(Code.CONFLICT, text)


def _again(transaction: Transaction, ids: Collection[int]) -> int:
    """Open a new round of those of some tasks that can have one; say how many."""
    moves = []
    for task in transaction.lock_tasks(ids).values():
        ruling = attempt_policy.rerun(task.life, task.rules, transaction.now)
        if ruling.outcome is Outcome.MOVE and not task.loading:
            release.move_to_slice(transaction, task, ruling.life_after)
            moves.append(Transition(task, Signal.RERUN, ruling.life_after, REASONS[Signal.RERUN]))
    transaction.new_rounds |= {move.task.graph for move in moves}
    transaction.apply(moves)
    return len(moves)
