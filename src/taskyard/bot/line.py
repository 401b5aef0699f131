"""The runner's end of the socket to its agent: what is said together goes out together, and nothing here ever waits.

A frame may bring the end of another socket along. Once the agent is gone, what is said is dropped.
"""

import socket
from collections import deque
from typing import Final

from taskyard.bot.frames import ToAgent, packed
from taskyard.bot.intake import READ_MAX, Intake

#: How many frames go out by one call; together with the size of a frame it bounds what is joined for it.
_JOIN_MAX: Final = 64


class Line:
    """Frames in, frames out."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.open = True
        self.backlog = 0  # bytes that the agent has not taken yet
        self.urgent = False  # some of them should go out now
        self.blocked = False  # the agent took less than it was sent
        self._end = end
        self._intake = Intake()
        self._said: deque[tuple[bytes, socket.socket | None]] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    def heard(self) -> list[bytes]:
        """Give the bodies of the frames that came; none at all closes the line."""
        try:
            chunk = self._end.recv(READ_MAX)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return []
        return self._intake.bodies(chunk)

    def say(self, frame: ToAgent, gift: socket.socket | None = None, *, urgent: bool = True) -> None:
        """Say it with the next `flush`; a gift is the agent's from then on."""
        if not self.open:
            _close(gift)
            return
        body = packed(frame)
        self._said.append((body, gift))
        self.backlog += len(body)
        self.urgent = self.urgent or urgent

    def flush(self) -> None:
        """Send as much as the agent takes now."""
        self.urgent = self.blocked = False
        try:
            while self._said:
                self._send()
        except BlockingIOError:
            self.blocked = True
        except OSError:
            self.close()

    def close(self) -> None:
        """Stop talking: the agent is gone."""
        self.open = False
        for _, gift in self._said:
            _close(gift)
        self._said.clear()
        self.backlog, self.blocked = 0, False

    def _send(self) -> None:
        body, gift = self._next()
        try:
            # A gift travels with the first byte of its frame, so that nobody can mistake whose it is.
            sent = socket.send_fds(self._end, [body], [gift.fileno()]) if gift else self._end.send(body)
        except BlockingIOError:
            self._said.appendleft((body, gift))
            raise
        self.backlog -= sent
        _close(gift)
        if sent < len(body):
            self._said.appendleft((body[sent:], None))

    def _next(self) -> tuple[bytes, socket.socket | None]:
        """Take what goes out by one call: a frame with a gift alone, others together."""
        body, gift = self._said.popleft()
        if gift is not None:
            return body, gift
        bodies = [body]
        while self._said and self._said[0][1] is None and len(bodies) < _JOIN_MAX:
            bodies.append(self._said.popleft()[0])
        return b"".join(bodies), None


def _close(gift: socket.socket | None) -> None:
    if gift is not None:
        gift.close()
