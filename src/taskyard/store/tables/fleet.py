"""The tables of the fleet: queues, and the bots that serve them."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text

from taskyard.store.tables.columns import count, key, metadata, moment, whole, words

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
    words("replaced"),  # the sessions before it, a line each, the newest first
    words("polls"),  # the ids of its latest polls, a line each, the newest first
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
