"""Version 1: the tables of who may do what, as they were then."""

import sqlalchemy as sa
from alembic import op

from taskyard.store.migrations.versions.heart.whole import WHOLE


def create() -> None:
    """Make them, each after those it refers to."""
    _seal()
    _token()
    _graph_pool()


def _seal() -> None:
    op.create_table(
        "seal",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="seal_pk"),
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
        sa.Column("created_ms", WHOLE, nullable=False),
        sa.Column("expires_ms", WHOLE, nullable=True),
        sa.Column("revoked_ms", WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("id", name="token_pk"),
        sa.CheckConstraint("kind IN ('bot', 'enrolment', 'user')", name="token_kind_is_known"),
    )
    op.create_index("token_created", "token", ["created_ms", "id"])


def _graph_pool() -> None:
    op.create_table(
        "graph_pool",
        sa.Column("graph_id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("graph_id", "pool", name="graph_pool_pk"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="graph_pool_graph_id_fk"),
        sqlite_with_rowid=False,
    )
    op.create_index("graph_pool_pool", "graph_pool", ["pool", "graph_id"])
