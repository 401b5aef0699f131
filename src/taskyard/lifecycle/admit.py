"""Admission's one entry point, `schedule()`: it looks in a snapshot, thinks outside any transaction, and commits pages.

It may be called by anyone, anywhere, at any time. One row is the lock of all passes. It is taken without waiting, and
who does not get it returns at once. Nothing is dropped by that: who wants a pass has committed a stir before it asks,
and who has the lock looks for stirs after it gave the lock back. So a stir is seen by its own caller, or by the one
whom that caller found at the lock; and if that one dies, by whoever comes next.

The lock lapses, so that a dead holder is replaced. Every taking has a number of its own, every page is written under
that number, and a holder that was replaced writes nothing more.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from taskyard.core.words import Millis
from taskyard.lifecycle.agenda import PAGE_MAX, Carried, Page, carry_out
from taskyard.lifecycle.contest import Contest
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.queues import Registry
from taskyard.store.txn import Txn
from taskyard.store.verbs.passes import PassLock

#: A holder that wrote nothing for this long is replaced.
LOCK_MS: Final = 15_000
#: One call goes on for about this long, and lets in this many: then others have their turn.
PASS_MAX_MS: Final = 2_000
STARTS_MAX: Final = 2_000
#: What is remembered is believed for this long, should a change ever fail to stir.
MEMORY_MS: Final = 600_000
#: So many tasks in memory are felt by the garbage collector.
MANY: Final = 10_000

Answer = TypeVar("Answer")


class Transact(Protocol):
    """Runs an act as one write transaction, and answers after it is durable."""

    def __call__(self, act: Callable[[Corridor], Answer], /) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one call goes before it returns."""

    pass_max_ms: int = PASS_MAX_MS
    starts_max: int = STARTS_MAX
    page_max: int = PAGE_MAX


@dataclass(frozen=True, slots=True)
class Passed:
    """What a call of `schedule()` did."""

    ran: bool  # False: somebody else is at it, or has replaced us
    admitted: int = 0
    held: int = 0  # for how many a reason was noted
    epoch: int = 0  # the number of the last taking of the lock
    more: bool = False  # it stopped at its bounds: call again


class Replaced(Exception):
    """The lock lapsed and somebody else has taken it: nothing may be written any more."""


class Admission:
    """Lets pending tasks in, over all pools."""

    def __init__(
        self,
        transact: Transact,
        read: Callable[[], AbstractContextManager[Txn]],
        now: Callable[[], Millis],
        holder: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
    ) -> None:
        self._transact = transact
        self._read = read
        self._now = now
        self._holder = holder
        self._bounds = bounds
        #: What was remembered when the lock was given back, and under which number that was.
        self._kept: tuple[int, Contest] | None = None

    def schedule(self) -> Passed:
        """Let in whoever may go now, within the bounds of one call."""
        call = _Call(self._bounds, self._now())
        while (epoch := self._take()) is not None:
            call.epoch = epoch
            try:
                unfinished = self._pass(epoch, call)
            except Replaced:
                return call.passed(ran=False)
            if unfinished or not self._is_stirred():
                return call.passed(ran=True, more=unfinished)
            if call.is_over(self._now()):
                return call.passed(ran=True, more=True)
        return call.passed(ran=call.epoch > 0)

    # The lock.

    def _take(self) -> int | None:
        """Take the lock, if nobody has it; say under which number."""
        with self._read() as txn:
            if self._is_held(txn.passes.lock(), self._now()):
                return None
        return self._transact(self._take_in)

    def _take_in(self, corridor: Corridor) -> int | None:
        lock = corridor.txn.passes.lock()
        if lock is None or self._is_held(lock, corridor.now):
            return None
        corridor.txn.passes.take(lock.epoch + 1, self._holder, _lapses(corridor))
        return lock.epoch + 1

    def _is_held(self, lock: PassLock | None, now: Millis) -> bool:
        return lock is not None and lock.until_ms is not None and now < lock.until_ms

    def _is_stirred(self) -> bool:
        if self._kept is not None and self._kept[1].unsettled:
            return True
        with self._read() as txn:
            return bool(txn.passes.stirs(0, 1))

    # The pass.

    def _pass(self, epoch: int, call: "_Call") -> bool:
        """Go on until all is done or the call is over, and give the lock back; tell whether something is left.

        What fails half-way is forgotten: whoever comes next reads everything again.
        """
        kept, self._kept = self._kept, None
        contest = kept[1] if kept is not None and kept[0] == epoch - 1 else None
        try:
            contest, left = self._go_on(epoch, contest, call)
        except Replaced:
            raise
        except BaseException:
            with suppress(Exception):  # what went wrong is told; the lock lapses by itself
                self._transact(lambda corridor: corridor.txn.passes.leave(epoch))
            raise
        if not left:
            self._transact(lambda corridor: corridor.txn.passes.leave(epoch))
        self._kept = (epoch, contest)
        return bool(contest.agenda) or not contest.whole

    def _go_on(self, epoch: int, contest: Contest | None, call: "_Call") -> tuple[Contest, bool]:
        """Carry out page after page; tell whether the last of them gave the lock back."""
        contest = self._looked(epoch, contest) if contest is None or not contest.agenda else contest
        while contest.agenda:
            page = contest.agenda.page(self._bounds.page_max)
            leaves = page.last and contest.whole
            carried = self._transact(_writing(epoch, page, contest.now, leaves))
            contest.learn(page, carried)
            call.count(carried)
            if leaves or call.is_over(self._now()):
                return contest, leaves
            if not contest.agenda:
                contest = self._looked(epoch, contest)
        return contest, False

    def _looked(self, epoch: int, contest: Contest | None) -> Contest:
        """Look at what changed, or at everything, and think."""
        now = self._now()
        if contest is not None and now - contest.since < MEMORY_MS:
            with self._read() as txn:
                fresh = contest.look(txn, now)
            if fresh:
                contest.think(now)
                return contest
        return self._read_all(epoch, now)

    def _read_all(self, epoch: int, now: Millis) -> Contest:
        with _uncollected():
            with self._read() as txn:
                contest = Contest.read(txn, Registry(), now, self._beating(epoch))
            contest.think(now)
        if len(contest) >= MANY:
            gc.collect()  # it is due anyway, takes 100 ms, and must not come while a page is written
        return contest

    def _beating(self, epoch: int) -> Callable[[], None]:
        """Keep the lock while everything is read."""
        kept_ms = self._now()

        def beat() -> None:
            nonlocal kept_ms
            if self._now() - kept_ms >= LOCK_MS // 3:
                kept_ms = self._now()
                self._transact(lambda corridor: _hold(corridor, epoch))

        return beat


@contextmanager
def _uncollected() -> Iterator[None]:
    """Search for no garbage: what is read stays, so to search it while it grows takes a third of the time for nothing.

    benchmarks/schedule.py, "first pass".
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _writing(epoch: int, page: Page, decided: Millis, leaves: bool) -> Callable[[Corridor], Carried]:
    """Make the transaction that writes a page, and may give the lock back with it."""

    def write(corridor: Corridor) -> Carried:
        _hold(corridor, epoch)
        carried = carry_out(corridor, page, decided)
        if leaves:
            corridor.txn.passes.leave(epoch)
        return carried

    return write


def _hold(corridor: Corridor, epoch: int) -> None:
    if not corridor.txn.passes.hold(epoch, _lapses(corridor)):
        raise Replaced(f"pass {epoch} was replaced")


def _lapses(corridor: Corridor) -> Millis:
    return Millis(corridor.now + LOCK_MS)


class _Call:
    """What one call of `schedule()` has done so far."""

    def __init__(self, bounds: Bounds, began: Millis) -> None:
        self.epoch = 0
        self._bounds = bounds
        self._began = began
        self._admitted = 0
        self._held = 0

    def count(self, carried: Carried) -> None:
        self._admitted += len(carried.admitted)
        self._held += len(carried.noted)

    def is_over(self, now: Millis) -> bool:
        return self._admitted >= self._bounds.starts_max or now - self._began >= self._bounds.pass_max_ms

    def passed(self, ran: bool, more: bool = False) -> Passed:
        return Passed(ran, self._admitted, self._held, self.epoch, more)
