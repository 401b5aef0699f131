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
    count("version"),  # grows with each change, so that readers can cache the row
    count("events"),
)

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

pool = Table("pool", metadata, words("name", primary_key=True), moment("capacity"), count("from_bots"))

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

#: One row with the number of queues. A transaction that adds a queue locks it.
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
)
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
Index("graph_unpublished", graph.c.id, **where("events > events_published"))

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
    count("is_constrained"),  # 1: it names mutexes or limits
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
    Column("queue_id", integer(), ForeignKey("queue.id"), nullable=False),
    words("bot_id", nullable=True),
    words("avoid_bot", nullable=True),
    count("fence"),
    moment("lease_until_ms"),
    moment("due_ms"),  # the next time-out
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
Index("task_due", task.c.due_ms, **where("due_ms IS NOT NULL"))
Index("task_of_bot", task.c.bot_id, **where("bot_id IS NOT NULL"))
Index("task_of_graph", task.c.graph_id, task.c.id)
Index("task_in_admission", task.c.state, task.c.id, **where("needs_admission = 1"))

task_definition = Table(
    "task_definition",
    metadata,
    key("id", ForeignKey("task.id")),
    Column("graph_id", integer(), nullable=False),
    words("label"),
    words("definition"),
    words("digest", nullable=True),  # only if substitution changed the submitted task; otherwise it is computed
    words("submitter"),  # the id of a token, or the name of a caller without one
)
Index("task_label", task_definition.c.graph_id, task_definition.c.label, unique=True)

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
    moment("claimed_ms", nullable=False),
    moment("ended_ms"),
    words("signal", nullable=True),
    words("reason", nullable=True),
    Column("exit_code", integer(), nullable=True),
    sqlite_with_rowid=False,
)

result = Table(
    "result",
    metadata,
    key("task_id"),
    key("attempt"),
    words("body"),
    sqlite_with_rowid=False,
)

attempt_stats = Table(
    "attempt_stats",
    metadata,
    key("task_id"),
    key("attempt"),
    moment("prepared_ms"),
    moment("ran_ms"),
    moment("uploaded_ms"),
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
