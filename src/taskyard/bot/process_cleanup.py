"""Processes that left the session of their run, and were adopted by the runner when whoever started them ended.

Each is told apart by its session or by the mark in its environment, and killed when the run that it belongs to has
ended. One that has rubbed out both may belong to any run that was there when it was first seen, and is killed with the
last of these. Where the system lets no process adopt others, there is nothing to see here.
"""

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

#: Which bot a process belongs to, and which of its runs.
BOT_MARK: Final = "TASKYARD_BOT"
RUN_MARK: Final = "TASKYARD_RUN"
#: The owner of what cannot be told apart.
UNKNOWN: Final = ""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
#: Numbers of adopted processes, some thousand of them: the rest is seen when these are gone.
_LISTING_MAX: Final = 65_536


def adopt_orphans() -> bool:
    """Become the parent of what descendants leave behind; say whether this system can."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Be killed when the process that started this one ends, however it does; say whether this system can."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hide() -> bool:
    """Let no other process of this user read the memory and the environment of this one; say whether that works."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def be_seen() -> bool:
    """Let other processes of this user see the mark in the environment of this one, and so find it."""
    return _prctl(_PR_SET_DUMPABLE, 1)


def marks(marker: str, owner: str) -> dict[str, str]:
    """Give what is added to the environment of what an owner runs."""
    return {BOT_MARK: marker, RUN_MARK: f"{marker}:{owner}"}


class Strays:
    """What was adopted."""

    def __init__(self, marker: str) -> None:
        self._mark = f"{RUN_MARK}={marker}:".encode()
        self._suspects: dict[int, set[str]] = {}
        self._listing = _listing() if adopt_orphans() else None

    def adopted(self, leaders: Container[int]) -> list[int]:
        """Give the children that are no leaders: each was left by somebody."""
        if self._listing is None:
            return []
        listed = os.pread(self._listing, _LISTING_MAX, 0)
        # A listing that fills the buffer may end in the middle of a number.
        whole = listed if len(listed) < _LISTING_MAX else listed.rpartition(b" ")[0]
        return [pid for text in whole.split() if (pid := int(text)) not in leaders]

    def kill(self, adopted: list[int], sessions: Mapping[int, str], live: Collection[str]) -> set[str]:
        """Kill those that belong to nobody who lives; give the owners of whom something may still be there.

        `sessions` names the owner of every session that was started, those that are being buried included.
        """
        self._suspects = {pid: self._suspects[pid] for pid in adopted if pid in self._suspects}
        return {owner for pid in adopted if (owner := self._killed(pid, sessions, live)) is not None}

    def _killed(self, pid: int, sessions: Mapping[int, str], live: Collection[str]) -> str | None:
        owner = self._owner(pid, sessions)
        if owner == UNKNOWN:
            suspects = self._suspects.setdefault(pid, set(live))
            if not suspects.isdisjoint(live):
                return None
        elif owner in live:
            return None
        # It is a child that is not reaped, so that its number is nobody else's.
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return owner
        except PermissionError:
            # It became another user's. Nobody but its owner waits for it, and not for ever.
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


# Kills what a bot's last life left, or what a runner left that died before it could: everything that has its mark.
#
# Of one run that a frozen runner has in hand it kills everything that carries the run's mark, is in its session, or
# was started by one of these.
#
# It kills nothing else: neither this process nor those above it, and no process that has only got the number of one.


#: A process can start another between being seen and being killed; each look finds those of the one before.
_LOOKS_MAX: Final = 20
#: How long the killed are awaited, over all looks.
_SECONDS_MAX: Final = 5.0
#: How often the killed are looked at where nobody but the system knows when they have ended.
_PAUSE_SECONDS: Final = 0.01
#: How deep below a process that is known others are looked for that wiped their marks.
_GENERATIONS_MAX: Final = 100


def clear(marker: str, spare: Collection[int] = ()) -> list[int]:
    """Kill every process with this bot's mark, wait until they are gone, and give their numbers."""
    spared = {os.getpid(), *(one.pid for one in psutil.Process().parents()), *spare}
    killed: list[int] = []
    deadline = time.monotonic() + _SECONDS_MAX
    for _ in range(_LOOKS_MAX):
        found = [one for one in _marked(marker) if one.pid not in spared and _kill(one, marker)]
        if not found:
            break
        killed += [one.pid for one in found]
        psutil.wait_procs(found, timeout=max(0.0, deadline - time.monotonic()))
    return list(dict.fromkeys(killed))


def clear_run(marker: str, name: str, leader: int) -> bool:
    """Kill all of one run, `leader` being its session unless 0; say whether nothing of it is left."""
    deadline = time.monotonic() + _SECONDS_MAX
    for _ in range(_LOOKS_MAX):
        found = _of_run(f"{marker}:{name}", leader)
        if not found:
            return True
        for one in found:
            _kill_if(one, psutil.Process.is_running)
        # Nobody may be there to reap them: whoever has ended and waits for that does nothing any more.
        while any(map(_lives, found)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
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
    """Name the session of a process; -1, which is nobody's, if that cannot be known."""
    with suppress(OSError):
        return os.getsid(pid) or -1
    return -1


def _parent(one: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(one.ppid())
    return 0


def _marked(marker: str) -> Iterator[psutil.Process]:
    """Every living process with the mark that this user may look at."""
    for one in psutil.process_iter():
        if _has_mark(one, marker):
            yield one


def _has_mark(one: psutil.Process, marker: str, name: str = BOT_MARK) -> bool:
    # Whoever has just ended, or is another user's, says nothing of its environment.
    with suppress(psutil.Error, OSError):
        return bool(one.environ().get(name) == marker)
    return False


def _kill(one: psutil.Process, marker: str) -> bool:
    """Kill exactly this one, if it is what was seen; say whether it was there."""
    return _kill_if(one, lambda found: found.is_running() and _has_mark(found, marker))


def _kill_if(one: psutil.Process, is_meant: Callable[[psutil.Process], bool]) -> bool:
    with suppress(psutil.Error, OSError):
        if not hasattr(os, "pidfd_open"):
            one.kill()  # looks at when it was started first
            return True
        held = os.pidfd_open(one.pid)
        try:
            # From here on the descriptor means one process; and that is the marked one, if it still is what was seen.
            if is_meant(one):
                signal.pidfd_send_signal(held, signal.SIGKILL)
                return True
        finally:
            os.close(held)
    return False
