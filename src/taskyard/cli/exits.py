"""What the program's exit code says to a script; `--help` tells the same."""

from enum import IntEnum, unique


@unique
class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1  # what was asked could not be done
    USAGE = 2  # the command line or the document has to be mended first; nothing was started
    FAILED = 3  # the graph ran and did not finish, or the database was looked at and is not well
    INTERRUPTED = 130  # by Ctrl-C or another signal; what ran was ended first
