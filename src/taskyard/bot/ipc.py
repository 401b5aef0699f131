"""What an agent and its runner tell each other, and how it goes over a socket: JSON after its length.

Moments are readings of the monotonic clock of the machine, which both share. A `run` is a number that the agent chose,
and never uses again.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

#: The largest frame: a script, its environment and its inputs fit many times over.
FRAME_MAX: Final = 16_777_216
LENGTH: Final = struct.Struct("!I")


class _Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    pass


# What the agent says.


class Start(_Frame, frozen=True):
    """Start a process in a session of its own."""

    run: int
    argv: list[str]
    env: dict[str, str]  # the whole of it
    cwd: str
    until: float  # when the process must be dead, unless it is held for longer
    deadline: float | None = None  # when it is ended, however long it is held; with the grace of a time-out
    timeout_s: float | None = None
    silence_s: float | None = None  # how long it may print nothing
    grace_s: float = 0.0  # how long it may take to end itself once it is told to
    keep: bool = False  # it may go on though the server cannot be reached
    abreast: int = 0  # it waits for its turn until fewer runs than this are there; 0: it begins at once


class Hold(_Frame, frozen=True):
    """Runs and workers may live on until these moments; None for a worker that has nothing in hand."""

    runs: dict[int, float] = {}
    workers: dict[int, float | None] = {}


class Stop(_Frame, frozen=True):
    """End a run, within its grace."""

    run: int


class Recall(_Frame, frozen=True):
    """Let these not begin if they still wait for their turn."""

    runs: list[int]


class Hire(_Frame, frozen=True):
    """Start a warm worker; the runner sends `Hired`, with one end of a socket to it beside the frame."""

    worker: int


class Dismiss(_Frame, frozen=True):
    """End a warm worker and everything that it started, at once."""

    worker: int


class Ping(_Frame, frozen=True):
    """Say that you are there."""


# What the runner says.


class Started(_Frame, frozen=True):
    """A process runs."""

    run: int
    pid: int


class Printed(_Frame, frozen=True):
    """A run printed something."""

    run: int
    body: bytes


class Ended(_Frame, frozen=True):
    """Nothing of a run is left. `exit_code` is negative for a signal; `why` is set where the runner ended it."""

    run: int
    exit_code: int | None  # None for one that never began
    why: str | None = None  # timed_out, silent, deadline, stopped, recalled, lease_over, not_started
    note: str = ""  # why it could not be started
    waited_s: float = 0.0  # for its turn
    ran_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Hired(_Frame, frozen=True):
    """A warm worker is there; its socket comes beside this frame."""

    worker: int
    pid: int


class Gone(_Frame, frozen=True):
    """A warm worker has ended, and nothing of it is left."""

    worker: int
    exit_code: int | None
    why: str | None = None  # dismissed, lease_over, not_started
    run: int | None = None  # the call that it had in hand, unless its answer came
    told: bytes = b""  # frames that it had ready, and did not come to send; some of them may have come already


class Pong(_Frame, frozen=True):
    """The runner is there."""


ToRunner = Start | Hold | Stop | Recall | Hire | Dismiss | Ping
ToAgent = Started | Printed | Ended | Hired | Gone | Pong


class Tell(Protocol):
    """A way to the runner; what is told together goes out together."""

    def __call__(self, *told: ToRunner) -> None:
        """Tell it."""


_TO_RUNNER: Final[msgspec.json.Decoder[ToRunner]] = msgspec.json.Decoder(ToRunner)
_TO_AGENT: Final[msgspec.json.Decoder[ToAgent]] = msgspec.json.Decoder(ToAgent)


def packed(frame: ToRunner | ToAgent) -> bytes:
    """Write a frame."""
    body = msgspec.json.encode(frame)
    assert len(body) <= FRAME_MAX, "a frame has a bound"
    return LENGTH.pack(len(body)) + body


def read_for_runner(body: bytes | memoryview) -> ToRunner:
    """Read what the agent said."""
    return _TO_RUNNER.decode(body)


def read_for_agent(body: bytes | memoryview) -> ToAgent:
    """Read what the runner said."""
    return _TO_AGENT.decode(body)


# Cuts what comes over a socket into frames. It reads no frame, and keeps no more than one that is not whole yet.


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


# A socket to another process of this machine: frames after their length, both ways, without waiting.
#
# What cannot be sent at once is kept in order and sent when there is room. Sockets that come along are kept in the
# order in which they came, for whoever knows which frame speaks of them. It knows nothing of what frames mean.


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


# The runner's end of the socket to its agent: what is said together goes out together, and nothing here ever waits.
#
# A frame may bring the end of another socket along. Once the agent is gone, what is said is dropped.


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
