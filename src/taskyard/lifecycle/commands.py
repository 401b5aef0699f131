"""What bots, people and the engine ask for, as data. A command may be repeated; whoever carries it out sees to that."""

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta

from taskyard.core.graph.errors import Fault
from taskyard.core.matching import Dimensions
from taskyard.core.states import Millis, State
from taskyard.core.structs import value
from taskyard.wire import bot_protocol
from taskyard.wire.bot_protocol import (
    POLL_ITEMS_MAX,
    RESULT_MAX,
    AttemptNumber,
    Checkpoint,
    Count,
    Name,
    NameOrEmpty,
    Progress,
    Slots,
    TaskKey,
    Why,
)

#: What an audit row is about that is about no task and no graph.
NO_SUBJECT: Final = 0
#: The comment of a person on a decision, in characters.
COMMENT_MAX: Final = 4_096
#: The tasks that one cancel may name: one transaction looks at so many in a few milliseconds.
CANCEL_TASKS_MAX: Final = 1_000
#: How the engine asks for what nobody else asks for: it names those of the tasks found that are to be dealt with.
ChooseTasks: TypeAlias = Callable[[Iterable[int]], Collection[int]]


# Messages of bots as the engine takes them: tasks are keys.

if TYPE_CHECKING:
    Begun: TypeAlias = bot_protocol.Begun[TaskKey]
    Output: TypeAlias = bot_protocol.Output[TaskKey]
    Renewal: TypeAlias = bot_protocol.Renewal[TaskKey]
    Report: TypeAlias = bot_protocol.Report[TaskKey]
else:
    Begun, Output = bot_protocol.Begun, bot_protocol.Output
    Renewal, Report = bot_protocol.Renewal, bot_protocol.Report


_Begun: TypeAlias = Annotated[tuple[bot_protocol.Begun[TaskKey], ...], Meta(max_length=POLL_ITEMS_MAX)]


class Poll(bot_protocol.Poll[TaskKey], frozen=True):
    """A poll, and what the server adds to it. One with `wait_ms` is answered once there is work for its bot."""

    with_definitions: bool = False  # its leases come with what the bot needs to run their tasks
    pool: Name | None = None  # the pool that the sender speaks for; None: any
    # None: the bot begins every attempt as soon as it has the lease.
    begun: _Begun | None = None  # type: ignore[assignment]


@value
class Hello:
    """Begin the session of a bot, or update what has changed about it: its dimensions come with its id and its pool."""

    bot: Name
    session: Name
    dimensions: Annotated[Dimensions, Meta(extra={"dimensions": True})]
    slots: Slots = 1
    quarantined: Why | None = None
    maintenance: Why | None = None
    draining: bool = False
    # The attempts that the bot's earlier lives in this folder had begun; None: unknown.
    begun: _Begun | None = None


class Goodbye(bot_protocol.Goodbye, frozen=True):
    """The end of a session."""

    pool: Name | None = None  # the pool that the sender speaks for; None: any


# Commands of people and of running tasks.


@value
class Publish:
    """Store what a running task says of itself; what is None stays as it was."""

    task: TaskKey
    attempt: AttemptNumber
    fence: Count
    result: Annotated[str, Meta(min_length=1, max_length=RESULT_MAX, extra={"text": "text"})] | None = None  # JSON
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None


@value
class Cancel:
    """Cancel one task, some tasks with everything behind them, or a whole graph."""

    task: TaskKey | None = None
    graph: TaskKey | None = None  # the whole graph, if no task is named
    subtree: bool = False
    actor: NameOrEmpty = ""
    key: NameOrEmpty = ""  # repeated with the same key, it gives the first answer
    # Of the graph: only these, with everything behind them.
    tasks: Annotated[tuple[TaskKey, ...], Meta(max_length=CANCEL_TASKS_MAX)] = ()


@value
class Approve:
    """Decide an approval that waits for a person."""

    task: TaskKey
    approved: bool
    comment: Annotated[str, Meta(max_length=COMMENT_MAX, extra={"text": "text"})] = ""
    actor: NameOrEmpty = ""
    key: NameOrEmpty = ""


@value
class Rerun:
    """Rerun one failed task, or everything in a graph that failed."""

    task: TaskKey | None = None
    graph: TaskKey | None = None  # everything in it that failed, if no task is named
    actor: NameOrEmpty = ""
    key: NameOrEmpty = ""


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
    definition: AttemptDefinition | None = None


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
