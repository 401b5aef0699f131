"""The schema: every table, declared once for both databases.

Whatever people name has its key from `core.ids`; the database counts only what the house keeps for itself. SQLAlchemy
declares and migrates the tables; no query goes through it. `docs/entities.md` maps the entities of TaskCluster and
Swarming to them.
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

# How columns are spelled: one way for each sort of thing, the same on both databases.


#: Every name is given, so that a later migration can find it.
metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)


def whole() -> TypeEngine[int]:
    """Whole numbers of 64 bits."""
    return BigInteger().with_variant(Integer(), "sqlite")


def key(name: str, *reference: ForeignKey) -> Column[int]:
    """A part of a key; no database numbers it."""
    return Column(name, whole(), *reference, primary_key=True, autoincrement=False)


def numbered(name: str) -> Column[int]:
    """A key that the database counts: of rows that nobody but the house itself ever names."""
    return Column(name, whole(), primary_key=True, autoincrement=True)


def count(name: str, value: int = 0) -> Column[int]:
    """A number that is always there."""
    return Column(name, whole(), nullable=False, server_default=text(str(value)))


def moment(name: str, nullable: bool = True) -> Column[int]:
    """Milliseconds since 1970."""
    return Column(name, whole(), nullable=nullable)


def words(name: str, nullable: bool = False, primary_key: bool = False) -> Column[str]:
    """Text."""
    return Column(name, Text(), nullable=nullable, primary_key=primary_key)


def one_of(column: str, allowed: Iterable[str]) -> CheckConstraint:
    """Only these words."""
    listed = ", ".join(f"'{word}'" for word in sorted(allowed))
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_known")


def not_negative(*columns: str) -> list[CheckConstraint]:
    """Counts that can never fall below zero."""
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_is_not_negative") for column in columns]


def where(condition: str) -> dict[str, Any]:
    """An index of only some rows."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


# The tables of who may do what: tokens, the pools of graphs, and the key that seals what the server gives out.


#: What a token can be for.
KINDS = ("user", "bot", "enrolment")

token = Table(
    "token",
    metadata,
    words("id", primary_key=True),  # the part of a token that may be shown
    words("kind"),
    words("name"),
    words("digest"),  # SHA-256 of its secret part, which is not stored
    words("scopes"),  # a JSON array
    words("pool", nullable=True),  # of the bots that it lets in
    moment("created_ms", nullable=False),
    moment("expires_ms"),
    moment("revoked_ms"),
    one_of("kind", KINDS),
)
Index("token_created", token.c.created_ms, token.c.id)

#: In which pools the tasks of a graph may run: whoever asks for the graph needs a right in one of them.
graph_pool = Table(
    "graph_pool",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    words("pool", primary_key=True),
    sqlite_with_rowid=False,
)
Index("graph_pool_pool", graph_pool.c.pool, graph_pool.c.graph_id)

#: By which key the tokens of running tasks are sealed (1), and by which they were before it was changed (2).
signing_key = Table("signing_key", metadata, key("id"), Column("body", LargeBinary(), nullable=False))


# The tables of the fleet: queues, and the bots that serve them.


# Queues and bots.

queue = Table(
    "queue",
    metadata,
    key("id"),
    Column("number", whole(), nullable=False, unique=True),
    Column("hash", whole(), nullable=False),
    words("root"),
    words("pool"),
    Column("dimensions", Text(), nullable=False, unique=True),
)
Index("queue_of_root", queue.c.root, queue.c.hash)

bot = Table(
    "bot",
    metadata,
    words("id", primary_key=True),
    words("pool", nullable=True),  # to which its name belongs; null once an admin has freed it
    words("session"),
    words("previous_sessions"),  # the sessions before it, a line each, the newest first
    words("recent_polls"),  # the ids of its latest polls, a line each, the newest first
    count("slots", 1),
    moment("first_seen_ms", nullable=False),
    moment("last_seen_ms", nullable=False),
    words("server"),  # the server that it last spoke to
    words("quarantined", nullable=True),
    words("maintenance", nullable=True),
    count("draining"),
    count("terminated"),
    count("missing"),  # 1: its silence was noticed
    count("version"),  # counts whatever is said about it, so that what was read of it can be remembered
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
    Column("task_id", whole(), nullable=True),
    Column("attempt", whole(), nullable=True),
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


# The tables that keep the house: admission, notes of what is still to do, events, and what people asked for.


# Admission: what limits it, what it said, and who is at it.

pool = Table("pool", metadata, words("name", primary_key=True), moment("capacity"), count("from_bots"))

named_limit = Table("named_limit", metadata, words("name", primary_key=True), count("total"))

#: Per mutex key, how long mutexes hold a task before it stakes the key; null: it never does.
mutex_policy = Table("mutex_policy", metadata, words("key", primary_key=True), moment("stake_after_ms"))

hold = Table(
    "hold",
    metadata,
    key("task_id", ForeignKey("task.id")),
    words("reason"),
    words("name", nullable=True),
    Column("blocker_id", whole(), nullable=True),
    moment("since_ms"),
    moment("mutex_since_ms"),  # since a mutex first held the task; kept until it is admitted
)

admission_lock = Table(
    "admission_lock", metadata, key("id"), count("epoch"), words("holder", nullable=True), moment("until_ms")
)

#: What a pass has to look at again: a task that came, went or gave something back, or everything about bots and pools.
admission_dirty = Table("admission_dirty", metadata, numbered("id"), Column("task_id", whole(), nullable=True))

# What is promised and not yet done.

continuation = Table(
    "continuation",
    metadata,
    numbered("id"),
    words("kind"),
    Column("graph_id", whole(), ForeignKey("graph.id"), nullable=False),
    Column("task_id", whole(), nullable=True),
    words("source", nullable=True),
    words("target", nullable=True),
    count("cursor"),
    words("tasks"),
    words("actor"),
)
Index("continuation_of_task", continuation.c.task_id)
Index("continuation_of_graph", continuation.c.graph_id)

#: One row: how many queues there are. Whoever adds one locks it.
service = Table("service", metadata, key("id"), count("queues"))

#: The servers: since when each has been up without a gap, and when it last said so.
server = Table(
    "server",
    metadata,
    words("name", primary_key=True),  # the same after a restart; empty for the one server of a file
    moment("since_ms", nullable=False),
    moment("seen_ms", nullable=False),
)

# What happened, and who asked for it.

event = Table(
    "event",
    metadata,
    key("graph_id"),
    key("number"),  # of the last of them, counted by the graph; the others stand just before it
    Column("subject_id", whole(), nullable=False),  # the task, or the graph itself
    moment("at_ms", nullable=False),
    # Of one transaction, in order: see `store/repo/events.py`.
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
    Column("subject_id", whole(), nullable=False),
    words("note"),
)
Index("audit_of_subject", audit.c.subject_id)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    words("key", primary_key=True),
    words("digest"),
    words("response"),
    moment("at_ms"),  # since when it is kept, for a while; null: for as long as what it tells of
)
Index("idempotency_key_at", idempotency_key.c.at_ms)


# The tables of the work: graphs, tasks, edges, attempts.
#
# What every step needs is in `task`, narrow and often written; what is written once and seldom read stands beside it
# in `task_definition`.


#: The states in the order in which tasks pass through them most often: the first that fits ends the check.
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


# Graphs, tasks and edges.

graph = Table(
    "graph",
    metadata,
    key("id"),
    words("state"),
    count("active"),
    count("behind"),
    count("unhandled"),
    count("events"),
    count("events_published"),  # up to which of its events others were told
    count("extensions"),
    moment("created_ms", nullable=False),
    moment("moved_ms", nullable=False),
    moment("canceled_ms"),
    words("loader", nullable=True),  # who is still inserting it; null once it is whole and visible
    # The attempt of a task that it is, if it is inside one. No foreign key: that task is of another graph, and stays.
    Column("parent_id", whole(), nullable=True),
    Column("parent_attempt", whole(), nullable=True),
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
#: What was called the same before tells how long things take; most single requests have no name.
Index("graph_name", graph_definition.c.name, graph_definition.c.id, **where("name <> ''"))

#: A graph that runs another again from some of its tasks, and how many tasks it was born with of each sort.
graph_rerun = Table(
    "graph_rerun",
    metadata,
    key("graph_id", ForeignKey("graph.id")),
    Column("source_id", whole(), nullable=False),  # the other graph; it may be gone by now
    words("labels"),  # as JSON
    count("to_run"),
    count("reused"),
)

task = Table(
    "task",
    metadata,
    key("id"),
    Column("graph_id", whole(), ForeignKey("graph.id"), nullable=False),
    # Where it is, and since when.
    words("previous_state", nullable=True),
    words("state"),
    words("reason"),
    moment("moved_ms", nullable=False),
    # How far it has come.
    count("attempt"),
    count("began_after"),
    words("ended", nullable=True),
    count("round", 1),
    count("reruns_used"),
    count("retries_used"),
    count("slice_index"),
    moment("waits_since_ms"),
    moment("not_before_ms"),
    # What was asked for, and stays.
    words("rules"),
    words("kind"),
    count("priority"),
    moment("created_ms", nullable=False),
    count("weight"),
    words("join_rule"),
    words("on_impossible"),
    count("is_handler"),  # 1: it has a failure or an always edge
    count("is_constrained"),  # 1: it names mutexes or limits
    # What its edges know while it waits for them, and how its own failure is dealt with.
    count("awaited"),
    count("met"),
    count("broken"),
    count("impossible"),
    count("handlers_ran"),
    count("handlers_open"),
    count("loading"),  # 1: the extension that brings it is still being loaded
    count("open_continuations"),  # how many notes to tell its dependents are open
    # Where it waits, and who has it.
    count("needs_admission"),  # 1: a pass has to admit it, 0: nothing could hold it
    Column("queue_id", whole(), ForeignKey("queue.id"), nullable=False),
    words("bot_id", nullable=True),
    words("avoid_bot", nullable=True),
    count("fence"),
    moment("lease_until_ms"),
    moment("due_ms"),  # when the clock next has something to say about it
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
    Column("graph_id", whole(), nullable=False),
    words("label"),
    words("definition"),
    words("digest", nullable=True),  # only where substitution changed what was submitted; else it is computed
    words("submitter"),  # whose task it is: the id of a token, or the name of the caller where there is none
)
Index("task_label", task_definition.c.graph_id, task_definition.c.label, unique=True)

# A new edge keeps its prerequisite, by the foreign key, from ending unseen in another transaction meanwhile.
edge = Table(
    "edge",
    metadata,
    key("prerequisite_id", ForeignKey("task.id")),
    key("dependent_id", ForeignKey("task.id")),
    words("on_end", primary_key=True),
    Column("handled_round", whole(), nullable=True),  # the round of the prerequisite for which the dependent last ran
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

#: Tasks that are done because another one was: which attempt of which task, wherever that is by now. What it published
#: stands beside the task as if of an attempt 0.
task_reuse = Table(
    "task_reuse",
    metadata,
    key("task_id", ForeignKey("task.id")),
    Column("source_id", whole(), nullable=False),
    Column("source_graph_id", whole(), nullable=False),
    count("attempt"),
)

# Attempts and what they left. These have no foreign keys: whoever writes them has locked the task, and the check costs
# as much as the row.

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
    Column("exit_code", whole(), nullable=True),
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
    Column("memory_bytes", whole(), nullable=True),
    Column("read_bytes", whole(), nullable=True),
    Column("written_bytes", whole(), nullable=True),
    count("truncated"),  # 1: it printed more than was kept
    sqlite_with_rowid=False,
)

output_chunk = Table(
    "output_chunk",
    metadata,
    key("task_id"),
    key("attempt"),
    key("number"),
    count("start"),
    moment("at_ms", nullable=False),  # when it came
    Column("body", LargeBinary(), nullable=False),
)

#: What attempts say of themselves while they run, and what they leave to those after them.
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
