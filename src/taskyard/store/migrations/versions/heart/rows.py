"""Version 1: the rows that are there from the first."""

from alembic import op


def insert() -> None:
    """The lock of the pass, the count of queues, and the queue of what the server runs itself."""
    op.execute("INSERT INTO pass_lock (id, epoch) VALUES (1, 0)")
    op.execute("INSERT INTO service (id, queues) VALUES (1, 0)")
    op.execute("INSERT INTO queue (id, number, hash, root, pool, dimensions) VALUES (0, 0, 0, 'server', '', '')")
