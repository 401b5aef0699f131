"""The demand of a pool: how many tasks want a bot, by what the bot must have. For people and for autoscalers."""

from collections.abc import Iterator
from typing import Final

from taskyard.core import comparison, resources
from taskyard.core.matching import POOL, Dimensions
from taskyard.core.states import Reason, Signal, sources
from taskyard.store.connection import Repo
from taskyard.store.repo.read import DemandRow
from taskyard.wire.api import DemandItem, PoolDemand, TakenResources

#: How many sets of dimensions one answer lists; those that most tasks want come first.
LISTED_MAX: Final = 1_000
#: Stands for every pool.
ALL_POOLS: Final = ""
_ADMISSIBLE: Final = sources(Signal.ADMIT)


def demand(repo: Repo, pool: str) -> PoolDemand:
    """Return the demand of a pool. Sets of dimensions that no task wants and no bot has are left out."""
    rows = sorted(_rows(repo, pool), key=lambda one: (-one.waiting - one.no_bot, -one.running, one.queue))
    return PoolDemand(
        pool=pool,
        waiting=sum(one.waiting for one in rows),
        no_bot=sum(one.no_bot for one in rows),
        running=sum(one.running for one in rows),
        items=[_item(one) for one in rows[:LISTED_MAX]],
        more=max(0, len(rows) - LISTED_MAX),
    )


def wanted_by_queue(repo: Repo, count: int) -> list[tuple[str, str, int]]:
    """Return how many tasks want a bot: pool, dimensions as text, number; the largest numbers first, up to a count."""
    wanted = ((one.pool, text_of(one.dimensions), one.waiting + one.no_bot) for one in _rows(repo, ALL_POOLS))
    return sorted((one for one in wanted if one[2]), key=lambda one: (-one[2], one))[:count]


def text_of(dimensions: Dimensions) -> str:
    """Write dimensions in one line: `cores>=4 gpu=h100 os=Linux`; the pool is left out."""
    return " ".join(_pairs(resources.without_marks(dimensions)))


def _pairs(dimensions: Dimensions) -> Iterator[str]:
    for key, values in dimensions:
        for value in values if key != POOL else ():
            yield f"{key}{value}" if comparison.operator_of(value) else f"{key}={value}"


def _rows(repo: Repo, pool: str) -> list[DemandRow]:
    return repo.read.demand(pool, _ADMISSIBLE, Reason.NO_BOT)


def _item(row: DemandRow) -> DemandItem:
    takes = resources.taken(row.dimensions)
    return DemandItem(
        dimensions={key: list(values) for key, values in resources.without_marks(row.dimensions)},
        takes=TakenResources(takes.slots, takes.cpus / 1000, takes.memory, takes.gpus),
        waiting=row.waiting,
        no_bot=row.no_bot,
        running=row.running,
        oldest_ms=row.oldest_ms,
    )
