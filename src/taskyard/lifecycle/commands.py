"""What bots, people and the engine ask for, as data. A command may be repeated; whoever carries it out sees to that."""

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum, unique
from typing import Final, TypeAlias

from taskyard.core.graph.errors import Fault
from taskyard.core.matching import Dimensions
from taskyard.core.states import Millis, Reason, Signal, State
from taskyard.core.structs import value

#: What an audit row is about that is about no task and no graph.
NO_SUBJECT: Final = 0
#: How the engine asks for what nobody else asks for: it names those of the tasks found that are to be dealt with.
ChooseTasks: TypeAlias = Callable[[Iterable[int]], Collection[int]]


@value
class Stats:
    """What an attempt took: milliseconds for each phase, seconds of processor, bytes."""

    prepared_ms: int | None = None
    ran_ms: int | None = None
    uploaded_ms: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    truncated: bool = False  # it printed more than is kept


@value
class Report:
    """A bot's word on how an attempt ended."""

    task: int
    attempt: int
    fence: int
    signal: Signal
    reason: Reason | None = None  # where the signal does not say it all: timed out, signaled, silent
    exit_code: int | None = None
    result: str | None = None  # what the attempt published, as JSON
    stats: Stats | None = None


@value
class Renewal:
    """A bot's word that it is still at an attempt, and what the attempt says of itself, where that is new."""

    task: int
    attempt: int
    fence: int
    progress: str | None = None
    checkpoint: bytes | None = None


@value
class Begun:
    """A bot's word that an attempt which it has in hand has begun."""

    task: int
    attempt: int
    fence: int


@value
class Output:
    """A piece of what an attempt printed, and where in all of it it begins."""

    task: int
    attempt: int
    fence: int
    start: int
    body: bytes


@value
class Poll:
    """All that a bot has to say at once: results, renewals, and how much more it wants."""

    bot: str
    session: str
    poll: str = ""  # repeated, it gives the same leases
    reports: tuple[Report, ...] = ()
    renewals: tuple[Renewal, ...] = ()
    want: int = 0
    outputs: tuple[Output, ...] = ()
    waits: bool = False  # if there is nothing for it, it is answered once there is
    briefed: bool = False  # leases come with what is to be run
    pool: str | None = None  # the pool that the sender speaks for; None: any
    # What has begun and goes on, where that is new. None: this bot begins at once whatever it is given.
    begun: tuple[Begun, ...] | None = None


@value
class Hello:
    """A bot begins a session, or says what has changed about it."""

    bot: str
    session: str
    dimensions: Dimensions
    slots: int = 1
    quarantined: str | None = None
    maintenance: str | None = None
    draining: bool = False
    begun: tuple[Begun, ...] | None = None  # by the bot's lives before, in this folder; None: it does not know


@value
class Goodbye:
    """A bot ends its session and gives back what it has."""

    bot: str
    session: str
    pool: str | None = None  # the pool that the sender speaks for; None: any


@value
class Publish:
    """A running task says something of itself; what is None stays as it was."""

    task: int
    attempt: int
    fence: int
    result: str | None = None  # JSON
    progress: str | None = None
    checkpoint: bytes | None = None


@value
class Cancel:
    """A person wants work ended: one task, some tasks with everything behind them, or a whole graph."""

    task: int | None = None
    graph: int | None = None  # the whole graph, if no task is named
    subtree: bool = False
    actor: str = ""
    key: str = ""  # repeated with the same key, it gives the first answer
    tasks: tuple[int, ...] = ()  # of the graph: only these, with everything behind them


@value
class Approve:
    """A person decides about an approval that waits for one."""

    task: int
    approved: bool
    comment: str = ""
    actor: str = ""
    key: str = ""


@value
class Rerun:
    """A person wants failed work tried again: one task, or everything of a graph that failed."""

    task: int | None = None
    graph: int | None = None  # all that failed in it, if no task is named
    actor: str = ""
    key: str = ""


# What a room answers: what was done, or why not. A refusal changes nothing, and its neighbours do not feel it.


@unique
class Code(StrEnum):
    """Why something is refused."""

    NOT_FOUND = "not_found"  # there is no such thing
    INVALID = "invalid"  # the request itself is wrong; every fault is listed
    CONFLICT = "conflict"  # what exists says otherwise: another body, or a state that allows it no more
    LOADING = "loading"  # it is not whole yet: somebody is at it, or died at it
    LEASE_LOST = "lease_lost"  # the attempt is no longer the bot's
    FORBIDDEN = "forbidden"  # a bot's name belongs to another pool
    SESSION_REPLACED = "session_replaced"  # the bot has begun another session


@value
class Refusal:
    """Why something was not done, for a program and for a person."""

    code: Code
    text: str
    faults: tuple[Fault, ...] = ()


@value
class Done:
    """Something was done to a task, or had been done before."""

    task: int
    state: State
    echo: bool = False


@value
class BulkOutcome:
    """A wish about many tasks: of a graph, or of a task with everything behind it."""

    subject: int  # the graph, or the task
    moved: int  # how many tasks it has moved
    promised: bool = False  # the others follow, page by page
    echo: bool = False  # there was nothing left to do
    total: int = 0  # how many tasks it reaches in all, moved or promised; not counted for a whole graph that ends
    unblocked: int = 0  # how many tasks were blocked by those that are rerun
    tasks: tuple[int, ...] = ()  # those that are rerun, as many as one answer names


@value
class NeedsSearch:
    """A wish reaches further than one transaction looks: nothing was done. Find out how far, and ask again."""


@value
class AttemptDefinition:
    """What a bot has to know in order to run a task. Texts are JSON."""

    graph: int
    label: str
    payload: bytes
    disconnect: str
    deadline_ms: Millis | None = None
    inputs: str | None = None  # label -> result of each prerequisite that published one
    checkpoint: bytes | None = None
    submitter: str = ""  # calls of different submitters share no process


@value
class Lease:
    """A bot's right to run one attempt until a moment."""

    task: int
    attempt: int
    fence: int
    until_ms: Millis
    slice_index: int = 0
    brief: AttemptDefinition | None = None


@value
class OutputStored:
    """How much of what an attempt printed is kept: the next piece begins there."""

    task: int
    attempt: int
    size: int


@value
class Renewed:
    """A lease goes on, or its attempt has ended as the bot itself said."""

    task: int
    attempt: int
    until_ms: Millis | None  # None: the attempt has ended
    stop: bool = False  # a person wants it ended
