"""What an attempt printed and the server does not have yet: in memory while it is little, then in a file.

Bytes are known by where they stand in all that is sent. What the server has is forgotten here. Three quarters of the
limit of an attempt are streamed, its head; of what comes then the last quarter is kept, its tail, and sent at the end,
with a line between that says how much is missing. Nothing more is kept once the disk has failed, and the spool says so.
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
from taskyard.wire.bot_protocol import PIECE_MAX

if TYPE_CHECKING:
    from io import FileIO


#: A talkative attempt may take this much memory; the rest waits on disk.
MEMORY_MAX: Final = 1_048_576
#: How much of the limit the head has, in quarters.
HEAD_QUARTERS: Final = 3
#: Room for the line between head and tail.
LINE_MAX: Final = 128


def head_of(output_max: int) -> int:
    """Say how much of an output is streamed."""
    return output_max * HEAD_QUARTERS // 4


def rest_name(task: str, attempt: int) -> str:
    """Name the file with all that an attempt printed behind the head."""
    return f"{task}-{attempt}"


class Tail:
    """The last of what was printed: in memory while it is little, then in a file that is written round and round.

    With a `whole` file all of it is kept there, and the file stays.
    """

    def __init__(self, size_max: int, file: Path, whole: Path | None = None) -> None:
        self.size = 0  # so much was printed
        self._size_max = size_max
        self._path = whole or file
        self._is_whole = whole is not None
        self._memory = bytearray()
        self._file: FileIO | None = None
        self._written = 0  # so much of `size` has left the memory
        self._is_lost = False  # the file cannot be written

    @property
    def kept(self) -> int:
        """How much of the end can be had."""
        return len(self._memory) if self._is_lost else min(self.size, self._size_max)

    def add(self, body: bytes) -> None:
        """Take what was printed next."""
        self.size += len(body)
        self._memory += body
        if self._is_whole or len(self._memory) > MEMORY_MAX:
            self._make_room()

    def last(self, size: int) -> Iterator[bytes]:
        """Give the last bytes, at most as many as are kept."""
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
        """Forget it; a whole file stays."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self._is_whole:
                self._path.unlink(missing_ok=True)

    def _make_room(self) -> None:
        if not self._is_whole:
            surplus = max(0, len(self._memory) - self._size_max)
            del self._memory[:surplus]
            self._written += surplus
        if self._is_lost or (not self._is_whole and self._size_max <= MEMORY_MAX):
            return
        try:
            self._write()
        except OSError:
            self._is_lost = True
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
        """Say where in the file a byte stands, and how many follow it there."""
        if self._is_whole:
            return start, max(1, len(self._memory), self._written - start)
        place = start % self._size_max
        return place, self._size_max - place


class Spool:
    """The part of an output that has to be sent, from `kept` to `size`."""

    def __init__(self, file: Path, output_max: int, whole: Path | None = None) -> None:
        """Keep what has to wait in a file, and all that comes after the head in another, if one is named."""
        self.kept = 0  # so much the server has
        self.size = 0  # so much was printed, as far as it is kept at all
        self.truncated = False
        self.trouble = ""  # why nothing more is kept, if that is no fault of who printed it
        self._path = file
        self._output_max = output_max
        self._head_max = head_of(output_max)
        self._whole = whole
        self._tail: Tail | None = None  # there is one once the head is full
        self._last = b""  # the last byte
        self._memory = bytearray()  # the bytes from `_memory_start` on
        self._memory_start = 0
        self._file: FileIO | None = None  # everything before `_memory_start`, if not yet sent

    @property
    def pending(self) -> int:
        """How much has to be sent."""
        return self.size - self.kept

    def add(self, body: bytes) -> None:
        """Take what was printed next."""
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
            self._tail = Tail(self._output_max - self._head_max, file, self._whole)
        try:
            self._tail.add(body[max(0, room) :])
        except OSError as error:
            self._fail(error)

    def finish(self) -> None:
        """Nothing more is printed: put the tail behind the head, and between them how much is missing."""
        tail, self._tail = self._tail, None
        if tail is None:
            return
        room, size, line = self._output_max - self._head_max, tail.size, b""
        if tail.size > min(room, tail.kept):
            self.truncated = True
            size = max(0, min(tail.kept, room - LINE_MAX))
            line = self._line(tail.size - size)
        if len(line) <= room:  # else the limit is too small for a tail
            self._append(line)
            for piece in tail.last(size):
                self._append(piece)
        tail.close()

    def _line(self, missing: int) -> bytes:
        start = "" if self._last == b"\n" else "\n"
        said = f"{missing} bytes are missing here; {self._output_max} are kept of what an attempt prints"
        return f"{start}taskyard: {said}\n".encode()

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
        """Give bytes that the server does not have, from `start` on, as many as one piece may bring."""
        size = min(size_max, PIECE_MAX, self.size - start)
        if start >= self._memory_start:
            place = start - self._memory_start
            return bytes(self._memory[place : place + size])
        assert self._file is not None, "what is not in memory is in the file"
        self._file.seek(start)
        return self._file.read(min(size, self._memory_start - start))

    def keep(self, size: int) -> None:
        """Forget what the server has; it may say less than was sent, and then goes on from there."""
        self.kept = max(self.kept, min(size, self.size))
        if self.kept >= self._memory_start and self._file is not None:
            self._drop_file()
        surplus = self.kept - self._memory_start
        if surplus >= len(self._memory) or surplus > MEMORY_MAX // 2:
            del self._memory[:surplus]
            self._memory_start += max(0, surplus)

    def cut(self) -> None:
        """Give up the rest: the server does not take it."""
        self.truncated = True
        self.keep(self.size)

    def close(self) -> None:
        """Forget all of it."""
        if self._tail is not None:
            self._tail.close()
        self._memory.clear()
        self._drop_file()

    def _move_to_file(self) -> None:
        if self._file is None:
            self._file = self._path.open("w+b", buffering=0)
        # Offsets in the file are those of the output; what was sent before it existed is a hole in it.
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


# Where processes print to, and how it is read: pipes of runs, files of workers.
#
# A worker prints to a file, since a pipe that the same process has to empty can block it for ever. The file has no
# name and ends with the last process that has it open. It holds what the call in hand has printed; the runner has it
# open, too, and so the last words of a worker that dies are kept.


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
