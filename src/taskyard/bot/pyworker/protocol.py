"""The protocol between the agent and a warm worker: calls, their results, and their output.

Frames go over a socket, as in `taskyard.bot.ipc`. The agent may send many calls at once; they are made and answered in
that order. Calls behind one that takes long are given back, not begun. Calls without an answer when a worker is gone
were not begun, except for the one that its `WorkerEnded` names.
"""

import mmap
import os
import struct
from typing import Final

import msgspec

from taskyard.bot import output_spool
from taskyard.bot.ipc import READ_MAX, Frame, encode_frame
from taskyard.wire.attempt_limits import NOTHING, RESULT_MAX

NO_ARGUMENTS: Final = msgspec.Raw(b"[]")
NO_CALL: Final = -1
#: Enough for the answers of a millisecond; larger ones are sent at once.
_SIZE: Final = 1_048_576
#: The current call, how much of its output is in frames already, and the size of the unsent frames.
_CURRENT: Final = struct.Struct("=qq")
_UNSENT_SIZE: Final = struct.Struct("=q")
_BODY_AT: Final = _CURRENT.size + _UNSENT_SIZE.size
#: How much of the last output is kept: a frame holds it, though base64 makes it larger.
_LAST_OUTPUT_MAX: Final = 4_194_304


class Call(Frame, frozen=True):
    """Call a function."""

    run: int
    function: str  # module:function
    args: msgspec.Raw = NO_ARGUMENTS  # a list, or an object for keyword arguments
    env: dict[str, str] = {}  # added to the worker's own environment
    cwd: str = ""  # the folder to call it in; the worker's own if empty
    inputs: msgspec.Raw = NOTHING  # label -> result of each prerequisite; if empty, they are in the inputs file
    checkpoint: bytes | None = None  # what the previous attempt left
    result_max: int = RESULT_MAX  # bytes


class CallUsage(msgspec.Struct, frozen=True, array_like=True):
    """What a call used."""

    ran_s: float
    cpu_s: float  # of the worker, and of the child processes that the call waited for
    memory_bytes: int  # the peak of the worker, which may be from an earlier call


class CallReturned(Frame, frozen=True):
    """A call returned; no result stands for None."""

    run: int
    usage: CallUsage
    result: msgspec.Raw = NOTHING


class CallRaised(Frame, frozen=True):
    """A call raised an exception, could not be made, or returned something that is not a result."""

    run: int
    usage: CallUsage
    traceback_text: str  # the part below the caller's code
    exit_code: int = 1  # another one if it called sys.exit
    bad_result: bool = False  # it returned something that is not a result


class CallOutput(Frame, frozen=True):
    """Output of a call; `start` is its position in all of the call's output. A piece may come twice."""

    run: int
    start: int
    body: bytes


class CallsGivenBack(Frame, frozen=True):
    """Calls that the worker has not begun and will not make: the one before them takes long."""

    runs: list[int]


class WorkerLeaving(Frame, frozen=True):
    """The worker ends, because the last call left something that could affect the next one."""

    reason: str


FromWorker = CallReturned | CallRaised | CallOutput | CallsGivenBack | WorkerLeaving

_CALLS: Final = msgspec.json.Decoder(Call)
_TOLD: Final[msgspec.json.Decoder[FromWorker]] = msgspec.json.Decoder(FromWorker)


def decode_call(body: bytes | memoryview) -> Call:
    """Decode a frame from the agent."""
    return _CALLS.decode(body)


def decode_from_worker(body: bytes | memoryview) -> FromWorker:
    """Decode a frame from the worker."""
    return _TOLD.decode(body)


# The outbox.


class Outbox:
    """Memory that a warm worker shares with the runner: frames that are not sent yet, and the current call.

    A call can kill its worker at any moment. What was answered before is still here, and so is the call that was being
    made: no call is blamed for the end of another, and no answer is lost because it waited to be sent with others. The
    worker writes; the runner reads once the worker is gone.
    """

    def __init__(self, file: int | None) -> None:
        """Map a file; or private memory, for a worker without a runner."""
        self._memory = mmap.mmap(-1 if file is None else file, _SIZE)
        self._view = memoryview(self._memory)
        self._end = _BODY_AT + int(_UNSENT_SIZE.unpack_from(self._memory, _CURRENT.size)[0])

    @staticmethod
    def size() -> int:
        return _SIZE

    def set_current(self, run: int, sent: int = 0) -> None:
        """Set the current call, and how much of its output is in frames."""
        _CURRENT.pack_into(self._memory, 0, run, sent)

    def current(self) -> tuple[int, int]:
        run, sent = _CURRENT.unpack_from(self._memory, 0)
        return int(run), int(sent)

    def add(self, frame: bytes) -> bool:
        """Keep a frame until it is sent; False if there is no room."""
        end = self._end + len(frame)
        if end > _SIZE:
            return False
        self._view[self._end : end] = frame
        # Only now does the frame count: a worker that dies in between leaves no half of one.
        self._set_end(end)
        return True

    def unsent(self) -> memoryview:
        """Return the frames that are not sent."""
        return self._view[_BODY_AT : self._end]

    def clear(self) -> None:
        """Empty the outbox: everything was sent."""
        self._set_end(_BODY_AT)

    def close(self) -> None:
        self._view.release()
        self._memory.close()

    def _set_end(self, end: int) -> None:
        self._end = end
        _UNSENT_SIZE.pack_into(self._memory, _CURRENT.size, end - _BODY_AT)


# What a worker leaves.


class WorkerFiles:
    """The output and the outbox of a worker: two files without names, which the runner has open, too."""

    def __init__(self) -> None:
        self.output = output_spool.create_output_file()
        self.outbox = output_spool.create_output_file()
        os.ftruncate(self.outbox, Outbox.size())
        outbox = Outbox(self.outbox)
        outbox.set_current(NO_CALL)
        outbox.close()

    def read(self) -> tuple[int | None, bytes]:
        """Return the call that was being made, and the frames that were not sent, with the last output of that call."""
        outbox = Outbox(self.outbox)
        run, sent = outbox.current()
        frames = bytes(outbox.unsent())
        outbox.close()
        return (None, frames) if run == NO_CALL else (run, frames + self._last_output(run, sent))

    def close(self) -> None:
        os.close(self.output)
        os.close(self.outbox)

    def _last_output(self, run: int, sent: int) -> bytes:
        rest = os.pread(self.output, _LAST_OUTPUT_MAX, sent)
        pieces = range(0, len(rest), READ_MAX)
        return b"".join(encode_frame(CallOutput(run, sent + start, rest[start : start + READ_MAX])) for start in pieces)
