"""Open a store by its address; its transactions give access to the repositories."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from taskyard.core.structs import value
from taskyard.store.queries import Session
from taskyard.store.repo.admission import AdmissionRepo
from taskyard.store.repo.bots import BotRepo, QueueRepo
from taskyard.store.repo.catalogue import CatalogueRepo
from taskyard.store.repo.doctor import DoctorRepo
from taskyard.store.repo.events import ContinuationRepo, EventRepo, ServerRepo, StreamRepo, TargetRepo
from taskyard.store.repo.files import FilesRepo
from taskyard.store.repo.launches import LaunchRepo
from taskyard.store.repo.output import OutputRepo
from taskyard.store.repo.read import ReadRepo
from taskyard.store.repo.retention import RetentionRepo
from taskyard.store.repo.schedules import ScheduleRepo
from taskyard.store.repo.secrets import SecretRepo
from taskyard.store.repo.stats import StatsRepo
from taskyard.store.repo.task_list import TaskListRepo
from taskyard.store.repo.tasks import AttemptRepo, EdgeRepo, GraphRepo, ReuseRepo, TaskRepo
from taskyard.store.repo.tokens import TokenRepo
from taskyard.store.repo.webhooks import WebhookRepo
from taskyard.store.row_cache import RowCache

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager


class Store(Protocol):
    """A database: write transactions, and consistent reads."""

    url: str

    def write(self) -> "AbstractContextManager[Repo]":
        """Open a write transaction; it is durable when the block ends, and rolled back if the block fails."""

    def read(self) -> "AbstractContextManager[Repo]":
        """Open a read-only transaction on one consistent snapshot; writers go on meanwhile."""

    def close(self) -> None:
        """Close all connections. No thread may use the store any more."""


class ServerLock(Protocol):
    """A lock that proves that a server process lives: the database releases it when the process ends in any way."""

    def hold(self) -> str:
        """Take the lock, if it is not held already; return its name."""

    def is_dead(self, name: str) -> bool:
        """Whether no process holds the lock of this name, so that its server has died."""

    def close(self) -> None:
        """Release the lock."""


class HintChannel(Protocol):
    """Carries hints between the servers of a database. One thread uses it; only `wake` is for others."""

    def open(self) -> None:
        """Connect and listen; raise `StoreUnavailable` if that is not possible."""

    def send(self, text: str) -> None:
        """Send a hint to all servers but this one; raise `StoreUnavailable` if the connection is lost."""

    def receive(self, wait_s: float) -> "Sequence[str]":
        """Wait until hints arrive, `wake` is called, or the time is over; return the hints of other servers."""

    def wake(self) -> None:
        """End a `receive`, or the next one; any thread may call this."""

    def close(self) -> None:
        """Close the connection; `open` opens another one."""


def is_shared(url: str) -> bool:
    """Whether several servers can use the database at an address."""
    return url.startswith(("postgresql://", "postgres://"))


def open_hint_channel(url: str) -> HintChannel | None:
    """Return the channel of hints between servers; None for SQLite, where a file has one server."""
    if not is_shared(url):
        return None
    from taskyard.store.postgres_sessions import PostgresHintChannel  # noqa: PLC0415 - only for PostgreSQL

    return PostgresHintChannel(url)


def refuse_shared_sessions(url: str) -> None:
    """Raise `PoolerInTheWay` if the address of a database leads to a pooler that a server cannot use."""
    if is_shared(url):
        from taskyard.store import postgres_sessions  # noqa: PLC0415 - only for PostgreSQL

        postgres_sessions.refuse_shared_sessions(url)


@value
class Replication:
    """What a database says about its standbys."""

    standbys: int  # that are connected
    synchronous: bool  # whether commits of servers wait for one


def replication_of(url: str) -> Replication | None:
    """Ask a database about its standbys; None for SQLite."""
    if not is_shared(url):
        return None
    from taskyard.store import postgres_sessions  # noqa: PLC0415 - only for PostgreSQL

    return Replication(*postgres_sessions.standbys(url))


def open_server_lock(url: str, name: str) -> ServerLock | None:
    """Return the lock of the server called `name`; None for SQLite, where a file has one server anyway."""
    if not is_shared(url):
        return None
    from taskyard.store.postgres_sessions import PostgresServerLock  # noqa: PLC0415 - the driver of the other database is not loaded

    return PostgresServerLock(url, name)


def open_store(url: str) -> Store:
    """Open the store at `sqlite:///file` or `postgresql://...`; it must have the newest schema."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from taskyard.store.sqlite import SqliteStore  # noqa: PLC0415 - the driver of the other database is not loaded

        return SqliteStore(Path(rest.removeprefix("/")))
    if scheme in {"postgresql", "postgres"}:
        from taskyard.store.postgres import PostgresStore  # noqa: PLC0415 - the driver of the other database is not loaded

        return PostgresStore(url)
    raise ValueError(f"{scheme}:// is not a database address: use sqlite:///FILE or postgresql://...")


class Repo:
    """The repositories of one open transaction. Their methods take and return sets of rows."""

    __slots__ = (
        "admission", "attempts", "bots", "cache", "catalogue", "continuations", "doctor", "edges", "events",
        "files", "graphs", "launches", "output", "queues", "read", "retention", "reuse", "schedules", "secrets",
        "servers", "stats", "stream", "targets", "task_list", "tasks", "tokens", "webhooks",
    )  # fmt: skip

    def __init__(self, session: Session, cache: RowCache | None = None) -> None:
        self.cache = cache or RowCache()
        self.tasks = TaskRepo(session, self.cache)
        self.graphs = GraphRepo(session, self.cache, self.tasks)
        self.edges = EdgeRepo(session)
        self.attempts = AttemptRepo(session, self.cache)
        self.reuse = ReuseRepo(session)
        self.launches = LaunchRepo(session)
        self.output = OutputRepo(session)
        self.events = EventRepo(session)
        self.stream = StreamRepo(session)
        self.targets = TargetRepo(session)
        self.stats = StatsRepo(session)
        self.webhooks = WebhookRepo(session)
        self.files = FilesRepo(session)
        self.continuations = ContinuationRepo(session)
        self.servers = ServerRepo(session)
        self.queues = QueueRepo(session, self.cache)
        self.bots = BotRepo(session, self.cache)
        self.admission = AdmissionRepo(session, self.cache)
        self.tokens = TokenRepo(session)
        self.secrets = SecretRepo(session)
        self.catalogue = CatalogueRepo(session)
        self.schedules = ScheduleRepo(session)
        self.read = ReadRepo(session)
        self.task_list = TaskListRepo(session)
        self.retention = RetentionRepo(session, self.cache)
        self.doctor = DoctorRepo(session)
