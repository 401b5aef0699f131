"""Counts of pools over time."""

from typing import Final

from taskyard.core.states import Millis
from taskyard.store.connection import Repo
from taskyard.store.repo.stats import PoolMinute
from taskyard.wire.api import PoolsStats, PoolStats

#: The states in which tasks end, as they are counted.
ENDS: Final = ("successful", "failed", "error", "canceled", "skipped")
#: How many steps one answer has: as many as a chart can show.
STEPS_MAX: Final = 360


def pool_stats(repo: Repo, pools: frozenset[str] | None, now: Millis, span_ms: int, step_ms: int) -> PoolsStats:
    """Add up the counts of pools (None: all) in steps of time up to now."""
    last = now // step_ms * step_ms
    at = list(range(last - (span_ms // step_ms - 1) * step_ms, last + 1, step_ms))
    found: dict[str, PoolStats] = {}
    for one in repo.stats.since(Millis(at[0]), pools):
        place = (one.minute_ms - at[0]) // step_ms
        if place < len(at):
            _add(found.setdefault(one.pool, _empty(one.pool, len(at))), place, one)
    return PoolsStats(step_ms, at, [found[pool] for pool in sorted(found)])


def _empty(pool: str, steps: int) -> PoolStats:
    return PoolStats(pool, [0] * steps, [0] * steps, {state: [0] * steps for state in ENDS}, [0] * steps, [0] * steps)


def _add(stats: PoolStats, place: int, one: PoolMinute) -> None:
    stats.submitted[place] += one.submitted
    stats.started[place] += one.started
    for state in ENDS:
        stats.ended[state][place] += getattr(one, state)
    stats.waiting[place] = one.waiting
    stats.oldest_ms[place] = max(stats.oldest_ms[place], one.oldest_ms)
