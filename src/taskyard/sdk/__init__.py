"""The SDK: a client for the whole API of a server. It imports only the wire package of Taskyard."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.sdk.errors import (
        ClientError,
        Conflict,
        Forbidden,
        NotFound,
        Overloaded,
        Refused,
        ServerFault,
        Unauthorised,
        Unreachable,
        Unreadable,
        Unset,
    )

__all__ = [
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "NotFound",
    "Overloaded",
    "Refused",
    "ServerFault",
    "Unauthorised",
    "Unreachable",
    "Unreadable",
    "Unset",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a bot uses this package too, and needs few of them."""
    if name in __all__:
        return getattr(import_module("taskyard.sdk.client" if name == "Client" else "taskyard.sdk.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
