"""Processes that left the session of their run, and were adopted by the runner when whoever started them ended.

Each is told apart by its session or by the mark in its environment, and killed when the run that it belongs to has
ended. One that has rubbed out both may belong to any run that was there when it was first seen, and is killed with the
last of these. Where the system lets no process adopt others, there is nothing to see here.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

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
