"""What calls in one process share, and how each of them finds it as the first one did: folder, environment, the rest.

The folder, the environment and where is printed to are put back. What cannot be put back is a reason not to make
another call in this process: threads and processes that were left, memory, a closed output. What a call does to
modules, signals, the umask or, past Python, to the environment is not seen.
"""

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

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
