"""Opening a store by its address."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from taskyard.store.txn import Txn


class Store(Protocol):
    """What both databases offer: transactions that write, and consistent looks."""

    url: str

    def write(self) -> "AbstractContextManager[Txn]":
        """One transaction; it is durable when the block ends, and undone if the block fails."""

    def read(self) -> "AbstractContextManager[Txn]":
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
