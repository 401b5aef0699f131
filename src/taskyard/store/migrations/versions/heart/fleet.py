"""Version 1: the tables of the fleet, as they were then."""

import sqlalchemy as sa
from alembic import op

from taskyard.store.migrations.versions.heart.whole import WHOLE


def create() -> None:
    """Make them, each after those it refers to."""
    _bot()
    _dimension_aggregation()
    _queue()
    _bot_dimensions()
    _bot_event()
    _bot_queue()
    _bot_settings()


def _bot() -> None:
    op.create_table(
        "bot",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("replaced", sa.Text(), nullable=False),
        sa.Column("polls", sa.Text(), nullable=False),
        sa.Column("slots", WHOLE, nullable=False, server_default=sa.text("1")),
        sa.Column("first_seen_ms", WHOLE, nullable=False),
        sa.Column("last_seen_ms", WHOLE, nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("quarantined", sa.Text(), nullable=True),
        sa.Column("maintenance", sa.Text(), nullable=True),
        sa.Column("draining", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("terminated", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("missing", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("version", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("events", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id", name="bot_pk"),
    )


def _dimension_aggregation() -> None:
    op.create_table(
        "dimension_aggregation",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="dimension_aggregation_pk"),
    )


def _queue() -> None:
    op.create_table(
        "queue",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("hash", WHOLE, nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="queue_pk"),
        sa.UniqueConstraint("number", name="queue_number_key"),
        sa.UniqueConstraint("dimensions", name="queue_dimensions_key"),
    )
    op.create_index("queue_of_root", "queue", ["root", "hash"])


def _bot_dimensions() -> None:
    op.create_table(
        "bot_dimensions",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", name="bot_dimensions_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_dimensions_bot_id_fk"),
    )


def _bot_event() -> None:
    op.create_table(
        "bot_event",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at_ms", WHOLE, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("task_id", WHOLE, nullable=True),
        sa.Column("attempt", WHOLE, nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "id", name="bot_event_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_event_bot_id_fk"),
        sqlite_with_rowid=False,
    )


def _bot_queue() -> None:
    op.create_table(
        "bot_queue",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("queue_id", WHOLE, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "queue_id", name="bot_queue_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_queue_bot_id_fk"),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name="bot_queue_queue_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("bot_queue_queue", "bot_queue", ["queue_id"])


def _bot_settings() -> None:
    op.create_table(
        "bot_settings",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("quarantined", sa.Text(), nullable=True),
        sa.Column("maintenance", sa.Text(), nullable=True),
        sa.Column("draining", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("terminated", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("bot_id", name="bot_settings_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_settings_bot_id_fk"),
    )
