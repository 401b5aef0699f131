"""The thread that runs the relay: it numbers events as long as somebody follows them, and otherwise only looks.

Each server of a database has one. Of several, the one that locks the stream numbers the next page; see `bus.relay`.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from taskyard.bus.relay import add_target, has_work, is_wanted, is_wanted_long, relay_page, want_events
from taskyard.engine.bulk_load import Transact
from taskyard.engine.clock import Clock, Pace
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import StoreUnavailable, TransactionConflict

#: How long it waits before it looks again, if no commit of this server wakes it: while somebody follows events, and
#: otherwise.
FOLLOWED_S: Final = 0.1
IDLE_S: Final = 2.0
#: How long it collects events before it numbers more: at least this long, and this many times longer than numbering
#: the last ones took, but no longer than the interval above.
PAUSE_MS: Final = 10
PAUSE_SHARE: Final = 10
#: How long a stop waits for the current transaction.
STOP_MAX_S: Final = 10

_LOG = logging.getLogger(__name__)


class RelayThread:
    """Numbers events in the background, page by page."""

    def __init__(
        self,
        transact: Transact,
        store: Store,
        clock: Clock,
        pace: Pace,
        numbered: Callable[[], None] = lambda: None,
    ) -> None:
        self._transact = transact
        self._pace = pace
        self._store = store
        self._clock = clock
        self._numbered = numbered  # called when followers can read more
        self._is_followed = False
        self._wake = Event()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="taskyard-relay", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current transaction."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def note_commit(self) -> None:
        """Number the events of a commit soon, if somebody follows them."""
        if self._is_followed:
            self._wake.set()

    def add_target(self, name: str) -> None:
        """Deliver all events from now on to a target, unless it is there already."""
        with outages(), self._store.read() as repo:
            if any(one.name == name for one in repo.targets.all()):
                return
        self._transact(lambda transaction: add_target(transaction.repo, name, transaction.now), Boundary.RELAY)
        self._wake.set()

    def advance(self, name: str, position: int) -> None:
        """Store up to which number of the stream a target has got events."""

        def act(transaction: Transaction) -> None:
            transaction.repo.targets.advance(name, position, transaction.now)

        self._transact(act, Boundary.DELIVERED)

    def want(self) -> int:
        """Have events numbered for some time from now on; return the number of the newest one."""
        with outages(), self._store.read() as repo:
            state = repo.stream.read()
        if is_wanted_long(state, self._clock.now()):
            return state.last
        last = self._transact(lambda transaction: want_events(transaction.repo, transaction.now), Boundary.RELAY)
        self._wake.set()
        return last

    def run_once(self) -> bool:
        """Number all events that are not published yet; return whether anybody wants them."""
        with outages(), self._store.read() as repo:
            now = self._clock.now()
            wanted, work = is_wanted(repo, now), has_work(repo, now)
            is_followed = repo.stream.read().wanted_until_ms > now
        self._is_followed = is_followed
        while work and not self._stopped.is_set():
            began = self._clock.now()
            work = self._transact(self._number_page, Boundary.RELAY)
            self._numbered()
            if not is_followed:  # targets can wait, people who look cannot
                self._stopped.wait(self._pace.rest_s((self._clock.now() - began) / 1_000))
        return wanted

    def _number_page(self, transaction: Transaction) -> bool:
        with self._pace.work():
            return relay_page(transaction.repo, transaction.now)

    def _run(self) -> None:
        wanted, took = False, 0
        while not self._stopped.is_set():
            self._wake.wait(FOLLOWED_S if wanted else IDLE_S)
            self._stopped.wait(min(FOLLOWED_S, max(PAUSE_MS, PAUSE_SHARE * took) / 1000))
            self._wake.clear()
            began = self._clock.now()
            try:
                wanted = self.run_once()
            except (EngineError, TransactionConflict, StoreUnavailable) as fault:
                _LOG.warning("events are numbered later: %s", fault)
            except Exception:  # noqa: BLE001 - a bug here must not end the thread
                _LOG.exception("events are numbered later")
            took = self._clock.now() - began
