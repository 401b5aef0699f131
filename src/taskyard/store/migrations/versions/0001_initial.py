"""Version 1: all tables of the first release."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

#: Integers of 64 bits; SQLite has no others.
INTEGER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables, each after those that it refers to, and insert the first rows."""
    create_bot_tables()
    create_task_tables()
    create_admission_and_event_tables()
    create_access_tables()
    insert_first_rows()


def create_bot_tables() -> None:
    """Create the tables of bots and queues."""
    _bot()
    _dimension_aggregation()
    _queue()
    _bot_dimensions()
    _bot_snapshot()
    _forgotten_bot()
    _bot_event()
    _bot_queue()
    _bot_settings()


def _bot() -> None:
    op.create_table(
        "bot",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("previous_sessions", sa.Text(), nullable=False),
        sa.Column("recent_polls", sa.Text(), nullable=False),
        sa.Column("slots", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.Column("first_seen_ms", INTEGER, nullable=False),
        sa.Column("last_seen_ms", INTEGER, nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("quarantined", sa.Text(), nullable=True),
        sa.Column("maintenance", sa.Text(), nullable=True),
        sa.Column("draining", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("terminated", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("missing", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("snapshot_id", INTEGER, nullable=True),
        sa.Column("failures", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("failed_ms", INTEGER, nullable=True),
        sa.Column("changes", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("events", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("reserved_task_id", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="bot_pk"),
    )
    op.create_index(
        "bot_reserved",
        "bot",
        ["reserved_task_id"],
        sqlite_where=sa.text("reserved_task_id IS NOT NULL"),
        postgresql_where=sa.text("reserved_task_id IS NOT NULL"),
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
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("hash", INTEGER, nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.Column("used_ms", INTEGER, nullable=False),
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
        sa.Column("caches", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.PrimaryKeyConstraint("bot_id", name="bot_dimensions_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_dimensions_bot_id_fk"),
    )


def _bot_snapshot() -> None:
    op.create_table(
        "bot_snapshot",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("dimensions", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("used_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="bot_snapshot_pk"),
    )
    op.create_index("bot_snapshot_used", "bot_snapshot", ["used_ms"])


def _forgotten_bot() -> None:
    op.create_table(
        "forgotten_bot",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("forgotten_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="forgotten_bot_pk"),
    )


def _bot_event() -> None:
    op.create_table(
        "bot_event",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at_ms", INTEGER, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("task_id", INTEGER, nullable=True),
        sa.Column("attempt", INTEGER, nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "id", name="bot_event_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_event_bot_id_fk"),
        sqlite_with_rowid=False,
    )


def _bot_queue() -> None:
    op.create_table(
        "bot_queue",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("queue_id", INTEGER, autoincrement=False, nullable=False),
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
        sa.Column("draining", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("terminated", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("bot_id", name="bot_settings_pk"),
        sa.ForeignKeyConstraint(["bot_id"], ["bot.id"], name="bot_settings_bot_id_fk"),
    )


def create_task_tables() -> None:
    """Create the tables of graphs, tasks, edges and attempts."""
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
    _task_tag()
    _task_child()
    _file_tables()
    _purged_graph()
    _retention()
    _hash_key()
    _secret()
    _secret_bytes()
    _task_secret()
    _reuse_key()
    _reuse_follower()
    _reuse_policy()
    _catalogue()
    _launch()


def _attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("number", INTEGER, autoincrement=False, nullable=False),
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("poll_id", sa.Text(), nullable=False),
        sa.Column("fence", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("round", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("slice_index", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("snapshot_id", INTEGER, nullable=True),
        sa.Column("claim_fence", INTEGER, nullable=True),
        sa.Column("claimed_ms", INTEGER, nullable=False),
        sa.Column("ended_ms", INTEGER, nullable=True),
        sa.Column("signal", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("exit_code", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("task_id", "number", name="attempt_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempt_block",
        sa.Column("bot_id", sa.Text(), nullable=False),
        sa.Column("block", INTEGER, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("bot_id", "block", name="attempt_block_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("attempt_block_block", "attempt_block", ["block"])


def _attempt_stats() -> None:
    op.create_table(
        "attempt_stats",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("prepared_ms", INTEGER, nullable=True),
        sa.Column("cached_ms", INTEGER, nullable=True),
        sa.Column("downloaded_ms", INTEGER, nullable=True),
        sa.Column("ran_ms", INTEGER, nullable=True),
        sa.Column("uploaded_ms", INTEGER, nullable=True),
        sa.Column("cleaned_ms", INTEGER, nullable=True),
        sa.Column("cpu_s", sa.Float(), nullable=True),
        sa.Column("memory_bytes", INTEGER, nullable=True),
        sa.Column("read_bytes", INTEGER, nullable=True),
        sa.Column("written_bytes", INTEGER, nullable=True),
        sa.Column("truncated", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="attempt_stats_pk"),
        sqlite_with_rowid=False,
    )


def _graph() -> None:
    op.create_table(
        "graph",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("active", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("behind", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("unhandled", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("events", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("events_published", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("extensions", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.Column("moved_ms", INTEGER, nullable=False),
        sa.Column("canceled_ms", INTEGER, nullable=True),
        sa.Column("loader", sa.Text(), nullable=True),
        sa.Column("parent_id", INTEGER, nullable=True),
        sa.Column("parent_attempt", INTEGER, nullable=True),
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
        "graph_settled",
        "graph",
        ["moved_ms", "id"],
        sqlite_where=sa.text("active = 0 AND loader IS NULL"),
        postgresql_where=sa.text("active = 0 AND loader IS NULL"),
    )
    op.create_index(
        "graph_unpublished",
        "graph",
        ["id"],
        sqlite_where=sa.text("events > events_published"),
        postgresql_where=sa.text("events > events_published"),
    )


def _output_chunk() -> None:
    op.create_table(
        "output_chunk",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("number", INTEGER, autoincrement=False, nullable=False),
        sa.Column("start", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("at_ms", INTEGER, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "attempt", "number", name="output_chunk_pk"),
    )


def _progress() -> None:
    op.create_table(
        "progress",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("at_ms", INTEGER, nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("checkpoint", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="progress_pk"),
        sqlite_with_rowid=False,
    )


def _result() -> None:
    op.create_table(
        "result",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="result_pk"),
        sqlite_with_rowid=False,
    )


def _graph_definition() -> None:
    op.create_table(
        "graph_definition",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
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
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("source_id", INTEGER, nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("to_run", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("reused", INTEGER, nullable=False, server_default=sa.text("0")),
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
        "task_gone_wrong",
        "task",
        ["gone_wrong", "id"],
        sqlite_where=sa.text("gone_wrong IS NOT NULL"),
        postgresql_where=sa.text("gone_wrong IS NOT NULL"),
    )
    op.create_index(
        "task_in_admission",
        "task",
        ["state", "id"],
        sqlite_where=sa.text("needs_admission = 1"),
        postgresql_where=sa.text("needs_admission = 1"),
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
    op.create_index(
        "task_with_caches",
        "task",
        ["queue_id", "priority", "created_ms", "id"],
        sqlite_where=sa.text("state = 'waiting' AND caches IS NOT NULL"),
        postgresql_where=sa.text("state = 'waiting' AND caches IS NOT NULL"),
    )
    op.create_index("task_of_graph", "task", ["graph_id", "id"])


def _task_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("graph_id", INTEGER, nullable=False),
        sa.Column("previous_state", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("moved_ms", INTEGER, nullable=False),
        sa.Column("attempt", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("began_after", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("ended", sa.Text(), nullable=True),
        sa.Column("round", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.Column("reruns_used", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("retries_used", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("slice_index", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("waits_since_ms", INTEGER, nullable=True),
        sa.Column("not_before_ms", INTEGER, nullable=True),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("priority", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.Column("weight", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("join_rule", sa.Text(), nullable=False),
        sa.Column("on_impossible", sa.Text(), nullable=False),
        sa.Column("is_handler", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("is_constrained", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("awaited", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("met", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("broken", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("impossible", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("handlers_ran", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("handlers_open", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("loading", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("open_continuations", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("needs_admission", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("queue_id", INTEGER, nullable=False),
        sa.Column("bot_id", sa.Text(), nullable=True),
        sa.Column("avoid_bot", sa.Text(), nullable=True),
        sa.Column("fence", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("lease_until_ms", INTEGER, nullable=True),
        sa.Column("due_ms", INTEGER, nullable=True),
        sa.Column("caches", sa.Text(), nullable=True),
        sa.Column("gone_wrong", sa.Text(), nullable=True),
    ]


def _task_rules() -> list[sa.Constraint]:
    return [
        sa.PrimaryKeyConstraint("id", name="task_pk"),
        sa.CheckConstraint(
            (
                "previous_state IS NULL AND state = 'unscheduled' OR previous_state IS NOT NULL AND CASE state "
                "WHEN 'waiting' THEN previous_state = 'pending' "
                "WHEN 'running' THEN previous_state = 'waiting' "
                "WHEN 'successful' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR "
                "previous_state = 'running' "
                "WHEN 'pending' THEN previous_state = 'unscheduled' OR previous_state = 'pending' OR "
                "previous_state = 'waiting' OR previous_state = 'running' "
                "WHEN 'unscheduled' THEN previous_state = 'blocked' OR previous_state = 'failed' OR "
                "previous_state = 'error' OR previous_state = 'canceled' OR previous_state = 'skipped' "
                "WHEN 'blocked' THEN previous_state = 'unscheduled' "
                "WHEN 'stopping' THEN previous_state = 'running' "
                "WHEN 'failed' THEN previous_state = 'unscheduled' OR previous_state = 'running' "
                "WHEN 'error' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR "
                "previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'running' "
                "WHEN 'canceled' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' OR "
                "previous_state = 'pending' OR previous_state = 'waiting' OR previous_state = 'stopping' "
                "WHEN 'skipped' THEN previous_state = 'unscheduled' OR previous_state = 'blocked' ELSE FALSE END"
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
        sa.CheckConstraint("handlers_open >= 0", name="task_handlers_open_is_not_negative"),
        sa.CheckConstraint("open_continuations >= 0", name="task_open_continuations_is_not_negative"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="task_graph_id_fk"),
    ]


def _edge() -> None:
    op.create_table(
        "edge",
        sa.Column("prerequisite_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("dependent_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("on_end", sa.Text(), nullable=False),
        sa.Column("handled_round", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("prerequisite_id", "dependent_id", "on_end", name="edge_pk"),
        sa.ForeignKeyConstraint(["prerequisite_id"], ["task.id"], name="edge_prerequisite_id_fk"),
        sa.ForeignKeyConstraint(["dependent_id"], ["task.id"], name="edge_dependent_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("edge_of_dependent", "edge", ["dependent_id", "prerequisite_id"])


def _task_definition() -> None:
    op.create_table(
        "task_definition",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("graph_id", INTEGER, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="task_definition_pk"),
        sa.ForeignKeyConstraint(["id"], ["task.id"], name="task_definition_id_fk"),
    )
    op.create_index("task_label", "task_definition", ["graph_id", "label"], unique=True)


def _task_limit() -> None:
    op.create_table(
        "task_limit",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("amount", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "name", name="task_limit_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_limit_task_id_fk"),
        sqlite_with_rowid=False,
    )


def _secret() -> None:
    op.create_table(
        "secret",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.Column("changed_ms", INTEGER, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "name", name="secret_pk"),
    )
    op.create_index("secret_of_key", "secret", ["key_id"])


def _secret_bytes() -> None:
    op.create_table(
        "secret_bytes",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("first_id", INTEGER, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="secret_bytes_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="secret_bytes_task_id_fk"),
    )
    op.create_index("secret_bytes_of_key", "secret_bytes", ["key_id"])


def _task_secret() -> None:
    op.create_table(
        "task_secret",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("slice_index", INTEGER, autoincrement=False, nullable=False),
        sa.Column("variable", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_file", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "slice_index", "variable", name="task_secret_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_secret_task_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_secret_of_name", "task_secret", ["pool", "name"])


def _hash_key() -> None:
    op.create_table(
        "hash_key",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="hash_key_pk"),
    )


def _catalogue() -> None:
    op.create_table(
        "catalogue",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("version", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("changed_ms", INTEGER, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="catalogue_pk"),
    )
    op.create_table(
        "catalogue_version",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", INTEGER, autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("changed_ms", INTEGER, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "version", name="catalogue_version_pk"),
    )
    op.create_table(
        "catalogue_reference",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("to_kind", sa.Text(), nullable=False),
        sa.Column("to_name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "to_kind", "to_name", name="catalogue_reference_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("catalogue_reference_to", "catalogue_reference", ["to_kind", "to_name"])
    op.create_table(
        "catalogue_lock",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("changes", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id", name="catalogue_lock_pk"),
    )
    op.execute("INSERT INTO catalogue_lock (id, changes) VALUES (1, 0)")


def _launch() -> None:
    op.create_table(
        "launch",
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("launch_type", sa.Text(), nullable=False),
        sa.Column("variables", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=True),
        sa.Column("due_ms", INTEGER, nullable=True),
        sa.Column("relaunch_of", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("graph_id", name="launch_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="launch_graph_id_fk"),
    )
    op.create_index("launch_of_template", "launch", ["kind", "name", "graph_id"])
    op.create_index(
        "launch_of_schedule",
        "launch",
        ["schedule", "due_ms"],
        unique=True,
        sqlite_where=sa.text("schedule IS NOT NULL"),
        postgresql_where=sa.text("schedule IS NOT NULL"),
    )
    op.create_table(
        "schedule_plan",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("next_ms", INTEGER, nullable=True),
        sa.Column("last_ms", INTEGER, nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="schedule_plan_pk"),
    )
    op.create_index(
        "schedule_plan_next",
        "schedule_plan",
        ["next_ms"],
        sqlite_where=sa.text("next_ms IS NOT NULL"),
        postgresql_where=sa.text("next_ms IS NOT NULL"),
    )
    op.create_table(
        "resource_update",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("graph_id", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("resource", "digest", "task_id", name="resource_update_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="resource_update_task_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("resource_update_task", "resource_update", ["task_id"])
    op.create_table(
        "link",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("update_task_id", INTEGER, nullable=False),
        sa.Column("update_graph_id", INTEGER, nullable=False),
        sa.Column("freshness", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="link_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="link_task_id_fk"),
    )
    op.create_index("link_update", "link", ["update_task_id"])


def _task_mutex() -> None:
    op.create_table(
        "task_mutex",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
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
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("source_id", INTEGER, nullable=False),
        sa.Column("source_graph_id", INTEGER, nullable=False),
        sa.Column("attempt", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", name="task_reuse_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="task_reuse_task_id_fk"),
    )


def _purged_graph() -> None:
    op.create_table(
        "purged_graph",
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("settled_ms", INTEGER, nullable=False),
        sa.Column("parts", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("graph_id", name="purged_graph_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="purged_graph_graph_id_fk"),
    )


def _retention() -> None:
    op.create_table(
        "retention",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("keep_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("pool", "kind", name="retention_pk"),
        sqlite_with_rowid=False,
    )


def _task_tag() -> None:
    op.create_table(
        "task_tag",
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("last_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("first_id", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("tag", "last_id", name="task_tag_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_tag_last", "task_tag", ["last_id"])


def _task_child() -> None:
    op.create_table(
        "task_child",
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("parent_id", INTEGER, nullable=False),
        sa.Column("parent_attempt", INTEGER, nullable=False),
        sa.Column("watched", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("graph_id", name="task_child_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="task_child_graph_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_child_parent", "task_child", ["parent_id"])
    op.create_index(
        "task_child_watched",
        "task_child",
        ["graph_id"],
        sqlite_where=sa.text("watched = 1"),
        postgresql_where=sa.text("watched = 1"),
    )


def _file_tables() -> None:
    op.create_table(
        "task_input_tree",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "tree", name="task_input_tree_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("task_input_tree_tree", "task_input_tree", ["tree"])
    op.create_table(
        "attempt_files",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.Column("files", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("bytes", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("task_id", "attempt", name="attempt_files_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("attempt_files_tree", "attempt_files", ["tree"])
    op.create_table(
        "artifact",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("attempt", INTEGER, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "attempt", "name", name="artifact_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("artifact_tree", "artifact", ["tree"])


def _reuse_key() -> None:
    op.create_table(
        "reuse_key",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("leader_id", INTEGER, nullable=True),
        sa.Column("source_id", INTEGER, nullable=True),
        sa.Column("source_graph_id", INTEGER, nullable=True),
        sa.Column("attempt", INTEGER, nullable=True),
        sa.Column("size", INTEGER, nullable=True),
        sa.Column("finished_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("key", name="reuse_key_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "reuse_key_leader",
        "reuse_key",
        ["leader_id", "source_id"],
        sqlite_where=sa.text("leader_id IS NOT NULL"),
        postgresql_where=sa.text("leader_id IS NOT NULL"),
    )
    op.create_index(
        "reuse_key_source",
        "reuse_key",
        ["source_id"],
        sqlite_where=sa.text("source_id IS NOT NULL"),
        postgresql_where=sa.text("source_id IS NOT NULL"),
    )


def _reuse_follower() -> None:
    op.create_table(
        "reuse_follower",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("priority", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="reuse_follower_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="reuse_follower_task_id_fk"),
    )
    op.create_index("reuse_follower_order", "reuse_follower", ["key", "priority", "created_ms", "task_id"])


def _reuse_policy() -> None:
    op.create_table(
        "reuse_policy",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("window_ms", INTEGER, nullable=True),
        sa.Column("shared", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("pool", name="reuse_policy_pk"),
    )


def create_admission_and_event_tables() -> None:
    """Create the tables of admission, continuations, servers, events, audit and idempotency keys."""
    _idempotency_key()
    _audit()
    _event()
    _event_stream()
    _streamed_event()
    _event_target()
    _webhooks()
    _mutex_policy()
    _named_limit()
    _admission_lock()
    _pool()
    _service()
    _server()
    _admission_dirty()
    _continuation()
    _hold()
    _pool_minute()


def _idempotency_key() -> None:
    op.create_table(
        "idempotency_key",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("at_ms", INTEGER, nullable=True),
        sa.Column("graph_id", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("key", name="idempotency_key_pk"),
    )
    op.create_index("idempotency_key_at", "idempotency_key", ["at_ms"])
    op.create_index(
        "idempotency_key_graph",
        "idempotency_key",
        ["graph_id"],
        sqlite_where=sa.text("graph_id IS NOT NULL"),
        postgresql_where=sa.text("graph_id IS NOT NULL"),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", INTEGER, autoincrement=True, nullable=False),
        sa.Column("at_ms", INTEGER, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_id", INTEGER, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pk"),
    )
    op.create_index("audit_of_subject", "audit", ["subject_id"])


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("number", INTEGER, autoincrement=False, nullable=False),
        sa.Column("subject_id", INTEGER, nullable=False),
        sa.Column("at_ms", INTEGER, nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("graph_id", "number", name="event_pk"),
        sqlite_with_rowid=False,
    )
    op.create_index("event_of_subject", "event", ["subject_id", "number"])


def _event_stream() -> None:
    op.create_table(
        "event_stream",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        *(
            sa.Column(name, INTEGER, nullable=False, server_default=sa.text("0"))
            for name in ("last", "gone", "wanted_until_ms", "since_ms", "skipped")
        ),
        sa.PrimaryKeyConstraint("id", name="event_stream_pk"),
    )


def _streamed_event() -> None:
    op.create_table(
        "streamed_event",
        sa.Column("number", INTEGER, autoincrement=False, nullable=False),
        sa.Column("graph_id", INTEGER, nullable=False),
        sa.Column("event_number", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("number", name="streamed_event_pk"),
        sqlite_with_rowid=False,
    )


def _event_target() -> None:
    op.create_table(
        "event_target",
        sa.Column("name", sa.Text(), nullable=False),
        *(sa.Column(name, INTEGER, nullable=False) for name in ("position", "added_ms", "delivered_ms")),
        sa.PrimaryKeyConstraint("name", name="event_target_pk"),
    )


def _webhooks() -> None:
    op.create_table(
        "webhook",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("graph_id", INTEGER, nullable=True),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("paused", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("version", INTEGER, nullable=False, server_default=sa.text("1")),
        sa.Column("changed_ms", INTEGER, nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("failing_since_ms", INTEGER, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="webhook_pk"),
    )
    op.create_table(
        "dead_delivery",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("webhook", "id", "body")),
        sa.Column("died_ms", INTEGER, nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("again", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("webhook", "id", name="dead_delivery_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "webhook_sender",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="webhook_sender_pk"),
    )


def _mutex_policy() -> None:
    op.create_table(
        "mutex_policy",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("stake_after_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("key", name="mutex_policy_pk"),
    )


def _named_limit() -> None:
    op.create_table(
        "named_limit",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("total", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("name", name="named_limit_pk"),
    )


def _admission_lock() -> None:
    op.create_table(
        "admission_lock",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("until_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="admission_lock_pk"),
    )


def _pool() -> None:
    op.create_table(
        "pool",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capacity", INTEGER, nullable=True),
        sa.Column("from_bots", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("unit", sa.Text(), nullable=False, server_default=sa.text("'slots'")),
        sa.Column("adjustment", sa.Float(), nullable=False, server_default=sa.text("1")),
        sa.Column("external", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("name", name="pool_pk"),
    )


def _service() -> None:
    op.create_table(
        "service",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("queues", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id", name="service_pk"),
    )


def _server() -> None:
    op.create_table(
        "server",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since_ms", INTEGER, nullable=False),
        sa.Column("seen_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="server_pk"),
    )


def _admission_dirty() -> None:
    op.create_table(
        "admission_dirty",
        sa.Column("id", INTEGER, autoincrement=True, nullable=False),
        sa.Column("task_id", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="admission_dirty_pk"),
    )


def _continuation() -> None:
    op.create_table(
        "continuation",
        sa.Column("id", INTEGER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("graph_id", INTEGER, nullable=False),
        sa.Column("task_id", INTEGER, nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("cursor", INTEGER, nullable=False, server_default=sa.text("0")),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="continuation_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="continuation_graph_id_fk"),
    )
    op.create_index("continuation_of_graph", "continuation", ["graph_id"])
    op.create_index("continuation_of_task", "continuation", ["task_id"])


def _hold() -> None:
    op.create_table(
        "hold",
        sa.Column("task_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("blocker_id", INTEGER, nullable=True),
        sa.Column("since_ms", INTEGER, nullable=True),
        sa.Column("mutex_since_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("task_id", name="hold_pk"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="hold_task_id_fk"),
    )


def create_access_tables() -> None:
    """Create the tables of tokens, sessions, signing keys and pools of graphs."""
    _signing_key()
    _token()
    _session()
    _graph_pool()


def _signing_key() -> None:
    op.create_table(
        "signing_key",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="signing_key_pk"),
    )


def _token() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.Column("expires_ms", INTEGER, nullable=True),
        sa.Column("revoked_ms", INTEGER, nullable=True),
        sa.PrimaryKeyConstraint("id", name="token_pk"),
        sa.CheckConstraint("kind IN ('bot', 'enrolment', 'user')", name="token_kind_is_known"),
    )
    op.create_index("token_created", "token", ["created_ms", "id"])


def _pool_minute() -> None:
    counts = ("submitted", "started", "successful", "failed", "error", "canceled", "skipped", "waiting", "oldest_ms")
    op.create_table(
        "pool_minute",
        sa.Column("minute_ms", INTEGER, autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        *(sa.Column(name, INTEGER, nullable=False, server_default=sa.text("0")) for name in counts),
        sa.PrimaryKeyConstraint("minute_ms", "pool", name="pool_minute_pk"),
        sqlite_with_rowid=False,
    )


def _session() -> None:
    op.create_table(
        "session",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("created_ms", INTEGER, nullable=False),
        sa.Column("expires_ms", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="session_pk"),
        sa.CheckConstraint("kind IN ('browser', 'link')", name="session_kind_is_known"),
    )
    op.create_index("session_of_token", "session", ["token_id", "created_ms"])


def _graph_pool() -> None:
    op.create_table(
        "graph_pool",
        sa.Column("graph_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("graph_id", "pool", name="graph_pool_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="graph_pool_graph_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("graph_pool_pool", "graph_pool", ["pool", "graph_id"])


def insert_first_rows() -> None:
    """Insert what has one row, and the queue of tasks that the server runs itself."""
    op.execute("INSERT INTO admission_lock (id, epoch) VALUES (1, 0)")
    op.execute("INSERT INTO event_stream (id) VALUES (1)")
    op.execute("INSERT INTO service (id, queues) VALUES (1, 0)")
    op.execute(
        "INSERT INTO queue (id, number, hash, root, pool, dimensions, used_ms) VALUES (0, 0, 0, 'server', '', '', 0)"
    )
