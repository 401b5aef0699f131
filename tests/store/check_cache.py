"""Compare the row cache of a store with its database."""

from taskyard.store.connection import Store
from taskyard.store.sqlite import SqliteStore


def check_row_cache(store: Store) -> None:
    """Fail if the row cache of the SQLite writer differs from the database; PostgreSQL has no lasting cache."""
    if not isinstance(store, SqliteStore):
        return
    with store.write() as repo:  # this clears the cache if another process has written
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
