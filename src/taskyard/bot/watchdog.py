"""The watchdog: a process beside the runner that ends attempts when the runner cannot.

The runner keeps, in memory that both share, the processes it looks after and when each of them must have ended. It
moves these deadlines as leases are renewed. If one of them passes and nothing happens the runner is frozen, and the
watchdog does what the runner would have done: it kills the attempt at the end of its lease, and ends it at its
time-out. If the runner dies, the watchdog kills everything with the bot's mark.

It is a copy of the runner from before that has done anything, in a session of its own, and waits at a pipe that only
the runner holds open. It never clears beside another runner: the start of a runner clears first, the watchdog included.
"""

import ctypes
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Final, NoReturn

from taskyard.bot.process import signal_group

#: What the runner writes when it has left nothing.
NOTHING_LEFT: Final = b"."
#: The name in lists of processes, where the command line is that of the runner; systems cut it after 15 characters.
NAME: Final = "taskyard-watch"
#: How often the deadlines are looked at, and how late the runner may be. Both together are a part of the seconds for
#: which the server waits after a lease before it gives the task to another bot.
LOOK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 0.5
#: How many processes a runner looks after at once; what nobody uses of this memory is never there.
GUARDED_MAX: Final = 65_535

_PR_SET_NAME: Final = 15
#: One record is eight words of eight bytes. A word is written at once, so that no half of it is ever read.
_WORDS: Final = 8
_OWNER, _LEADER, _UNTIL, _ASK_AT, _KILL_AT, _GRACE, _VERDICT = range(7)
#: Why the watchdog ended something, by the numbers in a record; it was asked to end at its time-out or its deadline.
_VERDICTS: Final = ("", "lease_over", "asked")


class NoPlace(Exception):
    """There are as many processes already as can be looked after."""


class Deadlines:
    """The shared memory: one record for each process that the runner looks after, and the deadlines of it."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, (GUARDED_MAX + 1) * _WORDS * 8))
        self._numbers, self._moments = memory.cast("q"), memory.cast("d")
        self._free: list[int] = []
        self._most = 0  # so many records were used at once

    # For the runner.

    def add(self, owner: int, grace_s: float) -> int:
        """Take a record for a process that is about to start; a worker's owner is below 0. Its deadlines follow."""
        if not self._free and self._most == GUARDED_MAX:
            raise NoPlace
        place = self._free.pop() if self._free else self._most + 1
        at = place * _WORDS
        self._moments[at + _UNTIL] = self._moments[at + _ASK_AT] = self._moments[at + _KILL_AT] = inf
        self._moments[at + _GRACE] = grace_s
        self._numbers[at + _VERDICT] = self._numbers[at + _LEADER] = 0
        self._numbers[at + _OWNER] = owner
        if place > self._most:
            # The first record is not used: its first word says how many are.
            self._most = self._numbers[0] = place
        return place

    def move(self, place: int, until: float, ask_at: float, kill_at: float) -> None:
        """Set when it must have ended, when it is asked to end, and when one that was asked is killed."""
        at = place * _WORDS
        self._moments[at + _UNTIL], self._moments[at + _ASK_AT], self._moments[at + _KILL_AT] = until, ask_at, kill_at

    def lead(self, place: int, leader: int) -> None:
        """Note the process that leads its session."""
        self._numbers[place * _WORDS + _LEADER] = leader

    def reaped(self, place: int) -> str:
        """Forget the number of the process, which may be given to another; say why the watchdog ended it, if it did."""
        self._numbers[place * _WORDS + _LEADER] = 0
        return _VERDICTS[self._numbers[place * _WORDS + _VERDICT]]

    def remove(self, place: int) -> None:
        """Give the record back: nothing of it is left."""
        self._numbers[place * _WORDS + _OWNER] = 0
        self._free.append(place)

    # For the watchdog.

    def overdue(self, now: float) -> set[tuple[int, int]]:
        """Name the records, with their owners, of which a deadline has passed."""
        numbers, moments = self._numbers, self._moments
        return {
            (at, numbers[at])
            for at in range(_WORDS, (numbers[0] + 1) * _WORDS, _WORDS)
            if numbers[at] and now >= min(moments[at + _UNTIL : at + _KILL_AT + 1]) + LATE_SECONDS
        }

    def keep(self, at: int, marker: str, now: float) -> None:
        """Do for one of these what the runner did not."""
        numbers, moments = self._numbers, self._moments
        leader = numbers[at + _LEADER]
        lease_is_over = now >= moments[at + _UNTIL] + LATE_SECONDS
        if not numbers[at + _VERDICT] and moments[at + _KILL_AT] == inf:
            numbers[at + _VERDICT] = 1 if lease_is_over else 2
        if not lease_is_over and now < moments[at + _KILL_AT] + LATE_SECONDS and moments[at + _GRACE] > 0:
            moments[at + _ASK_AT], moments[at + _KILL_AT] = inf, now + moments[at + _GRACE]
            if leader:
                signal_group(leader, signal.SIGTERM)
        elif _kill(marker, numbers[at], leader):
            moments[at + _UNTIL] = moments[at + _ASK_AT] = moments[at + _KILL_AT] = inf


def owner_of(number: int, *, is_worker: bool) -> int:
    """Give the number in a record for a run or a worker: above 0 for runs, below for workers, and never 0."""
    return -number - 1 if is_worker else number + 1


def owner_name(owner: int) -> str:
    """Give the name in the mark of everything that an owner started."""
    return str(owner - 1) if owner > 0 else f"worker-{-owner - 1}"


@contextmanager
def started(marker: str, agent: int) -> Iterator[Deadlines]:
    """Have a watchdog as long as this lasts; it lets go of `agent`, so that the agent hears when the runner is gone.

    It has to be the first thing that a process with a single thread does: the watchdog has all that is there before.
    """
    deadlines = Deadlines()
    pipe = _forked(marker, deadlines, agent)
    yield deadlines
    # Whoever does not come here has left something, perhaps.
    if pipe is not None:
        with suppress(BrokenPipeError):
            os.write(pipe, NOTHING_LEFT)
        os.close(pipe)


def _forked(marker: str, deadlines: Deadlines, agent: int) -> int | None:
    source, sink = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(source)
        os.close(sink)
        return None  # a bot works without it
    if between == 0:
        _leave(marker, deadlines, source, (sink, agent))
    os.close(source)
    os.waitpid(between, 0)
    return sink


def _leave(marker: str, deadlines: Deadlines, source: int, others: tuple[int, ...]) -> NoReturn:
    """Go on in a grandchild: a child of the runner would be taken for something that a run left."""
    try:
        if os.fork() == 0:
            _watch(marker, deadlines, source, others)
    finally:
        os._exit(0)


def _watch(marker: str, deadlines: Deadlines, source: int, others: tuple[int, ...]) -> None:
    os.setsid()
    for one in others:
        os.close(one)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    _call_yourself(NAME)
    before: set[tuple[int, int]] = set()
    while not select.select([source], [], [], LOOK_SECONDS)[0]:
        now = time.monotonic()
        overdue = deadlines.overdue(now)
        # What is overdue twice is not what the runner is just about to end, or has just begun.
        for at, _ in overdue & before:
            deadlines.keep(at, marker, now)
        before = overdue
    if os.read(source, 1) == NOTHING_LEFT:
        return
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - who has nothing to clear need not have it

    process_cleanup.clear(marker)


def _kill(marker: str, owner: int, leader: int) -> bool:
    """Kill all of one run or worker; say whether nothing of it is left."""
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - as above

    return process_cleanup.clear_run(marker, owner_name(owner), leader)


def _call_yourself(name: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
