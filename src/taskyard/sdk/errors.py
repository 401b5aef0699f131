"""What can go wrong between a program and a server: each kind is a class, so that a program can tell them apart.

A refusal carries the server's whole problem document. Text in it came from elsewhere: whoever shows it on a terminal
makes it harmless first.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.wire.api import Fault, Problem


class ClientError(Exception):
    """Anything that kept a client from doing what it was asked."""


class Unset(ClientError):
    """The client was not told something that it needs."""


class Unreachable(ClientError):
    """Nobody answered. What was asked may have been done all the same: it is safe to ask again."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(
            f"cannot reach {url}: {why}; `taskyard up` starts a server here, TASKYARD_URL or --url names another"
        )


class Unreadable(ClientError):
    """Somebody answered, and it was no Taskyard, or one that speaks differently."""

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        super().__init__(f"the answer of {url} cannot be read: {why}; is it a Taskyard server of this version?")


class Refused(ClientError):
    """The server said no; `problem` says why, and lists every fault."""

    def __init__(self, problem: "Problem") -> None:
        self.problem = problem
        super().__init__(problem.detail or problem.title or problem.code)

    @property
    def faults(self) -> "list[Fault]":
        """Everything that is wrong with what was asked, each with its place."""
        return self.problem.faults


class Unauthorised(Refused):
    """The server does not know the token, or there was none."""


class Forbidden(Refused):
    """The token is good, and not for this."""


class NotFound(Refused):
    """What was asked about is not there, or not for this token."""


class Conflict(Refused):
    """It does not go together with what is there already."""


class Overloaded(Refused):
    """The server has too much to do, and said so again each time it was asked."""


class ServerFault(Refused):
    """The server failed at it."""


_KINDS: Final[dict[int, type[Refused]]] = {
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Overloaded,
    503: Overloaded,
}


def error_for(problem: "Problem") -> Refused:
    """Give the error for a problem that the server told."""
    kind = _KINDS.get(problem.status, ServerFault if problem.status >= 500 else Refused)
    return kind(problem)
