"""What the program's exit code says to a script; `--help` tells the same."""

from enum import IntEnum, unique


@unique
class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1  # what was asked could not be done
    USAGE = 2  # the command line or the document has to be mended first; nothing was started
    FAILED = 3  # the graph ran and did not finish, or the database was looked at and is not well
    DENIED = 4  # the server does not take the token, or not for this
    MISSING = 5  # the server has no such thing
    NO_BOT = 6  # no bot can run what is left
    TIMED_OUT = 124  # the wait ended before what was waited for
    INTERRUPTED = 130  # by Ctrl-C or another signal; what ran was ended first


class Ended(Exception):
    """A command has said why it cannot go on, and ends with this code."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code = code
