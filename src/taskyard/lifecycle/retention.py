"""Delete what has been kept for its time, and graphs that a person deletes, in small transactions.

A graph that is to be deleted is hidden first, like one that is not loaded yet, and is then deleted page by page, also
after a crash in between. The graphs inside its tasks go with it. Parts of a graph, such as its output, may be deleted
earlier.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.durations import DAY_MS
from taskyard.core.explain_text import counted
from taskyard.core.graph.state import settled
from taskyard.core.ids import Key, block_of, last_key_since, text_of
from taskyard.core.retention import (
    ALL_POOLS,
    OF_GRAPHS,
    QUEUE_KEEP_MIN_MS,
    Kept,
    RetentionTimes,
    SettledGraph,
)
from taskyard.core.states import GraphState, Millis
from taskyard.core.structs import value
from taskyard.lifecycle import bot_care
from taskyard.lifecycle.bot_events import CONNECTED, ENDED, MISSING
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.selection import not_found
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.repo.tasks import PURGED

#: How many rows one transaction deletes: some 10 ms.
ROWS_MAX: Final = 1_000
#: How many tasks one transaction deletes rows of.
TASKS_MAX: Final = 100
#: How many graphs, bots or audit rows are looked at for one transaction.
LOOKED_MAX: Final = 500
#: How many tasks one query reads to find the queues that are used: in some 20 ms.
TASKS_READ_MAX: Final = 10_000
#: How many bots one transaction forgets.
BOTS_MAX: Final = 20
#: How many snapshots of bots one transaction deletes.
SNAPSHOTS_MAX: Final = 500
#: Events of different graphs are in the stream in no order: one may be this much older than one before it.
UNORDERED_MS: Final = 60_000
#: How many graphs inside one another are looked at to find one that can be deleted.
DEPTH_MAX: Final = 16
#: The audit actions.
DELETE: Final = "delete"
SET: Final = "set_retention"
#: The events of a bot from which it follows whether it is there: the newest of each is kept.
_PRESENCE: Final = (CONNECTED, ENDED, MISSING)


@value
class DuePart:
    """A part of a graph that is due."""

    graph: SettledGraph
    part: Kept


@value
class DueGraphs:
    """What was found among settled graphs: whole graphs and parts of graphs that are due, and where to go on."""

    graphs: tuple[int, ...]
    parts: tuple[DuePart, ...]
    next: tuple[int, int] | None  # None: these were the last


def set_times(transaction: Transaction, pool: str, times: Sequence[tuple[Kept, int | None]], actor: str) -> None:
    """Set how long things of a pool are kept; None: for ever."""
    transaction.repo.retention.set_times([(pool, kind.value, keep_ms) for kind, keep_ms in times])
    said = ", ".join(f"{kind} {'for ever' if keep_ms is None else f'{keep_ms} ms'}" for kind, keep_ms in times)
    transaction.audit(actor, SET, NO_SUBJECT, f"{pool}: {said}")


def unset_times(transaction: Transaction, pool: str, kinds: Sequence[Kept], actor: str) -> None:
    """Let the times for all pools hold for a pool again, or the defaults for all pools."""
    transaction.repo.retention.unset_times([(pool, kind.value) for kind in kinds])
    transaction.audit(actor, SET, NO_SUBJECT, f"{pool}: {', '.join(kinds)} as by default")


def delete_graph(transaction: Transaction, id: int, actor: str) -> Refusal | None:
    """Delete a settled graph with all that belongs to it. It is hidden at once. A repeat is refused as unknown."""
    refusal = _refuse_deletion(transaction, id)
    if refusal is None:
        _hide(transaction.repo, [id])
        transaction.audit(actor, DELETE, id)
    return refusal


def find_due(repo: Repo, times: RetentionTimes, after: tuple[int, int], now: Millis) -> DueGraphs:
    """Look at the next settled graphs. One of which a target may not have got all events is not due."""
    undelivered = repo.targets.oldest_undelivered()
    if undelivered is not None:
        now = min(now, Millis(undelivered - UNORDERED_MS))
    shortest = times.shortest(OF_GRAPHS)
    if shortest is None:
        return DueGraphs((), (), None)
    found = repo.retention.settled(after, Millis(now - shortest), LOOKED_MAX)
    pools = repo.graphs.pools_of([row[0] for row in found])
    needed = repo.launches.current_updates([row[0] for row in found])
    whole: list[int] = []
    parts: list[DuePart] = []
    for id, state, settled_ms, parent, purged in found:
        graph = SettledGraph(id, GraphState(state), Millis(settled_ms), purged, pools.get(id, frozenset({ALL_POOLS})))
        if id in needed:  # a launch may use what this update left
            parts += [DuePart(graph, part) for part in times.due_parts(graph, now) if part is Kept.OUTPUT]
        elif parent is None and times.is_due(graph, now):
            whole.append(id)
        else:
            parts += [DuePart(graph, part) for part in times.due_parts(graph, now)]
    return DueGraphs(tuple(whole), tuple(parts), (found[-1][2], found[-1][0]) if len(found) == LOOKED_MAX else None)


def hide_graphs(transaction: Transaction, graphs: Collection[int]) -> int:
    """Hide graphs that are due, so that they are deleted; return how many. One that moves again stays."""
    unnumbered = transaction.repo.targets.unnumbered(graphs)
    chosen = [id for id in sorted(graphs) if id not in unnumbered and _refuse_deletion(transaction, id) is None]
    _hide(transaction.repo, chosen)
    return len(chosen)


def purge_part_page(transaction: Transaction, due: DuePart, after: int) -> int | None:
    """Delete some rows of a part of a graph, from a task on; return after which task to go on, None at the end."""
    repo, graph = transaction.repo, due.graph
    found = repo.graphs.read([graph.id])
    if not found or found[0].loader is not None or not settled(found[0].tally):
        return None
    tasks = repo.task_list.of_graph(graph.id, after, TASKS_MAX)
    repo.reuse.forget(tasks)  # a task without all that it left is not reused
    if repo.retention.purge_part(due.part, tasks, ROWS_MAX) < 1:
        return after
    if len(tasks) == TASKS_MAX:
        return tasks[-1]
    repo.retention.mark_part(graph, due.part)
    return None


def purge_hidden_page(transaction: Transaction) -> bool:
    """Delete some rows of a hidden graph; return whether there was any."""
    hidden = transaction.repo.retention.hidden(1)
    for id in hidden:
        inside = transaction.repo.retention.inside(id, LOOKED_MAX)
        _hide(transaction.repo, inside)
        if not inside:
            _purge_page(transaction, id)
    return bool(hidden)


def purge_bot_events(transaction: Transaction, bots: Sequence[tuple[str, str | None]], times: RetentionTimes) -> int:
    """Delete old events of bots, given with their pools; return how many."""
    deleted = 0
    for keep_ms, names in _by_time(Kept.BOT_EVENTS, bots, times).items():
        for bot in names:
            if deleted < ROWS_MAX:
                before = Millis(transaction.now - keep_ms)
                deleted += transaction.repo.retention.purge_bot_events(bot, before, _PRESENCE, ROWS_MAX - deleted)
    return deleted


def purge_bots(transaction: Transaction, bots: Sequence[tuple[str, str | None]], times: RetentionTimes) -> int:
    """Forget those of some bots, given with their pools, that are gone for good; return how many rows that was."""
    handled = 0
    for keep_ms, names in _by_time(Kept.BOTS, bots, times).items():
        if not handled:
            before = Millis(transaction.now - keep_ms)
            handled = bot_care.forget_dead_bots(transaction, names, before, BOTS_MAX)
    return handled


def _by_time(kind: Kept, bots: Sequence[tuple[str, str | None]], times: RetentionTimes) -> dict[int, list[str]]:
    """Group bots by how long something of them is kept; those of which it is kept for ever are left out."""
    found: dict[int, list[str]] = defaultdict(list)
    for bot, pool in bots:
        keep_ms = times.keep_ms(kind, () if pool is None else (pool,))
        if keep_ms is not None:
            found[keep_ms].append(bot)
    return found


def find_idle_queues(
    repo: Repo, times: RetentionTimes, after: int, now: Millis
) -> tuple[dict[int, Millis], int | None]:
    """Look at the next queues into which no task has come for long.

    Return those that are due, with the time since when that has been so, and after which to go on; None at the end.
    """
    shortest = times.shortest([Kept.QUEUES])
    found = [] if shortest is None else repo.retention.idle_queues(Millis(now - shortest), after, LOOKED_MAX)
    due = {id: before for id, pool, used_ms in found if used_ms < (before := _queue_before(times, pool, now))}
    return due, found[-1][0] if len(found) == LOOKED_MAX else None


def _queue_before(times: RetentionTimes, pool: str, now: Millis) -> Millis:
    keep_ms = times.keep_ms(Kept.QUEUES, (pool,))
    return Millis(0 if keep_ms is None else now - max(keep_ms, QUEUE_KEEP_MIN_MS))


def used_queues(repo: Repo, after: int) -> tuple[set[int], int | None]:
    """Look at the next tasks; return their queues, and after which task to go on, None at the end.

    A task that comes into a queue later, or for the first time, marks it as used: so a queue in which no task was found
    may be deleted, if it is not marked by then.
    """
    found = repo.retention.queues_of_tasks(after, TASKS_READ_MAX)
    return {queue for _, queue in found}, found[-1][0] if len(found) == TASKS_READ_MAX else None


def purge_queues(transaction: Transaction, due: Sequence[tuple[int, Millis]]) -> int:
    """Delete queues without tasks that nobody has marked as used meanwhile; return how many."""
    by_time: dict[Millis, list[int]] = defaultdict(list)
    for id, before in due:
        by_time[before].append(id)
    return sum(transaction.repo.retention.purge_queues(ids, before) for before, ids in by_time.items())


def purge_snapshots(transaction: Transaction, times: RetentionTimes) -> int:
    """Delete what bots were before any graph that is still kept settled; return how many rows that was."""
    keep_ms = times.longest(Kept.GRAPHS)
    return (
        0
        if keep_ms is None
        else bot_care.purge_snapshots(transaction, Millis(transaction.now - keep_ms), SNAPSHOTS_MAX)
    )


def purge_tokens(transaction: Transaction, times: RetentionTimes) -> int:
    """Delete tokens that ended long ago; return how many."""
    keep_ms = times.keep_ms(Kept.TOKENS)
    return (
        0 if keep_ms is None else transaction.repo.retention.purge_tokens(Millis(transaction.now - keep_ms), ROWS_MAX)
    )


def purge_audits(transaction: Transaction, times: RetentionTimes, after: int) -> int | None:
    """Delete old audit rows about what does not exist any more, from one on; return where to go on, None at the end."""
    keep_ms = times.keep_ms(Kept.AUDIT)
    if keep_ms is None:
        return None
    found = transaction.repo.retention.old_audits(after, Millis(transaction.now - keep_ms), LOOKED_MAX)
    transaction.repo.retention.purge_audits(found)
    return found[-1] if len(found) == LOOKED_MAX else None


def newest_purged_block(now: Millis) -> int:
    """Return the newest block of task ids into which no new task can come, whatever clock a server has."""
    return block_of(last_key_since(Millis(now - DAY_MS)))


def purge_attempt_blocks(transaction: Transaction, after: int) -> int | None:
    """Delete blocks of attempts without tasks, from one on; return where to go on, None at the end."""
    found = transaction.repo.retention.attempt_blocks(after, LOOKED_MAX)
    transaction.repo.retention.purge_attempt_blocks(found)
    return found[-1] if len(found) == LOOKED_MAX else None


def _refuse_deletion(transaction: Transaction, id: int) -> Refusal | None:
    """Say why a graph cannot be deleted. It is locked from here on."""
    found = transaction.repo.graphs.read([id])
    if not found or found[0].loader is not None:
        return not_found("graph", id)
    name = text_of(Key(id))
    if found[0].parent is not None and transaction.repo.tasks.read([found[0].parent]):
        return Refusal(Code.CONFLICT, f"graph {name} is inside a task: delete the graph of that task")
    if not settled(found[0].tally):
        return Refusal(Code.CONFLICT, f"graph {name} is {found[0].state} and not settled: cancel it first")
    moving = [one for one in transaction.repo.graphs.peek(_all_inside(transaction.repo, id)) if not settled(one.tally)]
    if moving:
        text = f"graph {name} has {counted(len(moving), 'graph')} inside its tasks that still moves: cancel that first"
        return Refusal(Code.CONFLICT, text)
    return None


def _all_inside(repo: Repo, graph: int) -> list[int]:
    """Return all graphs inside the tasks of a graph, and inside those of theirs."""
    found: list[int] = []
    frontier = [graph]
    for _ in range(DEPTH_MAX):
        frontier = [inner for one in frontier for inner in repo.retention.inside(one, LOOKED_MAX)]
        if not frontier:
            break
        found += frontier
    return found


def _hide(repo: Repo, graphs: Collection[int]) -> None:
    """Hide graphs; the keys with which they were submitted are free from now on."""
    for id in graphs:
        repo.graphs.set_loader(id, PURGED)
    repo.retention.forget_keys(graphs)


def _purge_page(transaction: Transaction, id: int) -> None:
    """Delete some rows of a hidden graph; the graphs inside it are hidden, too. Tasks are locked before their graph."""
    repo = transaction.repo
    tasks = repo.task_list.of_graph(id, -1, TASKS_MAX)
    repo.tasks.read(tasks)
    found = repo.graphs.read([id])
    if not found or found[0].loader != PURGED:
        return
    if not settled(found[0].tally):  # it was rerun in the very moment in which it was hidden
        repo.graphs.set_loader(id, None)
    elif tasks:
        repo.reuse.forget(tasks)
        repo.retention.purge_tasks(tasks, ROWS_MAX)
    else:
        repo.retention.purge_graph(id, ROWS_MAX)
