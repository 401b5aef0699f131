"""Timeouts: leases that expired, slices that waited too long, deadlines, and starts that were put off.

Whether a bot is lost is decided for each lease, by the server that the bot speaks to. While that server was down the
bot could not renew or report, so its leases last one full lease from the moment the server is back; every start of a
server is such a moment. While it is still down, another server waits for it, but only for a while. Before a lease is
ended, the same transaction checks whether this server itself was down: its last heartbeat may have failed, or be long
ago. A task without a timeout now gets its next due time, so no task is on two pages in a row.
"""

from collections.abc import Collection, Mapping
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Ruling
from taskyard.core.states import LEASED, REASONS, Millis, Outcome, Reason, Signal, sources
from taskyard.lifecycle import lost_attempts, release, reuse, server_tasks
from taskyard.lifecycle.bot_care import count_failures
from taskyard.lifecycle.bot_events import MISSING, record_event
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.repo.events import ServerRow
from taskyard.store.rows import TaskRecord

#: A server without a heartbeat for so long was down; a sweep or two may be late. It is less for short leases.
OUTAGE_MS: Final = 3 * fleet.SWEEP_MS
#: How long other servers wait for one that is down before its bots count as lost: a restart, an upgrade or a reboot
#: takes less. Bots that reach another server meanwhile need no such wait.
AWAY_MAX_MS: Final = 5 * 60 * 1_000
#: The row of a server without a heartbeat for so long is deleted.
FORGOTTEN_MS: Final = 24 * 60 * 60 * 1_000

_ADMISSIBLE = sources(Signal.ADMIT)


def heartbeat(transaction: Transaction) -> None:
    """Store that this server is up, and since when."""
    server = _seen(transaction, transaction.repo.servers.all())
    transaction.repo.servers.save(server)
    if server.since_ms == transaction.now:
        transaction.repo.servers.delete_unseen(Millis(transaction.now - FORGOTTEN_MS))


def outage_ms(lease_ms: int) -> int:
    """Return after how long without a heartbeat a server counts as down.

    It is less than the longest time between two renewals: a bot renews after a third of a lease, plus the guard.
    """
    return min(OUTAGE_MS, lease_ms // 2 + fleet.GUARD_MS)


def apply_timeouts(transaction: Transaction, count: int = 500, choose: ChooseTasks = list) -> int:
    """Apply the timeouts of those of the first `count` due tasks that `choose` selects; return how many."""
    servers = _servers(transaction)
    found = choose(transaction.repo.tasks.due(transaction.now, count))
    _lock_bots(transaction, found)
    due = transaction.lock_tasks(found)
    visible = _visible(transaction, due)
    spoke_to = transaction.repo.bots.last_servers({task.bot for task in due.values() if task.bot is not None})
    transitions = []
    for task in due.values():
        transition = (
            _transition(transaction, task, servers.get(spoke_to.get(task.bot or "", ""))) if visible[task.id] else None
        )
        if transition is None:
            _set_next_due(transaction, task)
        else:
            transitions.append(transition)
    lost = {one.task.bot for one in transitions if one.signal is Signal.LOSE and one.task.queue != SERVER_QUEUE}
    transaction.apply(transitions)
    count_failures(transaction, {bot for bot in lost if bot is not None})
    return len(due)


def _lock_bots(transaction: Transaction, tasks: Collection[int]) -> None:
    """Lock the bots of tasks, which may lose them: all transactions lock bots before tasks."""
    transaction.repo.bots.read(transaction.repo.tasks.holders(tasks))


def mark_missing_bots(transaction: Transaction, count: int = 500) -> int:
    """Mark bots as missing that have not polled for too long; return how many.

    No bot is marked during an outage and shortly after it, because then bots could not poll.
    """
    now = transaction.now
    longest = fleet.silence_max_ms(transaction.lease_ms)
    if now - _up_since(transaction) <= longest:
        return 0
    before = Millis(now - longest)
    found = transaction.repo.bots.read(transaction.repo.bots.silent(before, count))
    # A bot may have polled, or been marked by another server, before we locked its row.
    silent = [id for id, bot in found.items() if bot.facts.last_seen_ms < before and not bot.facts.missing]
    if silent:
        transaction.repo.bots.mark_missing(silent)
        record_event(transaction, silent, MISSING)
        transaction.mark_dirty(None)
    return len(silent)


def _up_since(transaction: Transaction) -> Millis:
    """Return since when some server has been up."""
    servers = _servers(transaction).values()
    return Millis(min(one.since_ms for one in servers if not _is_down(transaction, one)))


def _servers(transaction: Transaction) -> dict[str, ServerRow]:
    """Read the servers, by name. If this one was down, that is written at once."""
    servers = transaction.repo.servers.all()
    known, seen = servers.get(transaction.server.name), _seen(transaction, servers)
    if known is None or seen.since_ms != known.since_ms:
        transaction.repo.servers.save(seen)
    return {**servers, seen.name: seen}


def _seen(transaction: Transaction, servers: Mapping[str, ServerRow]) -> ServerRow:
    """Return the row of this server as it is up now.

    If the clock is a little behind it was adjusted; if it is far behind it was set back, and the old row is void.
    """
    now, (name, began_ms) = transaction.now, (transaction.server.name, transaction.server.began_ms)
    known = servers.get(name)
    if known is None or known.since_ms < began_ms or _is_down(transaction, known):
        return ServerRow(name, now, now)
    return ServerRow(name, known.since_ms, max(known.seen_ms, now))


def _is_down(transaction: Transaction, server: ServerRow) -> bool:
    """Whether a server had no heartbeat for too long."""
    return abs(transaction.now - server.seen_ms) > outage_ms(transaction.lease_ms)


def _visible(transaction: Transaction, due: dict[int, TaskRecord]) -> dict[int, bool]:
    """Return which tasks are completely loaded; the others are not counted yet and have no timeouts."""
    graphs = transaction.repo.graphs.peek({task.graph for task in due.values()})
    loaded = {graph.id for graph in graphs if graph.loader is None}
    return {task.id: task.graph in loaded and not task.loading for task in due.values()}


def _transition(transaction: Transaction, task: TaskRecord, server: ServerRow | None) -> Transition | None:
    """Return the transition of a due task, if any: by its lease, its deadline, its slice or its start."""
    if task.state in LEASED:
        if task.queue == SERVER_QUEUE:
            return server_tasks.time_out(transaction, task)
        return _end_lease(transaction, task, server)
    overdue = attempt_policy.overdue(task.life, task.rules, transaction.now)
    if overdue.outcome is Outcome.MOVE:
        return _by_ruling(task, Signal.DEADLINE, overdue)
    expires = attempt_policy.expires_at(task.life, task.rules)
    if expires is not None and expires <= transaction.now:
        return _expire(transaction, task)
    _request_start(transaction, task)
    return None


def _end_lease(transaction: Transaction, task: TaskRecord, server: ServerRow | None) -> Transition | None:
    """End an attempt whose lease is over, unless its server was or is down and its bot may still come back."""
    assert task.lease_until_ms is not None, "a leased task has a lease"
    until = task.lease_until_ms = _with_grace(transaction, Millis(task.lease_until_ms), server)
    if attempt_policy.given_again_at(until) > transaction.now:
        return None
    signal, ruling = attempt_policy.lease_over(
        task.life,
        task.rules,
        transaction.now,
        lost_attempts.free_reason(transaction, task),
        poison=lost_attempts.is_poison(transaction, task),
    )
    if signal is Signal.LOSE:
        task.avoid_bot = task.bot
    return _by_ruling(task, signal, ruling)


def _with_grace(transaction: Transaction, until: Millis, server: ServerRow | None) -> Millis:
    """Return the end of a lease, extended if the server to which its bot last spoke was down."""
    if server is None:
        return until
    if not _is_down(transaction, server):
        return attempt_policy.with_grace(until, Millis(server.since_ms), transaction.lease_ms)
    was_over = attempt_policy.given_again_at(until) <= server.seen_ms
    waited_for = transaction.now - server.seen_ms <= AWAY_MAX_MS
    return max(until, transaction.now) if waited_for and not was_over else until


def _expire(transaction: Transaction, task: TaskRecord) -> Transition:
    slices = len(task.rules.slices)
    is_last = task.life.slice_index == slices - 1
    if is_last or task.rules.idempotent:
        capacity = [not is_last] * slices  # an idempotent task looks at each slice, even one that no bot could serve
    else:
        capacity = release.capacity_by_slice(transaction, task)
    ruling = attempt_policy.expire(task.life, task.rules, task.life.slice_index, transaction.now, capacity)
    release.move_to_slice(transaction, task, ruling.life_after)
    return _by_ruling(task, Signal.EXPIRE, ruling)


def _request_start(transaction: Transaction, task: TaskRecord) -> None:
    """Admit a task whose start was put off until now; if it needs an admission pass, leave it to the pass."""
    begins = task.life.not_before_ms
    if task.state not in _ADMISSIBLE or begins is None or begins > transaction.now:
        return
    if task.needs_admission:
        transaction.mark_dirty(task.id)
    elif reuse.is_put_off(task):
        transaction.request_admission(task, Signal.RELEASE)
    elif task.reason != Reason.DUPLICATE_OF:
        transaction.request_admission(task)


def _set_next_due(transaction: Transaction, task: TaskRecord) -> None:
    """Set when a task is due again: never at once, so that the next page has other tasks."""
    due = attempt_policy.due_at(task.life, task.rules, task.lease_until_ms, transaction.now)
    task.due_ms = due if due is None or due > transaction.now else Millis(transaction.now + fleet.SWEEP_MS)
    transaction.mark_changed(task)


def _by_ruling(task: TaskRecord, signal: Signal, ruling: Ruling) -> Transition:
    assert ruling.outcome is Outcome.MOVE, f"a timeout cannot {signal} a task that is {task.state}"
    return Transition(task, signal, ruling.life_after, ruling.reason or REASONS[signal])
