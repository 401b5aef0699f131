"""What a room answers: what was done, or why not. A refusal changes nothing, and its neighbours do not feel it."""

from enum import StrEnum, unique

from taskyard.core.graph.faults import Fault
from taskyard.core.values import value
from taskyard.core.words import Millis, State


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
class Asked:
    """A wish about many tasks: of a graph, or of a task with everything behind it."""

    subject: int  # the graph, or the task
    moved: int  # how many tasks it has moved
    promised: bool = False  # the others follow, page by page
    echo: bool = False  # there was nothing left to do
    total: int = 0  # how many tasks it reaches in all, moved or promised; not counted for a whole graph that ends
    unblocked: int = 0  # how many tasks were blocked by those that are rerun
    tasks: tuple[int, ...] = ()  # those that are rerun, as many as one answer names


@value
class Far:
    """A wish reaches further than one transaction looks: nothing was done. Find out how far, and ask again."""


@value
class Brief:
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
    brief: Brief | None = None


@value
class Kept:
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
