"""What calls in one process share, and how each of them finds it as the first one did: folder, environment, the rest.

The folder, the environment and where is printed to are put back. What cannot be put back is a reason not to make
another call in this process: threads and processes that were left, memory, a closed output. What a call does to
modules, signals, the umask or, past Python, to the environment is not seen.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from taskyard.bot.process import MEMORY_UNIT_BYTES
from taskyard.bot.pyworker.protocol import Took

#: The worker's own: the one that makes the calls, and the one that tells what they print.
_THREADS: Final = 2
_CODING: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Surroundings:
    """How it was before the first call."""

    def __init__(self, output: int, memory_max: int) -> None:
        """Remember it; `output` is another descriptor of where is printed to, which no call knows."""
        self._home = os.open(".", os.O_RDONLY)
        self._environ = os.environ
        # What the mapping keeps: the mapping itself would decode every entry each time that it is compared.
        self._raw: dict[bytes, bytes] = vars(os.environ)["_data"]
        self._base = dict(self._raw)
        self._output = output
        self._streams = (sys.stdout, sys.stderr)
        self._memory_max = memory_max
        self._closed = False
        self._pid = os.getpid()

    def enter(self, env: Mapping[str, str], cwd: str) -> None:
        """Make folder and environment what they have to be for a call."""
        os.fchdir(self._home)
        if cwd:
            os.chdir(cwd)
        os.environ = self._environ  # noqa: B003 - a call may have put something else there
        added = {_encoded(name): text.encode(*_CODING) for name, text in env.items()}
        for name, value in added.items():
            if self._raw.get(name) != value:
                self._set(name, value)
        wanted = self._base | added
        if self._raw != wanted:
            self._mend(wanted)

    def is_elsewhere(self) -> bool:
        """Say whether this is a copy of the process, made by a call that then returned twice."""
        return os.getpid() != self._pid

    def leave(self) -> None:
        """Finish what a call printed, and print to the same place as ever from now on."""
        sys.stdout, sys.stderr = self._streams
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            self._closed = True
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def spoiled(self) -> str | None:
        """Say what a call left at once that could touch the next one, if anything."""
        if threading.active_count() > _THREADS:
            return "a call left a thread behind"
        return "a call closed the output" if self._closed else None

    def filled(self, peak_bytes: int) -> str | None:
        """Say what calls left that takes them some time, if anything."""
        if _has_children():
            return "a call left a process behind"
        if peak_bytes > self._memory_max and _resident_bytes(peak_bytes) > self._memory_max:
            return f"more than {self._memory_max} bytes of memory are in use after a call"
        return None

    def _mend(self, wanted: Mapping[bytes, bytes]) -> None:
        now = dict(self._raw)
        for name in now.keys() - wanted.keys():
            del self._environ[os.fsdecode(name)]
        for name, value in wanted.items():
            if now.get(name) != value:
                self._set(name, value)

    def _set(self, name: bytes, value: bytes) -> None:
        # What the mapping does, too, but for writing and reading the text once more.
        os.putenv(name, value)
        self._raw[name] = value


@lru_cache(maxsize=256)
def _encoded(name: str) -> bytes:
    return os.fsencode(name)


def _has_children() -> bool:
    """Say whether a child lives; those that have ended are reaped, since they can do nothing any more."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _resident_bytes(peak_bytes: int) -> int:
    """How much memory is in use now; where the system does not say, the most that ever was."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return peak_bytes


# What calls take: time, processor, memory. Reading all meters takes longer than a small call, so that is done rarely.
#
# A call that is shorter than any process takes to start is taken to have used the processor all the time, and no
# memory worth a look. A stream of such calls is looked at once in a while.


#: No process starts and no large memory is filled in this time.
_BRIEF_SECONDS: Final = 0.00002
#: How long small calls may go on without a look.
_LOOK_SECONDS: Final = 0.001


class Meters:
    """How far everything had got when it was last read."""

    def __init__(self) -> None:
        self.fresh = True  # they were read for the last call
        self.peak_bytes = 0  # the most that this process ever had, or the runner had when it started it
        self._looked_at = 0.0
        self._cpu_s = 0.0
        self._look(time.perf_counter())

    def read(self, began: float) -> Took:
        """Say what a call that began then and ends now took."""
        now = time.perf_counter()
        ran_s = now - began
        self.fresh = ran_s > _BRIEF_SECONDS or now - self._looked_at > _LOOK_SECONDS
        spent_s = self._look(now) if self.fresh else ran_s
        # What was spent since the last look is this call's, if it is longer than all small ones since then.
        return Took(ran_s, spent_s if ran_s > _BRIEF_SECONDS else ran_s, self.peak_bytes)

    def _look(self, now: float) -> float:
        """Read everything; give the processor's seconds since the last time, those of awaited processes included."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        spent_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        self._looked_at, self.peak_bytes = now, own.ru_maxrss * MEMORY_UNIT_BYTES
        return spent_s
