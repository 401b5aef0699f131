"""The room of graphs inside tasks: an attempt of such a task *is* a graph, and ends as that graph comes to rest.

The graph is born by the transaction that begins the attempt, so there is exactly one for each, whoever crashes when.
When it comes to rest a note stays open until its task has heard of it, and the note counts as active: so a graph is
settled only when its task knows, and both in one transaction. A task that is to end has its graph canceled by a note,
and then hears of that graph's rest like any other. What people do with a graph after its task ended is the graph's own
affair: the task has its end.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskyard.core import attempt_policy
from taskyard.core.graph.state import Tally, succeeded, verdict
from taskyard.core.ids import Key, text_of
from taskyard.core.states import LEASED, QUEUED, UNSUCCESSFUL, Kind, Reason, Signal
from taskyard.core.structs import value
from taskyard.lifecycle import server_attempts
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import STOP
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: Of a graph with more tasks nobody is told what each has left: its own graph tells.
TOLD_TASKS_MAX: Final = 500
#: How much of what they have left is told: dependents get all of it.
TOLD_BYTES_MAX: Final = 65_536
#: How many of those that failed are named.
FAILED_MAX: Final = 20


@value
class ParentAttempt:
    """Where a graph is: the task, and the attempt of it that the graph is; and how long that may take."""

    task: int
    attempt: int
    timeout_ms: int | None = None
    submitter: str = ""  # of the task, and so of what is inside it


def refuse_attempt(transaction: Transaction, inside: ParentAttempt) -> Refusal | None:
    """Say why an attempt cannot begin; nobody else moves its task before this transaction ends."""
    task = transaction.lock_tasks([inside.task]).get(inside.task)
    begins = (
        task is not None
        and task.kind == Kind.GRAPH.text
        and task.state in QUEUED
        and task.life.attempt + 1 == inside.attempt
        and not attempt_policy.past(task.rules.deadline_ms, transaction.now)
        and not transaction.is_canceled(task.graph)
    )
    name = text_of(Key(inside.task))
    return None if begins else Refusal(Code.CONFLICT, f"attempt {inside.attempt} of task {name} cannot begin now")


def begin(transaction: Transaction, inside: ParentAttempt) -> None:
    """Begin the attempt whose graph is born in this transaction."""
    task = transaction.lock_tasks([inside.task])[inside.task]
    transaction.apply([server_attempts.begin(transaction, task, inside.timeout_ms)])


def fail_attempt(transaction: Transaction, inside: ParentAttempt, refusal: Refusal) -> None:
    """Fail an attempt whose graph cannot be born: what was fine when it was submitted need not be so now."""
    if refuse_attempt(transaction, inside) is not None:
        return
    begin(transaction, inside)
    task = transaction.lock_tasks([inside.task])[inside.task]
    told = {"refused": refusal.text, "faults": [{"path": one.path, "message": one.message} for one in refusal.faults]}
    transaction.apply([server_attempts.end(transaction, task, Signal.FAIL, Reason.GRAPH_FAILED, _json(told))])


def stop(transaction: Transaction, tasks: Sequence[TaskRecord], actor: str) -> None:
    """Promise to end the graphs inside tasks. Those that are canceled already, or about to be, need no promise."""
    inside = transaction.repo.graphs.subgraphs([task.id for task in tasks])
    wanted = [inside[task.id, task.life.attempt] for task in tasks]
    for graph in transaction.repo.graphs.peek(wanted):
        if graph.canceled_ms is None and transaction.repo.continuations.first(graph.id, STOP) is None:
            transaction.repo.continuations.add([(STOP, graph.id, None, None, None, "", actor)])
            transaction.adjust_counts(graph.id, active=1)
            transaction.noted = True


def deliver_settlement(transaction: Transaction, note: Continuation) -> bool:
    """Let a task hear that the graph inside it has come to rest; say that this was all there is to do."""
    (graph,) = transaction.repo.graphs.peek([note.graph])
    transaction.repo.continuations.delete(note.id)
    transaction.adjust_counts(graph.id, active=-1)
    if graph.tally.active == 1:  # else it moves again: when it comes to rest, there is another note
        transaction.heard.add(graph.id)
        end_parent(transaction, graph)
    return True


def end_parent(transaction: Transaction, graph: GraphRecord) -> None:
    """Tell a task that the graph inside it is at rest, if it still goes on with that."""
    assert graph.parent is not None, "only a graph inside a task has somebody to tell"
    task = transaction.lock_tasks([graph.parent]).get(graph.parent)
    if task is not None and task.state in LEASED and task.life.attempt == graph.parent_attempt:
        _end(transaction, task, graph)


def _end(transaction: Transaction, task: TaskRecord, graph: GraphRecord) -> None:
    state = verdict(Tally(0, graph.tally.behind, graph.tally.unhandled), graph.canceled_ms is not None)
    told = {"graph": text_of(Key(graph.id)), "state": state.text, **_left(transaction, graph)}
    signal, reason = Signal.SUCCEED, Reason.DONE
    if not succeeded(state):
        signal, reason = _why(task, graph)
    transaction.apply([server_attempts.end(transaction, task, signal, reason, _json(told))])


def _why(task: TaskRecord, graph: GraphRecord) -> tuple[Signal, Reason]:
    """Say why a task fails whose graph did not finish: in the end it may be that its time was over."""
    ended_ms, until = graph.canceled_ms, task.lease_until_ms
    if ended_ms is None or until is None or attempt_policy.given_again_at(until) > ended_ms:
        return Signal.FAIL, Reason.GRAPH_FAILED
    if attempt_policy.past(task.rules.deadline_ms, attempt_policy.given_again_at(until)):
        return Signal.DEADLINE, Reason.DEADLINE
    return Signal.FAIL, Reason.TIMED_OUT


def _left(transaction: Transaction, graph: GraphRecord) -> dict[str, Any]:
    """Give what the tasks of a graph have left, by label, if it is little; and who failed."""
    names = {id: label for label, id in transaction.repo.read.labels_page(graph.id, FIRST, TOLD_TASKS_MAX + 1)}
    if len(names) > TOLD_TASKS_MAX:
        return {}
    states = dict(transaction.repo.tasks.page_any_state(graph.id, FIRST, TOLD_TASKS_MAX))
    failed = [label for id, label in names.items() if states.get(id) in UNSUCCESSFUL][:FAILED_MAX]
    bodies = transaction.repo.read.last_results(list(names))
    told: dict[str, Any] = {"failed": failed} if failed else {}
    if sum(map(len, bodies.values())) <= TOLD_BYTES_MAX:
        told["results"] = {names[id]: msgspec.Raw(body.encode()) for id, body in sorted(bodies.items())}
    return told


def _json(told: object) -> str:
    return msgspec.json.encode(told).decode()
