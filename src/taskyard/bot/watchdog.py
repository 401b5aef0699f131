"""The watchdog: a process beside the runner that ends attempts when the runner cannot.

The runner keeps its processes and their deadlines in memory that both share, and moves the deadlines as leases are
renewed. If a deadline passes and nothing happens, the runner is frozen, and the watchdog does what the runner would
have done: it kills the attempt at the end of its lease, and ends it at its time-out. If the runner dies, the watchdog
kills everything with the bot's mark.

It is forked from the runner before that does anything, into a session of its own, and waits at a pipe that only the
runner holds open. It never cleans up beside another runner: before a runner starts, everything with the mark is killed,
the watchdog included.
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

#: What the runner writes when it has left nothing behind.
CLEAN_EXIT: Final = b"."
#: Its name in process lists, where the command line is the runner's; systems cut it after 15 characters.
NAME: Final = "taskyard-watch"
#: How often the deadlines are checked, and how late the runner may be. Together they are a part of the time that the
#: server waits after a lease before it gives the task to another bot.
LOOK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 0.5
#: How many processes a runner can have at once; unused pages of this memory are never allocated.
PROCESSES_MAX: Final = 65_535
_PR_SET_NAME: Final = 15
#: One record is eight words of eight bytes. Words are written atomically, so a reader never sees half of one.
_WORDS: Final = 8
_OWNER, _LEADER, _UNTIL, _TERM_AT, _KILL_AT, _GRACE, _REASON = range(7)
#: Why the watchdog ended a process, by the number in its record; `asked` is a time-out or a deadline.
_REASONS: Final = ("", "lease_over", "asked")


class TooManyProcesses(Exception):
    """The runner has as many processes as there are records."""


class Deadlines:
    """The shared memory: one record with deadlines for each process of the runner."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, (PROCESSES_MAX + 1) * _WORDS * 8))
        self._numbers, self._moments = memory.cast("q"), memory.cast("d")
        self._free: list[int] = []
        self._used = 0  # the highest record number so far

    # Called by the runner.

    def add(self, owner: int, grace_s: float) -> int:
        """Take a record, without deadlines yet, for a process that is about to start."""
        if not self._free and self._used == PROCESSES_MAX:
            raise TooManyProcesses
        record = self._free.pop() if self._free else self._used + 1
        at = record * _WORDS
        self._moments[at + _UNTIL] = self._moments[at + _TERM_AT] = self._moments[at + _KILL_AT] = inf
        self._moments[at + _GRACE] = grace_s
        self._numbers[at + _REASON] = self._numbers[at + _LEADER] = 0
        self._numbers[at + _OWNER] = owner
        if record > self._used:
            # Record 0 is not used: its first word holds the highest record number.
            self._used = self._numbers[0] = record
        return record

    def set_times(self, record: int, until: float, term_at: float, kill_at: float) -> None:
        """Set when it must be dead, when it is asked to end, and when it is killed after that."""
        at = record * _WORDS
        self._moments[at + _UNTIL], self._moments[at + _TERM_AT], self._moments[at + _KILL_AT] = until, term_at, kill_at

    def set_leader(self, record: int, leader: int) -> None:
        """Set the process that leads its session."""
        self._numbers[record * _WORDS + _LEADER] = leader

    def clear_leader(self, record: int) -> str:
        """Clear its pid, which may be reused; return why the watchdog ended it, or an empty text."""
        self._numbers[record * _WORDS + _LEADER] = 0
        return _REASONS[self._numbers[record * _WORDS + _REASON]]

    def remove(self, record: int) -> None:
        """Free the record: nothing of the process is left."""
        self._numbers[record * _WORDS + _OWNER] = 0
        self._free.append(record)

    # Called by the watchdog.

    def overdue(self, now: float) -> set[tuple[int, int]]:
        """Return the records, with their owners, that have a deadline in the past."""
        numbers, moments = self._numbers, self._moments
        return {
            (at, numbers[at])
            for at in range(_WORDS, (numbers[0] + 1) * _WORDS, _WORDS)
            if numbers[at] and now >= min(moments[at + _UNTIL : at + _KILL_AT + 1]) + LATE_SECONDS
        }

    def enforce(self, at: int, marker: str, now: float) -> None:
        """Do what the runner should have done for a record."""
        numbers, moments = self._numbers, self._moments
        leader = numbers[at + _LEADER]
        lease_is_over = now >= moments[at + _UNTIL] + LATE_SECONDS
        if not numbers[at + _REASON] and moments[at + _KILL_AT] == inf:
            numbers[at + _REASON] = 1 if lease_is_over else 2
        if not lease_is_over and now < moments[at + _KILL_AT] + LATE_SECONDS and moments[at + _GRACE] > 0:
            moments[at + _TERM_AT], moments[at + _KILL_AT] = inf, now + moments[at + _GRACE]
            if leader:
                signal_group(leader, signal.SIGTERM)
        elif _kill(marker, numbers[at], leader):
            moments[at + _UNTIL] = moments[at + _TERM_AT] = moments[at + _KILL_AT] = inf


def owner_number(number: int, *, is_worker: bool) -> int:
    """Return the owner number of a run (positive) or a worker (negative); never 0."""
    return -number - 1 if is_worker else number + 1


def owner_name(owner: int) -> str:
    """Return the name in the mark of everything that an owner started."""
    return str(owner - 1) if owner > 0 else f"worker-{-owner - 1}"


@contextmanager
def start(marker: str, agent: int) -> Iterator[Deadlines]:
    """Run a watchdog inside this context. It closes its copy of `agent`, so that the agent notices a dead runner.

    Call it first, in a process with a single thread: the watchdog inherits everything that is open.
    """
    deadlines = Deadlines()
    pipe = _fork(marker, deadlines, agent)
    yield deadlines
    # If an exception skips this, something may be left, and the watchdog kills it.
    if pipe is not None:
        with suppress(BrokenPipeError):
            os.write(pipe, CLEAN_EXIT)
        os.close(pipe)


def _fork(marker: str, deadlines: Deadlines, agent: int) -> int | None:
    source, sink = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(source)
        os.close(sink)
        return None  # a bot works without a watchdog
    if child == 0:
        _run_in_grandchild(marker, deadlines, source, (sink, agent))
    os.close(source)
    os.waitpid(child, 0)
    return sink


def _run_in_grandchild(marker: str, deadlines: Deadlines, source: int, others: tuple[int, ...]) -> NoReturn:
    """Go on in a grandchild: the runner would take a child for an orphan of a run."""
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
    _set_process_name(NAME)
    before: set[tuple[int, int]] = set()
    while not select.select([source], [], [], LOOK_SECONDS)[0]:
        now = time.monotonic()
        overdue = deadlines.overdue(now)
        # Overdue at two checks in a row: not one that the runner is just about to end, or has just begun.
        for at, _ in overdue & before:
            deadlines.enforce(at, marker, now)
        before = overdue
    if os.read(source, 1) == CLEAN_EXIT:
        return
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - needed only if something is left

    process_cleanup.kill_marked(marker)


def _kill(marker: str, owner: int, leader: int) -> bool:
    """Kill all of one run or worker; False if something of it is left."""
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - as above

    return process_cleanup.kill_run(marker, owner_name(owner), leader)


def _set_process_name(name: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
