"""The writer: carries out one transaction at a time, and knows which troubles pass.

A transaction that lost a race is tried again; one that found no database is tried again for a while. Everything here
is called by one thread.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from taskyard.core.fleet import LEASE_MS
from taskyard.engine.clock import Clock
from taskyard.engine.failpoints import Boundary, Side, point
from taskyard.engine.parking import Parking
from taskyard.engine.passage import Left, Passage
from taskyard.engine.troubles import Unavailable
from taskyard.lifecycle.gc_pause import stillness
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.transaction import ALONE, Server
from taskyard.store.opening import Store
from taskyard.store.sessions import Busy, Gone

#: How often a transaction that lost a race is tried again. Ten in a row are no bad luck any more.
RETRIES_MAX: Final = 10
#: How long a database that is gone is waited for: a restart takes less, and whoever asks should not wait longer.
GONE_MAX_MS: Final = 5_000
#: The longest pauses before another try, after a race and while the database is gone. The first are far shorter.
BUSY_PAUSE_MAX_MS: Final = 50
GONE_PAUSE_MAX_MS: Final = 500

Answer = TypeVar("Answer")
Act = Callable[[Passage], Answer]


class Lost(Unavailable):
    """A transaction lost one race too many."""


class Writer:
    """The one that writes."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        after: Callable[[Left], None],
        lease_ms: int = LEASE_MS,
        server: Server = ALONE,
    ) -> None:
        self._store = store
        self._clock = clock
        self._after = after  # is told what each commit leaves to do
        self._lease_ms = lease_ms
        self.server = server
        self._registry = Registry()
        self.parking = Parking()
        self.commits = 0
        self.last_ms = 0  # how long the last transaction took, from its beginning to its end
        self.longest_ms = 0  # and the longest so far

    def run(self, act: Act[Answer], boundary: Boundary) -> Answer:
        """Carry out `act` in a transaction of its own; it is durable when this returns.

        After a commit whose outcome nobody knows, `act` is carried out again: it has to bear that.
        """
        patience = _Patience(self._clock)
        while True:
            try:
                return self._try(act, boundary)
            except Busy as fault:
                patience.bear_race(fault)
            except Gone as fault:
                patience.bear_outage(fault)

    def _try(self, act: Act[Answer], boundary: Boundary) -> Answer:
        began = self._clock.now()
        try:
            with stillness(), self._store.write() as txn:
                passage = Passage(txn, self._clock.now(), self._registry, self._lease_ms, self.server)
                answer = act(passage)
                served = self.parking.serve(passage, passage.serves_all)
                passage.close()
                point(boundary, Side.BEFORE)
            self._registry.settle()
            self.commits += 1
            self.parking.settle(served)
            self.parking.release(passage.altered)
            point(boundary, Side.AFTER)
        except BaseException:
            self._registry.undo()
            raise
        finally:
            self.last_ms = self._clock.now() - began
            self.longest_ms = max(self.longest_ms, self.last_ms)
        self._after(passage.left())
        return answer


class _Patience:
    """How often, and for how long, one transaction is tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._races = 0
        self._outages = 0
        self._gone_since: int | None = None

    def bear_race(self, fault: Busy) -> None:
        """Wait a little, or give up."""
        self._races += 1
        if self._races > RETRIES_MAX:
            raise Lost(f"lost {self._races} races in a row: {fault}") from fault
        self._pause(self._races, BUSY_PAUSE_MAX_MS)

    def bear_outage(self, fault: Gone) -> None:
        """Wait a little, or give up."""
        now = self._clock.now()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since >= GONE_MAX_MS:
            raise Unavailable(f"the database cannot be used: {fault}") from fault
        self._outages += 1
        self._pause(self._outages, GONE_PAUSE_MAX_MS)

    def _pause(self, times: int, longest: int) -> None:
        """Wait for longer each time, and never for as long as another that lost the same race."""
        span = min(2**times, longest)
        self._clock.pause(span // 2 + self._clock.chance() % span)
