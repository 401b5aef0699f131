"""The room where people say what limits admission: the capacity of pools, named limits, the order of keys.

A pool that comes to have a capacity has tasks that no pass ever looked at; they are made contenders page by page, and
the same call repeated goes on where the last one stopped. Said again it changes nothing and is no news. Nothing here
lets a task in or sends one back: the next pass does, and every change stirs it.
"""

from typing import Final

from taskyard.core.machine import ACTIVE
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Refusal
from taskyard.store.verbs.passes import PoolRow

#: How many tasks one transaction makes contenders.
PAGE_MAX: Final = 1_000


def set_pool(corridor: Corridor, name: str, capacity: int | None, from_bots: bool, actor: str) -> bool | Refusal:
    """Describe a pool; tell whether tasks of it are left: then the same call goes on with them."""
    if capacity is not None and (from_bots or capacity < 0):
        wrong = "a capacity that comes from bots is not fixed as well" if from_bots else f"{capacity} is no capacity"
        return Refusal(Code.INVALID, f"pool {name}: {wrong}")
    if PoolRow(name, capacity, from_bots) not in corridor.txn.passes.pools():  # else it goes on where it stopped
        corridor.txn.passes.set_pool(name, capacity, from_bots)
        said = "from its bots" if from_bots else "without limit" if capacity is None else str(capacity)
        corridor.audit(actor, "set_pool", NO_SUBJECT, f"{name}: {said}")
        corridor.stirred.append(None)
    return enter_contest(corridor, name) if from_bots or capacity is not None else False


def enter_contest(corridor: Corridor, pool: str) -> bool:
    """Make some tasks of a pool contenders that no pass has looked at; tell whether more are left."""
    ids = corridor.txn.passes.uncontending(pool, sorted(ACTIVE), PAGE_MAX + 1)
    for task in corridor.look(ids[:PAGE_MAX]).values():
        if task.state in ACTIVE:
            task.contends = True
            corridor.change(task)
            corridor.stirred.append(task.id)
    return len(ids) > PAGE_MAX


def set_limit(corridor: Corridor, name: str, total: int, actor: str) -> Refusal | None:
    """Describe a named limit."""
    if total < 0:
        return Refusal(Code.INVALID, f"limit {name}: {total} is no total")
    if corridor.txn.passes.named_limits().get(name) != total:
        corridor.txn.passes.set_limit(name, total)
        corridor.audit(actor, "set_limit", NO_SUBJECT, f"{name}: {total}")
        corridor.stirred.append(None)
    return None


def set_order(corridor: Corridor, key: str, greedy: bool, actor: str) -> None:
    """Say whether a key is given to whoever can have it, or in the order of creation."""
    if (key in corridor.txn.passes.greedy_keys()) is not greedy:
        corridor.txn.passes.set_order(key, greedy)
        corridor.audit(actor, "set_order", NO_SUBJECT, f"{key}: {'greedy' if greedy else 'fifo'}")
        corridor.stirred.append(None)
