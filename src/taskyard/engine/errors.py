"""Errors that are not the caller's fault. (A refusal is an answer, not an error.)"""

from collections.abc import Iterator
from contextlib import contextmanager

from taskyard.store.queries import StoreFull, StoreUnavailable, TransactionConflict


class EngineError(Exception):
    """The engine could not carry out a command."""


class Overloaded(EngineError):
    """Too many commands wait already. Nothing was done; try again later."""


class Unavailable(EngineError):
    """The database is unavailable, or the engine is stopping. The command may or may not have been done; try again."""


class Full(Unavailable):
    """The database has no space left. Nothing was done; it goes on once there is space."""


class Failed(EngineError):
    """A bug: this command failed. Nothing was done; the cause is attached."""


class InUse(EngineError):
    """Another engine uses this database."""


@contextmanager
def outages() -> Iterator[None]:
    """Turn errors of the store into `Unavailable`."""
    try:
        yield
    except (TransactionConflict, StoreUnavailable) as fault:
        raise outage(fault) from fault


def outage(fault: Exception) -> Unavailable:
    """Return the error for one of the store."""
    kind = Full if isinstance(fault, StoreFull) else Unavailable
    return kind(f"the database cannot be used: {fault}")
