"""Repository of counts per pool and minute."""

from collections.abc import Sequence

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session


@value
class PoolMinute:
    """What happened to the tasks of a pool in a minute."""

    minute_ms: int
    pool: str
    submitted: int
    started: int
    successful: int
    failed: int
    error: int
    canceled: int
    skipped: int
    waiting: int
    oldest_ms: int


class StatsRepo:
    """The table `pool_minute`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Add to the counts of pools in minutes: the columns of `PoolMinute`."""
        self._session.execute_many("add_pool_minutes", rows)

    def since(self, at: Millis, pools: frozenset[str] | None) -> list[PoolMinute]:
        """Return the counts of pools (None: all) from a minute on, in order."""
        rows = self._session.fetch("select_pool_minutes", at, int(pools is None), sorted(pools or ()))
        return [PoolMinute(*row) for row in rows]

    def delete_before(self, at: Millis) -> None:
        """Delete the counts of minutes before a time."""
        self._session.execute("delete_pool_minutes", at)
