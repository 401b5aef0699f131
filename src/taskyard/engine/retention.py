"""The thread that deletes what has been kept for its time, and the graphs that people delete.

It takes at most a fifth of the time of the writer: after each transaction it waits four times as long as that took. Of
several servers of one database, the one whose name comes first among those that are up does this; graphs that a person
deletes are deleted by the server that was asked. That is no lock: each transaction checks what it deletes, so two
servers that do it at once do no harm.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Event, Thread
from typing import Final, TypeVar

from taskyard.core.durations import DAY_MS
from taskyard.core.retention import RetentionTimes
from taskyard.core.states import Millis
from taskyard.engine.bulk_load import Transact
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle import retention
from taskyard.lifecycle.retention import LOOKED_MAX, DuePart
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import StoreUnavailable, TransactionConflict
from taskyard.store.repo.events import ServerRow

#: How long it waits after a pass; a graph that a person deletes wakes it.
PAUSE_S: Final = 60.0
#: How many graphs one transaction hides.
HIDDEN_MAX: Final = 50
#: How much longer it waits after a transaction than that took.
WAIT_FACTOR: Final = 4
#: A server that was last seen before this time does not count as up.
UP_MS: Final = 30_000
#: How long a stop waits for the current transaction.
STOP_MAX_S: Final = 10

_LOG = logging.getLogger(__name__)
Found = TypeVar("Found")


def is_elected(name: str, servers: Mapping[str, ServerRow], now: Millis) -> bool:
    """Tell whether a server is the first by name of those that are up."""
    up = [one for one, row in servers.items() if row.seen_ms > now - UP_MS]
    return name == min(up, default=name)


class RetentionThread:
    """Deletes in the background, in passes over everything."""

    def __init__(self, transact: Transact, store: Store, clock: Clock, name: str) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._name = name
        self._daily_due_ms = 0
        self._wake = Event()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="taskyard-retention", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current transaction."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def wake(self) -> None:
        """Begin the next pass now: a graph was deleted."""
        self._wake.set()

    def run_once(self, asked: bool = False) -> None:
        """Delete everything that is due now; a server that is not elected only does what people have `asked` for."""
        with outages(), self._store.read() as repo:
            servers, times = repo.servers.all(), repo.retention.times()
        is_first = is_elected(self._name, servers, self._clock.now())
        if is_first or asked:
            self._delete_hidden()
        if not is_first:
            return
        self._delete_due()
        self._delete_bots()
        if self._clock.now() >= self._daily_due_ms:  # these read all tasks, or nearly
            self._daily_due_ms = self._clock.now() + DAY_MS
            self._delete_queues(times)
            self._page_through(retention.newest_purged_block(self._clock.now()), retention.purge_attempt_blocks)
        self._repeat(lambda transaction: retention.purge_snapshots(transaction, times))
        self._repeat(lambda transaction: retention.purge_tokens(transaction, times))
        self._page_through(0, lambda transaction, after: retention.purge_audits(transaction, times, after))

    def _delete_hidden(self) -> None:
        with outages(), self._store.read() as repo:
            found = repo.retention.hidden(1)
        if found:
            self._repeat(retention.purge_hidden_page)

    def _delete_due(self) -> None:
        """Delete settled graphs and parts of them."""
        after: tuple[int, int] | None = (0, 0)
        while after is not None and not self._stopped.is_set():
            with outages(), self._store.read() as repo:
                found = retention.find_due(repo, repo.retention.times(), after, self._clock.now())
            for start in range(0, len(found.graphs), HIDDEN_MAX):
                self._act(partial(retention.hide_graphs, graphs=found.graphs[start : start + HIDDEN_MAX]))
                self._delete_hidden()
            for due in found.parts:
                self._page_through(-1, partial(_delete_part, due=due))
            after = found.next

    def _delete_bots(self) -> None:
        """Delete old events of bots, and forget bots that are gone for good."""
        after = ""
        while not self._stopped.is_set():
            with outages(), self._store.read() as repo:
                bots, times = repo.retention.bots(after, LOOKED_MAX), repo.retention.times()
            self._repeat(partial(retention.purge_bot_events, bots=bots, times=times))
            self._repeat(partial(retention.purge_bots, bots=bots, times=times))
            if len(bots) < LOOKED_MAX:
                return
            after = bots[-1][0]

    def _delete_queues(self, times: RetentionTimes) -> None:
        """Delete queues that no task uses."""
        due: dict[int, Millis] = {}
        for found in self._pages(
            0, lambda repo, after: retention.find_idle_queues(repo, times, after, self._clock.now())
        ):
            due |= found
        for used in self._pages(-1, retention.used_queues) if due else ():
            for id in used:
                due.pop(id, None)
        if self._stopped.is_set():
            return  # not all tasks were read
        idle = sorted(due.items())
        for start in range(0, len(idle), LOOKED_MAX):
            self._act(partial(retention.purge_queues, due=idle[start : start + LOOKED_MAX]))

    def _pages(self, first: int, look: Callable[[Repo, int], tuple[Found, int | None]]) -> Iterator[Found]:
        """Read pages, each in a transaction of its own that does not write."""
        after: int | None = first
        while after is not None and not self._stopped.is_set():
            with outages(), self._store.read() as repo:
                found, after = look(repo, after)
            yield found

    def _page_through(self, first: int, act: Callable[[Transaction, int], int | None]) -> None:
        """Run a transaction from a place on, and then from where it ended, until it has nothing to do."""
        after: int | None = first
        while after is not None and not self._stopped.is_set():
            after = self._act(partial(_from, act=act, after=after))

    def _repeat(self, act: Callable[[Transaction], int | bool]) -> None:
        """Run a transaction until it has nothing to do."""
        while not self._stopped.is_set() and self._act(act):
            pass

    def _act(self, act: Callable[[Transaction], int | None]) -> int | None:
        """Run a transaction; then wait, so that other commands get the writer."""
        began = self._clock.now()
        done = self._transact(act, Boundary.PURGE)
        self._stopped.wait(WAIT_FACTOR * max(0, self._clock.now() - began) / 1000)
        return done

    def _run(self) -> None:
        # The first pass waits: a server that starts, or a program that soon ends, needs the time.
        while True:
            asked = self._wake.wait(PAUSE_S)
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                self.run_once(asked)
            except (EngineError, TransactionConflict, StoreUnavailable) as fault:
                _LOG.warning("what is due stays for the next pass: %s", fault)
            except Exception:  # noqa: BLE001 - a bug here must not end the thread
                _LOG.exception("what is due stays for the next pass")


def _from(transaction: Transaction, act: Callable[[Transaction, int], int | None], after: int) -> int | None:
    return act(transaction, after)


def _delete_part(transaction: Transaction, after: int, due: DuePart) -> int | None:
    return retention.purge_part_page(transaction, due, after)
