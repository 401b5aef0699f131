"""Version 1: the tables of the work, as they were then."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from taskyard.store.migrations.versions.heart.whole import WHOLE


def create() -> None:
    """Make them, each after those it refers to."""
    _attempt()
    _attempt_stats()
    _graph()
    _output_chunk()
    _progress()
    _result()
    _graph_definition()
    _graph_rerun()
    _task()
    _edge()
    _task_definition()
    _task_limit()
    _task_mutex()
    _task_reuse()


def _attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, autoincrement=False, nullable=False),
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("poll_id", sa.Text(), nullable=False),
        sa.Column("fence", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("round", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("slice_index", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("claimed_ms", WHOLE, nullable=False),
        sa.Column("ended_ms", WHOLE, nullable=True),
        sa.Column("signal", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("exit_code", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("task_id", "number", name="attempt_pk"),
        sqlite_with_rowid=False,
    )


def _attempt_stats() -> None:
    op.create_table(
        "attempt_stats",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("attempt", WHOLE, autoincrement=False, nullable=False),
        sa.Column("prepared_ms", WHOLE, nullable=True),
        sa.Column("ran_ms", WHOLE, nullable=True),
        sa.Column("uploaded_ms", WHOLE, nullable=True),
        sa.Column("cpu_s", sa.Float(), nullable=True),
        sa.Column("memory_bytes", WHOLE, nullable=True),
        sa.Column("read_bytes", WHOLE, nullable=True),
        sa.Column("written_bytes", WHOLE, nullable=True),
        sa.Column("truncated", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="attempt_stats_pk"),
        sqlite_with_rowid=False,
    )


def _graph() -> None:
    op.create_table(
        "graph",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("active", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("behind", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("unhandled", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("events", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("told", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("extensions", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("created_ms", WHOLE, nullable=False),
        sa.Column("moved_ms", WHOLE, nullable=False),
        sa.Column("canceled_ms", WHOLE, nullable=True),
        sa.Column("loader", sa.Text(), nullable=True),
        sa.Column("parent_id", WHOLE, nullable=True),
        sa.Column("parent_attempt", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("id", name="graph_pk"),
        sa.CheckConstraint(
            "state IN ('blocked', 'canceled', 'canceling', 'finished', 'running')", name="graph_state_is_known"
        ),
        sa.CheckConstraint("active >= 0", name="graph_active_is_not_negative"),
        sa.CheckConstraint("behind >= 0", name="graph_behind_is_not_negative"),
        sa.CheckConstraint("unhandled >= 0", name="graph_unhandled_is_not_negative"),
    )
    op.create_index(
        "graph_loading",
        "graph",
        ["id"],
        sqlite_where=sa.text("loader IS NOT NULL"),
        postgresql_where=sa.text("loader IS NOT NULL"),
    )
    op.create_index(
        "graph_of_attempt",
        "graph",
        ["parent_id", "parent_attempt"],
        unique=True,
        sqlite_where=sa.text("parent_id IS NOT NULL"),
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_index(
        "graph_untold",
        "graph",
        ["id"],
        sqlite_where=sa.text("events > told"),
        postgresql_where=sa.text("events > told"),
    )


def _output_chunk() -> None:
    op.create_table(
        "output_chunk",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("attempt", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, autoincrement=False, nullable=False),
        sa.Column("start", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("at_ms", WHOLE, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "attempt", "number", name="output_chunk_pk"),
    )


def _progress() -> None:
    op.create_table(
        "progress",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("attempt", WHOLE, autoincrement=False, nullable=False),
        sa.Column("at_ms", WHOLE, nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("checkpoint", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="progress_pk"),
        sqlite_with_rowid=False,
    )


def _result() -> None:
    op.create_table(
        "result",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("attempt", WHOLE, autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="result_pk"),
        sqlite_with_rowid=False,
    )


def _graph_definition() -> None:
    op.create_table(
        "graph_definition",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("scheduler_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("routing", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="graph_definition_pk"),
        sa.ForeignKeyConstraint(["id"], ["graph.id"], name="graph_definition_id_fk"),
    )
    op.create_index(
        "graph_name",
        "graph_definition",
        ["name", "id"],
        sqlite_where=sa.text("name <> ''"),
        postgresql_where=sa.text("name <> ''"),
    )


def _graph_rerun() -> None:
    op.create_table(
        "graph_rerun",
        sa.Column("graph_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("source_id", WHOLE, nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("again", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("reused", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("graph_id", name="graph_rerun_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="graph_rerun_graph_id_fk"),
    )


def _task() -> None:
    op.create_table(
        "task",
        *_task_columns(),
        *_task_rules(),
    )
    op.create_index(
        "task_contending",
        "task",
        ["state", "id"],
        sqlite_where=sa.text("contends = 1"),
        postgresql_where=sa.text("contends = 1"),
    )
    op.create_index(
        "task_due",
        "task",
        ["due_ms"],
        sqlite_where=sa.text("due_ms IS NOT NULL"),
        postgresql_where=sa.text("due_ms IS NOT NULL"),
    )
    op.create_index(
        "task_in_queue",
        "task",
        ["queue_id", "priority", "created_ms", "id"],
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index(
        "task_of_bot",
        "task",
        ["bot_id"],
        sqlite_where=sa.text("bot_id IS NOT NULL"),
        postgresql_where=sa.text("bot_id IS NOT NULL"),
    )
    op.create_index("task_of_graph", "task", ["graph_id", "id"])


def _task_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("graph_id", WHOLE, nullable=False),
        sa.Column("was", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("moved_ms", WHOLE, nullable=False),
        sa.Column("attempt", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("began_after", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("ended", sa.Text(), nullable=True),
        sa.Column("round", WHOLE, nullable=False, server_default=sa.text("1")),
        sa.Column("reruns_used", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("retries_used", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("slice_index", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("waits_since_ms", WHOLE, nullable=True),
        sa.Column("not_before_ms", WHOLE, nullable=True),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("priority", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("created_ms", WHOLE, nullable=False),
        sa.Column("weight", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("join_rule", sa.Text(), nullable=False),
        sa.Column("on_impossible", sa.Text(), nullable=False),
        sa.Column("handles", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("excludes", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("awaited", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("met", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("broken", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("impossible", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("handlers_ran", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("handlers_hoped", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("hidden", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("telling", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("contends", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("queue_id", WHOLE, nullable=False),
        sa.Column("bot_id", sa.Text(), nullable=True),
        sa.Column("not_by", sa.Text(), nullable=True),
        sa.Column("fence", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.Column("lease_until_ms", WHOLE, nullable=True),
        sa.Column("due_ms", WHOLE, nullable=True),
    ]


def _task_rules() -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("id", name="task_pk"),
        sa.CheckConstraint(
            (
                "was IS NULL AND state = 'unscheduled' OR was IS NOT NULL AND CASE state "
                "WHEN 'waiting' THEN was = 'pending' "
                "WHEN 'running' THEN was = 'waiting' "
                "WHEN 'successful' THEN was = 'unscheduled' OR was = 'pending' OR was = 'running' "
                "WHEN 'pending' THEN was = 'unscheduled' OR was = 'pending' OR was = 'waiting' OR "
                "was = 'running' "
                "WHEN 'unscheduled' THEN was = 'blocked' OR was = 'failed' OR was = 'error' OR "
                "was = 'canceled' OR was = 'skipped' "
                "WHEN 'blocked' THEN was = 'unscheduled' "
                "WHEN 'stopping' THEN was = 'running' "
                "WHEN 'failed' THEN was = 'unscheduled' OR was = 'running' "
                "WHEN 'error' THEN was = 'unscheduled' OR was = 'blocked' OR was = 'pending' OR "
                "was = 'waiting' OR was = 'running' "
                "WHEN 'canceled' THEN was = 'unscheduled' OR was = 'blocked' OR was = 'pending' OR "
                "was = 'waiting' OR was = 'stopping' "
                "WHEN 'skipped' THEN was = 'unscheduled' OR was = 'blocked' ELSE FALSE END"
            ),
            name="task_moves_along_an_arrow",
        ),
        sa.CheckConstraint(
            "(bot_id IS NOT NULL) = (state IN ('running', 'stopping'))", name="task_a_bot_has_what_is_leased"
        ),
        sa.CheckConstraint("awaited >= 0", name="task_awaited_is_not_negative"),
        sa.CheckConstraint("met >= 0", name="task_met_is_not_negative"),
        sa.CheckConstraint("broken >= 0", name="task_broken_is_not_negative"),
        sa.CheckConstraint("impossible >= 0", name="task_impossible_is_not_negative"),
        sa.CheckConstraint("handlers_ran >= 0", name="task_handlers_ran_is_not_negative"),
        sa.CheckConstraint("handlers_hoped >= 0", name="task_handlers_hoped_is_not_negative"),
        sa.CheckConstraint("telling >= 0", name="task_telling_is_not_negative"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="task_graph_id_fk"),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name="task_queue_id_fk"),
    ]


def _edge() -> None:
    op.create_table(
        "edge",
        sa.Column("prerequisite_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("dependent_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("on_end", sa.Text(), nullable=False),
        sa.Column("ran_for", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("prerequisite_id", "dependent_id", "on_end", name="edge_pk"),
        sa.ForeignKeyConstraint(["prerequisite_id"], ["task.id"], name="edge_prerequisite_id_fk"),
        sa.ForeignKeyConstraint(["dependent_id"], ["task.id"], name="edge_dependent_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("edge_of_dependent", "edge", ["dependent_id", "prerequisite_id"])


def _task_definition() -> None:
    op.create_table(
        "task_definition",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("graph_id", WHOLE, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="task_definition_pk"),
        sa.ForeignKeyConstraint(["id"], ["task.id"], name="task_definition_id_fk"),
    )
    op.create_index("task_label", "task_definition", ["graph_id", "label"], unique=True)


def _task_limit() -> None:
    op.create_table(
        "task_limit",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("amount", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "name", name="task_limit_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_limit_task_id_fk"),
        sqlite_with_rowid=False,
    )


def _task_mutex() -> None:
    op.create_table(
        "task_mutex",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("party", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("task_id", "key", name="task_mutex_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_mutex_task_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_mutex_key", "task_mutex", ["key"])


def _task_reuse() -> None:
    op.create_table(
        "task_reuse",
        sa.Column("task_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("source_id", WHOLE, nullable=False),
        sa.Column("source_graph_id", WHOLE, nullable=False),
        sa.Column("attempt", WHOLE, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", name="task_reuse_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_reuse_task_id_fk"),
    )
