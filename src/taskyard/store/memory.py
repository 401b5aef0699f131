"""What a writer knows by heart: graphs, tasks, bots, pools and queues as it last read or wrote them.

Within one transaction nobody else can change what was looked at, so it is read once. A database with a single writer
keeps the memory from one transaction to the next, which saves most of the reading; it is forgotten whenever a
transaction is undone, somebody else has written, or something was written that is not in here. Nothing here reads.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.store.records import Caller, GraphRecord, TaskRecord
    from taskyard.store.verbs.passes import PoolRow

#: How many graphs, tasks and bots are known by heart: more than a large fleet has in its hands. About twenty megabytes.
KEPT_MAX: Final = 32_000


class Memory:
    """Graphs, tasks and bots by their ids; every pool; and the number of the newest queue."""

    __slots__ = ("_lasts", "_stale", "bots", "graphs", "newest_queue", "pools", "tasks")

    def __init__(self, lasts: bool = False) -> None:
        self._lasts = lasts  # from one transaction to the next
        self.forget()

    @property
    def is_sure(self) -> bool:
        """Whether all of it is so, and nobody has to be kept from changing it: nobody else writes."""
        return self._lasts and not self._stale

    def begin(self) -> None:
        """Another transaction begins; what is known may be forgotten only now, for in one it is known once."""
        if self._stale or len(self.graphs) + len(self.tasks) + len(self.bots) > KEPT_MAX:
            self.forget()

    def has_room(self, tasks: int) -> bool:
        """Tell whether so many tasks can be known that nobody asked for yet: what was asked for is worth more."""
        return len(self.tasks) + tasks <= KEPT_MAX // 2

    def forget(self) -> None:
        """Know nothing."""
        self.graphs: dict[int, GraphRecord] = {}
        self.tasks: dict[int, TaskRecord] = {}
        self.bots: dict[str, Caller] = {}
        self.pools: list[PoolRow] | None = None
        self.newest_queue: int | None = None
        self._stale = False

    def distrust(self) -> None:
        """Know nothing, and do not keep what this transaction learns: it mends what is stored."""
        self.forget()
        self._stale = True

    def fade(self) -> None:
        """Something is written past this memory: it is good for this transaction only."""
        self._stale = True
