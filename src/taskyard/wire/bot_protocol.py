"""What bots and servers tell each other, as JSON: who is there, what ended, goes on or is printed, and what is next.

One request carries all of it, in lists, so that a busy bot makes few. Times are spans in milliseconds, never moments: a
bot's clock may be wrong by years. What a task is given and what it publishes passes through as it was written (`Raw`).
Keys stand as hexadecimal digits. Nothing here decides anything.
"""

from typing import Final, Literal

import msgspec

#: How long a poll that wants work may wait for it.
WAIT_MAX_MS: Final = 20_000
#: How much output one request may bring, and one piece of it: written by a transaction in a few milliseconds.
OUTPUTS_MAX: Final = 1_048_576
PIECE_MAX: Final = 262_144
#: How much of what an attempt prints is kept, three quarters from its beginning and one from its end; the attempt says
#: so if something is missing between them.
OUTPUT_MAX: Final = 67_108_864
#: What a task hands to its next attempt, and what it says of its progress, in bytes.
CHECKPOINT_MAX: Final = 65_536
PROGRESS_MAX: Final = 4_096
#: What a bot says of one trouble of its own, in characters.
TROUBLE_MAX: Final = 1_000
#: Inputs that are larger together than this are asked for by themselves, on `/api/v1/tasks/{id}/inputs`.
INPUTS_MAX: Final = 262_144
#: Where JSON passes through as it was written, and there is none: such a field cannot be None as well.
NOTHING: Final = msgspec.Raw()


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is told."""


# What a bot says.


class Begun(Shape, frozen=True):
    """An attempt has begun."""

    task: str
    attempt: int
    fence: int


class Hello(Shape, frozen=True):
    """A bot begins a session, or says what has changed about it. Its pool comes from its token."""

    bot: str
    # `folder/life`: what an earlier life in the same folder ran is gone, and may be given again at once. One that names
    # no folder says that it is the only bot of its name.
    session: str
    dimensions: dict[str, list[str]] = {}
    slots: int = 1
    quarantined: str | None = None
    maintenance: str | None = None
    draining: bool = False
    version: str = ""
    # What earlier lives in the same folder had begun; the rest of what they were given comes back free. None: unknown.
    begun: list[Begun] | None = None


class Stats(Shape, frozen=True):
    """What an attempt took: milliseconds for each phase, seconds of processor, bytes."""

    prepared_ms: int | None = None
    ran_ms: int | None = None
    uploaded_ms: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class Report(Shape, frozen=True):
    """How an attempt ended."""

    task: str
    attempt: int
    fence: int
    # `deadline` says that the bot ended it at its deadline, and that nothing of it runs any more.
    signal: Literal["succeed", "fail", "lose", "return", "deadline"]
    reason: Literal["exit_code", "signaled", "timed_out", "silent", "bad_result", "unrenewed", "returned"] | None = None
    exit_code: int | None = None  # a signal as a negative number
    result: msgspec.Raw = NOTHING  # the JSON that it published
    stats: Stats | None = None
    truncated: bool = False  # it printed more than is kept


class Renewal(Shape, frozen=True):
    """An attempt goes on."""

    task: str
    attempt: int
    fence: int
    progress: str | None = None  # what the task says of it, if that is new
    checkpoint: bytes | None = None  # what its next attempt should get, if that is new


class Output(Shape, frozen=True):
    """A piece of what an attempt printed, and where in all of it it begins."""

    task: str
    attempt: int
    fence: int
    start: int
    body: bytes


class Poll(Shape, frozen=True):
    """All that a bot has to say at once, how many tasks it wants, and how long it can wait for the first."""

    bot: str
    session: str
    poll: str = ""  # repeated until it is answered, it gives the same leases
    want: int = 0
    wait_ms: int = 0
    reports: list[Report] = []
    renewals: list[Renewal] = []
    outputs: list[Output] = []
    begun: list[Begun] = []  # what has begun and goes on, where that is new


class Goodbye(Shape, frozen=True):
    """A bot ends its session and gives back what it has."""

    bot: str
    session: str


class Trouble(Shape, frozen=True):
    """Something went wrong with a bot itself, and people should know; of an attempt, if it is about one."""

    bot: str
    session: str
    text: str
    task: str | None = None
    attempt: int | None = None


# What the server answers.


class Welcome(Shape, frozen=True):
    """How bots and this server deal with each other."""

    bot: str
    pool: str
    lease_ms: int  # how long an attempt may run without a renewal, counted from when the bot *sent* its request
    guard_ms: int  # how long after that the server waits before it gives the task to another
    wait_max_ms: int


class Lease(Shape, frozen=True):
    """A task to run, and everything that is needed for it."""

    task: str
    attempt: int
    fence: int
    lease_ms: int  # what is left of the lease
    graph: str
    label: str
    payload: msgspec.Raw
    token: str  # the task's own: it ends with the attempt
    inputs: msgspec.Raw = NOTHING  # label -> result of each prerequisite that published one
    inputs_apart: bool = False  # they are too large to come along
    checkpoint: bytes | None = None  # what the attempt before left
    # What is left until nothing of it may run any more, counted from when this answer arrives: a lease counts from when
    # the request was sent, and that may have waited for work.
    deadline_ms: int | None = None
    disconnect: Literal["strict", "keep"] = "strict"
    submitter: str = ""  # whose task it is: Python functions of different submitters share no process


class Renewed(Shape, frozen=True):
    """A lease goes on; or has ended by the bot's own word, and then it has no span."""

    task: str
    attempt: int
    lease_ms: int | None = None
    stop: bool = False  # a person wants it ended


class Kept(Shape, frozen=True):
    """How much of an attempt's output the server has: the next piece begins there."""

    task: str
    attempt: int
    size: int


class Refused(Shape, frozen=True):
    """A word about an attempt that changed nothing, because the attempt is not the bot's any more."""

    task: str
    attempt: int
    code: str
    text: str


class Polled(Shape, frozen=True):
    """The answer to a poll. A report that is not refused is kept."""

    leases: list[Lease] = []
    renewed: list[Renewed] = []
    kept: list[Kept] = []
    refused: list[Refused] = []
    terminate: bool = False  # an admin wants this bot to end once it has nothing in hand, and to take nothing more
