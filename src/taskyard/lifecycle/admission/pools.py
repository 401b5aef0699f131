"""Set what limits admission: the capacity of pools, named limits, the order at mutexes.

A pool that gets a capacity has tasks that no pass has looked at; they are made contenders page by page. If they are
more than one page, the same transaction marks the pool as dirty: whatever happens to the caller, the next pass does the
rest before it admits anything. The same call repeated continues that, and changes nothing else. Nothing here admits a
task or takes an admission back: every change marks admission as dirty, and the next pass does that.
"""

from typing import Final

from taskyard.lifecycle.admission.writes import ENTRIES_MAX, UNENTERED, add_contenders
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.admission import PoolRow

#: How many tasks one transaction makes contenders.
PAGE_MAX: Final = ENTRIES_MAX


def set_pool(transaction: Transaction, name: str, capacity: int | None, from_bots: bool, actor: str) -> bool | Refusal:
    """Set a pool; return whether tasks of it are left for the next pass, or for `add_pool_contenders`."""
    if capacity is not None and (from_bots or capacity < 0):
        wrong = "a capacity from bots cannot be a number, too" if from_bots else f"{capacity} is no capacity"
        return Refusal(Code.INVALID, f"pool {name}: {wrong}")
    if PoolRow(name, capacity, from_bots) not in transaction.repo.admission.pools():
        transaction.repo.admission.set_pool(name, capacity, from_bots)
        text = "from its bots" if from_bots else "without limit" if capacity is None else str(capacity)
        transaction.audit(actor, "set_pool", NO_SUBJECT, f"{name}: {text}")
        transaction.mark_dirty(None)
    left = (from_bots or capacity is not None) and add_pool_contenders(transaction, name)
    if left:
        transaction.mark_dirty(UNENTERED)
    return left


def add_pool_contenders(transaction: Transaction, pool: str) -> bool:
    """Make some tasks of a pool contenders that no pass has looked at; return whether more are left."""
    return add_contenders(transaction, pool)


def set_limit(transaction: Transaction, name: str, total: int, actor: str) -> Refusal | None:
    """Set a named limit."""
    if total < 0:
        return Refusal(Code.INVALID, f"limit {name}: {total} is no total")
    if transaction.repo.admission.named_limits().get(name) != total:
        transaction.repo.admission.set_limit(name, total)
        transaction.audit(actor, "set_limit", NO_SUBJECT, f"{name}: {total}")
        transaction.mark_dirty(None)
    return None


def set_stake_after(transaction: Transaction, key: str, stake_after_ms: int | None, actor: str) -> Refusal | None:
    """Set how long a task waits for mutexes before it stakes a key: 0 is strict order, None means never (greedy)."""
    if stake_after_ms is not None and stake_after_ms < 0:
        return Refusal(Code.INVALID, f"mutex {key}: {stake_after_ms} ms is no span: give 0 or more, or never")
    known = transaction.repo.admission.stake_after()
    if key not in known or known[key] != stake_after_ms:
        transaction.repo.admission.set_stake_after(key, stake_after_ms)
        text = "never" if stake_after_ms is None else f"after {stake_after_ms} ms"
        transaction.audit(actor, "set_stake_after", NO_SUBJECT, f"{key}: {text}")
        transaction.mark_dirty(None)
    return None
