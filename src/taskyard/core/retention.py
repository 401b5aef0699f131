"""How long what is over is kept: what has its own time, which time counts for a graph, and what of it is due.

Times are set for a pool, or for all pools that have none of their own. A graph belongs to several pools: the longest of
their times counts. A time counts from when a graph settled, or when anything else happened last.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final

from taskyard.core.durations import DAY_MS
from taskyard.core.states import GraphState, Millis
from taskyard.core.structs import value


@unique
class Kept(StrEnum):
    """What is kept for a time of its own."""

    OUTPUT = "output"  # what attempts printed
    FILES = "files"  # output files and artifacts
    RESULTS = "results"  # with progress and checkpoints
    GRAPHS = "graphs"  # everything else of a graph: its tasks, attempts and events
    BOT_EVENTS = "bot_events"
    QUEUES = "queues"  # into which no task has come
    BOTS = "bots"  # that are gone for good
    TOKENS = "tokens"  # that are expired or revoked
    AUDIT = "audit"  # about what does not exist any more


#: Stands for all pools that have no time of their own.
ALL_POOLS: Final = "*"
#: What has a time for each pool; the others have one for all.
PER_POOL: Final = (Kept.OUTPUT, Kept.FILES, Kept.RESULTS, Kept.GRAPHS, Kept.BOT_EVENTS, Kept.QUEUES, Kept.BOTS)
#: What counts from when a graph settled.
OF_GRAPHS: Final = (Kept.OUTPUT, Kept.FILES, Kept.RESULTS, Kept.GRAPHS)
#: The parts of a graph that can be purged before it, in the order of their bits.
PARTS: Final = (Kept.OUTPUT, Kept.FILES, Kept.RESULTS)
#: Parts that tasks may still need if they are rerun in the same graph.
_NEEDED_AGAIN: Final = frozenset({Kept.FILES, Kept.RESULTS})
#: Graphs that cannot be rerun in place.
_OVER: Final = frozenset({GraphState.FINISHED, GraphState.CANCELED})
#: The defaults; None: for ever. Work is never deleted unless a time is set.
DEFAULTS: Final[Mapping[Kept, int | None]] = MappingProxyType(
    {
        **dict.fromkeys(Kept),
        Kept.BOT_EVENTS: 28 * DAY_MS,
        Kept.QUEUES: 28 * DAY_MS,
        Kept.BOTS: 28 * DAY_MS,
        Kept.TOKENS: 90 * DAY_MS,
    }
)
#: The shortest and the longest time. An hour is enough to look at what has just ended.
KEEP_MIN_MS: Final = 3_600_000
#: A queue is kept for longer, whatever was set: tasks may come into it for hours after it was looked up.
QUEUE_KEEP_MIN_MS: Final = DAY_MS
KEEP_MAX_MS: Final = 100 * 366 * DAY_MS


@value
class SettledGraph:
    """A settled graph, as far as retention looks at it."""

    id: int
    state: GraphState
    settled_ms: Millis
    purged: frozenset[Kept]  # the parts that are purged already
    pools: frozenset[str]


@value
class RetentionTimes:
    """The times that are set, by pool and kind; None: for ever."""

    times: Mapping[tuple[str, Kept], int | None]

    def keep_ms(self, kind: Kept, pools: Collection[str] = ()) -> int | None:
        """Return how long something is kept that belongs to some pools; None: for ever."""
        found = [self._of(pool, kind) for pool in pools] or [self._of(ALL_POOLS, kind)]
        return None if None in found else max(one for one in found if one is not None)

    def shortest(self, kinds: Collection[Kept]) -> int | None:
        """Return the shortest time of some kinds in any pool; None if all are kept for ever."""
        pools = {ALL_POOLS, *(pool for pool, _ in self.times)}
        found = (self._of(pool, kind) for pool in pools for kind in kinds)
        return min((one for one in found if one is not None), default=None)

    def longest(self, kind: Kept) -> int | None:
        """Return the longest time of a kind in any pool; None if one keeps it for ever."""
        found = [self._of(pool, kind) for pool in (ALL_POOLS, *(pool for pool, _ in self.times))]
        return None if None in found else max(one for one in found if one is not None)

    def is_due(self, graph: SettledGraph, now: Millis) -> bool:
        """Tell whether a whole graph is due."""
        return self._has_passed(Kept.GRAPHS, graph, now)

    def due_parts(self, graph: SettledGraph, now: Millis) -> list[Kept]:
        """Return the parts of a graph that are due and not purged yet."""
        return [
            part
            for part in PARTS
            if part not in graph.purged
            and (graph.state in _OVER or part not in _NEEDED_AGAIN)
            and self._has_passed(part, graph, now)
        ]

    def _has_passed(self, kind: Kept, graph: SettledGraph, now: Millis) -> bool:
        keep_ms = self.keep_ms(kind, graph.pools)
        return keep_ms is not None and graph.settled_ms + keep_ms <= now

    def _of(self, pool: str, kind: Kept) -> int | None:
        for key in ((pool, kind), (ALL_POOLS, kind)):
            if key in self.times:
                return self.times[key]
        return DEFAULTS[kind]
