"""Set what limits admission: the capacity of pools, named limits, the order at mutexes.

A pool that gets a capacity has tasks that no pass has looked at; they are made contenders page by page. If they are
more than one page, the same transaction marks the pool as dirty: whatever happens to the caller, the next pass does the
rest before it admits anything. The same call repeated continues that, and changes nothing else. Nothing here admits a
task or takes an admission back: every change marks admission as dirty, and the next pass does that.
"""

from collections.abc import Iterable
from typing import Final

from taskyard.core.fleet import CapacityUnit
from taskyard.lifecycle.admission.writes import ENTRIES_MAX, UNENTERED, add_contenders
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.admission import PoolRow

#: How many tasks one transaction makes contenders.
PAGE_MAX: Final = ENTRIES_MAX


def set_pool(transaction: Transaction, pool: PoolRow, actor: str) -> bool | Refusal:
    """Set a pool; return whether tasks of it are left for the next pass, or for `add_pool_contenders`."""
    if wrong := _fault(pool):
        return Refusal(Code.INVALID, f"pool {pool.name}: {wrong}")
    if pool not in transaction.repo.admission.pools():
        transaction.repo.admission.set_pool(pool)
        transaction.audit(actor, "set_pool", NO_SUBJECT, f"{pool.name}: {_described(pool)}")
        transaction.mark_dirty(None)
    left = _is_bounded(pool) and add_pool_contenders(transaction, pool.name)
    if left:
        transaction.mark_dirty(UNENTERED)
    return left


def set_pools(transaction: Transaction, changed: Iterable[PoolRow], actor: str) -> None:
    """Set pools that are right, and leave their tasks to the next pass: they may have too many for one page."""
    for pool in changed:
        assert not _fault(pool), f"pool {pool.name}: {_fault(pool)}"
        transaction.repo.admission.set_pool(pool)
        transaction.audit(actor, "set_pool", NO_SUBJECT, f"{pool.name}: {_described(pool)}")
        transaction.mark_dirty(None)
        if _is_bounded(pool):
            transaction.mark_dirty(UNENTERED)


def _is_bounded(pool: PoolRow) -> bool:
    return pool.from_bots or pool.capacity is not None


def _fault(pool: PoolRow) -> str:
    if pool.from_bots:
        return "a capacity from bots cannot be a number, too" if pool.capacity is not None else ""
    if pool.capacity is not None and pool.capacity < 0:
        return f"{pool.capacity} is no capacity"
    if (pool.unit, pool.adjustment) != (CapacityUnit.SLOTS, 1.0):
        return "a unit and an adjustment need a capacity from bots"
    return ""


def _described(pool: PoolRow) -> str:
    return f"{_capacity(pool)}{', external' if pool.external else ''}"


def _capacity(pool: PoolRow) -> str:
    if not pool.from_bots:
        return "without limit" if pool.capacity is None else str(pool.capacity)
    if pool.unit == CapacityUnit.SLOTS:
        return "from its bots"
    return f"from its bots, in {pool.unit}, adjusted by {pool.adjustment:g}"


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
