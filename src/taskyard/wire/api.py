"""What the server tells people and their programs, as JSON. Moments are milliseconds since 1970 in UTC.

Plain dataclasses: the server describes them in its OpenAPI document, the client reads answers into them. The names of
the task-graph scheduler (`nameMapping`, `rerunsAllowed`, `resolution`, ...) stand beside ours where it has its own.
"""

from dataclasses import dataclass, field
from typing import Any, Final

#: How long a look at a graph may wait for it to be settled.
WAIT_MAX_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class DeadlockStep:
    """A task that waits for a mutex, and the task that holds it for the graph inside; null and empty where unseen."""

    task: str | None
    label: str
    graph_id: str
    mutex: str
    holder: str | None
    holder_label: str
    holder_graph_id: str


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Tasks that wait for each other: each wants a mutex that is held until the next one has ended."""

    cycle: list[DeadlockStep]
    stuck: bool  # whether nothing else can move either
    sentence: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: what, and where in it."""

    message: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was refused (RFC 9457). `code` is for programs; every fault is listed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A graph was stored, or had been before; tasks were added, or had been."""

    graph_id: str
    echo: bool
    nameMapping: dict[str, str]  # noqa: N815 - label -> task id, as the task-graph scheduler calls it


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a graph is inside another: the task, which attempt of it the graph is, and that task's graph."""

    task: str
    attempt: int
    graph: str


@dataclass(frozen=True, slots=True)
class GraphView:
    """A graph in outline."""

    id: str
    name: str
    state: str  # running, blocked, finished, canceling, canceled
    settled: bool  # nothing in it can move without a person
    created_ms: int
    moved_ms: int
    canceled_ms: int | None
    active: int
    behind: int
    unhandled: int
    routing: str
    description: str
    tags: dict[str, str]
    schedulerId: str  # noqa: N815
    counts: dict[str, int] = field(default_factory=dict)  # how many tasks are in each state
    assigned: int = 0  # how many of those that are running their bots have in hand, and have not begun
    parent: Parent | None = None  # only where one graph is asked for, and it is inside a task
    rerun_of: str | None = None  # the graph that it runs again,
    rerun_from: list[str] = field(default_factory=list)  # from these labels on,
    reused: int = 0  # and how many of its tasks it took over from there
    deadlock: Deadlock | None = None  # only where one graph is asked for: what keeps it from its end
    # Only where one graph is asked for, with its names: task ids by label, or where they are found if they are many,
    nameMapping: dict[str, str] = field(default_factory=dict)  # noqa: N815
    namesUrl: str | None = None  # noqa: N815
    requires: list[str] = field(default_factory=list)  # and the sinks that still keep it from being finished,
    requires_whole: bool = True  # if these are all


@dataclass(frozen=True, slots=True)
class Edge:
    """What a task requires."""

    task: str
    label: str
    on: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a task ended, as the task-graph scheduler tells it."""

    failed: bool
    resultUrl: str | None = None  # noqa: N815
    logsUrl: str | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Reused:
    """The attempt of a task of another graph whose end was taken over."""

    task: str
    graph_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task."""

    id: str
    graph_id: str
    label: str
    state: str
    reason: str
    kind: str
    attempt: int
    created_ms: int
    moved_ms: int
    priority: int
    bot: str | None  # that has it, or that ran its last attempt
    slice_index: int
    routing: str  # the whole routing key
    rerunsAllowed: int  # noqa: N815
    rerunsLeft: int  # noqa: N815
    retries_left: int
    deadline_ms: int | None
    not_before_ms: int | None
    resolution: Resolution | None
    exit_code: int | None = None
    started_ms: int | None = None  # of the last attempt,
    ended_ms: int | None = None
    duration_ms: int | None = None  # as far as it has ended
    note: str | None = None  # what was missing, of a task that no bot could run
    progress: str | None = None
    requires: list[Edge] = field(default_factory=list)  # only where one task is asked for
    dependents: list[str] = field(default_factory=list)  # task ids; `task-graph`, if there is none
    definition: Any = None  # what was submitted, checked and complete
    result: Any = None  # what the last attempt published
    inner_graph: str | None = None  # the graph that the last attempt is, of a task with a graph inside
    reused: Reused | None = None  # it did not run: what it is was taken over
    deadlock: Deadlock | None = None  # only where one task is asked for: what keeps it from its end


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """What a person is asked."""

    task: str
    graph_id: str
    label: str
    message: str
    since_ms: int
    until_ms: int | None  # when time is over; None: never
    on_timeout: str  # what silence means then: approve or deny


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided about an approval, and where its task is now."""

    task: str
    approved: bool
    state: str


@dataclass(frozen=True, slots=True)
class Stats:
    """What an attempt took; what nobody measured is null."""

    queued_ms: int | None = None  # from when it waited for a bot until one took it
    prepared_ms: int | None = None  # from when it came to the bot until it began
    ran_ms: int | None = None
    uploaded_ms: int | None = None  # from its end until the last of its output went out; null if it printed nothing
    cpu_s: float | None = None
    memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One execution of a task by one bot."""

    number: int
    bot: str
    round: int
    slice_index: int
    claimed_ms: int
    ended_ms: int | None
    signal: str | None
    reason: str | None
    exit_code: int | None
    output_bytes: int
    truncated: bool
    result: Any = None
    stats: Stats | None = None


@dataclass(frozen=True, slots=True)
class Wished:
    """What a cancel or a rerun did."""

    subject: str  # the task, the graph, or the new graph that was made
    moved: int
    promised: bool  # the others follow, page by page
    echo: bool  # there was nothing left to do, or it had been done before
    total: int = 0  # how many tasks it reaches in all, where that was counted
    unblocked: int = 0  # how many tasks were blocked by those that are rerun
    tasks: list[str] = field(default_factory=list)  # those that are rerun, as many as one answer names
    rerun_of: str | None = None  # the graph that the new one runs again,
    reused: int = 0  # and how many of its tasks are taken over


@dataclass(frozen=True, slots=True)
class BotView:
    """A bot as it was last heard of."""

    id: str
    pool: str
    dimensions: dict[str, list[str]]
    slots: int
    busy: int  # how many tasks it runs
    assigned: int  # how many more it has in hand, and has not begun
    alive: bool
    first_seen_ms: int
    last_seen_ms: int
    quarantined: str | None
    maintenance: str | None
    draining: bool
    terminated: bool  # it has said goodbye
    ending: bool  # it was told to end after what it has in hand
    tasks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BotEventView:
    """Something that happened to a bot."""

    id: str
    at_ms: int
    kind: str
    task: str | None
    attempt: int | None
    note: str


@dataclass(frozen=True, slots=True)
class AuditView:
    """Something that somebody asked for, and that was done; or a denial."""

    id: str
    at_ms: int
    actor: str
    action: str
    subject: str | None  # the graph or the task that it is about
    note: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool: how much it may run at once, and who is in it."""

    name: str
    capacity: int | None  # None: as much as its bots take
    from_bots: bool
    bots: int
    slots: int


@dataclass(frozen=True, slots=True)
class LimitView:
    """A named limit: how much there is of it, and how much of that is in use."""

    name: str
    total: int
    used: int


@dataclass(frozen=True, slots=True)
class Limits:
    """All named limits."""

    items: list[LimitView]


@dataclass(frozen=True, slots=True)
class MutexTask:
    """A task that holds a mutex or waits for it; one that the asker may not see has only its state."""

    task: str | None
    label: str
    graph_id: str
    state: str
    party: str | None
    since_ms: int | None  # since it holds the mutex, or since a mutex first held it


@dataclass(frozen=True, slots=True)
class MutexView:
    """A mutex: who holds it, who waits for it, and how long until no younger task passes one that waits."""

    key: str
    stake_after_ms: int | None  # null: a younger task may always pass
    holders: list[MutexTask]
    holder_count: int
    waiting: list[MutexTask]  # the one that has waited the longest first
    waiting_count: int


@dataclass(frozen=True, slots=True)
class Mutexes:
    """Mutexes that somebody uses, a page of them."""

    items: list[MutexView]
    next: str | None = None
    whole: bool = True  # whether all tasks with mutexes were looked at


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token, without its secret."""

    id: str
    kind: str  # user, bot, enrolment
    name: str
    scopes: list[str]
    pool: str | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. Its secret is told this once."""

    token: str
    view: TokenView


@dataclass(frozen=True, slots=True)
class Graphs:
    """A page of graphs; `next` asks for the page behind it."""

    items: list[GraphView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """A page of tasks."""

    items: list[TaskView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Approvals:
    """A page of what people are asked."""

    items: list[ApprovalView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Bots:
    """A page of bots."""

    items: list[BotView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class BotEvents:
    """A page of what happened to a bot, the newest first."""

    items: list[BotEventView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Audits:
    """A page of the audit, the newest first."""

    items: list[AuditView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class RunKey:
    """The key of run tokens was changed."""

    kept: bool  # whether tokens that the old key sealed are still good


@dataclass(frozen=True, slots=True)
class Pools:
    """Every pool."""

    items: list[PoolView]


@dataclass(frozen=True, slots=True)
class Tokens:
    """A page of tokens."""

    items: list[TokenView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Every attempt of a task."""

    items: list[AttemptView]


@dataclass(frozen=True, slots=True)
class OutputTime:
    """When a piece of output came: that which begins with the byte `start`."""

    start: int
    at_ms: int  # by the server's clock


@dataclass(frozen=True, slots=True)
class OutputTimes:
    """A page of the times of output, in its order; `next` asks for the page behind it."""

    items: list[OutputTime]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Identified:
    """A graph or a task whose id ends as was asked."""

    id: str
    kind: str  # graph or task
    name: str  # of the graph, or the label of the task
    graph_id: str


@dataclass(frozen=True, slots=True)
class Ids:
    """Every graph and task whose id ends as was asked, the newest first."""

    items: list[Identified]
    whole: bool  # whether these are all


@dataclass(frozen=True, slots=True)
class Names:
    """A page of labels, each with the id of its task; `next` asks for the page behind it."""

    nameMapping: dict[str, str]  # noqa: N815
    next: str | None = None


@dataclass(frozen=True, slots=True)
class StoryItem:
    """Something that happened to a task (a `signal`), or that a person asked for (an `action`)."""

    at_ms: int
    signal: str | None = None
    source: str | None = None
    target: str | None = None
    reason: str | None = None
    attempt: int | None = None
    bot: str | None = None
    actor: str | None = None
    action: str | None = None
    about: str | None = None  # task or graph
    note: str | None = None
    cause: str = ""  # what brought it about, in words
    cause_task: str | None = None  # the task that did
    cause_label: str | None = None
    after_ms: int = 0  # how long after the item before it, or after the task came


@dataclass(frozen=True, slots=True)
class StoryView:
    """Everything that happened to a task, the oldest first."""

    task: str
    graph_id: str
    label: str
    created_ms: int
    state: str
    whole: bool  # whether all of it is told
    items: list[StoryItem]
    reused: Reused | None = None  # whose end was taken over


@dataclass(frozen=True, slots=True)
class DimensionAggregation:
    """Which values of which dimensions there are among the bots."""

    dimensions: dict[str, list[str]]
    bots: int


@dataclass(frozen=True, slots=True)
class PathTask:
    """A task on a critical path: what it took, or what it is expected to take."""

    task: str
    label: str
    state: str
    began_ms: int | None = None
    ended_ms: int | None = None
    ran_ms: int | None = None
    waited_ms: int | None = None  # after the task before it on the path had ended; only of a settled graph
    expected_ms: int | None = None  # as such tasks took before; only of a graph that moves
    remaining_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of tasks that determined when a graph ended, or is going to."""

    graph_id: str
    settled: bool
    at_ms: int  # when this was told
    total_ms: int  # how long the graph took, or has taken so far
    path: list[PathTask]  # the first to run first; of a very long one only a part
    whole: bool  # whether all of it is told
    ended_ms: int | None = None  # of a settled graph, with how much of that its path ran, and waited
    running_ms: int | None = None
    waiting_ms: int | None = None
    expected_end_ms: int | None = None  # of a graph that moves: at the earliest, if all goes well; None if nobody knows
    left: int = 0  # how many tasks are still going to run, or run,
    known: int = 0  # of how many of them it is known how long they take,
    confidence: float | None = None  # and which share of them that is
    stuck: int = 0  # how many hang on something that is blocked


# What a server says of itself and of who asks, as JSON. A plain dataclass, as in `wire/api.py`.


@dataclass(frozen=True, slots=True)
class About:
    """A server: its version and its time; and the caller as the server knows them."""

    version: str
    now_ms: int
    actor: str
    kind: str  # user, bot, enrolment, run
    scopes: list[str]
    pool: str | None  # of a bot
    expires_ms: int | None


# What the doctor of a database tells: all that is stored and does not follow from the rest, and what was mended.
#
# Plain facts, for any view. Names of bots, keys and limits are in here as people gave them; whoever shows them makes
# them harmless first.


@dataclass(frozen=True, slots=True)
class Finding:
    """One column of one subject: what is stored there and what counting gives; `sentence` says all of it."""

    kind: str
    subject: str  # an id, or a name
    column: str
    stored: int | str | None
    counted: int | str | None
    mendable: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Checkup:
    """Everything that was found, how much of it was mended, and how much is left."""

    found: tuple[Finding, ...]
    mended: int
    left: int


class Unchecked(Exception):
    """A database that nobody could look at or mend; the text says why, and what helps."""
