"""Where processes print to, and how it is read: pipes of runs, files of workers.

A worker prints to a file, since a pipe that the same process has to empty can block it for ever. The file has no name
and ends with the last process that has it open. What was taken from it is cut off, so that it holds only what nobody
has told yet; the runner has it open, too, and so the last words of a worker that dies are kept.
"""

import fcntl
import os
import tempfile
from typing import Final

from taskyard.bot.intake import READ_MAX

#: The rest in a pipe is at most what a pipe may be made to hold.
REST_PIECES_MAX: Final = 1_048_576 // READ_MAX
#: How much of what a worker printed is taken at most; what is beyond is lost, before it fills the memory.
TAKEN_MAX: Final = 8_388_608

_BUFFER: Final = bytearray(READ_MAX)
_VIEW: Final = memoryview(_BUFFER)


def read(pipe: int) -> bytes:
    """Read what is there; nothing at its end, and `BlockingIOError` if there is nothing yet."""
    # One buffer for all: one that is made for each read would be given back to the system each time.
    return bytes(_VIEW[: os.readv(pipe, [_BUFFER])])


def fresh() -> int:
    """Make a file to which any number of processes can print at once."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("output")
    else:
        file, path = tempfile.mkstemp()
        os.unlink(path)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file


def taken(file: int) -> bytes:
    """Take what is in the file."""
    body = os.pread(file, TAKEN_MAX, 0)
    if body:
        os.ftruncate(file, 0)
    return body
