"""What an agent and a warm worker tell each other: calls, what came of them, and what they printed.

They go over a socket as those of `frames` do. An agent may send many calls at once; they are carried out one after
another, and answered in that order. What waits behind a call that takes long is given back, and not begun. Calls that
are not answered when a worker is gone were not begun, except for the one that its `Gone` names.
"""

from typing import Final

import msgspec

from taskyard.bot.frames import FRAME_MAX, LENGTH

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
