"""Kills what a bot's last life left, or what a runner left that died before it could: everything that has its mark.

Of one run that a frozen runner has in hand it kills everything that carries the run's mark, is in its session, or was
started by one of these.

It kills nothing else: neither this process nor those above it, and no process that has only got the number of one.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final

import psutil  # type: ignore[import-untyped]

from taskyard.bot.strays import BOT_MARK, RUN_MARK

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
