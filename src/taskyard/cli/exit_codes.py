"""Exit codes of the program and their meanings; this module loads nothing else."""

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
    Exit.OK: "ok: success; the graph finished; no problems found",
    Exit.ERROR: "error: the command failed",
    Exit.USAGE: "usage: the command line or the document is wrong; nothing was started",
    Exit.FAILED: "failed: the graph did not finish, the task failed, or the database has problems",
    Exit.DENIED: "not permitted: the token is not valid, or lacks the right",
    Exit.MISSING: "not found: the server has no such object",
    Exit.NO_BOT: "nothing can run: no bot can run the remaining tasks, or graphs inside tasks wait for each other",
    Exit.TIMED_OUT: "timed out",
    Exit.INTERRUPTED: "interrupted by Ctrl-C or another signal; `run` ends its tasks first",
}


class CommandFailed(Exception):
    """Ends a command with this exit code; the error was already printed."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code = code
