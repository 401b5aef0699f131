"""Scopes: what a token may do. `admin` is everything; `pool:NAME:RIGHT` is one right in one pool, or in all (`*`).

An admin of a pool has every right in it. No other right includes another. Nothing here knows who asks.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.graph.limits import DIMENSION_VALUE_MAX
from taskyard.core.graph.readers import name_fault

ADMIN: Final = "admin"
READ: Final = "read"
SUBMIT: Final = "submit"
CANCEL: Final = "cancel"
APPROVE: Final = "approve"
BOT: Final = "bot"
RIGHTS: Final = (READ, SUBMIT, CANCEL, APPROVE, ADMIN, BOT)
#: Stands for every pool.
ALL: Final = "*"
_POOL: Final = "pool:"


@dataclass(frozen=True, slots=True)
class Rights:
    """What somebody may do."""

    admin: bool = False
    pools: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the pools of each right

    def pools_with(self, right: str) -> frozenset[str] | None:
        """Give the pools in which there is a right; None stands for all."""
        if self.admin:
            return None
        found = self.pools.get(right, frozenset()) | self.pools.get(ADMIN, frozenset())
        return None if ALL in found else found

    def anywhere(self, right: str) -> bool:
        """Tell whether there is a right in any pool."""
        pools = self.pools_with(right)
        return pools is None or bool(pools)

    def in_one_of(self, right: str, pools: Collection[str]) -> bool:
        """Tell whether there is a right in one of some pools."""
        mine = self.pools_with(right)
        return mine is None or not mine.isdisjoint(pools)

    def lacks(self, right: str, pools: Iterable[str]) -> list[str]:
        """Name the scopes that are missing to have a right in all of some pools."""
        mine = self.pools_with(right)
        return [] if mine is None else [scope(pool, right) for pool in sorted(set(pools) - mine)]


EVERYTHING: Final = Rights(admin=True)
NOTHING: Final = Rights()


def scope(pool: str, right: str) -> str:
    """Spell a scope."""
    return f"{_POOL}{pool}:{right}"


def rights_of(scopes: Iterable[str]) -> Rights:
    """Read scopes; what is none gives nothing."""
    pools: dict[str, set[str]] = defaultdict(set)
    admin = False
    for one in scopes:
        if one == ADMIN:
            admin = True
        elif fault(one) is None:
            pool, _, right = one.removeprefix(_POOL).rpartition(":")
            pools[right].add(pool)
    return Rights(admin, {right: frozenset(found) for right, found in pools.items()})


def fault(text: str) -> str | None:
    """Say what is wrong with a scope; None when it is fine."""
    if text == ADMIN:
        return None
    pool, _, right = text.removeprefix(_POOL).rpartition(":")
    if not text.startswith(_POOL) or right not in RIGHTS:
        return f"is no scope; write admin, or pool:NAME:RIGHT with one of {', '.join(RIGHTS)}"
    found = None if pool == ALL else name_fault(pool, DIMENSION_VALUE_MAX)
    return None if found is None else f"the pool {found}"
