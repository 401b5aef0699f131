"""The tables of the work: graphs, tasks, edges, attempts.

What every step needs is in `task`, narrow and often written; what is written once and seldom read stands beside it in
`task_definition`.
"""

from sqlalchemy import CheckConstraint, Column, Float, ForeignKey, Index, LargeBinary, Table

from taskyard.core.machine import ARROWS, LEASED
from taskyard.core.words import GraphState, State
from taskyard.store.tables.columns import count, key, metadata, moment, not_negative, one_of, where, whole, words

#: The states in the order in which tasks pass through them most often: the first that fits ends the check.
_OFTEN = (State.WAITING, State.RUNNING, State.SUCCESSFUL, State.PENDING)


def along_an_arrow() -> str:
    """The machine as a condition on a row: what `was` and what is are joined by an arrow."""
    states = sorted(State, key=lambda state: _OFTEN.index(state) if state in _OFTEN else len(_OFTEN))
    cases = " ".join(f"WHEN '{state.value}' THEN {_from(state)}" for state in states)
    # A condition that comes to null would be met: whoever is new or in no state at all is told apart first.
    return (
        f"was IS NULL AND state = '{State.UNSCHEDULED.value}' OR was IS NOT NULL AND CASE state {cases} ELSE FALSE END"
    )


def _from(target: State) -> str:
    ends = {arrow.source for arrow in ARROWS if target in (arrow.target, arrow.again)}
    return " OR ".join(f"was = '{source.value}'" for source in State if source in ends)


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
    count("told"),  # up to which of its events others were told
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
Index("graph_untold", graph.c.id, **where("events > told"))

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
    count("again"),
    count("reused"),
)

task = Table(
    "task",
    metadata,
    key("id"),
    Column("graph_id", whole(), ForeignKey("graph.id"), nullable=False),
    # Where it is, and since when.
    words("was", nullable=True),
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
    count("handles"),  # 1: it has a failure or an always edge
    count("excludes"),  # 1: it names mutexes or limits
    # What its edges know while it waits for them, and how its own failure is dealt with.
    count("awaited"),
    count("met"),
    count("broken"),
    count("impossible"),
    count("handlers_ran"),
    count("handlers_hoped"),
    count("hidden"),  # 1: the extension that brings it is still being loaded
    count("telling"),  # how many notes to tell its dependents are open
    # Where it waits, and who has it.
    count("contends"),  # 1: a pass has to admit it, 0: nothing could hold it
    Column("queue_id", whole(), ForeignKey("queue.id"), nullable=False),
    words("bot_id", nullable=True),
    words("not_by", nullable=True),
    count("fence"),
    moment("lease_until_ms"),
    moment("due_ms"),  # when the clock next has something to say about it
    CheckConstraint(along_an_arrow(), name="moves_along_an_arrow"),
    CheckConstraint(
        f"(bot_id IS NOT NULL) = (state IN ({', '.join(repr(one.value) for one in sorted(LEASED))}))",
        name="a_bot_has_what_is_leased",
    ),
    *not_negative("awaited", "met", "broken", "impossible", "handlers_ran", "handlers_hoped", "telling"),
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
Index("task_contending", task.c.state, task.c.id, **where("contends = 1"))

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
    Column("ran_for", whole(), nullable=True),  # the round of the prerequisite for which the dependent last ran
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
