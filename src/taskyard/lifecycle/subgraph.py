"""Graphs inside tasks: an attempt of such a task *is* a graph, and ends when that graph settles.

The transaction that begins the attempt creates the graph, so there is exactly one for each attempt, whatever crashes.
When the graph settles, a continuation stays open until the task around it knows. The continuation counts as active: so
the graph is settled only when its task knows, both in one transaction. To end such a task, a continuation cancels its
graph, and the task ends when that graph settles, as always. What people do with a graph after its task has ended
concerns the graph alone: the task keeps its end.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskyard.core import attempt_policy
from taskyard.core.catalogue.launched import WORKFLOW
from taskyard.core.catalogue.parse import JOB
from taskyard.core.graph.payload import GRAPH_KINDS
from taskyard.core.graph.state import Tally, succeeded, verdict
from taskyard.core.ids import Key, text_of
from taskyard.core.states import LEASED, QUEUED, UNSUCCESSFUL, Kind, Reason, Signal
from taskyard.core.structs import value
from taskyard.lifecycle import server_attempts, workflow
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import STOP
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

#: The result of the task around a graph with more tasks leaves out their results: they can be read from the graph.
TOLD_TASKS_MAX: Final = 500
#: How many bytes of results it has: dependents get all of it.
TOLD_BYTES_MAX: Final = 65_536
#: What the payload of a workflow says beside its graph: the pools of what that launches, and the graph of an earlier
#: launch whose results it takes over.
POOLS: Final = "pools"
RESUME: Final = "resume"
_LAUNCH: Final = Kind.LAUNCH.text
_GRAPHS: Final = frozenset(kind.text for kind in GRAPH_KINDS)
#: How many failed tasks it names.
FAILED_MAX: Final = 20


@value
class ParentAttempt:
    """The attempt that a graph is: its task, its number, and how long it may take."""

    task: int
    attempt: int
    timeout_ms: int | None = None
    submitter: str = ""  # of the task, and so of what is inside it;
    user: str = ""  # the user likewise


def refuse_attempt(transaction: Transaction, parent: ParentAttempt) -> Refusal | None:
    """Return why an attempt cannot begin, if so. Its task is locked from here on."""
    task = transaction.lock_tasks([parent.task]).get(parent.task)
    can_begin = (
        task is not None
        and task.kind in _GRAPHS
        and task.state in QUEUED
        and task.life.attempt + 1 == parent.attempt
        and not attempt_policy.past(task.rules.deadline_ms, transaction.now)
        and not transaction.is_canceled(task.graph)
    )
    name = text_of(Key(parent.task))
    return None if can_begin else Refusal(Code.CONFLICT, f"attempt {parent.attempt} of task {name} cannot begin now")


def begin(transaction: Transaction, parent: ParentAttempt) -> None:
    """Begin the attempt whose graph this transaction creates."""
    task = transaction.lock_tasks([parent.task])[parent.task]
    transaction.apply([server_attempts.begin(transaction, task, parent.timeout_ms)])


def fail_attempt(transaction: Transaction, parent: ParentAttempt, refusal: Refusal) -> None:
    """Fail an attempt whose graph is refused: it was valid when it was submitted, but may not be any more."""
    if refuse_attempt(transaction, parent) is not None:
        return
    begin(transaction, parent)
    task = transaction.lock_tasks([parent.task])[parent.task]
    result = {"refused": refusal.text, "faults": [{"path": one.path, "message": one.message} for one in refusal.faults]}
    transaction.apply([server_attempts.end(transaction, task, Signal.FAIL, Reason.GRAPH_FAILED, _json(result))])


def stop(transaction: Transaction, tasks: Sequence[TaskRecord], actor: str) -> None:
    """Leave continuations that cancel the graphs inside tasks, unless they are canceled or have one already."""
    graphs = transaction.repo.graphs.subgraphs([task.id for task in tasks])
    wanted = [graphs[task.id, task.life.attempt] for task in tasks]
    for graph in transaction.repo.graphs.peek(wanted):
        if graph.canceled_ms is None and transaction.repo.continuations.first(graph.id, STOP) is None:
            transaction.defer(STOP, graph.id, actor=actor)


def deliver_settlement(transaction: Transaction, continuation: Continuation) -> bool:
    """End the attempt of the task around a settled graph; the continuation is done then."""
    (graph,) = transaction.repo.graphs.peek([continuation.graph])
    transaction.complete(continuation)
    if graph.tally.active == 1:  # else the graph is active again, and leaves another continuation when it settles
        transaction.note_delivered(graph.id)
        end_parent(transaction, graph)
    return True


def end_parent(transaction: Transaction, graph: GraphRecord) -> None:
    """End the attempt that a settled graph is, if it still is the current one."""
    assert graph.parent is not None, "only a graph inside a task has a parent"
    task = transaction.lock_tasks([graph.parent]).get(graph.parent)
    if task is not None and task.state in LEASED and task.life.attempt == graph.parent_attempt:
        _end(transaction, task, graph)


def _end(transaction: Transaction, task: TaskRecord, graph: GraphRecord) -> None:
    state = verdict(Tally(0, graph.tally.behind, graph.tally.unhandled), graph.canceled_ms is not None)
    signal, reason = Signal.SUCCEED, Reason.DONE
    if not succeeded(state):
        signal, reason = _failure(task, graph)
    if task.kind == _LAUNCH:
        result = _result_of_launch(transaction, task, graph)
    else:
        result = _json({"graph": text_of(Key(graph.id)), "state": state.text, **_results(transaction, task, graph)})
    transaction.apply([server_attempts.end(transaction, task, signal, reason, result)])


def _result_of_launch(transaction: Transaction, task: TaskRecord, graph: GraphRecord) -> str | None:
    """Return the result of a launch: that of its job, with its files, or what the tasks of a workflow left."""
    found = transaction.repo.tasks.with_labels(graph.id, [JOB, WORKFLOW])
    if WORKFLOW in found:
        result = transaction.repo.read.last_results([found[WORKFLOW]]).get(found[WORKFLOW])
        left = {} if result is None else workflow.left_by(Kind.GRAPH.text, msgspec.json.decode(result))
        return _json(left) if left else None
    transaction.repo.files.copy_attempt(task.id, task.life.attempt, found[JOB])
    return transaction.repo.read.last_results([found[JOB]]).get(found[JOB])


def _failure(task: TaskRecord, graph: GraphRecord) -> tuple[Signal, Reason]:
    """Return why a task fails whose graph did not finish: the graph failed, or was canceled by the task's time-out."""
    canceled_ms, until = graph.canceled_ms, task.lease_until_ms
    if canceled_ms is None or until is None or attempt_policy.given_again_at(until) > canceled_ms:
        return Signal.FAIL, Reason.GRAPH_FAILED
    if attempt_policy.past(task.rules.deadline_ms, attempt_policy.given_again_at(until)):
        return Signal.DEADLINE, Reason.DEADLINE
    return Signal.FAIL, Reason.TIMED_OUT


def _results(transaction: Transaction, task: TaskRecord, graph: GraphRecord) -> dict[str, Any]:
    """Return the results of the tasks of a graph, by label, if they are small; and which tasks failed.

    The task of a workflow also says which variables its tasks left.
    """
    labels = {id: label for label, id in transaction.repo.read.labels_page(graph.id, FIRST, TOLD_TASKS_MAX + 1)}
    if len(labels) > TOLD_TASKS_MAX:
        return {}
    states = dict(transaction.repo.tasks.page_any_state(graph.id, FIRST, TOLD_TASKS_MAX))
    failed = [label for id, label in labels.items() if states.get(id) in UNSUCCESSFUL][:FAILED_MAX]
    bodies = transaction.repo.read.last_results(list(labels))
    found: dict[str, Any] = {"failed": failed} if failed else {}
    if sum(map(len, bodies.values())) <= TOLD_BYTES_MAX:
        found["results"] = {labels[id]: msgspec.Raw(body.encode()) for id, body in sorted(bodies.items())}
        if transaction.repo.launches.of([task.graph]):
            found[workflow.ARTIFACTS] = workflow.left_in(transaction.repo, graph.id, bodies)
    return found


def _json(result: object) -> str:
    return msgspec.json.encode(result).decode()
