"""Write-through cache of the rows that a writer read or wrote: graphs, tasks, bots, pools and queues.

Within one transaction no other writer can change a row that was read under a lock, so it is read once. SQLite has a
single writer, so its cache also lives from one transaction to the next, which saves most reads: a quarter of
`benchmarks.lives`, "sqlite, 1 command per commit". It is cleared when a transaction is rolled back, when another
process has written, and when a statement changed rows without the cache.
"""

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from taskyard.store.repo.admission import PoolRow
    from taskyard.store.rows import CallingBot, GraphRecord, TaskRecord

#: How many graphs, tasks and bots are cached: more than a large fleet works on at once. About twenty megabytes.
CACHED_MAX: Final = 32_000
#: A bot, and a block of task ids in which it had attempts. A stored one is deleted only once no task can come into it.
Block: TypeAlias = tuple[str, int]


class RowCache:
    """Graphs, tasks and bots by id; all pools; the number of the newest queue; and which blocks are stored."""

    __slots__ = (
        "_known_before",
        "_outlives_transaction",
        "_stale",
        "bots",
        "graphs",
        "known_blocks",
        "newest_queue",
        "pools",
        "tasks",
    )

    def __init__(self, outlives_transaction: bool = False, known_blocks: AbstractSet[Block] = frozenset()) -> None:
        self._outlives_transaction = outlives_transaction
        self._known_before = known_blocks
        self.clear()

    @property
    def is_authoritative(self) -> bool:
        """Whether every cached row is current without a lock, because there is no other writer."""
        return self._outlives_transaction and not self._stale

    def begin(self) -> None:
        """Begin a transaction. Rows are evicted only here, because one transaction must see one object per row."""
        if self._stale or len(self.graphs) + len(self.tasks) + len(self.bots) > CACHED_MAX:
            self.clear()

    def has_room(self, tasks: int) -> bool:
        """Whether to cache so many new tasks: half of the room is kept for rows that were asked for."""
        return len(self.tasks) + tasks <= CACHED_MAX // 2

    def unknown_blocks(self, blocks: set[Block]) -> list[Block]:
        """Return those of some blocks that may not be stored yet, in order; they are known from here on."""
        unknown = blocks - self.known_blocks - self._known_before
        self.known_blocks |= unknown
        return sorted(unknown)

    def clear(self) -> None:
        """Forget every row."""
        self.graphs: dict[int, GraphRecord] = {}
        self.tasks: dict[int, TaskRecord] = {}
        self.bots: dict[str, CallingBot] = {}
        self.pools: list[PoolRow] | None = None
        self.newest_queue: int | None = None
        self.known_blocks: set[Block] = set()
        self._stale = False

    def bypass(self) -> None:
        """Forget every row, and forget again when this transaction ends: it repairs stored rows."""
        self.clear()
        self._stale = True

    def mark_stale(self) -> None:
        """Forget every row when this transaction ends: a statement changes rows without the cache."""
        self._stale = True
