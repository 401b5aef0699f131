"""Opening a store by its address."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from taskyard.store.queries import Session
from taskyard.store.repo.admission import AdmissionRepo
from taskyard.store.repo.bots import BotRepo, QueueRepo
from taskyard.store.repo.doctor import DoctorRepo
from taskyard.store.repo.events import ContinuationRepo, EventRepo, ServerRepo
from taskyard.store.repo.output import OutputRepo
from taskyard.store.repo.read import ReadRepo
from taskyard.store.repo.tasks import AttemptRepo, EdgeRepo, GraphRepo, ReuseRepo, TaskRepo
from taskyard.store.repo.tokens import TokenRepo
from taskyard.store.row_cache import RowCache

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


class Repo:
    """The repositories of one open transaction. Their methods take and return sets of rows."""

    __slots__ = (
        "admission", "attempts", "bots", "cache", "continuations", "doctor", "edges", "events", "graphs", "output",
        "queues", "read", "reuse", "servers", "tasks", "tokens",
    )  # fmt: skip

    def __init__(self, session: Session, cache: RowCache | None = None) -> None:
        self.cache = cache or RowCache()
        self.tasks = TaskRepo(session, self.cache)
        self.graphs = GraphRepo(session, self.cache, self.tasks)
        self.edges = EdgeRepo(session)
        self.attempts = AttemptRepo(session)
        self.reuse = ReuseRepo(session)
        self.output = OutputRepo(session)
        self.events = EventRepo(session)
        self.continuations = ContinuationRepo(session)
        self.servers = ServerRepo(session)
        self.queues = QueueRepo(session, self.cache)
        self.bots = BotRepo(session, self.cache)
        self.admission = AdmissionRepo(session, self.cache)
        self.tokens = TokenRepo(session)
        self.read = ReadRepo(session)
        self.doctor = DoctorRepo(session)
