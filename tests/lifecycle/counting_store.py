"""A store that counts the rows each transaction reads and writes, by the name of the statement.

The cost of a transaction follows from these counts on any machine, so tests can bound it without a clock.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from taskyard.store.connection import Repo, Store
from taskyard.store.queries import Session

#: The statements that read edges.
EDGES = {
    "select_edges_into_handlers",
    "select_edges_out_of",
    "select_edges_out_of_page",
    "select_edges_after",
    "select_edges_into",
    "select_edges_into_page",
}
#: The statements that write transitions of tasks.
MOVES = {"move_ended_tasks", "move_ready_tasks", "move_sent_tasks", "move_started_tasks", "move_tasks"}


class CountingStore:
    """A real store with one counter for each committed transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.written: list[Counter[str]] = []
        self.statements: list[str] = []  # those of the last transaction, in order

    @contextmanager
    def write(self) -> Iterator[Repo]:
        counts: Counter[str] = Counter()
        self.statements = []
        with self._store.write() as repo:
            session: Any = repo.tasks._session
            yield Repo(cast("Session", _Counting(session, counts, self.statements)))
        self.written.append(counts)

    @contextmanager
    def read(self) -> Iterator[Repo]:
        with self._store.read() as repo:
            yield repo

    def close(self) -> None:
        self._store.close()

    def each(self, *names: str) -> list[int]:
        """The rows that some statements had in each transaction that executed any of them."""
        sums = [sum(one[name] for name in names) for one in self.written]
        return [count for count in sums if count]

    def most(self, names: set[str]) -> int:
        """The most rows that some statements had in one transaction since the last call."""
        written, self.written = self.written, []
        return max((sum(one[name] for name in names) for one in written), default=0)


class _Counting:
    """A session that counts the rows of each statement, however it is executed."""

    def __init__(self, session: Session, counts: Counter[str], statements: list[str]) -> None:
        self._session = session
        self._counts = counts
        self._statements = statements

    def __getattr__(self, method: str) -> Callable[..., Any]:
        execute: Callable[..., Any] = getattr(self._session, method)

        def counting(name: str, *arguments: Any) -> Any:
            self._statements.append(name)
            found = execute(name, *arguments)
            if method == "prefetch":
                return found  # counted when it is fetched
            self._counts[name] += (
                max(0, found) if method == "execute" else len(found if method == "fetch" else arguments[0])
            )
            return found

        return counting
