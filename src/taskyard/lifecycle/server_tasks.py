"""Tasks that the server runs itself: no-ops begin and end here, and approvals and links begin.

A task with a graph inside begins with that graph (`lifecycle/subgraph.py`). A bot is told to stop a canceled task and
reports its end. The server ends its own tasks: an approval at once, and a task with a graph inside when that graph has
settled.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.graph.payload import GRAPH_KINDS, by_silence, patience_ms, question
from taskyard.core.states import REASONS, STOPPED, Kind, Millis, Reason, Signal
from taskyard.lifecycle import links, server_attempts, subgraph
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.rows import TaskRecord

#: The kinds that begin here, among them the one that waits for a person.
_SERVED: Final = (Kind.NOOP.text, Kind.APPROVAL.text, Kind.LINK.text)
_LINK: Final = Kind.LINK.text
_GRAPHS: Final = frozenset(kind.text for kind in GRAPH_KINDS)
_APPROVAL: Final = Kind.APPROVAL.text
_CLAIMED: Final = REASONS[Signal.CLAIM]


def run_server_tasks(transaction: Transaction, count: int = 500, choose: ChooseTasks = list) -> int:
    """Begin those of the first `count` queued server tasks that `choose` selects, and end the no-ops among them.

    Return how many tasks that are. The next call finds those that this one releases.
    """
    ids = choose(transaction.repo.tasks.waiting_of_kinds(SERVER_QUEUE, _SERVED, count))
    tasks = [
        task
        for task in transaction.lock_tasks(ids).values()
        if not attempt_policy.past(task.rules.deadline_ms, transaction.now)
    ]
    approvals = [task for task in tasks if task.kind == _APPROVAL]
    linked = [task for task in tasks if task.kind == _LINK]
    noops = [task for task in tasks if task.kind not in (_APPROVAL, _LINK)] if approvals or linked else tasks
    transaction.apply(
        [Transition(one, Signal.CLAIM, attempt_policy.claimed(one.life), _CLAIMED, SERVER) for one in noops]
    )
    transaction.apply([_done(transaction, task) for task in noops])
    if approvals:
        _begin_approvals(transaction, approvals)
    if linked:
        links.begin(transaction, linked)
    return len(tasks)


def _done(transaction: Transaction, task: TaskRecord) -> Transition:
    ruling = attempt_policy.report(task.life, task.rules, task.life.attempt, Signal.SUCCEED, transaction.now)
    return Transition(task, Signal.SUCCEED, ruling.life_after, REASONS[Signal.SUCCEED])


def _begin_approvals(transaction: Transaction, tasks: Sequence[TaskRecord]) -> None:
    timeouts = {id: patience_ms(payload) for id, payload in server_attempts.payloads(transaction, tasks).items()}
    transaction.apply([server_attempts.begin(transaction, task, timeouts[task.id], Reason.APPROVAL) for task in tasks])


def stop_server_tasks(transaction: Transaction, tasks: Iterable[TaskRecord], actor: str) -> None:
    """End those of some canceled tasks that the server runs."""
    own = [task for task in tasks if task.queue == SERVER_QUEUE]
    stopped = [task for task in own if task.state in STOPPED]
    with_graphs = [task for task in stopped if task.kind in _GRAPHS]
    ends = [_end(transaction, task) for task in stopped if task.kind not in _GRAPHS]
    if with_graphs:
        subgraph.stop(transaction, with_graphs, actor)
    if ends:
        transaction.apply(ends)
    if own:
        links.release_updates(transaction, own, actor)


def time_out(transaction: Transaction, task: TaskRecord) -> Transition | None:
    """Return the end of a server task whose time is over; None if it is not over, or if its graph has to end first."""
    if task.lease_until_ms is None:
        return None
    ends_ms = attempt_policy.given_again_at(Millis(task.lease_until_ms))
    if ends_ms > transaction.now:
        return None
    if task.kind in _GRAPHS:
        subgraph.stop(transaction, [task], server_attempts.SERVER.bot)
        return None
    # The server may have been down and notice this late, so the earlier of deadline and timeout counts.
    if attempt_policy.past(task.rules.deadline_ms, ends_ms):
        return server_attempts.end(transaction, task, Signal.DEADLINE, Reason.DEADLINE)
    approval = question(server_attempts.payloads(transaction, [task])[task.id])
    return server_attempts.decide(transaction, task, by_silence(approval, transaction.now))


def _end(transaction: Transaction, task: TaskRecord) -> Transition:
    return server_attempts.end(transaction, task, Signal.FAIL, Reason.ASKED)
