"""Version 1, the heart: graphs, tasks, edges, attempts, queues, bots, and what keeps the house."""

from taskyard.store.migrations.versions.heart import access, fleet, keeping, rows, work

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table, each after those it refers to, and the rows that are there from the first."""
    fleet.create()
    work.create()
    keeping.create()
    access.create()
    rows.insert()
