"""Counts per pool and minute: what was submitted, what started and ended, and how long the oldest task waits.

The writer only hands over what each commit moved. This thread adds it up in memory, and some seconds later writes one
row for each pool and minute. A server that is killed loses the counts of these seconds, and nothing else.
"""

import logging
from collections import Counter, deque
from threading import Event, Thread
from typing import Final, TypeAlias

from taskyard.core.durations import DAY_MS, MINUTE_MS
from taskyard.core.states import Millis
from taskyard.engine.bulk_load import Transact
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.rows import QUEUE_COLUMN
from taskyard.lifecycle.transaction import FollowUp, Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import Row, StoreUnavailable, TransactionConflict

#: How long counts are kept.
KEPT_MS: Final = 7 * DAY_MS
#: How often what the writer hands over is added up, and how often the sums are written.
GATHER_S: Final = 1.0
WRITE_EVERY: Final = 10
#: How long a stop waits for the last write.
STOP_MAX_S: Final = 10
#: What is counted of a queue: new tasks, those that began, and the states in which tasks end.
SUBMITTED: Final = "submitted"
COUNTED: Final = (SUBMITTED, "running", "successful", "failed", "error", "canceled", "skipped")

#: A minute, a queue, and what happened.
_Key: TypeAlias = tuple[int, int, str]
_LOG = logging.getLogger(__name__)


class StatsThread:
    """Counts in the background."""

    def __init__(self, transact: Transact, store: Store, clock: Clock) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._handed: deque[tuple[int, FollowUp]] = deque()
        self._counts: Counter[_Key] = Counter()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="taskyard-stats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is counted, and end."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def note(self, left: FollowUp) -> None:
        """Take what a commit moved; called on the writer thread."""
        if left.moved or left.inserted:
            self._handed.append((self._clock.now() // MINUTE_MS * MINUTE_MS, left))

    def write(self) -> None:
        """Write all counts; on an outage they are kept for the next time."""
        self._gather()
        now = self._clock.now()
        try:
            with outages():
                rows = self._rows(now)
                if rows:
                    self._transact(lambda transaction: _write(transaction, rows, now), Boundary.OTHER)
            self._counts.clear()
        except (EngineError, TransactionConflict, StoreUnavailable) as fault:
            _LOG.warning("counts are written later: %s", fault)

    def _run(self) -> None:
        turn = 0
        while not self._stopped.wait(GATHER_S):
            try:
                self._gather()
                turn += 1
                if turn % WRITE_EVERY == 0:
                    self.write()
            except Exception:  # noqa: BLE001 - a bug here must not end the thread
                _LOG.exception("counts are written later")
        self.write()

    def _gather(self) -> None:
        while self._handed:
            minute, left = self._handed.popleft()
            self._counts.update((minute, queue, state.text) for queue, state in left.moved)
            self._counts.update((minute, row[QUEUE_COLUMN], SUBMITTED) for rows in left.inserted for row in rows)

    def _rows(self, now: Millis) -> list[Row]:
        """Add up the counts of the queues of each pool, with what waits there now."""
        with self._store.read() as repo:
            waiting = repo.read.oldest_waiting()
            queues = {queue for _, queue, _ in self._counts} | {queue for queue, *_ in waiting}
            pools = {queue: pool for queue, (pool, _) in repo.read.queues(queues).items()}
        minute = now // MINUTE_MS * MINUTE_MS
        found: dict[tuple[int, str], Counter[str]] = {}
        for (at, queue, what), count in self._counts.items():
            found.setdefault((at, pools.get(queue, "")), Counter())[what] += count
        line: Counter[str] = Counter()
        oldest: dict[str, int] = {}
        for queue, count, created_ms in waiting:
            pool = pools.get(queue, "")
            line[pool] += count
            oldest[pool] = max(oldest.get(pool, 0), now - created_ms)
            found.setdefault((minute, pool), Counter())
        return [
            (at, pool, *(counts[what] for what in COUNTED), line[pool], oldest.get(pool, 0))
            for (at, pool), counts in found.items()
        ]


def _write(transaction: Transaction, rows: list[Row], now: Millis) -> None:
    transaction.repo.stats.add(rows)
    transaction.repo.stats.delete_before(Millis(now - KEPT_MS))
