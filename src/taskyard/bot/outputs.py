"""Where processes print to, and how it is read: pipes of runs, files of workers.

A worker prints to a file, since a pipe that the same process has to empty can block it for ever. The file has no name
and ends with the last process that has it open. It holds what the call in hand has printed; the runner has it open,
too, and so the last words of a worker that dies are kept.
"""

import ctypes
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Final

from taskyard.bot.intake import READ_MAX

#: The rest in a pipe is at most what a pipe may be made to hold.
REST_PIECES_MAX: Final = 1_048_576 // READ_MAX
#: Less than this is not worth a call.
_FORGET_MIN: Final = 1_048_576
_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2

_BUFFER: Final = bytearray(READ_MAX)
_VIEW: Final = memoryview(_BUFFER)


def read(pipe: int) -> bytes:
    """Read what is there; nothing at its end, and `BlockingIOError` if there is nothing yet."""
    # One buffer for all: one that is made for each read would be given back to the system each time.
    return bytes(_VIEW[: os.readv(pipe, [_BUFFER])])


def fresh() -> int:
    """Make a file without a name, to whose end any number of processes can write at once."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("output")
    else:
        file, path = tempfile.mkstemp()
        os.unlink(path)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file


def forget(file: int, told: int) -> None:
    """Give back the memory of what was told, where the system can; nobody reads it again."""
    if told >= _FORGET_MIN and _FALLOCATE is not None:
        _FALLOCATE(file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(told))


def _fallocate() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), "fallocate", None) if sys.platform == "linux" else None


_FALLOCATE: Final = _fallocate()
