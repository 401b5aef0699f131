"""The room where people say what limits admission: the capacity of pools, named limits, the order at mutexes.

A pool that comes to have a capacity has tasks that no pass ever looked at; they are made contenders page by page. If
they are more than one page, a stir says so, in the same transaction that describes the pool: whatever becomes of the
caller, the next pass does the rest before it lets anybody in. The same call repeated helps it, and is no news. Nothing
here lets a task in or sends one back: the next pass does, and every change stirs it.
"""

from typing import Final

from taskyard.lifecycle.admission.writes import ENTRIES_MAX, UNENTERED, add_contenders
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.admission import PoolRow

#: How many tasks one transaction makes contenders.
PAGE_MAX: Final = ENTRIES_MAX


def set_pool(transaction: Transaction, name: str, capacity: int | None, from_bots: bool, actor: str) -> bool | Refusal:
    """Describe a pool; tell whether tasks of it are left for the next pass, or for `enter_contest`."""
    if capacity is not None and (from_bots or capacity < 0):
        wrong = "a capacity that comes from bots is not fixed as well" if from_bots else f"{capacity} is no capacity"
        return Refusal(Code.INVALID, f"pool {name}: {wrong}")
    if PoolRow(name, capacity, from_bots) not in transaction.repo.admission.pools():
        transaction.repo.admission.set_pool(name, capacity, from_bots)
        said = "from its bots" if from_bots else "without limit" if capacity is None else str(capacity)
        transaction.audit(actor, "set_pool", NO_SUBJECT, f"{name}: {said}")
        transaction.mark_dirty(None)
    left = (from_bots or capacity is not None) and add_pool_contenders(transaction, name)
    if left:
        transaction.mark_dirty(UNENTERED)
    return left


def add_pool_contenders(transaction: Transaction, pool: str) -> bool:
    """Make some tasks of a pool contenders that no pass has looked at; tell whether more are left."""
    return add_contenders(transaction, pool)


def set_limit(transaction: Transaction, name: str, total: int, actor: str) -> Refusal | None:
    """Describe a named limit."""
    if total < 0:
        return Refusal(Code.INVALID, f"limit {name}: {total} is no total")
    if transaction.repo.admission.named_limits().get(name) != total:
        transaction.repo.admission.set_limit(name, total)
        transaction.audit(actor, "set_limit", NO_SUBJECT, f"{name}: {total}")
        transaction.mark_dirty(None)
    return None


def set_stake_after(transaction: Transaction, key: str, stake_after_ms: int | None, actor: str) -> Refusal | None:
    """Say how long mutexes hold a task before it stakes a key: 0 is strict order, None is greedy, it never does."""
    if stake_after_ms is not None and stake_after_ms < 0:
        return Refusal(Code.INVALID, f"mutex {key}: {stake_after_ms} ms is no span: give 0 or more, or never")
    known = transaction.repo.admission.stake_after()
    if key not in known or known[key] != stake_after_ms:
        transaction.repo.admission.set_stake_after(key, stake_after_ms)
        said = "never" if stake_after_ms is None else f"after {stake_after_ms} ms"
        transaction.audit(actor, "set_stake_after", NO_SUBJECT, f"{key}: {said}")
        transaction.mark_dirty(None)
    return None
