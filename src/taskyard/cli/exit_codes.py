"""Exit codes of the program and what they mean, apart from everything that takes long to load."""

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final


@unique
class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    DENIED = 4
    MISSING = 5
    NO_BOT = 6
    TIMED_OUT = 124
    INTERRUPTED = 130


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.OK: "ok: it was done; the graph finished; the database is well",
    Exit.ERROR: "error: what was asked could not be done",
    Exit.USAGE: "usage: the command line or the document has to be mended first; nothing was started",
    Exit.FAILED: "failed: the graph ran and did not finish, the task failed, or the database is not well",
    Exit.DENIED: "not permitted: the server does not take the token, or not for this",
    Exit.MISSING: "not found: the server has no such thing",
    Exit.NO_BOT: "no bot can run what is left of the graph, or its graphs inside wait for each other",
    Exit.TIMED_OUT: "time was up before what was waited for",
    Exit.INTERRUPTED: "interrupted, by Ctrl-C or another signal; what `run` ran was ended first",
}


class CommandFailed(Exception):
    """Ends a command, which has printed the reason, with this code."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code = code
