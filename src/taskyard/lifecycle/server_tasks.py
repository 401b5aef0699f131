"""The room where the server takes its own work: what does nothing begins and ends here, what asks a person begins.

What has a graph inside begins with that graph (`lifecycle/subgraph.py`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.graph.payload import by_silence, patience_ms, question
from taskyard.core.states import REASONS, STOPPED, Kind, Millis, Reason, Signal
from taskyard.lifecycle import server_attempts, subgraph
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.rows import TaskRecord

#: What is served here, and of that what asks a person.
_SERVED: Final = (Kind.NOOP.text, Kind.APPROVAL.text)
_ASKING: Final = Kind.APPROVAL.text
_CLAIMED: Final = REASONS[Signal.CLAIM]


def run_server_tasks(transaction: Transaction, count: int = 500, choose: ChooseTasks = list) -> int:
    """Begin those of the first `count` tasks of the server's own whom `choose` names, and end what does nothing.

    Says how many. Those that this releases are found by the next call.
    """
    ids = choose(transaction.repo.tasks.waiting_of_kinds(SERVER_QUEUE, _SERVED, count))
    tasks = [
        task
        for task in transaction.lock_tasks(ids).values()
        if not attempt_policy.past(task.rules.deadline_ms, transaction.now)
    ]
    asking = [task for task in tasks if task.kind == _ASKING]
    idle = [task for task in tasks if task.kind != _ASKING] if asking else tasks
    transaction.apply(
        [Transition(one, Signal.CLAIM, attempt_policy.claimed(one.life), _CLAIMED, SERVER) for one in idle]
    )
    transaction.apply([_done(transaction, task) for task in idle])
    if asking:
        _ask(transaction, asking)
    return len(tasks)


def _done(transaction: Transaction, task: TaskRecord) -> Transition:
    ruling = attempt_policy.report(task.life, task.rules, task.life.attempt, Signal.SUCCEED, transaction.now)
    return Transition(task, Signal.SUCCEED, ruling.life_after, REASONS[Signal.SUCCEED])


def _ask(transaction: Transaction, tasks: Sequence[TaskRecord]) -> None:
    spans = {id: patience_ms(payload) for id, payload in server_attempts.payloads(transaction, tasks).items()}
    transaction.apply([server_attempts.begin(transaction, task, spans[task.id], Reason.APPROVAL) for task in tasks])


# What the server runs itself and has to end before its time: a person cancels it, or its time is over.
#
# A bot would be told and would say when it is done. Here nobody else is: an approval ends at once, and a task with a
# graph inside when that graph has come to rest.


def stop_server_tasks(transaction: Transaction, tasks: Iterable[TaskRecord], actor: str) -> None:
    """End those of some canceled tasks that the server runs itself."""
    stopped = [task for task in tasks if task.queue == SERVER_QUEUE and task.state in STOPPED]
    around = [task for task in stopped if task.kind == Kind.GRAPH.text]
    ends = [_end(transaction, task) for task in stopped if task.kind != Kind.GRAPH.text]
    if around:
        subgraph.stop(transaction, around, actor)
    if ends:
        transaction.apply(ends)


def time_out(transaction: Transaction, task: TaskRecord) -> Transition | None:
    """End a task of the server's own whose time is over; None if it is not, or if its graph has to end first."""
    if task.lease_until_ms is None:
        return None
    ends_ms = attempt_policy.given_again_at(Millis(task.lease_until_ms))
    if ends_ms > transaction.now:
        return None
    if task.kind == Kind.GRAPH.text:
        subgraph.stop(transaction, [task], server_attempts.SERVER.bot)
        return None
    # What was first counts: the server may have been away, and notice it late.
    if attempt_policy.past(task.rules.deadline_ms, ends_ms):
        return server_attempts.end(transaction, task, Signal.DEADLINE, Reason.DEADLINE)
    asked = question(server_attempts.payloads(transaction, [task])[task.id])
    return server_attempts.decide(transaction, task, by_silence(asked, transaction.now))


def _end(transaction: Transaction, task: TaskRecord) -> Transition:
    return server_attempts.end(transaction, task, Signal.FAIL, Reason.ASKED)
