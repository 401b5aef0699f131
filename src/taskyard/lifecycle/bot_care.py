"""Care of bots: those that fail again and again are quarantined, those that are gone are forgotten or deleted.

A bot that is forgotten leaves its name behind, which still belongs to its pool; one that an admin deletes does not.
"""

from collections.abc import Collection
from typing import Final

from taskyard.core import fleet
from taskyard.core.states import Millis
from taskyard.lifecycle.bot_events import QUARANTINED, record_event
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.bots import BotRecord

#: The audit actions, and who acts where no person does.
QUARANTINE: Final = "quarantine_bot"
DELETE: Final = "delete_bot"
SERVER: Final = "server"
#: How many events of bots one transaction deletes: in a few milliseconds.
EVENTS_DELETED_MAX: Final = 2_000


# Bots that fail again and again.


def count_failures(transaction: Transaction, ids: Collection[str]) -> None:
    """Count once more that bots have lost attempts; quarantine those that did so too often in a row.

    The bots are locked: that must come before any lock of a task.
    """
    repo, now = transaction.repo.bots, transaction.now
    failed: dict[str, int] = {}
    # Behind an external bot are many workers: its losses do not say that a machine is broken.
    own = [id for id in ids if not fleet.is_external(id)]
    for id, bot in repo.read(own).items() if own else ():
        failures = fleet.after_failure(bot.failures, bot.failed_ms, now, transaction.lease_ms)
        if failures != bot.failures:
            failed[id] = failures
    repo.set_failures([(id, failures, now) for id, failures in failed.items()])
    for id, failures in failed.items():
        if failures >= fleet.FAILURES_MAX:
            _quarantine(transaction, id, failures)


def _quarantine(transaction: Transaction, bot: str, failures: int) -> None:
    """Give a bot no more work until an admin says so."""
    quarantined, maintenance, draining, terminated = transaction.repo.read.bot_settings(bot)
    if quarantined is not None:
        return
    why = f"it lost what it ran {failures} times in a row; look at its machine, then: taskyard bots set --no-quarantine"
    transaction.repo.bots.set_settings([(bot, why, maintenance, int(draining), int(terminated))])
    record_event(transaction, [bot], QUARANTINED, why)
    transaction.audit(SERVER, QUARANTINE, NO_SUBJECT, f"{bot}: {why}")
    transaction.mark_bot_changed(bot)
    transaction.mark_dirty(None)


def forget_failures(transaction: Transaction, ids: Collection[str]) -> None:
    """Reset the failure counts of bots: they have ended an attempt, or an admin trusts them again."""
    transaction.repo.bots.set_failures([(id, 0, None) for id in ids])


# Bots that are gone.


def refuse_while_used(transaction: Transaction, bot: BotRecord, what: str) -> Refusal | None:
    """Refuse to take something from a bot that is alive or has leases."""
    id = bot.facts.id
    if fleet.alive(bot.facts):
        return Refusal(Code.CONFLICT, f"cannot {what} {id}: the bot is alive; end it first")
    if transaction.repo.tasks.leased_with_session([id], 1):
        return Refusal(Code.CONFLICT, f"cannot {what} {id}: the bot still has leases; try again later")
    return None


def forget_dead_bots(transaction: Transaction, bots: Collection[str], before: Millis, count: int) -> int:
    """Forget those of some bots that are dead, hold no task and were last seen before a time; return how many rows.

    Call it again while it returns more than 0. The names of these bots stay bound to their pools.
    """
    repo = transaction.repo.bots
    found = repo.read(repo.dead(bots, before, count))
    # A bot may have come back before its row was locked.
    dead = [id for id, bot in found.items() if not fleet.alive(bot.facts) and bot.facts.last_seen_ms < before]
    if not dead:
        return 0
    deleted = repo.delete_events(dead, EVENTS_DELETED_MAX)
    if deleted == EVENTS_DELETED_MAX:
        return deleted
    now = transaction.now
    repo.bind_names([(id, pool, now) for id in dead if (pool := found[id].pool) is not None])
    repo.delete(dead, now)
    transaction.mark_dirty(None)
    return deleted + len(dead)


def delete_old_events(transaction: Transaction, bot: str) -> int | Refusal:
    """Delete a page of the events of a bot that is to be deleted; return how many there were."""
    found = transaction.repo.bots.read([bot]).get(bot)
    if found is None:
        return 0
    refusal = refuse_while_used(transaction, found, "delete the bot")
    return refusal or transaction.repo.bots.delete_events([bot], EVENTS_DELETED_MAX)


def delete_bot(transaction: Transaction, bot: str, actor: str) -> Refusal | None:
    """Delete a bot, or the binding of its name if it is forgotten. Refuse that while it is alive or has leases."""
    repo = transaction.repo.bots
    found = repo.read([bot]).get(bot)
    pool = repo.bound_names([bot]).get(bot) if found is None else found.pool
    if found is None and pool is None:
        return Refusal(Code.NOT_FOUND, f"there is no bot {bot}")
    if found is not None:
        if refusal := refuse_while_used(transaction, found, "delete the bot"):
            return refusal
        while repo.delete_events([bot], EVENTS_DELETED_MAX):
            pass  # few: those from before were deleted by `delete_old_events`
        repo.delete([bot], transaction.now)
    repo.unbind_names([bot])
    transaction.audit(actor, DELETE, NO_SUBJECT, bot if pool is None else f"{bot}, of pool {pool}")
    transaction.mark_dirty(None)
    return None


def purge_snapshots(transaction: Transaction, before: Millis, count: int) -> int:
    """Delete what bots were until some time, if no bot is it any more; return how many rows that was.

    No attempt that was claimed after `before` refers to them; an older one of a graph that is still kept, because it
    settled late, no longer shows what its bot was.
    """
    return transaction.repo.bots.delete_snapshots(before, count)
