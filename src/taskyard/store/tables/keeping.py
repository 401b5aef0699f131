"""The tables that keep the house: admission, notes of what is still to do, events, and what people asked for."""

from sqlalchemy import Column, ForeignKey, Index, Table

from taskyard.store.tables.columns import count, key, metadata, moment, numbered, whole, words

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
    Column("by_id", whole(), nullable=True),
    moment("since_ms"),
    moment("mutex_since_ms"),  # since a mutex first held the task; kept until it is admitted
)

pass_lock = Table("pass_lock", metadata, key("id"), count("epoch"), words("holder", nullable=True), moment("until_ms"))

#: What a pass has to look at again: a task that came, went or gave something back, or everything about bots and pools.
stir = Table("stir", metadata, numbered("id"), Column("task_id", whole(), nullable=True))

# What is promised and not yet done.

note = Table(
    "note",
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
Index("note_of_task", note.c.task_id)
Index("note_of_graph", note.c.graph_id)

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
    # Of one transaction, in order: see `store/verbs/facts.py`.
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

answer = Table(
    "answer",
    metadata,
    words("key", primary_key=True),
    words("digest"),
    words("answer"),
    moment("at_ms"),  # since when it is kept, for a while; null: for as long as what it tells of
)
Index("answer_at", answer.c.at_ms)
