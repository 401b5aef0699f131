"""Keeping calls in one process apart, and measuring what each of them uses.

Folder, environment and output are restored for each call. What cannot be restored makes the worker end: threads and
processes that were left, memory, a closed output. What a call does to modules, signals, the umask or, past Python, to
the environment is not noticed.
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
from taskyard.bot.pyworker.protocol import CallUsage

#: The worker's own threads: one makes the calls, one sends their output.
_THREADS: Final = 2
_CODING: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
#: No process starts and no large memory is filled in this time.
BRIEF_SECONDS: Final = 0.00002
#: How long short calls may go on until the counters are read.
READ_SECONDS: Final = 0.001


class CallIsolation:
    """The state of the process before the first call."""

    def __init__(self, output: int, memory_max: int) -> None:
        """Remember the state; `output` is a duplicate of the output descriptor that calls do not know."""
        self._home = os.open(".", os.O_RDONLY)
        self._environ = os.environ
        # The bytes behind os.environ: the mapping itself would decode every entry in each comparison.
        self._raw: dict[bytes, bytes] = vars(os.environ)["_data"]
        self._base = dict(self._raw)
        self._output = output
        self._streams = (sys.stdout, sys.stderr)
        self._memory_max = memory_max
        self._closed = False
        self._pid = os.getpid()

    def enter(self, env: Mapping[str, str], cwd: str) -> None:
        """Set the folder and the environment for a call."""
        os.fchdir(self._home)
        if cwd:
            os.chdir(cwd)
        os.environ = self._environ  # noqa: B003 - a call may have put something else there
        added = {_encoded(name): text.encode(*_CODING) for name, text in env.items()}
        for name, value in added.items():
            if self._raw.get(name) != value:
                self._set(name, value)
        target = self._base | added
        if self._raw != target:
            self._restore(target)

    def is_forked_copy(self) -> bool:
        """Whether this is a copy of the process: a call forked, and then returned twice."""
        return os.getpid() != self._pid

    def leave(self) -> None:
        """Flush what a call printed, and restore the output."""
        sys.stdout, sys.stderr = self._streams
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            self._closed = True
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def unsafe_reason(self) -> str | None:
        """Return what a call left that makes the next call unsafe, if anything; cheap enough for every call."""
        if threading.active_count() > _THREADS:
            return "a call left a thread behind"
        return "a call closed the output" if self._closed else None

    def exhausted_reason(self, peak_bytes: int) -> str | None:
        """Return what calls left that takes longer to check, if anything."""
        if _has_children():
            return "a call left a process behind"
        if peak_bytes > self._memory_max and _resident_bytes(peak_bytes) > self._memory_max:
            return f"more than {self._memory_max} bytes of memory are in use after a call"
        return None

    def _restore(self, target: Mapping[bytes, bytes]) -> None:
        now = dict(self._raw)
        for name in now.keys() - target.keys():
            del self._environ[os.fsdecode(name)]
        for name, value in target.items():
            if now.get(name) != value:
                self._set(name, value)

    def _set(self, name: bytes, value: bytes) -> None:
        # What os.environ does, without encoding the text again.
        os.putenv(name, value)
        self._raw[name] = value


@lru_cache(maxsize=256)
def _encoded(name: str) -> bytes:
    return os.fsencode(name)


def _has_children() -> bool:
    """Whether there is a living child; children that have ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _resident_bytes(peak_bytes: int) -> int:
    """Return the memory in use; its peak, where the system does not tell."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return peak_bytes


# Measuring calls.


class UsageMeter:
    """What calls use: time, CPU, memory.

    Reading all counters takes longer than a short call. So a call that is shorter than any process takes to start is
    counted with its duration as CPU time, and the counters are read once in a while.
    """

    def __init__(self) -> None:
        self.is_current = True  # the counters were read after the last call
        self.peak_bytes = 0  # the most memory that this process ever had, or the runner had when it started it
        self._read_at = 0.0
        self._cpu_s = 0.0
        self._read_counters(time.perf_counter())

    def usage_since(self, began: float) -> CallUsage:
        """Return what a call that began then and ends now used."""
        now = time.perf_counter()
        ran_s = now - began
        self.is_current = ran_s > BRIEF_SECONDS or now - self._read_at > READ_SECONDS
        spent_s = self._read_counters(now) if self.is_current else ran_s
        # What was used since the last read is this call's, if it took longer than all short calls since then.
        return CallUsage(ran_s, spent_s if ran_s > BRIEF_SECONDS else ran_s, self.peak_bytes)

    def _read_counters(self, now: float) -> float:
        """Read the counters; return the CPU seconds since the last read, those of awaited children included."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        spent_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        self._read_at, self.peak_bytes = now, own.ru_maxrss * MEMORY_UNIT_BYTES
        return spent_s
