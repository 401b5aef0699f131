"""What a store knows by heart has to be what it has."""

from taskyard.store.connection import Store
from taskyard.store.sqlite import SqliteStore


def check_memory(store: Store) -> None:
    """Compare what the writer of a store knows by heart with what is there; PostgreSQL's knows nothing for long."""
    if not isinstance(store, SqliteStore):
        return
    with store.write() as txn:  # what others have written since is forgotten by now
        known = dict(txn.memory.tasks)
        assert {task.id: task for task in txn.tasks.look(list(known))} == known
        graphs = dict(txn.memory.graphs)
        assert {graph.id: graph for graph in txn.graphs.peek(list(graphs))} == graphs
        assert txn.memory.pools is None or txn.memory.pools == txn.passes.pools()
        newest, txn.memory.newest_queue = txn.memory.newest_queue, None
        assert newest is None or not txn.queues.after(newest)
        bots = dict(txn.memory.bots)
        txn.memory.bots.clear()
        assert txn.bots.greet(list(bots)) == bots
