"""What an agent and its runner tell each other, and how it goes over a socket: JSON after its length.

Moments are readings of the monotonic clock of the machine, which both share. A `run` is a number that the agent chose,
and never uses again.
"""

import struct
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
