"""What a writer knows by heart: tasks and bots as it last read or wrote them.

Within one transaction nobody else can change what was looked at, so it is read once. A database with a single writer
keeps the memory from one transaction to the next, which saves most of the reading; it is forgotten whenever a
transaction is undone, somebody else has written, or something was written that is not in here. Nothing here reads.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.store.records import Caller, TaskRecord

#: How many tasks and bots are known by heart: more than a large fleet has in its hands. About ten megabytes.
KEPT_MAX: Final = 16_000


class Memory:
    """Tasks and bots by their ids."""

    __slots__ = ("_stale", "bots", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[int, TaskRecord] = {}
        self.bots: dict[str, Caller] = {}
        self._stale = False

    def begin(self) -> None:
        """Another transaction begins; what is known may be forgotten only now, for in one it is known once."""
        if self._stale or len(self.tasks) + len(self.bots) > KEPT_MAX:
            self.forget()

    def forget(self) -> None:
        """Know nothing."""
        self.tasks.clear()
        self.bots.clear()
        self._stale = False

    def distrust(self) -> None:
        """Know nothing, and do not keep what this transaction learns: it mends what is stored."""
        self.forget()
        self._stale = True

    def fade(self) -> None:
        """Something is written past this memory: it is good for this transaction only."""
        self._stale = True
