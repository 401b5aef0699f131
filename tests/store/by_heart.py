"""What a store knows by heart has to be what it has."""

from taskyard.store.connection import Store
from taskyard.store.sqlite import SqliteStore


def check_memory(store: Store) -> None:
    """Compare what the writer of a store knows by heart with what is there; PostgreSQL's knows nothing for long."""
    if not isinstance(store, SqliteStore):
        return
    with store.write() as repo:  # what others have written since is forgotten by now
        known = dict(repo.cache.tasks)
        assert {task.id: task for task in repo.tasks.read(list(known))} == known
        graphs = dict(repo.cache.graphs)
        assert {graph.id: graph for graph in repo.graphs.peek(list(graphs))} == graphs
        assert repo.cache.pools is None or repo.cache.pools == repo.admission.pools()
        newest, repo.cache.newest_queue = repo.cache.newest_queue, None
        assert newest is None or not repo.queues.after(newest)
        bots = dict(repo.cache.bots)
        repo.cache.bots.clear()
        assert repo.bots.callers(list(bots)) == bots
