"""What can go wrong around a command that is not the caller's fault. A refusal is no trouble: it is an answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from taskyard.store.queries import StoreUnavailable, TransactionConflict


class Trouble(Exception):
    """The engine could not do what it was asked."""


class Overloaded(Trouble):
    """Too much is waiting already. Nothing was done; ask again in a while."""


class Unavailable(Trouble):
    """The database cannot be reached, or the engine is stopping. It may or may not have been done; ask again."""


class Failed(Trouble):
    """A bug: this command cannot be carried out. Nothing was done; the cause is attached."""


class InUse(Trouble):
    """Another engine has this database."""


@contextmanager
def outages() -> Iterator[None]:
    """Turn what a look at the store complains about into a trouble."""
    try:
        yield
    except (TransactionConflict, StoreUnavailable) as fault:
        raise Unavailable(f"the database cannot be used: {fault}") from fault
