"""Finding and killing what runs leave behind: orphans of the runner, and every process with a bot's mark."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

#: The variables that mark which bot, and which of its runs, a process belongs to.
BOT_MARK: Final = "TASKYARD_BOT"
RUN_MARK: Final = "TASKYARD_RUN"
#: The owner of a process that cannot be attributed to a run.
UNKNOWN: Final = ""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
#: Enough for some thousand pids; more are seen once these are gone.
_LISTING_MAX: Final = 65_536
#: A process can start another between being seen and being killed; the next scan finds that one.
_SCANS_MAX: Final = 20
#: How long to wait for killed processes, over all scans.
_WAIT_SECONDS_MAX: Final = 5.0
#: How often to look at killed processes that are not our children.
_POLL_SECONDS: Final = 0.01
#: How many generations of descendants to follow, to find those that removed their marks.
_GENERATIONS_MAX: Final = 100


def adopt_orphans() -> bool:
    """Become the parent of orphaned descendants; False if this system cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Be killed when the parent process ends, however it ends; False if this system cannot."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def deny_inspection() -> bool:
    """Keep other processes of this user from reading this one's memory and environment; False if this system cannot."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def allow_inspection() -> bool:
    """Let other processes of this user read the mark in this one's environment, so that they can find it."""
    return _prctl(_PR_SET_DUMPABLE, 1)


def mark_environment(marker: str, owner: str) -> dict[str, str]:
    """Return the variables that mark what an owner runs."""
    return {BOT_MARK: marker, RUN_MARK: f"{marker}:{owner}"}


class Orphans:
    """Processes that left their run's session, and became children of the runner when their parents ended.

    Each is attributed to a run by its session or the mark in its environment, and killed when that run has ended. One
    without either may belong to any run that existed when it was first seen, and is killed with the last of these.
    Where a process cannot adopt orphans, there are none to see.
    """

    def __init__(self, marker: str) -> None:
        self._mark = f"{RUN_MARK}={marker}:".encode()
        self._suspects: dict[int, set[str]] = {}
        self._listing = _listing() if adopt_orphans() else None

    def adopted(self, leaders: Container[int], watchdog: int = 0) -> list[int]:
        """Return the children that are neither leaders nor the watchdog: they are orphans of some run."""
        if self._listing is None:
            return []
        listed = os.pread(self._listing, _LISTING_MAX, 0)
        # A listing that fills the buffer may end in the middle of a number.
        whole = listed if len(listed) < _LISTING_MAX else listed.rpartition(b" ")[0]
        return [pid for text in whole.split() if (pid := int(text)) not in leaders and pid != watchdog]

    def kill(self, adopted: list[int], sessions: Mapping[int, str], live: Collection[str]) -> set[str]:
        """Kill those whose owners do not live; return the owners that may still have processes.

        `sessions` maps every session that was started to its owner, those of ended runs included.
        """
        self._suspects = {pid: self._suspects[pid] for pid in adopted if pid in self._suspects}
        return {owner for pid in adopted if (owner := self._kill_unless_owned(pid, sessions, live)) is not None}

    def _kill_unless_owned(self, pid: int, sessions: Mapping[int, str], live: Collection[str]) -> str | None:
        owner = self._owner(pid, sessions)
        if owner == UNKNOWN:
            suspects = self._suspects.setdefault(pid, set(live))
            if not suspects.isdisjoint(live):
                return None
        elif owner in live:
            return None
        # It is a child that is not reaped, so its pid cannot belong to another process.
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return owner
        except PermissionError:
            # It now belongs to another user. Only its owner waits for it, and not for ever.
            return owner or None
        return owner

    def _owner(self, pid: int, sessions: Mapping[int, str]) -> str:
        with suppress(ProcessLookupError):
            owner = sessions.get(os.getsid(pid))
            if owner is not None:
                return owner
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(self._mark):
                    return entry[len(self._mark) :].decode(errors="replace")
        return UNKNOWN


def _listing() -> int | None:
    with suppress(OSError):
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    return None


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


# Killing by mark: all that an earlier instance or a dead runner left, or, for a frozen runner, one of its runs. Of a
# run it kills all processes that carry the run's mark or are in its session, and their descendants. It never kills this
# process or its ancestors, nor a process that merely reused a pid.


def kill_marked(marker: str, spare: Collection[int] = ()) -> list[int]:
    """Kill every process with this bot's mark, wait until they are gone, and return their pids."""
    spared = {os.getpid(), *(one.pid for one in psutil.Process().parents()), *spare}
    killed: list[int] = []
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    for _ in range(_SCANS_MAX):
        found = [one for one in _marked(marker) if one.pid not in spared and _kill(one, marker)]
        if not found:
            break
        killed += [one.pid for one in found]
        psutil.wait_procs(found, timeout=max(0.0, deadline - time.monotonic()))
    return list(dict.fromkeys(killed))


def kill_run(marker: str, name: str, leader: int) -> bool:
    """Kill all of one run, whose session is `leader` unless that is 0; False if something of it is left."""
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    for _ in range(_SCANS_MAX):
        found = _of_run(f"{marker}:{name}", leader)
        if not found:
            return True
        for one in found:
            _kill_if(one, psutil.Process.is_running)
        # There may be no parent to reap them: a zombie counts as gone.
        while any(map(_lives, found)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    return False


def _of_run(mark: str, leader: int) -> list[psutil.Process]:
    there = {one.pid: one for one in psutil.process_iter() if _lives(one)}
    mine = {pid for pid, one in there.items() if _session(pid) == leader or _has_mark(one, mark, RUN_MARK)}
    parents = {pid: _parent(one) for pid, one in there.items()}
    for _ in range(_GENERATIONS_MAX):
        children = {pid for pid, parent in parents.items() if parent in mine} - mine
        if not children:
            break
        mine |= children
    return [there[pid] for pid in mine]


def _lives(one: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(one.is_running() and one.status() != psutil.STATUS_ZOMBIE)
    return False


def _session(pid: int) -> int:
    """Return the session of a process; -1, which no process has, if it is unknown."""
    with suppress(OSError):
        return os.getsid(pid) or -1
    return -1


def _parent(one: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(one.ppid())
    return 0


def _marked(marker: str) -> Iterator[psutil.Process]:
    """Yield the processes with the mark that this user may look at."""
    for one in psutil.process_iter():
        if _has_mark(one, marker):
            yield one


def _has_mark(one: psutil.Process, marker: str, name: str = BOT_MARK) -> bool:
    # A process that has just ended, or is another user's, does not show its environment.
    with suppress(psutil.Error, OSError):
        return bool(one.environ().get(name) == marker)
    return False


def _kill(one: psutil.Process, marker: str) -> bool:
    """Kill this process if it is still the marked one; say whether it was there."""
    return _kill_if(one, lambda found: found.is_running() and _has_mark(found, marker))


def _kill_if(one: psutil.Process, is_meant: Callable[[psutil.Process], bool]) -> bool:
    with suppress(psutil.Error, OSError):
        if not hasattr(os, "pidfd_open"):
            one.kill()  # psutil compares the start time first
            return True
        pidfd = os.pidfd_open(one.pid)
        try:
            # From here on the descriptor refers to one process, and that is the marked one if it still has the mark.
            if is_meant(one):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False
