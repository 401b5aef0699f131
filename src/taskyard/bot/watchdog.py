"""The watchdog: a process beside the runner that ends attempts when the runner cannot.

The runner keeps its processes and their deadlines in memory that both share, and moves the deadlines as leases are
renewed. If a deadline passes and nothing happens, the runner is frozen, and the watchdog does what the runner would
have done: it kills the attempt at the end of its lease, and ends it at its time-out. If the runner dies, the watchdog
kills everything with the bot's mark.

It is a child of the runner, forked before that does anything, in a session of its own. It waits at a pipe that only the
runner holds open. If it dies, the runner forks another. It never cleans up beside another runner: before a runner
starts, everything with the mark is killed, the watchdog included.
"""

import ctypes
import fcntl
import mmap
import os
import select
import signal
import struct
import sys
import termios
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
#: A watchdog is replaced this long after its start at the earliest, or after a start that failed.
RETRY_SECONDS: Final = 1.0
#: One record is ten words of eight bytes. Words are written atomically, so a reader never sees half of one.
_WORDS: Final = 10
_OWNER, _LEADER, _UNTIL, _TERM_AT, _KILL_AT, _SILENT_AT, _GRACE, _SILENCE, _OUTPUT, _REASON = range(10)
#: Why the watchdog ended a process, by the number in its record; `asked` is a time-out or a deadline.
_REASONS: Final = ("", "lease_over", "asked", "silent")
_LEASE_OVER, _ASKED, _SILENT = 1, 2, 3
#: Linux lets a process ask for the size of a pipe; a pipe in which less than a page is free is full.
_F_GETPIPE_SZ: Final = 1032
_PAGE_BYTES: Final = 4096


class TooManyProcesses(Exception):
    """The runner has as many processes as there are records."""


class Deadlines:
    """The shared memory: one record with deadlines for each process of the runner."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, (PROCESSES_MAX + 1) * _WORDS * 8))
        self._numbers, self._moments = memory.cast("q"), memory.cast("d")
        #: Of the watchdog: when it let a silent process go on until, and how many unread bytes it had found then.
        self._unread: dict[int, tuple[float, int]] = {}
        self._free: list[int] = []
        self._used = 0  # the highest record number so far

    # Called by the runner.

    def add(self, owner: int, grace_s: float) -> int:
        """Take a record, without deadlines yet, for a process that is about to start."""
        if not self._free and self._used == PROCESSES_MAX:
            raise TooManyProcesses
        record = self._free.pop() if self._free else self._used + 1
        at = record * _WORDS
        for word in (_UNTIL, _TERM_AT, _KILL_AT, _SILENT_AT):
            self._moments[at + word] = inf
        self._moments[at + _GRACE] = grace_s
        self._numbers[at + _REASON] = self._numbers[at + _LEADER] = 0
        self._numbers[at + _OUTPUT] = -1
        self._numbers[at + _OWNER] = owner
        if record > self._used:
            # Record 0 is not used: its first word holds the highest record number.
            self._used = self._numbers[0] = record
        return record

    def set_times(self, record: int, until: float, term_at: float, kill_at: float) -> None:
        """Set when it must be dead, when it is asked to end, and when it is killed after that."""
        at = record * _WORDS
        self._moments[at + _UNTIL], self._moments[at + _TERM_AT], self._moments[at + _KILL_AT] = until, term_at, kill_at

    def set_output(self, record: int, output: int, silence_s: float) -> None:
        """Set the descriptor of the runner that its output arrives at, -1 if it is closed, and how long it may wait."""
        at = record * _WORDS
        self._numbers[at + _OUTPUT], self._moments[at + _SILENCE] = output, silence_s

    def set_silent_at(self, record: int, moment: float) -> None:
        """Set when it is asked to end if it prints nothing until then."""
        self._moments[record * _WORDS + _SILENT_AT] = moment

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
            if numbers[at] and now >= min(moments[at + _UNTIL : at + _SILENT_AT + 1]) + LATE_SECONDS
        }

    def enforce(self, at: int, marker: str, runner: int, now: float) -> None:
        """Do what the runner should have done for a record."""
        numbers, moments = self._numbers, self._moments
        leader, late = numbers[at + _LEADER], now - LATE_SECONDS
        lease_is_over = late >= moments[at + _UNTIL]
        if late < min(moments[at + _UNTIL : at + _KILL_AT + 1]) and not self._is_silent(at, runner, now):
            return
        if not numbers[at + _REASON] and moments[at + _KILL_AT] == inf:
            numbers[at + _REASON] = (
                _LEASE_OVER if lease_is_over else _ASKED if late >= moments[at + _TERM_AT] else _SILENT
            )
        if not lease_is_over and late < moments[at + _KILL_AT] and moments[at + _GRACE] > 0:
            moments[at + _TERM_AT] = moments[at + _SILENT_AT] = inf
            moments[at + _KILL_AT] = now + moments[at + _GRACE]
            if leader:
                signal_group(leader, signal.SIGTERM)
        elif _kill(marker, numbers[at], leader):
            for word in (_UNTIL, _TERM_AT, _KILL_AT, _SILENT_AT):
                moments[at + word] = inf

    def _is_silent(self, at: int, runner: int, now: float) -> bool:
        """Whether it printed nothing for its time; what waits in its pipe may have been printed at any time before."""
        output, silent_at = self._numbers[at + _OUTPUT], self._moments[at + _SILENT_AT]
        unread = 0 if output < 0 else _unread_bytes(runner, output)
        if unread is None:
            return False
        extended, before = self._unread.get(at, (inf, 0))
        if unread <= (before if extended == silent_at else 0):
            return True
        # It is set beside the runner, which may just have continued; then the runner decides.
        self._moments[at + _SILENT_AT] = silent_at = now + self._moments[at + _SILENCE]
        self._unread[at] = silent_at, unread
        return False


def owner_number(number: int, *, is_worker: bool) -> int:
    """Return the owner number of a run (positive) or a worker (negative); never 0."""
    return -number - 1 if is_worker else number + 1


def owner_name(owner: int) -> str:
    """Return the name in the mark of everything that an owner started."""
    return str(owner - 1) if owner > 0 else f"worker-{-owner - 1}"


class Watchdog:
    """The runner's handle of its watchdog: starts it, and starts another one if it dies."""

    def __init__(self, marker: str, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self._marker = marker
        self.pid = 0  # 0 if there is none
        self.started_at = 0.0
        self._pipe: int | None = None

    def start(self) -> None:
        """Fork it; there is none if the system has no room for it. Call it in a process with a single thread."""
        self._close_pipe()
        self.started_at = time.monotonic()
        source, self._pipe = os.pipe()
        try:
            runner, self.pid = os.getpid(), os.fork()
        except OSError:
            self.pid = 0
            self._close_pipe()
        else:
            if self.pid == 0:
                _run(self._marker, self.deadlines, source, runner)
        os.close(source)

    def end(self) -> None:
        """Let it end without cleaning up: nothing is left."""
        if self._pipe is not None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, CLEAN_EXIT)
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


@contextmanager
def start(marker: str) -> Iterator[Watchdog]:
    """Run a watchdog inside this context. A bot works without one if the system has no room for it."""
    watchdog = Watchdog(marker, Deadlines())
    watchdog.start()
    yield watchdog
    # If an exception skips this, something may be left, and the watchdog kills it.
    watchdog.end()


def _run(marker: str, deadlines: Deadlines, source: int, runner: int) -> NoReturn:
    try:
        os.setsid()
        # The runner may have begun to serve: what arrives here is not for it.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # All that it has inherited: the agent, for one, has to notice the end of the runner.
        for descriptor in map(int, os.listdir("/dev/fd")):
            if descriptor > 2 and descriptor != source:
                with suppress(OSError):  # the listing itself is closed already
                    os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        _set_process_name(NAME)
        _watch(marker, deadlines, source, runner)
    finally:
        os._exit(0)


def _watch(marker: str, deadlines: Deadlines, source: int, runner: int) -> None:
    before: set[tuple[int, int]] = set()
    while not select.select([source], [], [], LOOK_SECONDS)[0]:
        now = time.monotonic()
        overdue = deadlines.overdue(now)
        # Overdue at two checks in a row: not one that the runner is just about to end, or has just begun.
        for at, _ in overdue & before:
            deadlines.enforce(at, marker, runner, now)
        before = overdue
    if os.read(source, 1) == CLEAN_EXIT:
        return
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - needed only if something is left

    process_cleanup.kill_marked(marker)


def _unread_bytes(runner: int, output: int) -> int | None:
    """Return how much waits in a pipe of the runner; None if that is unknown, or the pipe is full."""
    try:
        pipe = os.open(f"/proc/{runner}/fd/{output}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        unread = int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
        return unread if unread + _PAGE_BYTES <= fcntl.fcntl(pipe, _F_GETPIPE_SZ) else None
    except OSError:
        return None
    finally:
        os.close(pipe)


def _kill(marker: str, owner: int, leader: int) -> bool:
    """Kill all of one run or worker; False if something of it is left."""
    from taskyard.bot import process_cleanup  # noqa: PLC0415 - as above

    return process_cleanup.kill_run(marker, owner_name(owner), leader)


def _set_process_name(name: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
