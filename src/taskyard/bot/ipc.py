"""The protocol between the agent and its runner: JSON frames after their length, over a socket pair.

Times are readings of the machine's monotonic clock, which both processes share. A `run` is a number that the agent
chose and never uses again.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

#: The largest frame: a script, its environment and its inputs fit several times over.
FRAME_MAX: Final = 16_777_216
LENGTH: Final = struct.Struct("!I")
#: How much is read at once. From twice this on, each buffer is mapped by the system and given back, which costs five
#: times the read itself.
READ_MAX: Final = 65_536
#: How many sockets one message may bring.
SOCKETS_MAX: Final = 8
#: How many frames one system call sends; with the size of a frame this bounds the memory for joining them.
JOINED_FRAMES_MAX: Final = 64


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A message; the name of its class is its tag."""


# Frames from the agent.


class StartRun(Frame, frozen=True):
    """Start a process in a session of its own."""

    run: int
    argv: list[str]
    env: dict[str, str]  # the whole environment
    cwd: str
    until: float  # when the process must be dead, unless `SetExpiry` moves that
    deadline: float | None = None  # when it is ended even if `SetExpiry` allows more, with the grace of a time-out
    timeout_s: float | None = None
    silence_s: float | None = None  # how long it may print nothing
    grace_s: float = 0.0  # how long it may take to end after SIGTERM
    survives_disconnect: bool = False  # it may go on while the server cannot be reached
    parallel_max: int = 0  # queue it until fewer runs than this are there; 0: start at once
    memory_mb: int = 0  # how much memory it may use; 0: as much as there is


class SetExpiry(Frame, frozen=True):
    """Set when the leases of runs and workers end; None for a worker that has no call in hand."""

    runs: dict[int, float] = {}
    workers: dict[int, float | None] = {}


class StopRun(Frame, frozen=True):
    """End a run, within its grace."""

    run: int


class RecallRuns(Frame, frozen=True):
    """Remove these runs from the start queue, if they have not begun."""

    runs: list[int]


class StartWorker(Frame, frozen=True):
    """Start a warm worker; the answer is `WorkerStarted`, with one end of a socket to the worker."""

    worker: int
    memory_mb: int = 0  # how much memory it may use; 0: as much as there is


class KillWorker(Frame, frozen=True):
    """Kill a warm worker and everything that it started."""

    worker: int


class Ping(Frame, frozen=True):
    """Ask the runner for a `Pong`."""


# Frames from the runner.


class RunStarted(Frame, frozen=True):
    """The process of a run has started."""

    run: int
    pid: int


class RunOutput(Frame, frozen=True):
    """Output of a run."""

    run: int
    body: bytes


class RunEnded(Frame, frozen=True):
    """A run has ended and nothing of it is left. `exit_code` is negative for a signal."""

    run: int
    exit_code: int | None  # None for a run that never began
    # Set if the runner ended it: timed_out, silent, deadline, stopped, recalled, lease_over, not_started.
    reason: str | None = None
    note: str = ""  # why it could not be started
    waited_s: float = 0.0  # in the start queue
    ran_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class WorkerStarted(Frame, frozen=True):
    """A warm worker has started; its socket comes beside this frame."""

    worker: int
    pid: int


class WorkerEnded(Frame, frozen=True):
    """A warm worker has ended and nothing of it is left."""

    worker: int
    exit_code: int | None
    reason: str | None = None  # killed, lease_over, not_started
    run: int | None = None  # the call it was making, unless the answer was already sent
    unsent: bytes = b""  # frames it had not sent yet; some of them may have arrived already


class Pong(Frame, frozen=True):
    """The runner is alive."""


class WatchdogDied(Frame, frozen=True):
    """The watchdog died; the runner starts another one."""

    pid: int


ToRunner = StartRun | SetExpiry | StopRun | RecallRuns | StartWorker | KillWorker | Ping
ToAgent = RunStarted | RunOutput | RunEnded | WorkerStarted | WorkerEnded | Pong | WatchdogDied


class SendToRunner(Protocol):
    """Sends frames to the runner; frames given together go out together."""

    def __call__(self, *frames: ToRunner) -> None:
        """Send frames."""


_TO_RUNNER: Final[msgspec.json.Decoder[ToRunner]] = msgspec.json.Decoder(ToRunner)
_TO_AGENT: Final[msgspec.json.Decoder[ToAgent]] = msgspec.json.Decoder(ToAgent)


def encode_frame(frame: msgspec.Struct) -> bytes:
    """Encode a frame, with its length before it."""
    body = msgspec.json.encode(frame)
    assert len(body) <= FRAME_MAX, "frames have a maximum size"
    return LENGTH.pack(len(body)) + body


def decode_for_runner(body: bytes | memoryview) -> ToRunner:
    """Decode a frame from the agent."""
    return _TO_RUNNER.decode(body)


def decode_for_agent(body: bytes | memoryview) -> ToAgent:
    """Decode a frame from the runner."""
    return _TO_AGENT.decode(body)


# Cutting a stream into frames.


class FrameTooLarge(ValueError):
    """A frame is longer than any may be."""


class FrameBuffer:
    """Splits a byte stream into frames; it keeps at most one incomplete frame."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = LENGTH.size

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return the bodies of the frames that are complete now."""
        self._parts.append(chunk)
        self._size += len(chunk)
        # Chunks are joined only when a frame is complete, so that a large frame is not copied once per chunk.
        if self._size < self._wanted:
            return []
        return self._cut(b"".join(self._parts) if len(self._parts) > 1 else chunk)

    def _cut(self, whole: bytes) -> list[bytes]:
        found, start, end = [], 0, _frame_end(whole, 0)
        while end <= len(whole):
            found.append(whole[start + LENGTH.size : end])
            start, end = end, _frame_end(whole, end)
        self._parts = [whole[start:]] if start < len(whole) else []
        self._size, self._wanted = len(whole) - start, end - start
        return found


def _frame_end(whole: bytes, start: int) -> int:
    """Where the frame that begins at `start` ends; where its length ends, while that is incomplete."""
    if len(whole) - start < LENGTH.size:
        return start + LENGTH.size
    (size,) = LENGTH.unpack_from(whole, start)
    if size > FRAME_MAX:
        raise FrameTooLarge(f"a frame of {size} bytes is larger than any frame may be")
    return start + LENGTH.size + int(size)


# The agent's side: a socket of the event loop, to the runner or a warm worker.


class AsyncChannel:
    """One end of a non-blocking socket: `on_frame` gets each frame body, `on_closed` is called once at the end.

    What cannot be sent at once is kept in order. With `takes_sockets`, sockets that arrive are kept in `sockets`, in
    order, for the reader of the frame that they belong to; otherwise none are accepted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: socket.socket,
        on_frame: Callable[[bytes], None],
        on_closed: Callable[[], None],
        *,
        takes_sockets: bool = False,
    ) -> None:
        end.setblocking(False)
        self.sockets: deque[socket.socket] = deque()
        self.is_corrupt = False  # what came is not a frame, so nothing after it can be read
        self._loop = loop
        self._end = end
        self._takes_sockets = takes_sockets
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._is_open = True
        self._buffer = FrameBuffer()
        self._out = bytearray()
        loop.add_reader(end.fileno(), self._read)

    def send(self, frames: bytes) -> None:
        """Send encoded frames; they are dropped once the other side is gone."""
        if not self._is_open:
            return
        if self._out:
            self._out += frames
            return
        sent = self._try_send(frames)
        if sent < len(frames):
            self._out += memoryview(frames)[sent:]
            self._loop.add_writer(self._end.fileno(), self._write)

    def drain(self) -> None:
        """Read what has arrived, after the other side is known to be gone."""
        while self._is_open and self._read():
            pass

    def close(self) -> None:
        """Close the socket, without calling `on_closed`."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._end.fileno())
            self._loop.remove_writer(self._end.fileno())
            self._end.close()
        while self.sockets:
            self.sockets.popleft().close()

    def _read(self) -> bool:
        """Read once; False if there was nothing."""
        try:
            chunk = self._receive() if self._takes_sockets else self._end.recv(READ_MAX)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._on_end()
            return False
        try:
            for body in self._buffer.feed(chunk):
                self._on_frame(body)
        except (FrameTooLarge, msgspec.MsgspecError):
            self.is_corrupt = True
            self._on_end()
            return False
        return True

    def _receive(self) -> bytes:
        chunk, descriptors, _, _ = socket.recv_fds(self._end, READ_MAX, SOCKETS_MAX)
        self.sockets.extend(socket.socket(fileno=one) for one in descriptors)
        return chunk

    def _write(self) -> None:
        del self._out[: self._try_send(self._out)]
        if not self._out and self._is_open:
            self._loop.remove_writer(self._end.fileno())

    def _try_send(self, frames: bytes | bytearray) -> int:
        try:
            return self._end.send(frames)
        except BlockingIOError:
            return 0
        except OSError:
            # `_read` notices the end, after everything that was sent to us before it.
            return len(frames)

    def _on_end(self) -> None:
        if self._is_open:
            self.close()
            self._on_closed()


# The runner's side of the socket to its agent. It never blocks, and sends queued frames together. A frame can carry the
# end of another socket. Frames for an agent that is gone are dropped.


class AgentChannel:
    """The runner's connection to its agent."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.is_open = True
        self.backlog = 0  # bytes that the agent has not taken yet
        self.urgent = False  # a queued frame should go out now
        self.blocked = False  # the agent took less than it was sent
        self._end = end
        self._buffer = FrameBuffer()
        self._outgoing: deque[tuple[bytes, socket.socket | None]] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    def receive(self) -> list[bytes]:
        """Return the frame bodies that arrived. End of file closes the channel."""
        try:
            chunk = self._end.recv(READ_MAX)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return []
        return self._buffer.feed(chunk)

    def send(self, frame: ToAgent, passed: socket.socket | None = None, *, urgent: bool = True) -> None:
        """Queue a frame for the next `flush`; a passed socket belongs to the agent from then on."""
        if not self.is_open:
            _close_socket(passed)
            return
        body = encode_frame(frame)
        self._outgoing.append((body, passed))
        self.backlog += len(body)
        self.urgent = self.urgent or urgent

    def flush(self) -> None:
        """Send as much as the agent takes now."""
        self.urgent = self.blocked = False
        try:
            while self._outgoing:
                self._send()
        except BlockingIOError:
            self.blocked = True
        except OSError:
            self.close()

    def close(self) -> None:
        """Stop sending: the agent is gone."""
        self.is_open = False
        for _, passed in self._outgoing:
            _close_socket(passed)
        self._outgoing.clear()
        self.backlog, self.blocked = 0, False

    def _send(self) -> None:
        body, passed = self._next_batch()
        try:
            # The socket travels with the first byte of its frame, so that it is clear which frame it belongs to.
            sent = socket.send_fds(self._end, [body], [passed.fileno()]) if passed else self._end.send(body)
        except BlockingIOError:
            self._outgoing.appendleft((body, passed))
            raise
        self.backlog -= sent
        _close_socket(passed)
        if sent < len(body):
            self._outgoing.appendleft((body[sent:], None))

    def _next_batch(self) -> tuple[bytes, socket.socket | None]:
        """Take what one system call sends: a frame with a socket alone, other frames together."""
        body, passed = self._outgoing.popleft()
        if passed is not None:
            return body, passed
        bodies = [body]
        while self._outgoing and self._outgoing[0][1] is None and len(bodies) < JOINED_FRAMES_MAX:
            bodies.append(self._outgoing.popleft()[0])
        return b"".join(bodies), None


def _close_socket(passed: socket.socket | None) -> None:
    if passed is not None:
        passed.close()
