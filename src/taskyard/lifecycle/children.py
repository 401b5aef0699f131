"""Graphs that a running task has submitted, and that end with it.

A child graph is one like any other; it only names the attempt with which it ends. When that attempt has ended, in
whatever way, the graph is canceled unless it is settled. The next attempt of the task submits children of its own.
"""

from typing import Final

from taskyard.core.graph.state import settled
from taskyard.core.ids import AttemptKey, Key, attempt_text, text_of
from taskyard.core.states import LEASED
from taskyard.core.structs import value
from taskyard.lifecycle.cancel import CANCEL, defer_whole_graph
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.transaction import Transaction

#: How many graphs one transaction cancels; continuations cancel their tasks.
PAGE_MAX: Final = 100
#: The note in the audit.
ENDED: Final = "the task that submitted it has ended"


@value
class ChildOf:
    """The running task with which a new graph ends, and its attempt; None: the one that it has now."""

    task: int
    attempt: int | None = None


def attempt_of(transaction: Transaction, parent: ChildOf, graph: int) -> tuple[int, int] | Refusal | None:
    """Return the attempt with which a new graph ends; None if the graph exists already, so that this is a repeat.

    The task is locked from here on: it does not end before the graph is stored.
    """
    if transaction.repo.graphs.peek([graph]):
        return None
    task = transaction.lock_tasks([parent.task]).get(parent.task)
    if task is None:
        return Refusal(Code.CONFLICT, f"there is no task {text_of(Key(parent.task))} any more")
    if task.state not in LEASED or parent.attempt not in (None, task.life.attempt):
        name = text_of(Key(parent.task))
        return Refusal(Code.CONFLICT, f"task {name} is {task.state}: only a running task can have children")
    return task.id, task.life.attempt


def end_orphans(transaction: Transaction) -> int:
    """Cancel graphs whose attempt has ended; return how many were looked at."""
    orphans = transaction.repo.task_list.orphans(PAGE_MAX)
    graphs = {graph.id: graph for graph in transaction.repo.graphs.read([graph for graph, _, _ in orphans])}
    for id, task, attempt in orphans:
        graph = graphs.get(id)
        if graph is None or graph.canceled_ms is not None or settled(graph.tally):
            continue
        actor = f"task {attempt_text(AttemptKey(Key(task), attempt))}"
        transaction.cancel_graph(id)
        defer_whole_graph(transaction, id, actor)
        transaction.audit(actor, CANCEL, id, ENDED)
    transaction.repo.task_list.forget_children([graph for graph, _, _ in orphans])
    return len(orphans)
