"""What a store knows by heart has to be what it has."""

from taskyard.store.connection import Store
from taskyard.store.sqlite import SqliteStore


def check_memory(store: Store) -> None:
    """Compare what the writer of a store knows by heart with what is there; PostgreSQL's knows nothing for long."""
    if not isinstance(store, SqliteStore):
        return
    with store.write() as repo:  # what others have written since is forgotten by now
        known = dict(repo.memory.tasks)
        assert {task.id: task for task in repo.tasks.look(list(known))} == known
        graphs = dict(repo.memory.graphs)
        assert {graph.id: graph for graph in repo.graphs.peek(list(graphs))} == graphs
        assert repo.memory.pools is None or repo.memory.pools == repo.passes.pools()
        newest, repo.memory.newest_queue = repo.memory.newest_queue, None
        assert newest is None or not repo.queues.after(newest)
        bots = dict(repo.memory.bots)
        repo.memory.bots.clear()
        assert repo.bots.greet(list(bots)) == bots
