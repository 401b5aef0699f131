"""The answers of the server to people and their programs, as JSON. Times are milliseconds since 1970 in UTC.

Plain dataclasses: the server describes them in its OpenAPI document, the client reads answers into them. The names of
the task-graph scheduler (`nameMapping`, `rerunsAllowed`, `resolution`, ...) are used beside ours where they differ.
"""

from dataclasses import dataclass, field
from typing import Any, Final

#: How long a request for a graph may wait for it to be settled.
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
    """Tasks that wait for each other: each needs a mutex that is held until the next one has ended."""

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
class GraphLayout:
    """Where each task or group of a graph is drawn, as lists of equal length; edges name places in them."""

    graph_id: str
    size: int  # how many tasks the graph has
    view: str  # tasks, or groups of them
    ids: list[str]  # of the tasks, in the order of all lists of tasks; empty for groups
    names: list[str]  # of the tasks, or of the groups
    x: list[int]
    y: list[int]
    edges: list[list[int]]  # from, to
    ends: list[str]  # on which end each edge is met; empty for groups
    group_of: list[int]  # the group of each task; empty for tasks


@dataclass(frozen=True, slots=True)
class GraphStates:
    """The state of each task of a graph, in the order of its layout, as a place in `states`."""

    graph_id: str
    states: list[str]
    tasks: list[int]
    # Of the last attempt of each task, if asked for; 0 where there is none or it has not ended.
    began_ms: list[int] = field(default_factory=list)
    ended_ms: list[int] = field(default_factory=list)
    bots: list[str] = field(default_factory=list)
    bot_of: list[int] = field(default_factory=list)  # a place in `bots`; -1 without an attempt


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
class LaunchView:
    """What a graph was launched from."""

    graph_id: str
    kind: str  # job_template, workflow_template, system_job_template, project, source, ad_hoc
    name: str
    version: int  # of the document
    launch_type: str  # manual, dependent, workflow, scheduled, relaunch
    variables: dict[str, Any]  # those that were given
    options: dict[str, Any]
    actor: str
    created_ms: int
    status: str  # of its task, in the words of AWX: pending, waiting, running, successful, failed, error, canceled
    state: str  # of the graph
    schedule: str | None = None  # that launched it,
    due_ms: int | None = None  # and the moment that it was for
    relaunch_of: str | None = None  # the graph that it repeats


@dataclass(frozen=True, slots=True)
class LinkView:
    """An update in another graph that a launch uses."""

    label: str  # of the link; empty in a preview
    resource: str
    freshness: str  # fresh, join, update: how it was found when the graph was launched
    task_id: str | None  # of the update; null where a preview would make one
    graph_id: str | None
    state: str  # of the update; empty if it is deleted


@dataclass(frozen=True, slots=True)
class Launches:
    """A page of launches, the newest first."""

    items: list[LaunchView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """Something was launched, or had been before; or what a launch would do, without an id."""

    graph_id: str | None
    echo: bool = False
    kind: str = ""
    name: str = ""
    version: int = 0
    nameMapping: dict[str, str] = field(default_factory=dict)  # noqa: N815
    updates: list[LinkView] = field(default_factory=list)
    graph_ids: list[str] = field(default_factory=list)  # if several were launched: one for each source
    document: dict[str, Any] | None = None  # of the graph that it would be


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
    assigned: int = 0  # how many of the running ones their bots have prefetched, and not begun
    parent: Parent | None = None  # only for a single graph, inside a task
    rerun_of: str | None = None  # the graph that it runs again,
    rerun_from: list[str] = field(default_factory=list)  # from these labels on,
    reused: int = 0  # and how many of its tasks are reused
    deadlock: Deadlock | None = None  # only for a single graph: what keeps it from its end
    # Only where one graph is asked for, with its names: task ids by label, or where they are found if they are many,
    nameMapping: dict[str, str] = field(default_factory=dict)  # noqa: N815
    namesUrl: str | None = None  # noqa: N815
    requires: list[str] = field(default_factory=list)  # and the sinks that still keep it from being finished,
    requires_whole: bool = True  # if these are all
    child_of: Parent | None = None  # only where one graph is asked for: the attempt with which it ends
    launch: LaunchView | None = None  # likewise: what it was launched from,
    links: list[LinkView] = field(default_factory=list)  # and the updates in other graphs that it uses


@dataclass(frozen=True, slots=True)
class Edge:
    """What a task requires."""

    task: str
    label: str
    on: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a task ended, in the terms of the task-graph scheduler."""

    failed: bool
    resultUrl: str | None = None  # noqa: N815
    logsUrl: str | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Reused:
    """The attempt of another task whose result is reused."""

    task: str
    graph_id: str
    attempt: int
    saved_ms: int | None = None  # how long that attempt took; None if it is not kept any more


@dataclass(frozen=True, slots=True)
class FilesRef:
    """A tree of files: its digest, how many files it has, and how many bytes these have together."""

    digest: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A tree that was checked: it is stored if no chunk is missing; else these have to be stored first."""

    digest: str
    files: int
    bytes: int
    missing: list[str]


@dataclass(frozen=True, slots=True)
class StoredBlobs:
    """The digests of the bodies that were stored, in their order."""

    digests: list[str]


@dataclass(frozen=True, slots=True)
class FileView:
    """A file or a link of a tree; an empty folder has neither a digest nor a link."""

    path: str
    size: int = 0
    digest: str | None = None
    executable: bool = False
    link: str | None = None  # where it leads


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """A page of the output files of an attempt, by path."""

    attempt: int
    pool: str
    tree: FilesRef
    items: list[FileView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """A named file of an attempt."""

    name: str
    path: str
    size: int
    content_type: str


@dataclass(frozen=True, slots=True)
class Artifacts:
    """A page of the named files of an attempt, by name."""

    attempt: int
    items: list[ArtifactView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class InputTree:
    """What a task takes: a part of a tree, and where in its working folder it belongs."""

    pool: str
    tree: str
    path: str | None
    to: str | None
    label: str | None = None  # of the prerequisite whose outputs these are


@dataclass(frozen=True, slots=True)
class InputTrees:
    """Everything that a task takes, in the order in which it is laid over each other."""

    items: list[InputTree]


@dataclass(frozen=True, slots=True)
class NeededTree:
    """A tree that a graph takes, and whether it is stored in a pool that needs it."""

    tree: str
    pool: str
    stored: bool


@dataclass(frozen=True, slots=True)
class NeededTrees:
    """Every tree that a graph takes."""

    items: list[NeededTree]


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
    bot: str | None  # the bot of its last attempt
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
    reused: Reused | None = None  # it did not run: its result is reused
    deadlock: Deadlock | None = None  # only where one task is asked for: what keeps it from its end
    user: str = ""  # for whom it runs: the user of the request, or the name of who submitted it
    authenticated: str = ""  # who submitted it: the id of a token, or the name of a caller without one
    tags: list[str] = field(default_factory=list)  # key:value, with the automatic ones
    parent: Parent | None = None  # the attempt with which its graph ends,
    children: list[str] = field(default_factory=list)  # and, where one task is asked for, the graphs that end with it
    input_trees: list[str] = field(default_factory=list)  # the digests that its slices name
    files: FilesRef | None = None  # what the last attempt left


#: Stands for a duration: it is never deleted; the time for all pools holds, or for those the default.
FOREVER: Final = "forever"
DEFAULT_TIME: Final = "default"
#: What is kept for a time of its own.
KEPT_KINDS: Final = ("output", "files", "results", "graphs", "bot_events", "queues", "bots", "tokens", "audit")


@dataclass(frozen=True, slots=True)
class WebhookView:
    """Where events are sent by HTTP, and how far that is. No answer has its secret."""

    name: str
    url: str
    pool: str | None  # only events of graphs with tasks of this pool,
    graph: str | None  # of this graph,
    kinds: list[str]  # and of these kinds; empty: all
    paused: bool
    changed_ms: int
    changed_by: str
    failing_since_ms: int | None  # null: the last delivery succeeded
    error: str | None  # of the last delivery, if it failed
    backlog: int  # how many events of the stream it has not been looked at for
    dead: int  # how many deliveries were given up


@dataclass(frozen=True, slots=True)
class Webhooks:
    """All webhooks of the pools in which the caller is an admin."""

    items: list[WebhookView]


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """The answer to a test of a webhook."""

    delivered: bool
    status: int | None  # null: there was no answer
    error: str  # empty: it was delivered


@dataclass(frozen=True, slots=True)
class DeadDelivery:
    """A delivery that was given up."""

    id: str  # of the event
    died_ms: int
    error: str
    again: bool  # whether it is to be sent again


@dataclass(frozen=True, slots=True)
class DeadDeliveries:
    """A page of the deliveries of a webhook that were given up."""

    items: list[DeadDelivery]
    next: str | None


@dataclass(frozen=True, slots=True)
class SentAgain:
    """How many deliveries are sent again."""

    count: int


@dataclass(frozen=True, slots=True)
class RetentionView:
    """How long things of a pool are kept, in milliseconds, by kind; null: forever. `*` stands for all pools."""

    pool: str
    times: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept: for all pools first, then for those that differ."""

    items: list[RetentionView]


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks there are, in all and in each state; if there is a `next`, the ones after it are not counted."""

    total: int
    states: dict[str, int]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class TasksCanceled:
    """How many tasks were canceled; if there is a `next`, the ones after it are not."""

    canceled: int
    next: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """A pending approval."""

    task: str
    graph_id: str
    label: str
    message: str
    since_ms: int
    until_ms: int | None  # the time-out; None: never
    on_timeout: str  # the decision after the time-out: approve or deny


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision of an approval, and the state of its task."""

    task: str
    approved: bool
    state: str


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of an attempt; what was not measured is null."""

    queued_ms: int | None = None  # from when it waited for a bot until one took it
    prepared_ms: int | None = None  # from when it came to the bot until it began, with the next two
    cached_ms: int | None = None  # until its caches were in place; null if it uses none
    downloaded_ms: int | None = None  # until its files were there; null if it gets none
    ran_ms: int | None = None
    uploaded_ms: int | None = None  # from its end until the last of its output went out; null if it printed nothing
    cleaned_ms: int | None = None  # until its folder was put in order and its caches were put back
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
    bot_version: str | None = None  # of the program of its bot then
    bot_dimensions: dict[str, list[str]] | None = None  # what its bot was then
    files: FilesRef | None = None  # what it left


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a cancel or a rerun did."""

    subject: str  # the task, the graph, or the new graph that was made
    moved: int
    promised: bool  # the others are moved in the background, page by page
    echo: bool  # there was nothing left to do, or it had been done before
    total: int = 0  # how many tasks it concerns in all, if counted
    unblocked: int = 0  # how many tasks were blocked by those that are rerun
    tasks: list[str] = field(default_factory=list)  # those that are rerun, as many as one answer names
    rerun_of: str | None = None  # the graph that the new one runs again,
    reused: int = 0  # and how many of its tasks are reused


@dataclass(frozen=True, slots=True)
class BotView:
    """A bot as of its last request."""

    id: str
    pool: str
    dimensions: dict[str, list[str]]
    slots: int
    busy: int  # how many tasks it runs
    assigned: int  # how many more it has prefetched, and not begun
    alive: bool
    first_seen_ms: int
    last_seen_ms: int
    quarantined: str | None
    maintenance: str | None
    draining: bool
    terminated: bool  # it has said goodbye
    ending: bool  # an admin asked it to end after its tasks
    tasks: list[str] = field(default_factory=list)
    version: str | None = None  # of its program, as it says
    outdated: bool = False  # its program is older than the server
    caches: list[str] = field(default_factory=list)  # the names of the caches that it holds
    failures: int = 0  # how often in a row it lost what it ran


@dataclass(frozen=True, slots=True)
class BotQueueView:
    """A queue that a bot looks at: it has everything that the queue's tasks ask for."""

    hash: int
    dimensions: dict[str, list[str]]
    waiting: int  # how many tasks wait in it; counted up to 1 000


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
class EventView:
    """An event of a task or a graph: a transition that is stored. The same event always has the same id."""

    id: str  # of the event: its graph and its number, `GRAPH-NUMBER`
    number: int  # within its graph: the events of a graph are ordered by it
    kind: str  # what moved, and its new state
    at_ms: int  # when
    graph_id: str  # the graph, or the one that the task is in
    task: str | None  # the task, if it is about one
    label: str | None  # the label of the task
    source: str | None  # the state before; null at the birth of a graph
    target: str  # the state now
    signal: str | None  # what happened to the task
    attempt: int | None  # which attempt it was about, if one
    bot: str | None  # whose attempt
    reason: str | None  # everything finer than a state


@dataclass(frozen=True, slots=True)
class EventsLost:
    """The data of a `reset` in the stream of events: those before the position are not kept any more."""

    position: int


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event of the stream, and its position there."""

    position: int
    event: EventView | None  # null: the events before this position are lost, because they are not kept any more


@dataclass(frozen=True, slots=True)
class EventTarget:
    """A target to which all events are delivered, and what it has not got yet."""

    name: str
    backlog: int  # how many events that is
    oldest_ms: int  # how old the oldest of them is


@dataclass(frozen=True, slots=True)
class EventTargets:
    """All targets."""

    items: list[EventTarget]


@dataclass(frozen=True, slots=True)
class AuditView:
    """A request that was carried out, or denied."""

    id: str
    at_ms: int
    actor: str
    action: str
    subject: str | None  # the graph or the task that it is about
    note: str


@dataclass(frozen=True, slots=True)
class TakenResources:
    """What each task takes of its bot."""

    slots: int
    cpus: float
    memory_mb: int
    gpus: int


@dataclass(frozen=True, slots=True)
class DemandItem:
    """How many tasks want a bot that has these dimensions."""

    dimensions: dict[str, list[str]]
    takes: TakenResources
    waiting: int  # in their queue
    no_bot: int  # pending, because no live bot has the dimensions
    running: int
    oldest_ms: int | None  # when the first created of those in the queue was created


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What is wanted of a pool, by the dimensions that a bot must have; what most tasks want comes first."""

    pool: str
    waiting: int
    no_bot: int
    running: int
    items: list[DemandItem]
    more: int  # how many sets of dimensions are not listed


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What happened to the tasks of a pool, for each step of time."""

    pool: str  # empty for tasks that the server runs itself
    submitted: list[int]
    started: list[int]
    ended: dict[str, list[int]]  # by the state in which they ended
    waiting: list[int]  # how many waited for a bot at the end of the step,
    oldest_ms: list[int]  # and how long the oldest of them had waited


@dataclass(frozen=True, slots=True)
class PoolsStats:
    """What happened in the pools that the caller may read; counts are some seconds old."""

    step_ms: int
    at_ms: list[int]  # when each step began; the last one goes on
    pools: list[PoolStats]


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool: its capacity, what is in use, and its bots."""

    name: str
    capacity: int | None  # None: as much as its bots take
    from_bots: bool
    unit: str  # what a capacity from bots counts: slots, or forks of ansible by their processors and memory
    adjustment: float  # which of the two counts in forks: 0 the smaller one, 1 the larger one
    total: int | None  # the capacity that it has now; None: unlimited
    bots: int
    slots: int
    reuse_window_ms: int  # how long the result of an idempotent task is reused; 0: never
    reuse_shared: bool  # across submitters, too
    external: bool  # workers behind a message broker run its tasks, not bots


@dataclass(frozen=True, slots=True)
class PassView:
    """What an admission pass did."""

    ran: bool  # False: another one was running
    admitted: int  # how many tasks it admitted
    held: int  # for how many tasks it wrote why they are not
    more: bool  # it stopped at the bounds of one pass; the next one goes on


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
    """A mutex: its holders, the tasks that wait for it, and how long until no younger task passes one that waits."""

    key: str
    stake_after_ms: int | None  # null: a younger task may always pass
    holders: list[MutexTask]
    holder_count: int
    waiting: list[MutexTask]  # the one that has waited the longest first
    waiting_count: int


@dataclass(frozen=True, slots=True)
class Mutexes:
    """A page of mutexes in use."""

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
    """A new token. Its secret is returned only now."""

    token: str
    view: TokenView


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule: when it launches which template, its next and its last run."""

    name: str
    pool: str
    version: int
    template: str
    cron: str | None
    rrule: str | None
    timezone: str
    missed: str  # what becomes of runs that no server was there for: skip, one or all
    overlap: str  # what becomes of a run while the last launch has not ended: allow or skip
    enabled: bool
    next_ms: int | None  # None: never, or a change is not planned yet
    last_ms: int | None  # the last run,
    last_graph_id: str | None  # the newest launch,
    note: str | None  # and why the last run launched nothing
    runs: list[int]  # the next runs; empty in lists


@dataclass(frozen=True, slots=True)
class Schedules:
    """A page of schedules."""

    items: list[ScheduleView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRuns:
    """When something would run."""

    runs: list[int]


@dataclass(frozen=True, slots=True)
class SecretView:
    """A named secret, without its value."""

    pool: str
    name: str
    version: int  # grows with each new value
    created_ms: int
    changed_ms: int
    changed_by: str
    key: str  # the id of the key that encrypts it
    opens: bool  # whether the server that answers has that key


@dataclass(frozen=True, slots=True)
class SecretViews:
    """A page of named secrets."""

    items: list[SecretView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class DeletedSecret:
    """A secret that is no more, and how many tasks that have not ended name it: they wait until it is set again."""

    pool: str
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class SecretRotation:
    """What a rotation did."""

    key: str  # the id of the key that encrypts all secrets now, as far as they could be opened
    rewrapped: int  # how many it encrypted anew
    unopened: int  # how many are encrypted with keys that are not in the file
    unused: list[str]  # keys of the file that encrypt nothing any more


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What applying did to a document, or would do in a dry run."""

    kind: str
    name: str
    pool: str
    action: str  # create, change or unchanged
    version: int  # after it; 0 for settings, which have no versions
    next_runs: list[int] | None = None  # of a schedule, the first of them as it is written; none if it is disabled


@dataclass(frozen=True, slots=True)
class DocumentChanges:
    """What applying did, in the order of the request."""

    items: list[DocumentChange]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document of the catalogue; lists may leave out what it says."""

    kind: str
    name: str
    pool: str
    version: int  # 0 for settings, which have no versions
    changed_ms: int | None
    changed_by: str | None
    document: dict[str, Any] | None = None
    launches: list[LaunchView] = field(default_factory=list)  # the last one, of an inventory that of each source


@dataclass(frozen=True, slots=True)
class DocumentViews:
    """A page of documents."""

    items: list[DocumentView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One version of a document; it has nothing to say if the document was deleted then."""

    version: int
    pool: str
    changed_ms: int
    changed_by: str
    document: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DocumentVersions:
    """A page of the versions of a document, the newest first."""

    items: list[DocumentVersion]
    next: str | None = None


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
    """A page of pending approvals."""

    items: list[ApprovalView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Bots:
    """A page of bots."""

    items: list[BotView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class BotQueues:
    """A page of the queues that a bot looks at."""

    items: list[BotQueueView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class BotEvents:
    """A page of a bot's events, the newest first."""

    items: list[BotEventView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """A page of the events in a graph, the oldest first."""

    items: list[EventView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Audits:
    """A page of the audit, the newest first."""

    items: list[AuditView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class RunKey:
    """The key of run tokens was changed."""

    kept: bool  # whether tokens that the old key signed are still valid


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
    """A graph or a task whose id has the requested ending."""

    id: str
    kind: str  # graph or task
    name: str  # of the graph, or the label of the task
    graph_id: str


@dataclass(frozen=True, slots=True)
class Ids:
    """Every graph and task whose id has the requested ending, the newest first."""

    items: list[Identified]
    whole: bool  # whether these are all


@dataclass(frozen=True, slots=True)
class Names:
    """A page of labels, each with the id of its task; `next` asks for the page behind it."""

    nameMapping: dict[str, str]  # noqa: N815
    next: str | None = None


@dataclass(frozen=True, slots=True)
class StoryItem:
    """An event of a task (with a `signal`), or a request about it (with an `action`)."""

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
    cause: str = ""  # the cause, in words
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
    whole: bool  # whether this is all of it
    items: list[StoryItem]
    reused: Reused | None = None  # the task whose result is reused


@dataclass(frozen=True, slots=True)
class DimensionAggregation:
    """The dimensions of all bots, with their values."""

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
    at_ms: int  # the time of this answer
    total_ms: int  # how long the graph took, or has taken so far
    path: list[PathTask]  # the first to run first; of a very long one only a part
    whole: bool  # whether this is all of it
    ended_ms: int | None = None  # of a settled graph, with how much of that its path ran, and waited
    running_ms: int | None = None
    waiting_ms: int | None = None
    expected_end_ms: int | None = None  # of a running graph: at the earliest, if every task succeeds; None if not known
    left: int = 0  # how many tasks are still going to run, or run,
    known: int = 0  # of how many of them it is known how long they take,
    confidence: float | None = None  # and which share of them that is
    stuck: int = 0  # how many depend on a blocked task


# The server and the caller.


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


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session of the page, and what its requests that change something send as `x-taskyard-session`."""

    header: str
    actor: str
    scopes: list[str]
    expires_ms: int | None  # null on a server without authentication


@dataclass(frozen=True, slots=True)
class SignInLink:
    """The code of a link that signs in once: the page takes it behind `#sign-in=`."""

    code: str
    expires_ms: int


# The findings of the doctor of a database, and what was repaired.
#
# Names of bots, keys and limits are as people wrote them; code that shows them has to escape them.


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
    """All findings, how many were repaired, and how many are left; and what is worth knowing of the database beside."""

    found: tuple[Finding, ...]
    mended: int
    left: int
    notes: tuple[str, ...] = ()


class Unchecked(Exception):
    """A database that could not be checked or repaired; the text says why, and what to do."""
