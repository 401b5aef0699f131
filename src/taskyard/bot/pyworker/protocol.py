"""What an agent and a warm worker tell each other: calls, what came of them, and what they printed.

They go over a socket as those of `frames` do. An agent may send many calls at once; they are carried out one after
another, and answered in that order. What waits behind a call that takes long is given back, and not begun. Calls that
are not answered when a worker is gone were not begun, except for the one that its `Gone` names.
"""

import mmap
import os
import struct
from typing import Final

import msgspec

from taskyard.bot import output_spool
from taskyard.bot.ipc import FRAME_MAX, LENGTH, READ_MAX

NO_ARGUMENTS: Final = msgspec.Raw(b"[]")
#: What is not there. It is empty, where None would be in the way: a union of JSON that is not read and None reads only
#: the None.
NOTHING: Final = msgspec.Raw()


class _Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    pass


class Call(_Frame, frozen=True):
    """Call a function."""

    run: int
    function: str  # module:function
    args: msgspec.Raw = NO_ARGUMENTS  # a list, or an object for arguments with names
    env: dict[str, str] = {}  # what is set beside the worker's own environment
    cwd: str = ""  # its folder; the worker's own if empty
    inputs: msgspec.Raw = NOTHING  # label -> result of each prerequisite; if empty, the file of inputs has them
    checkpoint: bytes | None = None  # what the attempt before left
    result_max: int = 262_144  # bytes


class Took(msgspec.Struct, frozen=True, array_like=True):
    """What a call took."""

    ran_s: float
    cpu_s: float  # of the worker and of the processes that the call waited for
    memory_bytes: int  # the most that the worker ever had, which may have been an earlier call's


class Returned(_Frame, frozen=True):
    """A call returned; None is nothing."""

    run: int
    took: Took
    result: msgspec.Raw = NOTHING


class Raised(_Frame, frozen=True):
    """A call raised something, could not be made, or returned what is no result."""

    run: int
    took: Took
    traceback_text: str  # the caller's part of it
    exit_code: int = 1  # another if it exited with another
    bad_result: bool = False  # it returned, and what it returned is no result


class Said(_Frame, frozen=True):
    """A call printed something; `start` is where in all that it printed. A piece may come twice."""

    run: int
    start: int
    body: bytes


class Back(_Frame, frozen=True):
    """Calls that the worker has not begun, and will not: the one before them takes long."""

    runs: list[int]


class Leaving(_Frame, frozen=True):
    """The worker ends: what the last call left could touch the next one."""

    reason: str


Told = Returned | Raised | Said | Back | Leaving

_CALLS: Final = msgspec.json.Decoder(Call)
_TOLD: Final[msgspec.json.Decoder[Told]] = msgspec.json.Decoder(Told)


def packed(frame: Call | Told) -> bytes:
    """Write a frame."""
    body = msgspec.json.encode(frame)
    assert len(body) <= FRAME_MAX, "a frame has a bound"
    return LENGTH.pack(len(body)) + body


def read_call(body: bytes | memoryview) -> Call:
    """Read what the agent said."""
    return _CALLS.decode(body)


def read_told(body: bytes | memoryview) -> Told:
    """Read what the worker said."""
    return _TOLD.decode(body)


# Memory that a warm worker shares with the runner: what it has to say and has not sent yet, and which call is in hand.
#
# A call can end the worker at any moment. What was answered before is then still here, and so it is known which call
# it was: no call is blamed for another's end, and no answer is lost because it waited to be sent together with others.


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


# What a warm worker leaves, whatever ended it: its output and its journal, which the runner has open, too.


#: How much of what was printed at last is told: a frame holds it, though it is written as text twice.
_LAST_MAX: Final = 4_194_304


class Papers:
    """Two files without names."""

    def __init__(self) -> None:
        self.output = output_spool.fresh()
        self.journal = output_spool.fresh()
        os.ftruncate(self.journal, Journal.size())
        journal = Journal(self.journal)
        journal.take(NOBODY)
        journal.close()

    def read(self) -> tuple[int | None, bytes]:
        """Give the call that was in hand, and the frames that were not sent, with the last of what it printed."""
        journal = Journal(self.journal)
        run, told = journal.in_hand()
        frames = bytes(journal.waiting())
        journal.close()
        return (None, frames) if run == NOBODY else (run, frames + self._last(run, told))

    def close(self) -> None:
        os.close(self.output)
        os.close(self.journal)

    def _last(self, run: int, told: int) -> bytes:
        rest = os.pread(self.output, _LAST_MAX, told)
        pieces = range(0, len(rest), READ_MAX)
        return b"".join(packed(Said(run, told + start, rest[start : start + READ_MAX])) for start in pieces)
