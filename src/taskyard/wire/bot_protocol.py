"""The messages between bots and the server, with the bounds of every field.

A bot sends `Hello`, `Poll`, `Goodbye` and `Trouble` as JSON; one poll carries everything that the bot has to report, in
lists, so that a busy bot makes few requests. Spans are in milliseconds. There are no moments in time: the clock of a
bot may be wrong by years. The payload, the inputs and the result of a task pass through as they were written (`Raw`).

This is the only declaration of these messages. The bot, the server and the engine use these classes. A bot holds the
id of a task as text; the server holds it as a key, which its decoder makes of the text (`TaskKey`).
"""

from abc import ABC
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeAlias

import msgspec
from msgspec import Meta

from taskyard.core.attempt_policy import ATTEMPT_SIGNALS
from taskyard.core.caches import cache_key as cache_key  # noqa: PLC0414 - bots import it from here
from taskyard.core.caches import cache_name as cache_name  # noqa: PLC0414
from taskyard.core.graph.model import DESCRIPTION_MAX, NAME_MAX
from taskyard.core.ids import KEY_DIGITS
from taskyard.core.resources import SLOTS_MAX as SLOTS_MAX  # noqa: PLC0414
from taskyard.core.resources import Resources as Resources  # noqa: PLC0414
from taskyard.core.states import Reason as Reason  # noqa: PLC0414 - bots import it from here
from taskyard.core.states import Signal as Signal  # noqa: PLC0414
from taskyard.wire.attempt_limits import NOTHING as NOTHING  # noqa: PLC0414 - for users of the messages
from taskyard.wire.attempt_limits import PIECE_MAX as PIECE_MAX  # noqa: PLC0414
from taskyard.wire.attempt_limits import RESULT_MAX as RESULT_MAX  # noqa: PLC0414

#: The largest integer that SQLite and PostgreSQL store.
NUMBER_MAX: Final = 2**63 - 1
#: The exit codes of all systems: a signal as a negative number, or 32 bits without a sign.
EXIT_CODE_MIN: Final = -(2**31)
EXIT_CODE_MAX: Final = 2**32 - 1
#: Reports in one poll; also renewals, pieces of output and begun attempts. One transaction can touch twice as many
#: tasks. A bot with more to report polls again.
POLL_ITEMS_MAX: Final = 1_000
#: All results of one poll together, in characters: stored in well under 100 ms.
RESULTS_MAX: Final = 4_194_304
#: All output of one poll together, in bytes: stored in a few milliseconds.
OUTPUTS_MAX: Final = 1_048_576
#: The output kept of one attempt, in bytes: three quarters from its beginning and one from its end. The attempt is
#: marked as truncated if something between them is missing.
OUTPUT_MAX: Final = 67_108_864
#: The checkpoint that an attempt leaves for the next one, in bytes, and its progress message, in characters.
CHECKPOINT_MAX: Final = 65_536
PROGRESS_MAX: Final = 4_096
#: One error that a bot reports about itself, in characters; longer texts are cut.
TROUBLE_MAX: Final = 1_000
#: The reason why a bot is quarantined or in maintenance, in characters; a traceback fits.
WHY_MAX: Final = DESCRIPTION_MAX
#: The dimension keys of a bot, and the values of one key: more than a slice may ask for, since a bot serves many kinds.
BOT_DIMENSIONS_MAX: Final = 128
BOT_DIMENSION_VALUES_MAX: Final = 128
#: The caches that one bot reports. It drops the one that was used least lately when there are more.
CACHES_HELD_MAX: Final = 256
#: How long a poll that wants work may wait for it.
WAIT_MAX_MS: Final = 20_000
#: Inputs of a task that are larger together, in characters, are fetched separately, from `/api/v1/tasks/{id}/inputs`.
INPUTS_MAX: Final = 262_144

#: How a bot may say that an attempt ended; `deadline`: the bot ended it at its deadline, and no process of it is left.
SIGNALS: Final = ATTEMPT_SIGNALS
#: Why a bot may say that an attempt ended badly; only the server gives other reasons.
REASONS: Final = frozenset(
    {
        Reason.EXIT_CODE,
        Reason.SIGNALED,
        Reason.TIMED_OUT,
        Reason.SILENT,
        Reason.BAD_RESULT,
        Reason.UNRENEWED,
        Reason.RETURNED,
        Reason.MISSING,
        Reason.BOT_FAILED,
    }
)

# Bounds of fields. msgspec checks the numbers; `extra` names what only `engine/validate.py` can check.

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    TaskKey: TypeAlias = int
    TaskRef = TypeVar("TaskRef", default=str)
else:
    from typing import TypeVar

    class TaskKey(ABC):  # noqa: B024 - only names the type for a decoder's hook
        """The key of a task: an int in Python, sixteen hexadecimal digits in JSON."""

    TaskKey.register(int)
    TaskRef = TypeVar("TaskRef")


def words(allowed: frozenset[Any]) -> Meta:
    """Bound an enum to some of its members."""
    return Meta(extra={"one_of": allowed})


TaskId: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": f"^[0-7][0-9a-f]{{{KEY_DIGITS - 1}}}$"})]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
AttemptNumber: TypeAlias = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
#: A name holds no hidden characters; a text holds no NUL, which PostgreSQL cannot store.
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, extra={"text": "name"})]
NameOrEmpty: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX, extra={"text": "name"})]
Progress: TypeAlias = Annotated[str, Meta(min_length=1, max_length=PROGRESS_MAX, extra={"text": "text"})]
Why: TypeAlias = Annotated[str, Meta(min_length=1, max_length=WHY_MAX, extra={"text": "text"})]
Checkpoint: TypeAlias = Annotated[bytes, Meta(max_length=CHECKPOINT_MAX)]
#: A name, and the digest of a submitter (`cache_key`). No text that a database could not store.
CacheKey: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_][a-z0-9_-]{0,63}\.[0-9a-f]{16}\Z")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=NUMBER_MAX)]
Slots: TypeAlias = Annotated[int, Meta(ge=1, le=SLOTS_MAX)]


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message, or a part of one. It holds no reference cycles, so the garbage collector need not look at it."""


# From bots to the server.


class Begun(Message, Generic[TaskRef], frozen=True):
    """An attempt has begun."""

    task: TaskRef
    attempt: AttemptNumber
    fence: Count


class Hello(Message, Generic[TaskRef], frozen=True):
    """Begin a session, or update what has changed about the bot. The pool of the bot comes from its token."""

    bot: Name
    # `folder/life`: attempts that an earlier life in the same folder ran are gone, and may be given out again at once.
    # A session without a folder says that the bot is the only one of its name.
    session: Name
    dimensions: Annotated[dict[str, list[str]], Meta(max_length=BOT_DIMENSIONS_MAX)] = {}
    slots: Slots = 1
    quarantined: Why | None = None
    maintenance: Why | None = None
    draining: bool = False
    version: NameOrEmpty = ""  # of its program
    # The attempts that earlier lives in the same folder had begun; the other attempts that they had leased come back at
    # no cost. None: unknown.
    begun: Annotated[tuple[Begun[TaskRef], ...], Meta(max_length=POLL_ITEMS_MAX)] | None = None
    # An earlier session in the same folder, and its attempts that still run and that this session goes on with, each
    # with the fence of its claim. The leases of the others end.
    replaces: NameOrEmpty = ""
    adopts: Annotated[tuple[Begun[TaskRef], ...], Meta(max_length=POLL_ITEMS_MAX)] = ()


class Stats(Message, frozen=True):
    """The cost of an attempt: milliseconds for each part, processor seconds, bytes."""

    prepared_ms: Count | None = None
    cached_ms: Count | None = None
    downloaded_ms: Count | None = None
    ran_ms: Count | None = None
    uploaded_ms: Count | None = None
    cleaned_ms: Count | None = None
    cpu_s: Seconds | None = None
    memory_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None


class Report(Message, Generic[TaskRef], frozen=True):
    """An attempt has ended."""

    task: TaskRef
    attempt: AttemptNumber
    fence: Count
    signal: Annotated[Signal, words(SIGNALS)]
    reason: Annotated[Reason, words(REASONS)] | None = None
    exit_code: Annotated[int, Meta(ge=EXIT_CODE_MIN, le=EXIT_CODE_MAX)] | None = None  # a signal as a negative number
    result: msgspec.Raw = NOTHING  # the JSON that the attempt published
    stats: Stats | None = None
    truncated: bool = False  # it printed more than is kept


class Renewal(Message, Generic[TaskRef], frozen=True):
    """An attempt is still running."""

    task: TaskRef
    attempt: AttemptNumber
    fence: Count
    progress: Progress | None = None  # only if it is new
    checkpoint: Checkpoint | None = None  # for the next attempt; only if it is new


class Output(Message, Generic[TaskRef], frozen=True):
    """A piece of the output of an attempt, and its offset."""

    task: TaskRef
    attempt: AttemptNumber
    fence: Count
    start: Count
    body: Annotated[bytes, Meta(max_length=PIECE_MAX)]


class Poll(Message, Generic[TaskRef], frozen=True):
    """Report everything that is new, and ask for tasks."""

    bot: Name
    session: Name
    poll: NameOrEmpty = ""  # a poll that is sent again with the same id gets the same leases
    reports: Annotated[
        tuple[Report[TaskRef], ...],
        Meta(max_length=POLL_ITEMS_MAX, extra={"total": ("result", RESULTS_MAX, "characters")}),
    ] = ()
    renewals: Annotated[tuple[Renewal[TaskRef], ...], Meta(max_length=POLL_ITEMS_MAX)] = ()
    want: Count = 0
    outputs: Annotated[
        tuple[Output[TaskRef], ...], Meta(max_length=POLL_ITEMS_MAX, extra={"total": ("body", OUTPUTS_MAX, "bytes")})
    ] = ()
    wait_ms: int = 0  # how long the bot can wait for the first task
    begun: Annotated[tuple[Begun[TaskRef], ...], Meta(max_length=POLL_ITEMS_MAX)] = ()  # only where it is new
    caches: Annotated[tuple[CacheKey, ...], Meta(max_length=CACHES_HELD_MAX)] | None = None  # all; only if it is new


class Goodbye(Message, frozen=True):
    """End a session and give back its leases."""

    bot: Name
    session: Name


class Trouble(Message, frozen=True):
    """An error of the bot itself that people should see; of one attempt, if it is about one."""

    bot: Name
    session: Name
    text: str
    task: TaskId | None = None
    attempt: AttemptNumber | None = None


# From the server to bots.


class Adopted(Message, frozen=True):
    """An attempt that a session goes on with: its lease belongs to that session now, and has a new fence."""

    task: str
    attempt: int
    fence: int
    lease_ms: int  # what is left of the lease
    stop: bool = False  # a person has canceled it


class Welcome(Message, frozen=True):
    """The settings that the bot and this server share."""

    bot: str
    pool: str
    lease_ms: int  # how long an attempt may run without a renewal, counted from when the bot *sent* its request
    guard_ms: int  # how long after that the server waits before it gives the task to another bot
    wait_max_ms: int
    update: str | None = None  # why its program should be replaced by a newer one
    adopted: list[Adopted] = []  # of the attempts that the hello names, those that the bot still has


class Lease(Message, frozen=True):
    """A task to run, and everything that is needed to run it."""

    task: str
    attempt: int
    fence: int
    lease_ms: int  # what is left of the lease
    graph: str
    label: str
    payload: msgspec.Raw
    token: str  # the task's own token, which ends with the attempt
    inputs: msgspec.Raw = NOTHING  # label -> result of each prerequisite that published one
    inputs_apart: bool = False  # they are too large for this message
    checkpoint: bytes | None = None  # the checkpoint of an earlier attempt
    # The time until no process of the attempt may run any more, counted from when this reply arrives. (A lease counts
    # from when the request was sent, and the request may have waited for work.)
    deadline_ms: int | None = None
    disconnect: Literal["strict", "keep"] = "strict"
    submitter: str = ""  # Python functions of different submitters share no process
    takes: Resources | None = None  # what it takes of the bot; None: one slot


class AttemptSecret(Message, frozen=True):
    """A secret for an attempt."""

    variable: str
    body: bytes
    is_file: bool = False  # the variable gets the path of a file with the secret

    def __repr__(self) -> str:
        """Show it without its value, wherever it is logged."""
        return f"AttemptSecret({self.variable!r})"


class AttemptSecrets(Message, frozen=True):
    """The secrets of an attempt, which it fetches with its own token when it is about to begin."""

    items: list[AttemptSecret] = []


class Renewed(Message, frozen=True):
    """A lease is renewed. Without `lease_ms`: the attempt has ended, as the bot itself reported."""

    task: str
    attempt: int
    lease_ms: int | None = None
    stop: bool = False  # a person has canceled it


class Kept(Message, frozen=True):
    """How many bytes of an attempt's output the server has: the next piece begins there."""

    task: str
    attempt: int
    size: int


class Refused(Message, frozen=True):
    """A report, renewal or output that changed nothing, because the bot does not hold the attempt any more."""

    task: str
    attempt: int
    code: str
    text: str


class Polled(Message, frozen=True):
    """The reply to a poll. Every report that is not refused is stored."""

    leases: list[Lease] = []
    renewed: list[Renewed] = []
    kept: list[Kept] = []
    refused: list[Refused] = []
    terminate: bool = False  # an admin wants the bot to take no more tasks, and to end when it has none left
