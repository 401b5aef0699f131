"""A socket to another process of this machine: frames after their length, both ways, without waiting.

What cannot be sent at once is kept in order and sent when there is room. Sockets that come along are kept in the order
in which they came, for whoever knows which frame speaks of them. It knows nothing of what frames mean.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from taskyard.bot.intake import READ_MAX, FrameTooLarge, Intake

#: How many sockets one message may bring.
SOCKETS_MAX: Final = 8


class Pipe:
    """One end of a socket; `hear` gets the body of each frame, `lost` is called once when nothing more can come."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: socket.socket,
        hear: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        end.setblocking(False)
        self.sockets: deque[socket.socket] = deque()
        self.is_garbled = False  # what came is no frame: whatever else comes cannot be read
        self._loop = loop
        self._end = end
        self._hear = hear
        self._lost = lost
        self._open = True
        self._intake = Intake()
        self._out = bytearray()
        loop.add_reader(end.fileno(), self._read)

    def send(self, frames: bytes) -> None:
        """Send frames that were packed; nothing once the other side is gone."""
        if not self._open:
            return
        if self._out:
            self._out += frames
            return
        sent = self._sent(frames)
        if sent < len(frames):
            self._out += memoryview(frames)[sent:]
            self._loop.add_writer(self._end.fileno(), self._write)

    def drain(self) -> None:
        """Hear what has come and was not yet read: the other side is known to be gone."""
        while self._open and self._read():
            pass

    def close(self) -> None:
        """Hang up; `lost` is not called for it."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._end.fileno())
            self._loop.remove_writer(self._end.fileno())
            self._end.close()
        while self.sockets:
            self.sockets.popleft().close()

    def _read(self) -> bool:
        """Read once; False when there was nothing."""
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self._end, READ_MAX, SOCKETS_MAX)
        except BlockingIOError:
            return False
        except OSError:
            chunk, descriptors = b"", []
        self.sockets.extend(socket.socket(fileno=one) for one in descriptors)
        if not chunk:
            self._end_of_it()
            return False
        try:
            for body in self._intake.bodies(chunk):
                self._hear(body)
        except (FrameTooLarge, msgspec.MsgspecError):
            self.is_garbled = True
            self._end_of_it()
            return False
        return True

    def _write(self) -> None:
        del self._out[: self._sent(self._out)]
        if not self._out and self._open:
            self._loop.remove_writer(self._end.fileno())

    def _sent(self, frames: bytes | bytearray) -> int:
        try:
            return self._end.send(frames)
        except BlockingIOError:
            return 0
        except OSError:
            # The reader hears of it, after everything that was sent to us before.
            return len(frames)

    def _end_of_it(self) -> None:
        if self._open:
            self.close()
            self._lost()
