"""Kills what a bot's last life left, or what a runner left that died before it could: everything that has its mark.

It kills nothing else: neither this process nor those above it, and no process that has only got the number of one.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

import psutil  # type: ignore[import-untyped]

from taskyard.bot.strays import BOT_MARK

#: A process can start another between being seen and being killed; each look finds those of the one before.
_LOOKS_MAX: Final = 20
#: How long the killed are awaited, over all looks.
_SECONDS_MAX: Final = 5.0


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


def _marked(marker: str) -> Iterator[psutil.Process]:
    """Every living process with the mark that this user may look at."""
    for one in psutil.process_iter():
        if _has_mark(one, marker):
            yield one


def _has_mark(one: psutil.Process, marker: str) -> bool:
    # Whoever has just ended, or is another user's, says nothing of its environment.
    with suppress(psutil.Error, OSError):
        return bool(one.environ().get(BOT_MARK) == marker)
    return False


def _kill(one: psutil.Process, marker: str) -> bool:
    """Kill exactly this one; say whether it was there."""
    with suppress(psutil.Error, OSError):
        if not hasattr(os, "pidfd_open"):
            one.kill()  # looks at when it was started first
            return True
        held = os.pidfd_open(one.pid)
        try:
            # From here on the descriptor means one process; and that is the marked one, if it still is what was seen.
            if one.is_running() and _has_mark(one, marker):
                signal.pidfd_send_signal(held, signal.SIGKILL)
                return True
        finally:
            os.close(held)
    return False
