"""The schema: all tables, declared once for both databases.

Objects that users refer to have ids from `core.ids`; the database numbers only internal rows. SQLAlchemy declares and
migrates the tables; queries do not use it. `docs/entities.md` maps the entities of TaskCluster and Swarming to them.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

from taskyard.core.states import ARROWS, LEASED, GraphState, State

#: All constraints have names, so that later migrations can refer to them.
metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)


def integer() -> TypeEngine[int]:
    """Integers of 64 bits."""
    return BigInteger().with_variant(Integer(), "sqlite")


def key(name: str, *reference: ForeignKey) -> Column[int]:
    """A column of a primary key that the database does not number."""
    return Column(name, integer(), *reference, primary_key=True, autoincrement=False)


def numbered(name: str) -> Column[int]:
    """A primary key that the database numbers, for internal rows."""
    return Column(name, integer(), primary_key=True, autoincrement=True)


def count(name: str, value: int = 0) -> Column[int]:
    """A number that is never null."""
    return Column(name, integer(), nullable=False, server_default=text(str(value)))


def moment(name: str, nullable: bool = True) -> Column[int]:
    """Milliseconds since 1970."""
    return Column(name, integer(), nullable=nullable)


def words(name: str, nullable: bool = False, primary_key: bool = False) -> Column[str]:
    """Text."""
    return Column(name, Text(), nullable=nullable, primary_key=primary_key)


def one_of(column: str, allowed: Iterable[str]) -> CheckConstraint:
    """Allow only these values."""
    listed = ", ".join(f"'{word}'" for word in sorted(allowed))
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_known")


def not_negative(*columns: str) -> list[CheckConstraint]:
    """Forbid negative counts."""
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_is_not_negative") for column in columns]


def where(condition: str) -> dict[str, Any]:
    """A partial index."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


# Access: tokens, the pools of graphs, and signing keys.

#: The kinds of tokens.
KINDS = ("user", "bot", "enrolment")

token = Table(
    "token",
    metadata,
    words("id", primary_key=True),  # the public part of a token
    words("kind"),
    words("name"),
    words("digest"),  # SHA-256 of the secret part, which is not stored
    words("scopes"),  # a JSON array
    words("pool", nullable=True),  # of the bots that the token admits
    moment("created_ms", nullable=False),
    moment("expires_ms"),
    moment("revoked_ms"),
    one_of("kind", KINDS),
)
Index("token_created", token.c.created_ms, token.c.id)

#: The kinds of sessions: of a browser, and of a link that signs in once and is then replaced by one.
SESSION_KINDS = ("browser", "link")

#: Sessions of the page. Each has the rights of its token, and ends with it.
session = Table(
    "session",
    metadata,
    words("digest", primary_key=True),  # SHA-256 of its secret, which is not stored
    words("kind"),
    words("token_id"),
    moment("created_ms", nullable=False),
    moment("expires_ms", nullable=False),
    one_of("kind", SESSION_KINDS),
)
Index("session_of_token", session.c.token_id, session.c.created_ms)

#: The pools in which tasks of a graph may run: to read the graph, a caller needs a scope for one of them.
graph_pool = Table(
    "graph_pool",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    words("pool", primary_key=True),
    sqlite_with_rowid=False,
)
Index("graph_pool_pool", graph_pool.c.pool, graph_pool.c.graph_id)

#: The key that signs the tokens of running tasks (1), and the previous key (2).
signing_key = Table("signing_key", metadata, key("id"), Column("body", LargeBinary(), nullable=False))

# Secrets. Each is encrypted with a key of its own, which is encrypted with a key that no table has.


def sealed() -> list[Column[Any]]:
    """The columns of an encrypted value."""
    return [
        words("digest"),  # a keyed hash of the value: equal values have equal ones
        words("key_id"),  # the key that encrypts `wrapped_key`
        Column("wrapped_key", LargeBinary(), nullable=False),
        Column("body", LargeBinary(), nullable=False),
    ]


secret = Table(
    "secret",
    metadata,
    words("pool", primary_key=True),
    words("name", primary_key=True),
    count("version", 1),  # grows with each new value
    *sealed(),
    moment("created_ms", nullable=False),
    moment("changed_ms", nullable=False),
    words("changed_by"),
)
Index("secret_of_key", secret.c.key_id)

#: The secret bytes of a request. Encryption binds them to the task for which they were first stored.
secret_bytes = Table(
    "secret_bytes",
    metadata,
    key("task_id", ForeignKey("task.id")),
    Column("first_id", integer(), nullable=False),
    *sealed(),
)
Index("secret_bytes_of_key", secret_bytes.c.key_id)

#: The secrets that tasks name, by slice and variable. Secret bytes have no pool and no name.
task_secret = Table(
    "task_secret",
    metadata,
    key("task_id", ForeignKey("task.id")),
    key("slice_index"),
    words("variable", primary_key=True),
    words("pool"),
    words("name"),
    count("is_file"),
    sqlite_with_rowid=False,
)
Index("task_secret_of_name", task_secret.c.pool, task_secret.c.name)

#: One row: the key of the keyed hashes, encrypted with the key of `key_id`, which is the one that encrypts new secrets.
hash_key = Table("hash_key", metadata, key("id"), words("key_id"), Column("wrapped_key", LargeBinary(), nullable=False))


# Queues, and the bots that serve them.

queue = Table(
    "queue",
    metadata,
    key("id"),
    Column("number", integer(), nullable=False, unique=True),
    Column("hash", integer(), nullable=False),
    words("root"),
    words("pool"),
    Column("dimensions", Text(), nullable=False, unique=True),
    moment("used_ms", nullable=False),  # when a task last came into it, up to an hour earlier
)
Index("queue_of_root", queue.c.root, queue.c.hash)

bot = Table(
    "bot",
    metadata,
    words("id", primary_key=True),
    words("pool", nullable=True),  # to which its name belongs; null once an admin has released the name
    words("session"),
    words("previous_sessions"),  # one per line, newest first
    words("recent_polls"),  # the ids of its latest polls, one per line, newest first
    count("slots", 1),
    moment("first_seen_ms", nullable=False),
    moment("last_seen_ms", nullable=False),
    words("server"),  # that it last spoke to
    words("quarantined", nullable=True),
    words("maintenance", nullable=True),
    count("draining"),
    count("terminated"),
    count("missing"),  # 1: it has not polled for so long that its tasks count as lost
    words("version", nullable=True),  # of its program, as it says
    Column("snapshot_id", integer(), nullable=True),  # what it is now
    count("failures"),  # how often in a row it lost attempts,
    moment("failed_ms"),  # and when it did so last
    count("changes"),  # grows with each change, so that readers can cache the row
    count("events"),
    Column("reserved_task_id", integer(), nullable=True),  # the task for which it is kept free
)
Index("bot_reserved", bot.c.reserved_task_id, **where("reserved_task_id IS NOT NULL"))

bot_settings = Table(
    "bot_settings",
    metadata,
    Column("bot_id", Text(), ForeignKey("bot.id"), primary_key=True),
    words("quarantined", nullable=True),
    words("maintenance", nullable=True),
    count("draining"),
    count("terminated"),
)

bot_dimensions = Table(
    "bot_dimensions",
    metadata,
    Column("bot_id", Text(), ForeignKey("bot.id"), primary_key=True),
    words("dimensions"),
    Column("caches", Text(), nullable=False, server_default=text("''")),  # the keys of those that it holds
)

#: The dimensions and the version that bots have, or had when they began attempts; equal ones are there once.
bot_snapshot = Table(
    "bot_snapshot",
    metadata,
    key("id"),  # made of the content
    words("dimensions"),
    words("version"),
    moment("used_ms", nullable=False),  # until when bots had it, unless one still has it
)
Index("bot_snapshot_used", bot_snapshot.c.used_ms)

#: The names of bots that are forgotten, and the pools that they still belong to.
forgotten_bot = Table(
    "forgotten_bot",
    metadata,
    words("id", primary_key=True),
    words("pool"),
    moment("forgotten_ms", nullable=False),
)

bot_event = Table(
    "bot_event",
    metadata,
    Column("bot_id", Text(), ForeignKey("bot.id"), primary_key=True),
    words("id", primary_key=True),
    moment("at_ms", nullable=False),
    words("kind"),
    Column("task_id", integer(), nullable=True),
    Column("attempt", integer(), nullable=True),
    words("note"),
    sqlite_with_rowid=False,
)

bot_queue = Table(
    "bot_queue",
    metadata,
    Column("bot_id", Text(), ForeignKey("bot.id"), primary_key=True),
    key("queue_id", ForeignKey("queue.id")),
    sqlite_with_rowid=False,
)
Index("bot_queue_queue", bot_queue.c.queue_id)

dimension_aggregation = Table("dimension_aggregation", metadata, words("id", primary_key=True), words("dimensions"))


# Admission: limits, held tasks, and the lock of the scheduler.

pool = Table(
    "pool",
    metadata,
    words("name", primary_key=True),
    moment("capacity"),
    count("from_bots"),
    Column("unit", Text(), nullable=False, server_default=text("'slots'")),  # what a capacity from bots counts,
    Column("adjustment", Float(), nullable=False, server_default=text("1")),  # and where in its range it lies
    count("external"),  # 1: workers behind a message broker run its tasks, not bots
)

named_limit = Table("named_limit", metadata, words("name", primary_key=True), count("total"))

#: Per mutex key, how long mutexes hold a task before it reserves the key; null: it never does.
mutex_policy = Table("mutex_policy", metadata, words("key", primary_key=True), moment("stake_after_ms"))

hold = Table(
    "hold",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("reason"),
    words("name", nullable=True),
    Column("blocker_id", integer(), nullable=True),
    moment("since_ms"),
    moment("mutex_since_ms"),  # since when a mutex holds the task; kept until it is admitted
)

admission_lock = Table(
    "admission_lock", metadata, key("id"), count("epoch"), words("holder", nullable=True), moment("until_ms")
)

#: What the next admission pass has to look at: a task that became pending, was canceled or released what it held; null
#: stands for all bots and pools.
admission_dirty = Table("admission_dirty", metadata, numbered("id"), Column("task_id", integer(), nullable=True))

# Work that did not fit into one transaction.

continuation = Table(
    "continuation",
    metadata,
    numbered("id"),
    words("kind"),
    Column("graph_id", integer(), ForeignKey("graph.id"), nullable=False),
    Column("task_id", integer(), nullable=True),
    words("source", nullable=True),
    words("target", nullable=True),
    count("cursor"),
    words("tasks"),
    words("actor"),
)
Index("continuation_of_task", continuation.c.task_id)
Index("continuation_of_graph", continuation.c.graph_id)

#: One row with the number of the newest queue. A transaction that adds a queue locks it.
service = Table("service", metadata, key("id"), count("queues"))

#: The servers: since when each has been up without a gap, and when it last reported.
server = Table(
    "server",
    metadata,
    words("name", primary_key=True),  # the same after a restart; empty for the one server of a file
    moment("since_ms", nullable=False),
    moment("seen_ms", nullable=False),
)

# Events, audit and idempotency keys.

event = Table(
    "event",
    metadata,
    key("graph_id"),
    key("number"),  # of the last fact of the row; the facts of a graph are numbered from 1
    Column("subject_id", integer(), nullable=False),  # the task, or the graph itself
    moment("at_ms", nullable=False),
    # The facts of one transaction, in order; `store/repo/events.py` describes the format.
    words("facts"),
    sqlite_with_rowid=False,
)
Index("event_of_subject", event.c.subject_id, event.c.number)

#: The stream of events that followers read: one row, which the relay locks while it numbers events.
event_stream = Table(
    "event_stream",
    metadata,
    key("id"),
    count("last"),  # the number of the newest event
    count("gone"),  # up to which number events are not kept any more
    count("wanted_until_ms"),  # until when events are numbered; somebody follows them
    count("since_ms"),  # events from before are not numbered,
    count("skipped"),  # and whether all of them have been passed over
)

#: The events of the stream by number, which is that of the last fact of a row of `event`. They are kept for a while.
streamed_event = Table(
    "streamed_event",
    metadata,
    key("number"),
    Column("graph_id", integer(), nullable=False),
    Column("event_number", integer(), nullable=False),
    sqlite_with_rowid=False,
)

#: The targets to which the stream is delivered, and how far that has come. What a target has not got yet is kept.
event_target = Table(
    "event_target",
    metadata,
    words("name", primary_key=True),
    Column("position", integer(), nullable=False),  # the number of the last event that was delivered
    moment("added_ms", nullable=False),
    moment("delivered_ms", nullable=False),  # when the position last moved
)

#: What happened to the tasks of each pool in each minute, for seven days.
pool_minute = Table(
    "pool_minute",
    metadata,
    key("minute_ms"),
    words("pool", primary_key=True),  # empty for tasks that the server runs itself
    *(count(name) for name in ("submitted", "started", "successful", "failed", "error", "canceled", "skipped")),
    count("waiting"),  # how many waited for a bot when the minute was last written,
    count("oldest_ms"),  # and how long the oldest of them had waited since it was created
    sqlite_with_rowid=False,
)

#: Where events are sent by HTTP. Each is a target of the stream, too; its secret is one of the server's own.
webhook = Table(
    "webhook",
    metadata,
    words("name", primary_key=True),
    words("pool", nullable=True),  # only events of graphs with tasks of this pool,
    Column("graph_id", integer(), nullable=True),  # of this graph,
    words("kinds"),  # and of these kinds, one per line; empty: all
    words("url"),
    count("paused"),
    count("version", 1),  # grows with each change
    moment("changed_ms", nullable=False),
    words("changed_by"),
    moment("failing_since_ms"),  # null: the last delivery succeeded
    words("error", nullable=True),  # of the last delivery, if it failed
)

#: The deliveries that were given up.
dead_delivery = Table(
    "dead_delivery",
    metadata,
    words("webhook", primary_key=True),
    words("id", primary_key=True),  # of the event
    words("body"),
    moment("died_ms", nullable=False),
    words("error"),
    count("again"),  # 1: it is to be sent again
    sqlite_with_rowid=False,
)

#: One row: the server that sends events to webhooks, and until when.
webhook_sender = Table("webhook_sender", metadata, key("id"), words("holder"), moment("until_ms", nullable=False))

audit = Table(
    "audit",
    metadata,
    numbered("id"),
    moment("at_ms", nullable=False),
    words("actor"),
    words("action"),
    Column("subject_id", integer(), nullable=False),
    words("note"),
)
Index("audit_of_subject", audit.c.subject_id)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    words("key", primary_key=True),
    words("digest"),
    words("response"),
    moment("at_ms"),  # when it was stored; null: keep it as long as the graph that it created
    Column("graph_id", integer(), nullable=True),  # that graph
)
Index("idempotency_key_graph", idempotency_key.c.graph_id, **where("graph_id IS NOT NULL"))
Index("idempotency_key_at", idempotency_key.c.at_ms)


# Graphs, tasks, edges and attempts. `task` has the columns that every transition needs, and is narrow because it is
# written often; `task_definition` has what is written once and seldom read.

#: The states that tasks enter most often come first, because the first match ends the check.
_OFTEN = (State.WAITING, State.RUNNING, State.SUCCESSFUL, State.PENDING)


def follows_an_arrow() -> str:
    """The state machine as a condition on a row: an arrow leads from `previous_state` to `state`."""
    states = sorted(State, key=lambda state: _OFTEN.index(state) if state in _OFTEN else len(_OFTEN))
    cases = " ".join(f"WHEN '{state.value}' THEN {_from(state)}" for state in states)
    # SQL accepts a check that evaluates to null, so a new row (no previous state) has a case of its own.
    is_new = f"previous_state IS NULL AND state = '{State.UNSCHEDULED.value}'"
    return f"{is_new} OR previous_state IS NOT NULL AND CASE state {cases} ELSE FALSE END"


def _from(target: State) -> str:
    ends = {arrow.source for arrow in ARROWS if target in (arrow.target, arrow.again)}
    return " OR ".join(f"previous_state = '{source.value}'" for source in State if source in ends)


graph = Table(
    "graph",
    metadata,
    key("id"),
    words("state"),
    count("active"),
    count("behind"),
    count("unhandled"),
    count("events"),
    count("events_published"),  # up to which number its events are published
    count("extensions"),
    moment("created_ms", nullable=False),
    moment("moved_ms", nullable=False),
    moment("canceled_ms"),
    words("loader", nullable=True),  # who is still inserting it; null once it is complete and visible
    # The attempt that runs this graph, if it is a subgraph. No foreign key: that task belongs to another graph.
    Column("parent_id", integer(), nullable=True),
    Column("parent_attempt", integer(), nullable=True),
    one_of("state", [*GraphState]),
    *not_negative("active", "behind", "unhandled"),
)
Index("graph_loading", graph.c.id, **where("loader IS NOT NULL"))
Index("graph_of_attempt", graph.c.parent_id, graph.c.parent_attempt, unique=True, **where("parent_id IS NOT NULL"))
#: Settled graphs by the time since when they are: what is kept for a time is found here.
Index("graph_settled", graph.c.moved_ms, graph.c.id, **where("active = 0 AND loader IS NULL"))
Index("graph_unpublished", graph.c.id, **where("events > events_published"))

#: The parts of graphs that were purged: of output 1, of files 2, of results 4, since the graph settled then.
purged_graph = Table(
    "purged_graph",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    moment("settled_ms", nullable=False),
    count("parts"),
)

#: How long something of a pool is kept; null: for ever.
retention = Table(
    "retention",
    metadata,
    words("pool", primary_key=True),  # * for all that have no row
    words("kind", primary_key=True),
    moment("keep_ms"),
    sqlite_with_rowid=False,
)

graph_definition = Table(
    "graph_definition",
    metadata,
    key("id", ForeignKey("graph.id")),
    words("scheduler_id"),
    words("name"),
    words("routing"),
    words("description"),
    words("tags"),
    words("digest"),
)
#: Older graphs of the same name tell how long tasks take. Most graphs of a single task have no name.
Index("graph_name", graph_definition.c.name, graph_definition.c.id, **where("name <> ''"))

#: A graph that runs another graph again from some of its tasks, and how many of its tasks run and reuse an attempt.
graph_rerun = Table(
    "graph_rerun",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    Column("source_id", integer(), nullable=False),  # the other graph; it may be deleted
    words("labels"),  # as JSON
    count("to_run"),
    count("reused"),
)

task = Table(
    "task",
    metadata,
    key("id"),
    Column("graph_id", integer(), ForeignKey("graph.id"), nullable=False),
    # Its state, and since when.
    words("previous_state", nullable=True),
    words("state"),
    words("reason"),
    moment("moved_ms", nullable=False),
    # Attempts, retries and reruns.
    count("attempt"),
    count("began_after"),
    words("ended", nullable=True),
    count("round", 1),
    count("reruns_used"),
    count("retries_used"),
    count("slice_index"),
    moment("waits_since_ms"),
    moment("not_before_ms"),
    # Constants from its definition.
    words("rules"),
    words("kind"),
    count("priority"),
    moment("created_ms", nullable=False),
    count("weight"),
    words("join_rule"),
    words("on_impossible"),
    count("is_handler"),  # 1: it has a failure or an always edge
    # The sum of 1: it names mutexes or limits, 2: it names secrets, and 4: it updates a resource.
    count("is_constrained"),
    # Counts of its edges, and of the failure handlers of its own failure.
    count("awaited"),
    count("met"),
    count("broken"),
    count("impossible"),
    count("handlers_ran"),
    count("handlers_open"),
    count("loading"),  # 1: the extension that adds it is still being loaded
    count("open_continuations"),  # how many continuations that propagate its state are open
    # Its queue, and the bot that holds it.
    count("needs_admission"),  # 1: the admission scheduler decides, 0: nothing can hold it
    # No foreign key: without an index on this column, which every transition would have to pay for, the deletion of an
    # unused queue would read all tasks. `lifecycle/queues.py` says why it is safe, and the doctor looks.
    Column("queue_id", integer(), nullable=False),
    words("bot_id", nullable=True),
    words("avoid_bot", nullable=True),
    count("fence"),
    moment("lease_until_ms"),
    moment("due_ms"),  # the next time-out
    words("caches", nullable=True),  # the keys of those that it uses; null for nearly all
    words("gone_wrong", nullable=True),  # its state, if it failed, was canceled, or is blocked
    CheckConstraint(follows_an_arrow(), name="moves_along_an_arrow"),
    CheckConstraint(
        f"(bot_id IS NOT NULL) = (state IN ({', '.join(repr(one.value) for one in sorted(LEASED))}))",
        name="a_bot_has_what_is_leased",
    ),
    *not_negative("awaited", "met", "broken", "impossible", "handlers_ran", "handlers_open", "open_continuations"),
)
Index(
    "task_in_queue",
    task.c.queue_id,
    task.c.priority,
    task.c.created_ms,
    task.c.id,
    **where("state = 'waiting'"),
)
Index(
    "task_with_caches",
    task.c.queue_id,
    task.c.priority,
    task.c.created_ms,
    task.c.id,
    **where("state = 'waiting' AND caches IS NOT NULL"),
)
Index("task_due", task.c.due_ms, **where("due_ms IS NOT NULL"))
Index("task_of_bot", task.c.bot_id, **where("bot_id IS NOT NULL"))
Index("task_of_graph", task.c.graph_id, task.c.id)
Index("task_in_admission", task.c.state, task.c.id, **where("needs_admission = 1"))
#: Tasks that went wrong are searched for most often. An index on `state` itself would cost every transition.
Index("task_gone_wrong", task.c.gone_wrong, task.c.id, **where("gone_wrong IS NOT NULL"))

task_definition = Table(
    "task_definition",
    metadata,
    key("id", ForeignKey("task.id")),
    Column("graph_id", integer(), nullable=False),
    words("label"),
    words("definition"),
    words("digest", nullable=True),  # only if substitution changed the submitted task; otherwise it is computed
    words("submitter"),  # the id of a token, or the name of a caller without one
    words("user_name"),  # for whom it runs: the user that its tags name, or the name of the submitter
)
Index("task_label", task_definition.c.graph_id, task_definition.c.label, unique=True)

#: The tags of tasks, as runs: tasks made one after the other that have the same tag are one row.
task_tag = Table(
    "task_tag",
    metadata,
    words("tag", primary_key=True),  # key:value
    key("last_id"),  # the oldest task of the run: newer ids are smaller
    Column("first_id", integer(), nullable=False),
    sqlite_with_rowid=False,
)
Index("task_tag_last", task_tag.c.last_id)

#: A graph that a running task has submitted and that ends with it.
task_child = Table(
    "task_child",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    Column("parent_id", integer(), nullable=False),  # the task; it may be deleted
    Column("parent_attempt", integer(), nullable=False),
    count("watched", 1),  # 1: the attempt had not ended when this was last looked at
    sqlite_with_rowid=False,
)
Index("task_child_parent", task_child.c.parent_id)
Index("task_child_watched", task_child.c.graph_id, **where("watched = 1"))

# The foreign key of a new edge locks its prerequisite, which cannot end in another transaction at the same time.
edge = Table(
    "edge",
    metadata,
    key("prerequisite_id", ForeignKey("task.id")),
    key("dependent_id", ForeignKey("task.id")),
    words("on_end", primary_key=True),
    Column("handled_round", integer(), nullable=True),  # the round of the prerequisite for which the handler ran last
    sqlite_with_rowid=False,
)
Index("edge_of_dependent", edge.c.dependent_id, edge.c.prerequisite_id)

task_mutex = Table(
    "task_mutex",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("key", primary_key=True),
    words("party", nullable=True),
    sqlite_with_rowid=False,
)
Index("task_mutex_key", task_mutex.c.key)

task_limit = Table(
    "task_limit",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("name", primary_key=True),
    count("amount"),
    sqlite_with_rowid=False,
)

#: Tasks that reuse an attempt of another task instead of running. The result is copied as that of attempt 0.
task_reuse = Table(
    "task_reuse",
    metadata,
    key("task_id", ForeignKey("task.id")),
    Column("source_id", integer(), nullable=False),
    Column("source_graph_id", integer(), nullable=False),
    count("attempt"),
)

#: The trees of files that the definitions of tasks name, so that they are kept as long as the tasks.
task_input_tree = Table(
    "task_input_tree",
    metadata,
    key("task_id"),
    words("tree", primary_key=True),
    sqlite_with_rowid=False,
)
Index("task_input_tree_tree", task_input_tree.c.tree)

#: The output files of attempts; those of a reused attempt are copied as those of attempt 0.
attempt_files = Table(
    "attempt_files",
    metadata,
    key("task_id"),
    key("attempt"),
    words("pool"),  # where they are stored
    words("tree"),
    count("files"),
    count("bytes"),
    sqlite_with_rowid=False,
)
Index("attempt_files_tree", attempt_files.c.tree)

#: The named output files of attempts. Each is a file of a tree.
artifact = Table(
    "artifact",
    metadata,
    key("task_id"),
    key("attempt"),
    words("name", primary_key=True),
    words("pool"),
    words("tree"),
    words("path"),
    count("size"),
    words("content_type"),
    sqlite_with_rowid=False,
)
Index("artifact_tree", artifact.c.tree)

#: The keys of idempotent tasks. One row for each key makes one leader, and has the newest result.
reuse_key = Table(
    "reuse_key",
    metadata,
    words("key", primary_key=True),
    Column("leader_id", integer(), nullable=True),  # the task that runs while equal ones wait for its end, or may do so
    Column("source_id", integer(), nullable=True),  # the task that succeeded last
    Column("source_graph_id", integer(), nullable=True),
    Column("attempt", integer(), nullable=True),
    Column("size", integer(), nullable=True),  # of what is copied from it, in characters
    moment("finished_ms"),
    sqlite_with_rowid=False,
)
Index("reuse_key_leader", reuse_key.c.leader_id, reuse_key.c.source_id, **where("leader_id IS NOT NULL"))
Index("reuse_key_source", reuse_key.c.source_id, **where("source_id IS NOT NULL"))

#: The tasks that wait for the end of an equal one, in the order in which they would take its place.
reuse_follower = Table(
    "reuse_follower",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("key"),
    count("priority"),
    moment("created_ms", nullable=False),
)
Index(
    "reuse_follower_order",
    reuse_follower.c.key,
    reuse_follower.c.priority,
    reuse_follower.c.created_ms,
    reuse_follower.c.task_id,
)

#: For how long a pool reuses results, and whether across submitters.
reuse_policy = Table("reuse_policy", metadata, words("pool", primary_key=True), moment("window_ms"), count("shared"))

# The catalogue, and what is launched from it.

#: The documents as they are now. `pool` and `limit` documents are not here: they are the rows of these settings.
catalogue = Table(
    "catalogue",
    metadata,
    words("kind", primary_key=True),
    words("name", primary_key=True),
    words("pool"),
    count("version", 1),  # grows with each change, also after a deletion
    words("body"),  # JSON; equal bodies are the same document
    moment("changed_ms", nullable=False),
    words("changed_by"),
)

#: Every version of each document; a deletion is a version without a body.
catalogue_version = Table(
    "catalogue_version",
    metadata,
    words("kind", primary_key=True),
    words("name", primary_key=True),
    key("version"),
    words("pool"),
    words("body", nullable=True),
    moment("changed_ms", nullable=False),
    words("changed_by"),
)

#: Which documents name which others.
catalogue_reference = Table(
    "catalogue_reference",
    metadata,
    words("kind", primary_key=True),
    words("name", primary_key=True),
    words("to_kind", primary_key=True),
    words("to_name", primary_key=True),
    sqlite_with_rowid=False,
)
Index("catalogue_reference_to", catalogue_reference.c.to_kind, catalogue_reference.c.to_name)

#: One row. A transaction that changes documents locks it, so that references and names hold among all of them.
catalogue_lock = Table("catalogue_lock", metadata, key("id"), count("changes"))

#: What a graph was launched from.
launch = Table(
    "launch",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    words("kind"),  # of the template
    words("name"),
    count("version"),
    words("launch_type"),
    words("variables"),  # JSON: those that were given
    words("options"),  # JSON: what else was given
    words("actor"),
    words("schedule", nullable=True),  # that launched it, and the moment that it is for
    moment("due_ms"),
    Column("relaunch_of", integer(), nullable=True),  # the graph that it repeats
)
Index("launch_of_template", launch.c.kind, launch.c.name, launch.c.graph_id)
Index("launch_of_schedule", launch.c.schedule, launch.c.due_ms, unique=True, **where("schedule IS NOT NULL"))

#: When schedules launch next. It is planned anew when the document of the schedule has another version.
schedule_plan = Table(
    "schedule_plan",
    metadata,
    words("name", primary_key=True),
    count("version"),
    moment("next_ms"),  # null: never again
    moment("last_ms"),  # its last run,
    words("note", nullable=True),  # and why nothing was launched then
)
Index("schedule_plan_next", schedule_plan.c.next_ms, **where("next_ms IS NOT NULL"))

#: The updates of each resource: newer ids are smaller. One with another digest fetched something else.
resource_update = Table(
    "resource_update",
    metadata,
    words("resource", primary_key=True),
    words("digest", primary_key=True),  # of what it fetched
    key("task_id", ForeignKey("task.id")),
    Column("graph_id", integer(), nullable=False),
    sqlite_with_rowid=False,
)
Index("resource_update_task", resource_update.c.task_id)

#: Tasks that stand for an update in another graph. No foreign key: that graph may be deleted.
link = Table(
    "link",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("resource"),
    Column("update_task_id", integer(), nullable=False),
    Column("update_graph_id", integer(), nullable=False),
    words("freshness"),  # how the update was found when the graph was launched
)
Index("link_update", link.c.update_task_id)

# Attempts and their output. No foreign keys: a transaction that writes these rows has locked the task, and the check
# would cost as much as the row.

attempt = Table(
    "attempt",
    metadata,
    key("task_id"),
    key("number"),
    words("bot_id"),
    words("session"),
    words("poll_id"),
    count("fence"),
    count("round"),
    count("slice_index"),
    Column("snapshot_id", integer(), nullable=True),  # what its bot was then
    moment("claim_fence"),  # the fence of its claim, if a later session has adopted it; tokens of its tasks have it
    moment("claimed_ms", nullable=False),
    moment("ended_ms"),
    words("signal", nullable=True),
    words("reason", nullable=True),
    Column("exit_code", integer(), nullable=True),
    sqlite_with_rowid=False,
)

#: The blocks of neighbouring task ids (`core.ids.block_of`) in which bots had attempts. An index of attempts by bot
#: would cost every life a quarter (`benchmarks.lives`, "64 commands per commit"): each bot has a page of its own there.
attempt_block = Table(
    "attempt_block",
    metadata,
    words("bot_id", primary_key=True),
    key("block"),
    sqlite_with_rowid=False,
)
Index("attempt_block_block", attempt_block.c.block)

result = Table(
    "result",
    metadata,
    key("task_id"),
    key("attempt"),
    words("body"),
    words("digest", nullable=True),  # of a long body, so that it need not be read for the key of an idempotent task
    sqlite_with_rowid=False,
)

attempt_stats = Table(
    "attempt_stats",
    metadata,
    key("task_id"),
    key("attempt"),
    moment("prepared_ms"),
    moment("cached_ms"),
    moment("downloaded_ms"),
    moment("ran_ms"),
    moment("uploaded_ms"),
    moment("cleaned_ms"),
    Column("cpu_s", Float(), nullable=True),
    Column("memory_bytes", integer(), nullable=True),
    Column("read_bytes", integer(), nullable=True),
    Column("written_bytes", integer(), nullable=True),
    count("truncated"),  # 1: it printed more than is stored
    sqlite_with_rowid=False,
)

output_chunk = Table(
    "output_chunk",
    metadata,
    key("task_id"),
    key("attempt"),
    key("number"),
    count("start"),
    moment("at_ms", nullable=False),  # when it arrived
    Column("body", LargeBinary(), nullable=False),
)

#: The progress of attempts, and checkpoints for the attempts after them.
progress = Table(
    "progress",
    metadata,
    key("task_id"),
    key("attempt"),
    moment("at_ms", nullable=False),
    words("body", nullable=True),
    Column("checkpoint", LargeBinary(), nullable=True),
    sqlite_with_rowid=False,
)


def column_kinds(table: Table) -> tuple[tuple[str, str], ...]:
    """Return the columns of a table, each with `integer`, `text`, `bytes` or `float`."""
    kinds = {LargeBinary: "bytes", Float: "float", Text: "text"}
    return tuple((str(one.name), kinds.get(type(one.type), "integer")) for one in table.columns)
