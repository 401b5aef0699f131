"""The room of the clock: leases that lapsed, slices that waited too long, deadlines, starts that were put off.

Absence is judged per lease, by the server that its bot speaks to. While that server was away the bot could not renew
or report, so the lease lasts one full lease from the moment the server is back; each start of a server is such a
moment. While it is still away another server waits for it, but not for ever. Before a silence is judged, the same
transaction checks whether this server itself was away: a beat before it may have failed, or be long ago by now. What
the clock has no more to say about gets its next moment, so no page comes twice.
"""

from collections.abc import Mapping
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Ruling
from taskyard.core.states import LEASED, REASONS, Millis, Outcome, Signal, sources
from taskyard.lifecycle import lost_attempts, release, server_tasks
from taskyard.lifecycle.bot_sessions import MISSING, record_event
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.repo.events import ServerRow
from taskyard.store.rows import TaskRecord

#: A server that was not seen for so long was away; a sweep or two may be late. Short leases bear less.
OUTAGE_MS: Final = 3 * fleet.SWEEP_MS
#: How long other servers wait for one that is away before its bots count as lost: a restart, an upgrade or a reboot
#: takes less. Bots that reach another server meanwhile need no such wait.
AWAY_MAX_MS: Final = 5 * 60 * 1_000
#: A server that was not seen for so long is forgotten.
FORGOTTEN_MS: Final = 24 * 60 * 60 * 1_000

_ADMISSIBLE = sources(Signal.ADMIT)


def heartbeat(transaction: Transaction) -> None:
    """Keep that this server is up, and since when."""
    server = _seen(transaction, transaction.repo.servers.all())
    transaction.repo.servers.save(server)
    if server.since_ms == transaction.now:
        transaction.repo.servers.delete_unseen(Millis(transaction.now - FORGOTTEN_MS))


def outage_ms(lease_ms: int) -> int:
    """Say after which time without a beat a server was away: less than what a bot can bear between two renewals.

    A bot renews after a third of a lease, and the guard comes on top.
    """
    return min(OUTAGE_MS, lease_ms // 2 + fleet.GUARD_MS)


def apply_timeouts(transaction: Transaction, count: int = 500, choose: ChooseTasks = list) -> int:
    """Deal with those of the first `count` tasks that are due whom `choose` names; say with how many."""
    servers = _servers(transaction)
    due = transaction.lock_tasks(choose(transaction.repo.tasks.due(transaction.now, count)))
    visible = _visible(transaction, due)
    spoke_to = transaction.repo.bots.last_servers({task.bot for task in due.values() if task.bot is not None})
    moves = []
    for task in due.values():
        move = _move(transaction, task, servers.get(spoke_to.get(task.bot or "", ""))) if visible[task.id] else None
        if move is None:
            _wait_on(transaction, task)
        else:
            moves.append(move)
    transaction.apply(moves)
    return len(due)


def mark_missing_bots(transaction: Transaction, count: int = 500) -> int:
    """Note that bots were not heard of for too long, each once; say how many. Nobody was heard during an outage."""
    now = transaction.now
    longest = fleet.silence_max_ms(transaction.lease_ms)
    if now - _up_since(transaction) <= longest:
        return 0
    before = Millis(now - longest)
    found = transaction.repo.bots.read(transaction.repo.bots.silent(before, count))
    # Whoever was heard of, or noticed by another server, before we had its row is left alone.
    silent = [id for id, bot in found.items() if bot.facts.last_seen_ms < before and not bot.facts.missing]
    if silent:
        transaction.repo.bots.mark_missing(silent)
        record_event(transaction, silent, MISSING)
        transaction.mark_dirty(None)
    return len(silent)


def _up_since(transaction: Transaction) -> Millis:
    """Say since when some server has been up."""
    servers = _servers(transaction).values()
    return Millis(min(one.since_ms for one in servers if not _is_away(transaction, one)))


def _servers(transaction: Transaction) -> dict[str, ServerRow]:
    """Read the servers, by name; that this one was away is written at once."""
    servers = transaction.repo.servers.all()
    known, seen = servers.get(transaction.server.name), _seen(transaction, servers)
    if known is None or seen.since_ms != known.since_ms:
        transaction.repo.servers.save(seen)
    return {**servers, seen.name: seen}


def _seen(transaction: Transaction, servers: Mapping[str, ServerRow]) -> ServerRow:
    """Say since when this server has been up, if it is up now.

    A clock a little behind was adjusted; one far behind was set back, and what was known by the old one means nothing.
    """
    now, (name, began_ms) = transaction.now, (transaction.server.name, transaction.server.began_ms)
    known = servers.get(name)
    if known is None or known.since_ms < began_ms or _is_away(transaction, known):
        return ServerRow(name, now, now)
    return ServerRow(name, known.since_ms, max(known.seen_ms, now))


def _is_away(transaction: Transaction, server: ServerRow) -> bool:
    """Tell whether a server has not been seen for too long."""
    return abs(transaction.now - server.seen_ms) > outage_ms(transaction.lease_ms)


def _visible(transaction: Transaction, due: dict[int, TaskRecord]) -> dict[int, bool]:
    """Leave alone what is still being loaded: nobody counts it yet."""
    graphs = transaction.repo.graphs.peek({task.graph for task in due.values()})
    whole = {graph.id for graph in graphs if graph.loader is None}
    return {task.id: task.graph in whole and not task.loading for task in due.values()}


def _move(transaction: Transaction, task: TaskRecord, server: ServerRow | None) -> Transition | None:
    """Rule on one task, by what is due first: its lease, its deadline, its slice, its start."""
    if task.state in LEASED:
        own = task.queue == SERVER_QUEUE
        return server_tasks.time_out(transaction, task) if own else _end_lease(transaction, task, server)
    overdue = attempt_policy.overdue(task.life, task.rules, transaction.now)
    if overdue.outcome is Outcome.MOVE:
        return _moved(task, Signal.DEADLINE, overdue)
    expires = attempt_policy.expires_at(task.life, task.rules)
    if expires is not None and expires <= transaction.now:
        return _expire(transaction, task)
    _begin(transaction, task)
    return None


def _end_lease(transaction: Transaction, task: TaskRecord, server: ServerRow | None) -> Transition | None:
    """End an attempt whose lease is over, unless its server was or is away and its bot may still come back."""
    assert task.lease_until_ms is not None, "only a lease is due"
    until = task.lease_until_ms = _with_grace(transaction, Millis(task.lease_until_ms), server)
    if attempt_policy.given_again_at(until) > transaction.now:
        return None
    signal, ruling = attempt_policy.lease_over(
        task.life, task.rules, transaction.now, lost_attempts.free_reason(transaction, task)
    )
    if signal is Signal.LOSE:
        task.avoid_bot = task.bot
    return _moved(task, signal, ruling)


def _with_grace(transaction: Transaction, until: Millis, server: ServerRow | None) -> Millis:
    """Say until when a lease lasts, as the server that its bot last spoke to was up or away."""
    if server is None:
        return until
    if not _is_away(transaction, server):
        return attempt_policy.with_grace(until, Millis(server.since_ms), transaction.lease_ms)
    was_over = attempt_policy.given_again_at(until) <= server.seen_ms
    waited_for = transaction.now - server.seen_ms <= AWAY_MAX_MS
    return max(until, transaction.now) if waited_for and not was_over else until


def _expire(transaction: Transaction, task: TaskRecord) -> Transition:
    slices = len(task.rules.slices)
    is_last = task.life.slice_index == slices - 1
    capacity = [False] * slices if is_last else release.capacity_by_slice(transaction, task)
    ruling = attempt_policy.expire(task.life, task.rules, task.life.slice_index, transaction.now, capacity)
    release.move_to_slice(transaction, task, ruling.life_after)
    return _moved(task, Signal.EXPIRE, ruling)


def _begin(transaction: Transaction, task: TaskRecord) -> None:
    """Let a start that was put off be judged now: by a pass if somebody could stand in its way, else at once."""
    begins = task.life.not_before_ms
    if task.state not in _ADMISSIBLE or begins is None or begins > transaction.now:
        return
    if task.needs_admission:
        transaction.mark_dirty(task.id)
    else:
        transaction.request_admission(task)


def _wait_on(transaction: Transaction, task: TaskRecord) -> None:
    """Say when the clock looks at a task again: never at once, so that the next page is another one."""
    due = attempt_policy.due_at(task.life, task.rules, task.lease_until_ms, transaction.now)
    task.due_ms = due if due is None or due > transaction.now else Millis(transaction.now + fleet.SWEEP_MS)
    transaction.mark_changed(task)


def _moved(task: TaskRecord, signal: Signal, ruling: Ruling) -> Transition:
    assert ruling.outcome is Outcome.MOVE, f"the clock cannot {signal} a task that is {task.state}"
    return Transition(task, signal, ruling.life_after, ruling.reason or REASONS[signal])
