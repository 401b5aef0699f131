"""The commands of bots, people and the engine, and the outcomes of commands. Each command may be repeated."""

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta

from taskyard.core.graph.errors import Fault
from taskyard.core.matching import Dimensions
from taskyard.core.resources import Resources
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

#: The subject of an audit row that concerns no task and no graph.
NO_SUBJECT: Final = 0
#: The comment of a person on a decision, in characters.
COMMENT_MAX: Final = 4_096
#: The tasks that one cancel may name: one transaction reads so many in a few milliseconds.
CANCEL_TASKS_MAX: Final = 1_000
#: By which the engine chooses, among the tasks that a sweep has found, those that it handles now.
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
    pool: Name | None = None  # the pool for which the sender is authorized; None: any
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
    version: NameOrEmpty = ""  # of its program
    # The attempts that earlier processes of the bot in this folder had begun; None: unknown.
    begun: _Begun | None = None
    # An earlier session in this folder, and its attempts that this one goes on with, with the fences of their claims.
    replaces: NameOrEmpty = ""
    adopts: _Begun = ()
    external: bool = False  # a server says hello for the workers of an external pool


class Goodbye(bot_protocol.Goodbye, frozen=True):
    """The end of a session."""

    pool: Name | None = None  # the pool for which the sender is authorized; None: any


# Commands of people and of running tasks.


@value
class Publish:
    """Store the result, progress or checkpoint of a running task; what is None stays as it was."""

    task: TaskKey
    attempt: AttemptNumber
    fence: Count
    result: Annotated[str, Meta(min_length=1, max_length=RESULT_MAX, extra={"text": "text"})] | None = None  # JSON
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None


@value
class PublishedArtifact:
    """A named file of a running attempt: a file of a stored tree."""

    name: str
    tree: str
    path: str
    size: int
    content_type: str


@value
class PublishFiles:
    """Store which files a running attempt leaves; the server has checked that they are stored."""

    task: int
    attempt: int
    fence: int
    pool: str
    tree: tuple[str, int, int] | None = None  # of all outputs: digest, files and bytes
    artifacts: tuple[PublishedArtifact, ...] = ()


@value
class Cancel:
    """Cancel one task, some tasks with all their dependents, or a whole graph."""

    task: TaskKey | None = None
    graph: TaskKey | None = None  # the whole graph, if no task is named
    subtree: bool = False
    actor: NameOrEmpty = ""
    key: NameOrEmpty = ""  # idempotency key: a repeated command gets the first answer
    # Of the graph: only these, with all their dependents.
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


# Outcomes. A refusal changes nothing, and does not affect the commands that are carried out with it.


@unique
class Code(StrEnum):
    """Why a command is refused."""

    NOT_FOUND = "not_found"  # no such task, graph or bot
    INVALID = "invalid"  # the request itself is wrong; every fault is listed
    CONFLICT = "conflict"  # what exists is different: another body, or a state that does not allow it
    LOADING = "loading"  # it is not completely loaded yet; its loader is at work, or has died
    LEASE_LOST = "lease_lost"  # the bot no longer has the lease of the attempt
    FORBIDDEN = "forbidden"  # a bot's name belongs to another pool
    SESSION_REPLACED = "session_replaced"  # the bot has begun another session
    OUTDATED = "outdated"  # the program of the bot is too old for this server
    NO_SECRET = "no_secret"  # a secret that a task names does not exist  # noqa: S105 - a word
    NO_SECRET_KEY = "no_secret_key"  # its key is not there  # noqa: S105


@value
class Refusal:
    """Why a command was not carried out, for programs and for people."""

    code: Code
    text: str
    faults: tuple[Fault, ...] = ()


@value
class Adopted:
    """A session goes on with an attempt of an earlier one."""

    task: int
    attempt: int
    fence: int
    lease_until_ms: Millis
    stop: bool  # a person has canceled it


@value
class Done:
    """A command about a task was carried out, now or before."""

    task: int
    state: State
    echo: bool = False


@value
class BulkOutcome:
    """A command about many tasks was accepted: of a graph, or of a task with all its dependents."""

    subject: int  # the graph, or the task
    moved: int  # how many tasks it has moved
    promised: bool = False  # continuations move the others, page by page
    echo: bool = False  # there was nothing left to do
    total: int = 0  # how many tasks it concerns, moved or not; not counted for a canceled graph
    unblocked: int = 0  # how many tasks were blocked by those that are rerun
    tasks: tuple[int, ...] = ()  # those that are rerun, as many as one answer lists


@value
class NeedsSearch:
    """A command concerns more tasks than one transaction may search: nothing was done. Search, and repeat it."""


@value
class AttemptDefinition:
    """What a bot needs in order to run an attempt. Texts are JSON."""

    graph: int
    label: str
    payload: bytes
    disconnect: str
    deadline_ms: Millis | None = None
    inputs: str | None = None  # the result of each prerequisite that published one, by label
    checkpoint: bytes | None = None
    submitter: str = ""  # calls of different submitters never share a process
    takes: Resources | None = None  # of the bot; None: one slot


@value
class Lease:
    """The right of a bot to run one attempt, until a moment."""

    task: int
    attempt: int
    fence: int
    until_ms: Millis
    slice_index: int = 0
    definition: AttemptDefinition | None = None


@value
class OutputStored:
    """How many bytes of the output of an attempt are stored: the next chunk begins there."""

    task: int
    attempt: int
    size: int


@value
class Renewed:
    """A lease was renewed, or its attempt has ended as the bot reported."""

    task: int
    attempt: int
    until_ms: Millis | None  # None: the attempt has ended
    stop: bool = False  # the bot has to stop the attempt
