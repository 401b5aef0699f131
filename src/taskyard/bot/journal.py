"""Memory that a warm worker shares with the runner: what it has to say and has not sent yet, and which call is in hand.

A call can end the worker at any moment. What was answered before is then still here, and so it is known which call it
was: no call is blamed for another's end, and no answer is lost because it waited to be sent together with others.
"""

import mmap
import struct
from typing import Final

NOBODY: Final = -1
#: Enough for the answers of a millisecond; what is larger is sent at once.
_SIZE: Final = 1_048_576
#: The call in hand, how much of what it printed is told, and how much waits to be sent.
_HAND: Final = struct.Struct("=qq")
_WAITING: Final = struct.Struct("=q")
_BODY_AT: Final = _HAND.size + _WAITING.size


class Journal:
    """Both sides look at the same memory. The worker writes, and the runner reads once the worker is gone."""

    def __init__(self, file: int | None) -> None:
        """Map a file; or memory of one's own, for a worker without a runner."""
        self._memory = mmap.mmap(-1 if file is None else file, _SIZE)
        self._view = memoryview(self._memory)
        self._end = _BODY_AT + int(_WAITING.unpack_from(self._memory, _HAND.size)[0])

    @staticmethod
    def size() -> int:
        return _SIZE

    def take(self, run: int, told: int = 0) -> None:
        """Note the call in hand, and how much of what it printed was told."""
        _HAND.pack_into(self._memory, 0, run, told)

    def in_hand(self) -> tuple[int, int]:
        run, told = _HAND.unpack_from(self._memory, 0)
        return int(run), int(told)

    def add(self, frame: bytes) -> bool:
        """Keep a frame until it is sent; say whether there was room for it."""
        end = self._end + len(frame)
        if end > _SIZE:
            return False
        self._view[self._end : end] = frame
        # Only now does it count: a worker that dies in between leaves no half of a frame.
        self._move(end)
        return True

    def waiting(self) -> memoryview:
        """All that waits to be sent."""
        return self._view[_BODY_AT : self._end]

    def sent(self) -> None:
        """Nothing waits any more."""
        self._move(_BODY_AT)

    def close(self) -> None:
        self._view.release()
        self._memory.close()

    def _move(self, end: int) -> None:
        self._end = end
        _WAITING.pack_into(self._memory, _HAND.size, end - _BODY_AT)
