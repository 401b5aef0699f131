"""Admission's one entry point, `schedule()`: it looks in a snapshot, thinks outside any transaction, and commits pages.

It may be called by anyone, anywhere, at any time. One row is the lock of all passes. It is taken without waiting, and
who does not get it returns at once. Nothing is dropped by that: who wants a pass has committed a stir before it asks,
and who has the lock looks for stirs after it gave the lock back. So a stir is seen by its own caller, or by the one
whom that caller found at the lock; and if that one dies, by whoever comes next.

The lock lapses, so that a frozen holder is replaced. One that has died is replaced at once: every server holds a lock
that the database releases when the server dies, and whoever finds the row held asks for that one. Every taking has a
number of its own, every page is written under that number, and a holder that was replaced writes nothing more. Whoever
finds the lock held while something is stirred tries again every second.

A call is bounded. It reads and thinks in strides, keeps the lock meanwhile, and asks after each stride and each page
whether it has lasted long enough. Whom it let in so far is written by then or goes first in the next call. A call that
ends amid reading or thinking leaves the lock with its holder: else servers whose calls take turns would each read
everything again, and none would come to an end.
"""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol, TypeVar

from taskyard.core.states import Millis
from taskyard.lifecycle.admission.snapshot import JUDGED_MAX, AdmissionSnapshot
from taskyard.lifecycle.admission.writes import PAGE_MAX, Page, PageOutcome, add_contenders, write_page
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo, ServerLock
from taskyard.store.repo.admission import AdmissionLock

#: A holder that wrote nothing for this long is replaced.
LOCK_MS: Final = 10_000
#: Whoever finds the lock held tries again after this long, as long as something is stirred.
TRY_AGAIN_MS: Final = 1_000
#: One call goes on for about this long, and lets in this many: then others have their turn.
PASS_MAX_MS: Final = 2_000
STARTS_MAX: Final = 2_000
#: What is remembered is believed for this long, should a change ever fail to stir.
MEMORY_MS: Final = 600_000
#: So many tasks in memory are felt by the garbage collector.
MANY: Final = 10_000
#: Tasks that stake a key by age are looked at once in this time, however many there are.
AGING_MS: Final = 1_000

#: Between the name of a server and which of its takings it is, in the row.
_TAKING: Final = ", "

Answer = TypeVar("Answer")


class Transact(Protocol):
    """Runs an act as one write transaction, and answers after it is durable."""

    def __call__(self, act: Callable[[Transaction], Answer], /) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one call goes before it returns."""

    pass_max_ms: int = PASS_MAX_MS
    starts_max: int = STARTS_MAX
    page_max: int = PAGE_MAX
    judged_max: int = JUDGED_MAX  # in one stride


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a call of `schedule()` did."""

    ran: bool  # False: somebody else is at it, or has replaced us
    admitted: int = 0
    held: int = 0  # for how many a reason was noted
    epoch: int = 0  # the number of the last taking of the lock
    more: bool = False  # it stopped at its bounds: call again
    judged: int = field(default=0, compare=False)  # how many tasks it thought about


class Replaced(Exception):
    """The lock lapsed and somebody else has taken it: nothing may be written any more."""


class Admission:
    """Lets pending tasks in, over all pools."""

    def __init__(
        self,
        transact: Transact,
        read: Callable[[], AbstractContextManager[Repo]],
        now: Callable[[], Millis],
        holder: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
        server_lock: ServerLock | None = None,
    ) -> None:
        self._transact = transact
        self._read = read
        self._now = now
        self._holder = holder
        self._server_lock = server_lock
        self._takings = count(1)
        self._bounds = bounds
        #: What was remembered when the lock was given back, and under which number that was.
        self._kept: tuple[int, AdmissionSnapshot] | None = None
        #: When a pass next has something to do though nothing was stirred; None if that is not known here.
        self.next_moment: Millis | None = None

    def schedule(self) -> PassOutcome:
        """Let in whoever may go now, within the bounds of one call."""
        call = _Call(self._bounds, self._now())
        while (epoch := self._take()) is not None:
            call.epoch = epoch
            try:
                unfinished = self._pass(epoch, call)
            except Replaced:
                self._try_again()
                return call.passed(ran=False)
            if unfinished or not self._is_stirred():
                return call.passed(ran=True, more=unfinished)
            if call.is_over(self._now()):
                return call.passed(ran=True, more=True)
        self._try_again()
        return call.passed(ran=call.epoch > 0)

    def _try_again(self) -> None:
        """Somebody else has the lock: see to it that what is stirred does not wait for one that died."""
        self.next_moment = Millis(self._now() + TRY_AGAIN_MS) if self._is_stirred() else None

    # The lock.

    def _take(self) -> int | None:
        """Take the lock, if nobody has it or whoever has it is dead; say under which number."""
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
        """What the row says of its holder, if that server has died."""
        if self._server_lock is None or lock is None or lock.holder is None:
            return None
        server, _, _ = lock.holder.rpartition(_TAKING)
        return lock.holder if self._server_lock.is_dead(server) else None

    def _take_in(self, transaction: Transaction, name: str, dead: str | None) -> int | None:
        lock = transaction.repo.admission.read_lock()
        if lock is not None and lock.holder == name:
            return lock.epoch  # it was taken before, and nobody heard of the commit
        if lock is None or (self._is_held(lock, transaction.now) and lock.holder != dead):
            return None
        transaction.repo.admission.take_lock(lock.epoch + 1, name, _lapses(transaction))
        return lock.epoch + 1

    def _is_held(self, lock: AdmissionLock | None, now: Millis) -> bool:
        if lock is None or lock.until_ms is None or lock.holder == self._parked:
            return False
        return now < lock.until_ms

    @property
    def _parked(self) -> str:
        """What the row says while our next call has to go on with what is in our memory."""
        return f"{self._holder}{_TAKING}between two calls"

    def _is_stirred(self) -> bool:
        if self._kept is not None and self._kept[1].unsettled:
            return True
        with self._read() as repo:
            return bool(repo.admission.dirty(0, 1))

    # The pass.

    def _pass(self, epoch: int, call: "_Call") -> bool:
        """Go on until all is done or the call is over, and give the lock back; tell whether something is left.

        What fails half-way is forgotten: whoever comes next reads everything again.
        """
        kept, self._kept = self._kept, None
        contest = kept[1] if kept is not None and kept[0] == epoch - 1 else None
        if contest is not None:
            contest.stale = True
        grip = _Grip(epoch, self._transact, self._now)
        try:
            contest, left = self._go_on(grip, contest, call)
        except Replaced:
            raise
        except BaseException:
            with suppress(Exception):  # what went wrong is told; the lock lapses by itself
                self._transact(lambda transaction: transaction.repo.admission.release_lock(epoch))
            raise
        if not left:
            self._let_go(grip, contest)
        self._kept = (epoch, contest)
        self.next_moment = _rounded_up(contest.next_moment)
        return bool(contest.agenda) or not (contest.whole and contest.prepared)

    def _let_go(self, grip: "_Grip", contest: AdmissionSnapshot) -> None:
        """Give the lock back, or leave it with us if the next call has to go on with what is in our memory."""
        epoch = grip.epoch
        if contest.prepared:
            self._transact(lambda transaction: transaction.repo.admission.release_lock(epoch))
        else:
            self._transact(lambda transaction: _park(transaction, epoch, self._parked))

    def _go_on(self, grip: "_Grip", contest: AdmissionSnapshot | None, call: "_Call") -> tuple[AdmissionSnapshot, bool]:
        """Carry out page after page; tell whether the last of them gave the lock back."""
        while True:
            contest = self._prepared(grip, contest, call)
            page = contest.page(self._bounds.page_max)
            if page is None:
                return contest, False
            leaves = page.last and contest.whole
            carried = self._transact(_writing(grip, page, contest.now, leaves))
            contest.learn(page, carried)
            call.count(carried)
            if leaves or call.is_over(self._now()):
                return contest, leaves

    def _prepared(self, grip: "_Grip", contest: AdmissionSnapshot | None, call: "_Call") -> AdmissionSnapshot:
        """Read, look and think until there is a page to write, or nothing to do, or the call is over."""
        over = False
        while not over:
            if contest is None:
                contest = self._begin(grip)
            elif not self._stride(grip, contest, call):
                return contest
            elif contest.outdated:
                contest = None
                continue
            grip.keep()
            over = call.is_over(self._now())
        assert contest is not None
        return contest

    def _begin(self, grip: "_Grip") -> AdmissionSnapshot:
        now = self._now()
        with gc_paused(), self._read() as repo:
            return AdmissionSnapshot.begin(repo, Registry(), now, grip.keep)

    def _stride(self, grip: "_Grip", contest: AdmissionSnapshot, call: "_Call") -> bool:
        """Do the next bit of what has to be done before a page can be written; tell whether there was any."""
        if contest.unentered:
            self._enter(grip, contest)
        elif contest.reading:
            with gc_paused(), self._read() as repo:
                contest.read_on(repo)
        elif contest.thinking:
            if len(contest.agenda.admit) >= self._bounds.page_max:
                return False
            self._think(contest, call)
        elif contest.behind or (contest.stale and not contest.agenda):
            self._look(contest)
        else:
            return False
        return True

    def _look(self, contest: AdmissionSnapshot) -> None:
        now = self._now()
        if now - contest.since >= MEMORY_MS:
            contest.outdated = True
            return
        with self._read() as repo:
            contest.look(repo, now)

    def _enter(self, grip: "_Grip", contest: AdmissionSnapshot) -> None:
        """Make some tasks contenders whose pool came to have a capacity."""
        pool = min(contest.unentered)
        if not self._transact(lambda transaction: _enter(transaction, grip, pool)):
            contest.entered(pool)

    def _think(self, contest: AdmissionSnapshot, call: "_Call") -> None:
        fresh = contest.fresh
        with gc_paused() if fresh else nullcontext():  # benchmarks/schedule.py, "first pass": a third of its time
            call.judged += contest.think(self._now(), self._bounds.judged_max)
        if fresh and not contest.fresh and len(contest) >= MANY:
            gc.collect()  # it is due anyway, takes 100 ms, and must not come while a page is written


class _Grip:
    """The lock in hand."""

    def __init__(self, epoch: int, transact: Transact, now: Callable[[], Millis]) -> None:
        self.epoch = epoch
        self._transact = transact
        self._now = now
        self._kept_ms = now()

    def keep(self) -> None:
        """Keep the lock for longer, if that is due."""
        if self._now() - self._kept_ms >= LOCK_MS // 3:
            self._transact(self.hold)

    def hold(self, transaction: Transaction) -> None:
        """Keep the lock for longer; nobody replaces us before this transaction ends."""
        if not transaction.repo.admission.extend_lock(self.epoch, _lapses(transaction)):
            raise Replaced(f"pass {self.epoch} was replaced")
        self._kept_ms = transaction.now


def _writing(grip: _Grip, page: Page, decided: Millis, leaves: bool) -> Callable[[Transaction], PageOutcome]:
    """Make the transaction that writes a page, and may give the lock back with it."""

    def write(transaction: Transaction) -> PageOutcome:
        grip.hold(transaction)
        carried = write_page(transaction, page, decided)
        if leaves:
            transaction.repo.admission.release_lock(grip.epoch)
        return carried

    return write


def _enter(transaction: Transaction, grip: _Grip, pool: str) -> bool:
    grip.hold(transaction)
    return add_contenders(transaction, pool)


def _park(transaction: Transaction, epoch: int, holder: str) -> None:
    if transaction.repo.admission.extend_lock(epoch, _lapses(transaction)):
        transaction.repo.admission.take_lock(epoch, holder, _lapses(transaction))


def _rounded_up(moment: Millis | None) -> Millis | None:
    return None if moment is None else Millis(-(-moment // AGING_MS) * AGING_MS)


def _lapses(transaction: Transaction) -> Millis:
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

    def count(self, carried: PageOutcome) -> None:
        self._admitted += len(carried.admitted)
        self._held += len(carried.noted)

    def is_over(self, now: Millis) -> bool:
        return self._admitted >= self._bounds.starts_max or now - self._began >= self._bounds.pass_max_ms

    def passed(self, ran: bool, more: bool = False) -> PassOutcome:
        return PassOutcome(ran, self._admitted, self._held, self.epoch, more, self.judged)
