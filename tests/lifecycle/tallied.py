"""A store that counts: how many rows each of its transactions reads and writes, by the name of the statement.

What a transaction costs follows from that, on any machine; so a bound on it can be tested without a clock.
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
#: The statements that write tasks that moved.
MOVES = {"move_ended_tasks", "move_ready_tasks", "move_sent_tasks", "move_started_tasks", "move_tasks"}


class Tallied:
    """A real store, and what its transactions did, one count for each that was committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.written: list[Counter[str]] = []
        self.asked: list[str] = []  # what the last one asked or told, in the order in which it went out

    @contextmanager
    def write(self) -> Iterator[Repo]:
        counts: Counter[str] = Counter()
        self.asked = []
        with self._store.write() as repo:
            session: Any = repo.tasks._session
            yield Repo(cast("Session", _Counting(session, counts, self.asked)))
        self.written.append(counts)

    @contextmanager
    def read(self) -> Iterator[Repo]:
        with self._store.read() as repo:
            yield repo

    def close(self) -> None:
        self._store.close()

    def most(self, names: set[str]) -> int:
        """Say how many rows the busiest transaction since the last question had of some statements."""
        written, self.written = self.written, []
        return max((sum(one[name] for name in names) for one in written), default=0)


class _Counting:
    """A session that counts the rows of each statement, whichever way that is carried out."""

    def __init__(self, session: Session, counts: Counter[str], asked: list[str]) -> None:
        self._session = session
        self._counts = counts
        self._asked = asked

    def __getattr__(self, way: str) -> Callable[..., Any]:
        execute_commands: Callable[..., Any] = getattr(self._session, way)

        def counting(name: str, *said: Any) -> Any:
            self._asked.append(name)
            found = execute_commands(name, *said)
            if way == "prefetch":
                return found  # it is counted when it is asked for
            self._counts[name] += max(0, found) if way == "execute" else len(found if way == "fetch" else said[0])
            return found

        return counting
