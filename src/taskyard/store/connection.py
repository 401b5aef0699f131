"""Opening a store by its address."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from taskyard.store.queries import Session
from taskyard.store.repo import (
    Access,
    Attempts,
    Bots,
    Care,
    Edges,
    Events,
    Explaining,
    Graphs,
    Notes,
    Passes,
    Queues,
    Reading,
    Reuses,
    Tasks,
    Times,
    Traces,
)
from taskyard.store.rows import RowCache

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Store(Protocol):
    """What both databases offer: transactions that write, and consistent looks."""

    url: str

    def write(self) -> "AbstractContextManager[Repo]":
        """One transaction; it is durable when the block ends, and undone if the block fails."""

    def read(self) -> "AbstractContextManager[Repo]":
        """One consistent look at everything; others go on writing."""

    def close(self) -> None:
        """Close every connection. No thread may be at work any more."""


class ServerLock(Protocol):
    """Proof that a server lives: a lock that the database releases when the server dies, whatever it dies of."""

    def hold(self) -> str:
        """Hold the lock, if it is not held already; say under which name."""

    def is_dead(self, name: str) -> bool:
        """Tell whether nobody holds the lock of that name: then the server that did has died."""

    def close(self) -> None:
        """Release the lock."""


def open_server_lock(url: str, name: str) -> ServerLock | None:
    """Make the lock of a server called `name`; None for a file, which has one server at a time anyway."""
    if not url.startswith(("postgresql://", "postgres://")):
        return None
    from taskyard.store.postgres import PostgresServerLock  # noqa: PLC0415 - nobody pays for the other database

    return PostgresServerLock(url, name)


def open_store(url: str) -> Store:
    """Open the store at `sqlite:///file` or `postgresql://...`; it has to be migrated already."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from taskyard.store.sqlite import SqliteStore  # noqa: PLC0415 - nobody pays for the other database

        return SqliteStore(Path(rest.removeprefix("/")))
    if scheme in {"postgresql", "postgres"}:
        from taskyard.store.postgres import PostgresStore  # noqa: PLC0415 - nobody pays for the other database

        return PostgresStore(url)
    raise ValueError(f"{scheme}:// is no store: use sqlite:///FILE or postgresql://...")


# A transaction as the rooms see it: verbs that take and return sets, grouped by what they are about.


class Repo:
    """One open transaction of either database."""

    __slots__ = (
        "access", "attempts", "bots", "care", "edges", "events", "explaining", "graphs", "memory", "notes", "passes",
        "queues", "reading", "reuses", "tasks", "times", "traces",
    )  # fmt: skip

    def __init__(self, session: Session, memory: RowCache | None = None) -> None:
        self.memory = memory or RowCache()
        self.tasks = Tasks(session, self.memory)
        self.graphs = Graphs(session, self.memory, self.tasks)
        self.edges = Edges(session)
        self.attempts = Attempts(session)
        self.events = Events(session)
        self.notes = Notes(session)
        self.queues = Queues(session, self.memory)
        self.bots = Bots(session, self.memory)
        self.passes = Passes(session, self.memory)
        self.care = Care(session)
        self.traces = Traces(session)
        self.access = Access(session)
        self.reading = Reading(session)
        self.explaining = Explaining(session)
        self.reuses = Reuses(session)
        self.times = Times(session)
