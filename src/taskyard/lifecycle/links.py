"""Links: tasks of a launch that stand for the update of a resource in another graph.

Several launches can wait for one update, so it is a graph of its own, and each launch has a task that is a link to it.
A link begins when its launch is stored, and ends when the update does: with a copy of its result and its files, so that
the tasks behind the link receive them, or failed. The transaction that ends an update looks for running links, and the
one that begins a link looks at the update; both have locked the update before, so none is missed. If an update has more
links than fit into one transaction, continuations end the others. A link whose update is deleted has nothing to wait
for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from taskyard.core import attempt_policy
from taskyard.core.ids import Key, text_of
from taskyard.core.launch import LaunchType, is_good
from taskyard.core.states import ENDED, LEASED, STOPPED, Kind, Reason, Signal, State
from taskyard.lifecycle.rows import RELEASE_UPDATE, RESULT_PER_ROW, ROWS_PER_TASK
from taskyard.lifecycle.transition import Claimant, Transition
from taskyard.store.connection import Repo
from taskyard.store.repo.launches import LinkRow
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: The continuation "end the links to this update".
END: Final = "end_links"
_LINK: Final = Kind.LINK.text
#: The claimant of links, as of all tasks that the server runs.
_SERVER: Final = Claimant("server", "", "", None)
#: The states of a link that waits for its update.
_WAITS: Final = LEASED - STOPPED
#: The states of a link for which its update is needed.
_NEEDS: Final = frozenset(State) - ENDED - STOPPED
#: How many links one sweep ends.
SWEPT_MAX: Final = 20
#: How many links to one update are read to see whether another launch needs it.
_ONE: Final = 1


def begin(transaction: "Transaction", tasks: Sequence[TaskRecord]) -> None:
    """Begin links that are queued; those whose update has ended end at once."""
    links = transaction.repo.launches.links([task.id for task in tasks])
    updates = transaction.lock_tasks({link.update for link in links.values()})
    transaction.apply(
        [Transition(one, Signal.CLAIM, attempt_policy.claimed(one.life), Reason.UPDATE, _SERVER) for one in tasks]
    )
    ended = [task for task in tasks if _is_over(updates.get(links[task.id].update) if task.id in links else None)]
    if ended:
        transaction.apply(_ends(transaction, ended, links, updates))


def end_linked(transaction: "Transaction", updates: Sequence[TaskRecord]) -> list[Transition]:
    """Return the ends of the links to updates that have ended, as many as fit; leave continuations for the others."""
    most = max(transaction.edge_budget, 1)
    found = transaction.repo.launches.links_to([one.id for one in updates], _WAITS, most + 1)
    if not found:
        return []
    by_id = {one.id: one for one in updates}
    fitting = _fitting(transaction, found[:most])
    for id in {link.update for link in found[len(fitting) :]}:
        transaction.defer(END, by_id[id].graph, [text_of(Key(id))])
    links = {link.task: link for link in fitting}
    tasks = [task for task in transaction.lock_tasks(links).values() if task.life.state in _WAITS]
    return _ends(transaction, tasks, links, by_id)


def end_page(transaction: "Transaction", continuation: Continuation) -> bool:
    """End some of the links to an update; return whether the continuation is done."""
    update = int(continuation.tasks, 16)
    updates = transaction.lock_tasks([update])
    most = max(transaction.edge_budget, 1)
    found = transaction.repo.launches.links_to([update], _WAITS, most + 1)
    fitting = _fitting(transaction, found[:most])
    links = {link.task: link for link in fitting}
    tasks = [task for task in transaction.lock_tasks(links).values() if task.life.state in _WAITS]
    if tasks and _is_over(updates.get(update)):
        transaction.apply(_ends(transaction, tasks, links, updates))
    done = len(fitting) == len(found)
    if done:
        transaction.complete(continuation)
    return done


def find_overdue(repo: Repo) -> list[int]:
    """Find running links whose update has ended. There are none, unless continuations are about to end them."""
    return repo.launches.overdue_links(_SERVER.bot, _LINK, ENDED, SWEPT_MAX)


def end_overdue(transaction: "Transaction", found: Collection[int]) -> None:
    """End links that were found."""
    links = transaction.repo.launches.links(found)
    updates = transaction.lock_tasks({link.update for link in links.values()})
    tasks = [task for task in transaction.lock_tasks(found).values() if task.life.state in _WAITS]
    over = [task for task in tasks if _is_over(updates.get(links[task.id].update) if task.id in links else None)]
    transaction.apply(_ends(transaction, over, links, updates))


def release_updates(transaction: "Transaction", tasks: Iterable[TaskRecord], actor: str) -> None:
    """Leave continuations that cancel the updates of canceled links, unless another launch needs them."""
    canceled = {task.id: task for task in tasks if task.kind == _LINK}
    for link in transaction.repo.launches.links(list(canceled)).values():
        transaction.defer(RELEASE_UPDATE, canceled[link.task].graph, [text_of(Key(link.update))], actor)


def graph_to_release(transaction: "Transaction", continuation: Continuation) -> int | None:
    """Return the graph of an update that was made for a launch and that no link needs any more; None to keep it."""
    update = int(continuation.tasks, 16)
    task = transaction.lock_tasks([update]).get(update)
    if task is None or task.life.state in ENDED | STOPPED:
        return None
    launched = transaction.repo.launches.of([task.graph]).get(task.graph)
    if launched is None or launched.launch_type != LaunchType.DEPENDENT:
        return None
    return None if transaction.repo.launches.links_to([update], _NEEDS, _ONE) else task.graph


def _is_over(update: TaskRecord | None) -> bool:
    """Whether a link to an update has nothing to wait for; None stands for one that is deleted."""
    return update is None or update.life.state in ENDED


def _ends(
    transaction: "Transaction",
    tasks: Sequence[TaskRecord],
    links: Mapping[int, LinkRow],
    updates: Mapping[int, TaskRecord],
) -> list[Transition]:
    """Return the ends of running links whose updates have ended."""
    transaction.write_now()  # the last attempts of updates and links may not be written yet
    transitions, good, results = [], [], []
    for task in tasks:
        link = links.get(task.id)
        update = None if link is None else updates.get(link.update)
        if link is None or (update is not None and not is_good(update.life.state)):
            results.append((task.id, task.life.attempt, _failure(link, update)))
            transitions.append(_end(transaction, task, Signal.FAIL, Reason.UPDATE_FAILED))
        else:
            good.append(task.id)
            transitions.append(_end(transaction, task, Signal.SUCCEED, Reason.DONE))
    transaction.repo.launches.copy_results(good)
    transaction.repo.attempts.add_results(results)
    return transitions


def _failure(link: LinkRow | None, update: TaskRecord | None) -> str:
    """Return the result of a link whose update did not succeed."""
    said: dict[str, str] = {} if link is None else {"update": text_of(Key(link.update))}
    if link is not None and update is not None:
        said |= {"graph": text_of(Key(link.update_graph)), "state": update.life.state.text, "reason": update.reason}
    return msgspec.json.encode(said).decode()


def _end(transaction: "Transaction", task: TaskRecord, signal: Signal, reason: Reason) -> Transition:
    ruling = attempt_policy.report(task.life, task.rules, task.life.attempt, signal, transaction.now)
    return Transition(task, signal, ruling.life_after, reason)


def _fitting(transaction: "Transaction", found: Sequence[LinkRow]) -> Sequence[LinkRow]:
    """Return as many links as fit into this transaction, at least one: each gets a copy of the result of its update.

    The budget that is left is enough for the one edge out of each. So the tasks behind the links of a page are released
    with it, and pages release them in the order of their creation.
    """
    sizes = transaction.repo.launches.result_sizes({link.update for link in found})
    for place, link in enumerate(found):
        weight = -(-(ROWS_PER_TASK + sizes.get(link.update, 0) // RESULT_PER_ROW) // ROWS_PER_TASK)
        if place and weight + place + 1 > transaction.edge_budget:
            return found[:place]
        transaction.edge_budget -= weight
    return found
