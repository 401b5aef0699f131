"""Errors of the client; each kind is a class of its own.

A refusal has the server's whole problem document. Its texts may come from other people: escape them before showing
them on a terminal.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.wire.api import Fault, Problem


class ClientError(Exception):
    """The base of all errors of the client."""


class Unset(ClientError):
    """A setting that the client needs is missing or not valid."""


class Unreachable(ClientError):
    """The server did not answer. It may have carried out the request: it is safe to send it again."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(
            f"cannot reach {url}: {why}; `taskyard up` starts a server here, TASKYARD_URL or --url names another"
        )


class Unreadable(ClientError):
    """The answer is not from a Taskyard server, or from one of another version."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(f"the answer of {url} cannot be read: {why}; is it a Taskyard server of this version?")


class Refused(ClientError):
    """The server refused the request; `problem` says why, and lists every fault."""

    def __init__(self, problem: "Problem") -> None:
        self.problem = problem
        super().__init__(problem.detail or problem.title or problem.code)

    @property
    def faults(self) -> "list[Fault]":
        """Everything that is wrong with the request, each with its place."""
        return self.problem.faults


class Unauthorised(Refused):
    """The token is missing or not valid."""


class Forbidden(Refused):
    """The token lacks a scope."""


class NotFound(Refused):
    """It does not exist, or this token may not see it."""


class Conflict(Refused):
    """It conflicts with what exists."""


class Overloaded(Refused):
    """The server is overloaded, and said so at each of several tries."""


class ServerFault(Refused):
    """The server failed."""


_KINDS: Final[dict[int, type[Refused]]] = {
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Overloaded,
    503: Overloaded,
}


def error_for(problem: "Problem") -> Refused:
    """Return the error for a problem document."""
    kind = _KINDS.get(problem.status, ServerFault if problem.status >= 500 else Refused)
    return kind(problem)
