"""Cuts what comes over a socket into frames. It reads no frame, and keeps no more than one that is not whole yet."""

from typing import Final

from taskyard.bot.frames import FRAME_MAX, LENGTH

#: How much is read at once. From twice this on, each buffer is mapped from the system and given back: five times the
#: cost of the read itself.
READ_MAX: Final = 65_536


class FrameTooLarge(ValueError):
    """What came is longer than any frame."""


class Intake:
    """What came and was not whole yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = LENGTH.size

    def bodies(self, chunk: bytes) -> list[bytes]:
        """Add what came; give the bodies of the frames that are whole now."""
        self._parts.append(chunk)
        self._size += len(chunk)
        # Pieces are joined only once a frame is whole, so that a large one is not copied once for each of its pieces.
        if self._size < self._wanted:
            return []
        return self._cut(b"".join(self._parts) if len(self._parts) > 1 else chunk)

    def _cut(self, whole: bytes) -> list[bytes]:
        found, start, end = [], 0, _end(whole, 0)
        while end <= len(whole):
            found.append(whole[start + LENGTH.size : end])
            start, end = end, _end(whole, end)
        self._parts = [whole[start:]] if start < len(whole) else []
        self._size, self._wanted = len(whole) - start, end - start
        return found


def _end(whole: bytes, start: int) -> int:
    """Where the frame that begins at `start` ends; or its length does, as long as that is not there."""
    if len(whole) - start < LENGTH.size:
        return start + LENGTH.size
    (size,) = LENGTH.unpack_from(whole, start)
    if size > FRAME_MAX:
        raise FrameTooLarge(f"a frame of {size} bytes is larger than any frame may be")
    return start + LENGTH.size + int(size)
