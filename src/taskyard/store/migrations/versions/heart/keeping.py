"""Version 1: the tables that keep the house, as they were then."""

import sqlalchemy as sa
from alembic import op

from taskyard.store.migrations.versions.heart.whole import WHOLE


def create() -> None:
    """Make them, each after those it refers to."""
    _answer()
    _audit()
    _event()
    _mutex_policy()
    _named_limit()
    _pass_lock()
    _pool()
    _service()
    _server()
    _stir()
    _note()
    _hold()


def _answer() -> None:
    op.create_table(
        "answer",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("at_ms", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("key", name="answer_pk"),
    )
    op.create_index("answer_at", "answer", ["at_ms"])


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", WHOLE, autoincrement=True, nullable=False),
        sa.Column("at_ms", WHOLE, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_id", WHOLE, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pk"),
    )
    op.create_index("audit_of_subject", "audit", ["subject_id"])


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("graph_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, autoincrement=False, nullable=False),
        sa.Column("subject_id", WHOLE, nullable=False),
        sa.Column("at_ms", WHOLE, nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("graph_id", "number", name="event_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("event_of_subject", "event", ["subject_id", "number"])


def _mutex_policy() -> None:
    op.create_table(
        "mutex_policy",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("stake_after_ms", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("key", name="mutex_policy_pk"),
    )


def _named_limit() -> None:
    op.create_table(
        "named_limit",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("total", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("name", name="named_limit_pk"),
    )


def _pass_lock() -> None:
    op.create_table(
        "pass_lock",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("epoch", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("until_ms", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pass_lock_pk"),
    )


def _pool() -> None:
    op.create_table(
        "pool",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capacity", WHOLE, nullable=True),
        sa.Column("from_bots", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("name", name="pool_pk"),
    )


def _service() -> None:
    op.create_table(
        "service",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("queues", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id", name="service_pk"),
    )


def _server() -> None:
    op.create_table(
        "server",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since_ms", WHOLE, nullable=False),
        sa.Column("seen_ms", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("name", name="server_pk"),
    )


def _stir() -> None:
    op.create_table(
        "stir",
        sa.Column("id", WHOLE, autoincrement=True, nullable=False),
        sa.Column("task_id", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("id", name="stir_pk"),
    )


def _note() -> None:
    op.create_table(
        "note",
        sa.Column("id", WHOLE, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("graph_id", WHOLE, nullable=False),
        sa.Column("task_id", WHOLE, nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("cursor", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="note_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="note_graph_id_fk"),
    )
    op.create_index("note_of_graph", "note", ["graph_id"])
    op.create_index("note_of_task", "note", ["task_id"])


def _hold() -> None:
    op.create_table(
        "hold",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("by_id", WHOLE, nullable=True),
        sa.Column("since_ms", WHOLE, nullable=True),
        sa.Column("mutex_since_ms", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("task_id", name="hold_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="hold_task_id_fk"),
    )
