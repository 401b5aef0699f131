"""`schedule()` runs an admission pass: it reads a snapshot, decides outside any transaction, and commits pages.

Any server may call it, at any time. One row is the lock of all passes. It is taken without waiting: a caller that does
not get it returns at once. No work is lost by that: a caller has committed a dirty row before it calls, and the holder
looks for dirty rows after it has released the lock. So the caller or the holder handles the row; and if the holder
dies, the next caller does.

The lock expires, so that a frozen holder is replaced. A dead one is replaced at once: every server holds another lock
that the database releases when the server dies, and a caller that finds the row held tests that one. Every acquisition
has a number, every page is written under that number, and a holder that was replaced writes nothing more. A caller that
finds the lock held while something is dirty tries again every second.

Of several servers that hear each other, the one that has run a pass keeps the lock for the next one, because it has
read all contending tasks: the others tell it that something is dirty, and take over when it is dead, frozen or cut off.

A call is bounded. It reads and decides in steps, holds the lock meanwhile, and checks after each step and each page
whether its time is over. What it has admitted by then is written, or comes first in the next call. A call that ends
while it reads or decides keeps the lock for its server: else servers whose calls take turns would each read everything
again, and none would finish.
"""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Final, Protocol, TypeVar

from taskyard.core.states import Millis
from taskyard.lifecycle.admission.snapshot import JUDGED_MAX, AdmissionSnapshot, SecretKeys
from taskyard.lifecycle.admission.writes import PAGE_MAX, Page, PageOutcome, add_contenders, write_page
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo, ServerLock
from taskyard.store.repo.admission import AdmissionLock

#: A holder that wrote nothing for this long is replaced.
LOCK_MS: Final = 10_000
#: A server that finds the lock held tries again after this long, as long as something is dirty.
TRY_AGAIN_MS: Final = 1_000
#: One call runs for about this long, or admits this many tasks: then other work has its turn.
PASS_MAX_MS: Final = 2_000
STARTS_MAX: Final = 2_000
#: The snapshot is used for this long at most, in case a change was ever not marked as dirty.
MEMORY_MS: Final = 600_000
#: With so many tasks in memory a garbage collection takes 100 ms.
MANY: Final = 10_000
#: Tasks that stake a mutex by age are looked at once in this time, however many there are.
AGING_MS: Final = 1_000

#: Separates the name of the server and the number of the acquisition, in the lock row.
_TAKING: Final = ", "

Answer = TypeVar("Answer")


class Transact(Protocol):
    """Runs `act` as one write transaction; returns after it is durable."""

    def __call__(self, act: Callable[[Transaction], Answer], /) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one call goes before it returns."""

    pass_max_ms: int = PASS_MAX_MS
    starts_max: int = STARTS_MAX
    page_max: int = PAGE_MAX
    judged_max: int = JUDGED_MAX  # in one step


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a call of `schedule()` did."""

    ran: bool  # False: another server runs a pass, or has taken over the lock
    admitted: int = 0
    held: int = 0  # for how many tasks a reason was written
    epoch: int = 0  # the number of the last acquisition of the lock
    more: bool = False  # it stopped at its bounds: call again
    judged: int = field(default=0, compare=False)  # how many tasks it judged


class Replaced(Exception):
    """The lock expired and another server has taken it: nothing may be written any more."""


class Admission:
    """Admits pending tasks, over all pools."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a setting of its own
        self,
        transact: Transact,
        read: Callable[[], AbstractContextManager[Repo]],
        now: Callable[[], Millis],
        holder: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
        server_lock: ServerLock | None = None,
        secret_keys: SecretKeys = frozenset,
    ) -> None:
        self._secret_keys = secret_keys
        self._transact = transact
        self._read = read
        self._now = now
        self._holder = holder
        self._server_lock = server_lock
        self._takings = count(1)
        self._running = Lock()
        self._bounds = bounds
        #: The snapshot of the last pass, and the number of its acquisition of the lock.
        self._kept: tuple[int, AdmissionSnapshot] | None = None
        #: Whether this server keeps the lock between its passes: then the others have to tell it what is dirty.
        self.keeps_lock: Callable[[], bool] = lambda: False
        #: When a pass next has something to do though nothing is dirty; None if that is not known here.
        self.next_moment: Millis | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this server may have run the last pass."""
        return self._kept is not None

    def schedule(self, wait: bool = True) -> PassOutcome:
        """Admit the tasks that can be admitted now, within the bounds of one call.

        One thread of a server does so at a time. Without `wait`, a call beside another returns at once: whatever made
        it call has also marked something as dirty, so the background thread of this server calls, too.
        """
        if not self._running.acquire(blocking=wait):
            return PassOutcome(ran=False)
        try:
            return self._schedule()
        finally:
            self._running.release()

    def _schedule(self) -> PassOutcome:
        call = _Call(self._bounds, self._now())
        while (epoch := self._take()) is not None:
            call.epoch = epoch
            try:
                unfinished = self._pass(epoch, call)
            except Replaced:
                self._try_again()
                return call.outcome(ran=False)
            if unfinished or not self._is_dirty():
                return call.outcome(ran=True, more=unfinished)
            if call.is_over(self._now()):
                return call.outcome(ran=True, more=True)
        self._try_again()
        return call.outcome(ran=call.epoch > 0)

    def _try_again(self) -> None:
        """Another server has the lock: try again later, in case it has died."""
        self.next_moment = Millis(self._now() + TRY_AGAIN_MS) if self._is_dirty() else None

    # The lock.

    def _take(self) -> int | None:
        """Take the lock, if it is free or its holder is dead; return the number of the acquisition."""
        with self._read() as repo:
            lock = repo.admission.read_lock()
        dead = None
        if self._is_held(lock, self._now()):
            dead = self._dead_holder(lock)
            if dead is None:
                return None
        if self._server_lock is not None:
            self._holder = self._server_lock.hold()
        name = f"{self._holder}{_TAKING}{next(self._takings)}"
        return self._transact(lambda transaction: self._take_in(transaction, name, dead))

    def _dead_holder(self, lock: AdmissionLock | None) -> str | None:
        """The holder in the lock row, if that server has died."""
        if self._server_lock is None or lock is None or lock.holder is None:
            return None
        server, _, _ = lock.holder.rpartition(_TAKING)
        return lock.holder if self._server_lock.is_dead(server) else None

    def _take_in(self, transaction: Transaction, name: str, dead: str | None) -> int | None:
        lock = transaction.repo.admission.read_lock()
        if lock is not None and lock.holder == name:
            return lock.epoch  # a commit took it whose outcome was not known
        if lock is None or (self._is_held(lock, transaction.now) and lock.holder != dead):
            return None
        transaction.repo.admission.take_lock(lock.epoch + 1, name, _lock_end(transaction))
        return lock.epoch + 1

    def _is_held(self, lock: AdmissionLock | None, now: Millis) -> bool:
        if lock is None or lock.until_ms is None or lock.holder == self._parked:
            return False
        return now < lock.until_ms

    @property
    def _parked(self) -> str:
        """The holder in the lock row while the next call of this server is to continue with its snapshot."""
        return f"{self._holder}{_TAKING}between two calls"

    def _is_dirty(self) -> bool:
        if self._kept is not None and self._kept[1].unsettled:
            return True
        with self._read() as repo:
            return bool(repo.admission.dirty(0, 1))

    # The pass.

    def _pass(self, epoch: int, call: "_Call") -> bool:
        """Run until all is done or the call is over, and release the lock; return whether something is left.

        If it fails, the snapshot is dropped: the next pass reads everything again.
        """
        kept, self._kept = self._kept, None
        snapshot = kept[1] if kept is not None and kept[0] == epoch - 1 else None
        if snapshot is not None:
            snapshot.stale = True
        lock = _HeldLock(epoch, self._transact, self._now)
        try:
            snapshot, left = self._write_pages(lock, snapshot, call)
        except Replaced:
            raise
        except BaseException:
            with suppress(Exception):  # the first error is raised; the lock expires by itself
                self._transact(lambda transaction: transaction.repo.admission.release_lock(epoch))
            raise
        if not left:
            self._release(lock, snapshot)
        self._kept = (epoch, snapshot)
        self.next_moment = _rounded_up(snapshot.next_moment)
        return bool(snapshot.pending) or not (snapshot.read_all and snapshot.prepared)

    def _release(self, lock: "_HeldLock", snapshot: AdmissionSnapshot) -> None:
        """Release the lock, or keep it parked if the next call has to continue with the snapshot."""
        epoch = lock.epoch
        if snapshot.prepared:
            self._transact(lambda transaction: self._leave(transaction, epoch))
        else:
            self._transact(lambda transaction: _park(transaction, epoch, self._parked))

    def _leave(self, transaction: Transaction, epoch: int) -> None:
        """Release the lock after a pass, or keep it for the next one."""
        if self.keeps_lock():
            _park(transaction, epoch, self._parked)
        else:
            transaction.repo.admission.release_lock(epoch)

    def _write_pages(
        self, lock: "_HeldLock", snapshot: AdmissionSnapshot | None, call: "_Call"
    ) -> tuple[AdmissionSnapshot, bool]:
        """Write page after page; return whether the last of them released the lock."""
        while True:
            snapshot = self._prepared(lock, snapshot, call)
            page = snapshot.page(self._bounds.page_max)
            if page is None:
                return snapshot, False
            leaves = page.last and snapshot.read_all
            outcome = self._transact(_writing(lock, page, snapshot.now, self._leave if leaves else None))
            snapshot.learn(page, outcome)
            call.count(outcome)
            if leaves or call.is_over(self._now()):
                return snapshot, leaves

    def _prepared(self, lock: "_HeldLock", snapshot: AdmissionSnapshot | None, call: "_Call") -> AdmissionSnapshot:
        """Read and decide until there is a page to write, or nothing to do, or the call is over."""
        over = False
        while not over:
            if snapshot is None:
                snapshot = self._begin(lock)
            elif not self._advance(lock, snapshot, call):
                return snapshot
            elif snapshot.must_rebuild:
                snapshot = None
                continue
            lock.keep()
            over = call.is_over(self._now())
        assert snapshot is not None
        return snapshot

    def _begin(self, lock: "_HeldLock") -> AdmissionSnapshot:
        now = self._now()
        with gc_paused(), self._read() as repo:
            return AdmissionSnapshot.begin(repo, Registry(), now, lock.keep, self._secret_keys)

    def _advance(self, lock: "_HeldLock", snapshot: AdmissionSnapshot, call: "_Call") -> bool:
        """Do the next step that is needed before a page can be written; return whether there was any."""
        if snapshot.pools_to_enter:
            self._enter(lock, snapshot)
        elif snapshot.reading:
            with gc_paused(), self._read() as repo:
                snapshot.read_on(repo)
        elif snapshot.deciding:
            if len(snapshot.pending.admit) >= self._bounds.page_max:
                return False
            self._decide(snapshot, call)
        elif snapshot.must_look or (snapshot.stale and not snapshot.pending):
            self._look(snapshot)
        else:
            return False
        return True

    def _look(self, snapshot: AdmissionSnapshot) -> None:
        now = self._now()
        if now - snapshot.since >= MEMORY_MS:
            snapshot.must_rebuild = True
            return
        with self._read() as repo:
            snapshot.look(repo, now)

    def _enter(self, lock: "_HeldLock", snapshot: AdmissionSnapshot) -> None:
        """Make some tasks contenders whose pool got a capacity."""
        pool = min(snapshot.pools_to_enter)
        if not self._transact(lambda transaction: _enter(transaction, lock, pool)):
            snapshot.pool_entered(pool)

    def _decide(self, snapshot: AdmissionSnapshot, call: "_Call") -> None:
        fresh = snapshot.first_pass
        with gc_paused() if fresh else nullcontext():  # benchmarks/schedule.py, "first pass": a third of its time
            call.judged += snapshot.decide(self._now(), self._bounds.judged_max)
        if fresh and not snapshot.first_pass and len(snapshot) >= MANY:
            gc.collect()  # it is due, takes 100 ms, and must not run while a page is written


class _HeldLock:
    """The lock, as long as this pass holds it."""

    def __init__(self, epoch: int, transact: Transact, now: Callable[[], Millis]) -> None:
        self.epoch = epoch
        self._transact = transact
        self._now = now
        self._kept_ms = now()

    def keep(self) -> None:
        """Extend the lock, if that is due."""
        if self._now() - self._kept_ms >= LOCK_MS // 3:
            self._transact(self.hold)

    def hold(self, transaction: Transaction) -> None:
        """Extend the lock; no other server can take it before this transaction ends."""
        if not transaction.repo.admission.extend_lock(self.epoch, _lock_end(transaction)):
            raise Replaced(f"pass {self.epoch} was replaced")
        self._kept_ms = transaction.now


def _writing(
    lock: _HeldLock, page: Page, decided: Millis, leave: Callable[[Transaction, int], None] | None
) -> Callable[[Transaction], PageOutcome]:
    """Return the act that writes a page, and leaves the lock with it if that is the last one."""

    def write(transaction: Transaction) -> PageOutcome:
        lock.hold(transaction)
        outcome = write_page(transaction, page, decided)
        if leave is not None:
            leave(transaction, lock.epoch)
        return outcome

    return write


def _enter(transaction: Transaction, lock: _HeldLock, pool: str) -> bool:
    lock.hold(transaction)
    return add_contenders(transaction, pool)


def _park(transaction: Transaction, epoch: int, holder: str) -> None:
    if transaction.repo.admission.extend_lock(epoch, _lock_end(transaction)):
        transaction.repo.admission.take_lock(epoch, holder, _lock_end(transaction))


def _rounded_up(moment: Millis | None) -> Millis | None:
    return None if moment is None else Millis(-(-moment // AGING_MS) * AGING_MS)


def _lock_end(transaction: Transaction) -> Millis:
    return Millis(transaction.now + LOCK_MS)


class _Call:
    """What one call of `schedule()` has done so far."""

    def __init__(self, bounds: Bounds, began: Millis) -> None:
        self.epoch = 0
        self.judged = 0
        self._bounds = bounds
        self._began = began
        self._admitted = 0
        self._held = 0

    def count(self, outcome: PageOutcome) -> None:
        self._admitted += len(outcome.admitted)
        self._held += len(outcome.written)

    def is_over(self, now: Millis) -> bool:
        return self._admitted >= self._bounds.starts_max or now - self._began >= self._bounds.pass_max_ms

    def outcome(self, ran: bool, more: bool = False) -> PassOutcome:
        return PassOutcome(ran, self._admitted, self._held, self.epoch, more, self.judged)
