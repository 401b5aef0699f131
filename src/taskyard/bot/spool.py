"""What an attempt printed and the server does not have yet: in memory while it is little, then in a file.

Bytes are known by where they stand in all that was printed. What the server has is forgotten here; what is beyond the
limit of an attempt is never kept, nor is anything more once the disk has failed, and the spool says so.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskyard.wire.bots import PIECE_MAX

if TYPE_CHECKING:
    from io import FileIO

#: A talkative attempt may take this much memory; the rest waits on disk.
MEMORY_MAX: Final = 1_048_576


class Spool:
    """The part of an output that has to be sent, from `kept` to `size`."""

    def __init__(self, file: Path, output_max: int) -> None:
        self.kept = 0  # so much the server has
        self.size = 0  # so much was printed, as far as it is kept at all
        self.truncated = False
        self.trouble = ""  # why nothing more is kept, if that is no fault of who printed it
        self._path = file
        self._output_max = output_max
        self._memory = bytearray()  # the bytes from `_memory_start` on
        self._memory_start = 0
        self._file: FileIO | None = None  # everything before `_memory_start`, if not yet sent

    @property
    def pending(self) -> int:
        """How much has to be sent."""
        return self.size - self.kept

    def add(self, body: bytes) -> None:
        """Take what was printed next."""
        room = self._output_max - self.size
        if len(body) > room:
            self.truncated, body = True, body[:room]
        self._memory += body
        self.size += len(body)
        if len(self._memory) > MEMORY_MAX and not self.trouble:
            try:
                self._move_to_file()
            except OSError as error:
                # What is in memory can still be sent.
                self.truncated, self._output_max = True, self.size
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
