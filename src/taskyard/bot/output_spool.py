"""The output of an attempt until the server has it: in memory while it is small, then in a file.

The head, three quarters of an attempt's limit, is streamed. Of what follows only the last quarter of the limit is kept,
the tail; it is sent at the end, after a line that says how much is missing. If the disk fails, no more is kept and the
spool says so. Positions in a spool are positions in all that is sent.
"""

import ctypes
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskyard.bot.ipc import READ_MAX
from taskyard.wire.attempt_limits import PIECE_MAX

if TYPE_CHECKING:
    from io import FileIO

#: How much memory one attempt's output may use; the rest waits on disk.
MEMORY_MAX: Final = 1_048_576
#: The part of the limit that is streamed, in quarters.
HEAD_QUARTERS: Final = 3
#: Space for the line between head and tail.
GAP_LINE_MAX: Final = 128
#: How many reads empty a pipe of the largest size.
REST_PIECES_MAX: Final = 1_048_576 // READ_MAX
#: Freeing less than this is not worth a system call.
_FREE_MIN: Final = 1_048_576
_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_BUFFER: Final = bytearray(READ_MAX)
_VIEW: Final = memoryview(_BUFFER)


def head_size(output_max: int) -> int:
    """How much of an output is streamed."""
    return output_max * HEAD_QUARTERS // 4


def rest_file_name(task: str, attempt: int) -> str:
    """The name of the file with everything that an attempt printed after the head."""
    return f"{task}-{attempt}"


class Tail:
    """The last part of an output: in memory while it is small, then in a ring file.

    With a `rest_file` everything is kept in that file, and the file stays.
    """

    def __init__(self, size_max: int, file: Path, rest_file: Path | None = None) -> None:
        self.size = 0  # how much was added
        self._size_max = size_max
        self._path = rest_file or file
        self._keeps_all = rest_file is not None
        self._memory = bytearray()
        self._file: FileIO | None = None
        self._written = 0  # how much of `size` has left the memory
        self._has_failed = False  # the file cannot be written

    @property
    def available(self) -> int:
        """How many bytes `last` can return."""
        return len(self._memory) if self._has_failed else min(self.size, self._size_max)

    def add(self, body: bytes) -> None:
        """Add output."""
        self.size += len(body)
        self._memory += body
        if self._keeps_all or len(self._memory) > MEMORY_MAX:
            self._make_room()

    def last(self, size: int) -> Iterator[bytes]:
        """Yield the last bytes, at most as many as are available."""
        start = self.size - size
        while start < self._written and self._file is not None:
            place, room = self._place(start)
            body = os.pread(self._file.fileno(), min(PIECE_MAX, room, self._written - start), place)
            if not body:
                break
            yield body
            start += len(body)
        if self.size - start > 0:
            yield bytes(self._memory[start - self.size :])

    def close(self) -> None:
        """Free the memory and delete the file; a rest file stays."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self._keeps_all:
                self._path.unlink(missing_ok=True)

    def _make_room(self) -> None:
        if not self._keeps_all:
            surplus = max(0, len(self._memory) - self._size_max)
            del self._memory[:surplus]
            self._written += surplus
        if self._has_failed or (not self._keeps_all and self._size_max <= MEMORY_MAX):
            return
        try:
            self._write()
        except OSError:
            self._has_failed = True
            raise

    def _write(self) -> None:
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._path.open("w+b", buffering=0)
        with memoryview(self._memory) as rest:
            at = 0
            while at < len(rest):
                place, room = self._place(self._written)
                written = os.pwrite(self._file.fileno(), rest[at : at + room], place)
                at, self._written = at + written, self._written + written
        self._memory.clear()

    def _place(self, start: int) -> tuple[int, int]:
        """Return the position in the file of a byte, and how many bytes follow it there."""
        if self._keeps_all:
            return start, max(1, len(self._memory), self._written - start)
        place = start % self._size_max
        return place, self._size_max - place


class Spool:
    """The output that has to be sent: the bytes from `acked` to `size`."""

    def __init__(self, file: Path, output_max: int, rest_file: Path | None = None, start: int = 0) -> None:
        """Use `file` for what does not fit in memory, and `rest_file`, if given, for everything after the head.

        The server has what is before `start`.
        """
        self.acked = start  # how much the server has
        self.size = start  # how much was printed and kept
        self.truncated = False
        self.trouble = ""  # why no more is kept, if that is not the task's fault
        self._path = file
        self._output_max = output_max
        self._head_max = head_size(output_max)
        self._rest_file = rest_file
        self._tail: Tail | None = None  # set once the head is full
        self._last = b""  # the last byte
        self._memory = bytearray()  # the bytes from `_memory_start` on
        self._memory_start = start
        self._file: FileIO | None = None  # the bytes before `_memory_start` that are not acknowledged

    @property
    def pending(self) -> int:
        """How many bytes have to be sent."""
        return self.size - self.acked

    def add(self, body: bytes) -> None:
        """Add output."""
        room = self._head_max - self.size
        if len(body) <= room:
            self._append(body)
            return
        if room > 0:
            self._append(body[:room])
        if self.trouble:
            self.truncated = True
            return
        if self._tail is None:
            file = self._path.with_suffix(".tail")
            self._tail = Tail(self._output_max - self._head_max, file, self._rest_file)
        try:
            self._tail.add(body[max(0, room) :])
        except OSError as error:
            self._fail(error)

    def finish(self) -> None:
        """Append the tail to the head, with a line between them if something is missing: no more is printed."""
        tail, self._tail = self._tail, None
        if tail is None:
            return
        room, size, line = self._output_max - self._head_max, tail.size, b""
        if tail.size > min(room, tail.available):
            self.truncated = True
            size = max(0, min(tail.available, room - GAP_LINE_MAX))
            line = self._gap_line(tail.size - size)
        if len(line) <= room:  # otherwise the limit is too small for a tail
            self._append(line)
            for piece in tail.last(size):
                self._append(piece)
        tail.close()

    def _gap_line(self, missing: int) -> bytes:
        start = "" if self._last == b"\n" else "\n"
        note = f"{missing} bytes of output were dropped here; {self._output_max} are kept of an attempt"
        return f"{start}taskyard: {note}\n".encode()

    def _append(self, body: bytes) -> None:
        self._memory += body
        self.size += len(body)
        self._last = body[-1:] or self._last
        if len(self._memory) > MEMORY_MAX and not self.trouble:
            try:
                self._move_to_file()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        # What is in memory can still be sent.
        self.truncated, self._head_max = True, self.size
        self.trouble = f"output cannot be kept: {error}"

    def piece(self, start: int, size_max: int) -> bytes:
        """Return bytes from `start` on, as many as one message may carry."""
        size = min(size_max, PIECE_MAX, self.size - start)
        if start >= self._memory_start:
            place = start - self._memory_start
            return bytes(self._memory[place : place + size])
        assert self._file is not None, "what is not in memory is in the file"
        self._file.seek(start)
        return self._file.read(min(size, self._memory_start - start))

    def acknowledge(self, size: int) -> None:
        """Free what the server has. It may have less than was sent: sending goes on from there."""
        self.acked = max(self.acked, min(size, self.size))
        if self.acked >= self._memory_start and self._file is not None:
            self._drop_file()
        surplus = self.acked - self._memory_start
        if surplus >= len(self._memory) or surplus > MEMORY_MAX // 2:
            del self._memory[:surplus]
            self._memory_start += max(0, surplus)

    def discard_rest(self) -> None:
        """Drop the rest: the server does not take it."""
        self.truncated = True
        self.acknowledge(self.size)

    def close(self) -> None:
        """Free the memory and delete the files."""
        if self._tail is not None:
            self._tail.close()
        self._memory.clear()
        self._drop_file()

    def _move_to_file(self) -> None:
        if self._file is None:
            self._file = self._path.open("w+b", buffering=0)
        # Positions in the file are those of the output; what was sent before the file existed is a hole in it.
        self._file.seek(self._memory_start)
        with memoryview(self._memory) as rest:
            written = 0
            while written < len(rest):
                written += self._file.write(rest[written:])
        self._memory_start += len(self._memory)
        self._memory.clear()

    def _drop_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)


# Reading what processes print: pipes of runs, files of workers.
#
# A worker prints to a file, because a pipe that the same process has to empty can block it for ever. The file has no
# name and ends with the last process that has it open. It holds the output of the current call. The runner has it open,
# too, so that the last output of a worker that dies is kept.


def read_pipe(pipe: int) -> bytes:
    """Read what is there: nothing at its end; BlockingIOError if there is nothing yet."""
    # One buffer for all reads: a new one for each read would be given back to the system each time.
    return bytes(_VIEW[: os.readv(pipe, [_BUFFER])])


def create_output_file() -> int:
    """Create a file without a name, to which any number of processes can append."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("output")
    else:
        file, path = tempfile.mkstemp()
        os.unlink(path)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file


def free_sent(file: int, size: int) -> None:
    """Free the memory of output that was sent, where the system can."""
    if size >= _FREE_MIN and _FALLOCATE is not None:
        _FALLOCATE(file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(size))


def _fallocate() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), "fallocate", None) if sys.platform == "linux" else None


_FALLOCATE: Final = _fallocate()
