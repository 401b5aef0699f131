"""Colours on stdout, for people only: on a terminal, unless they do not want any.

`NO_COLOR` says no, `FORCE_COLOR` says yes also to a pipe, `TERM=dumb` is a terminal without colours.
"""

import os
import re
import sys
from typing import Final, TextIO

_WORD: Final = re.compile("[a-z]+")
_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_GREEN, _YELLOW, _RED, _CYAN, _DIM = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[36m", "\x1b[2m"
#: How the states of graphs, tasks and bots look.
_STATES: Final = {
    "successful": _GREEN, "finished": _GREEN, "alive": _GREEN,
    "running": _CYAN, "stopping": _CYAN, "canceling": _CYAN,
    "pending": _YELLOW, "waiting": _YELLOW, "draining": _YELLOW, "maintenance": _YELLOW,
    "failed": _RED, "error": _RED, "blocked": _RED, "dead": _RED, "quarantined": _RED,
    "canceled": _DIM, "skipped": _DIM, "unscheduled": _DIM,
}  # fmt: skip


def wanted(stream: TextIO) -> bool:
    """Tell whether a stream should have colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal whose owner wants to see drawings."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def bold(line: str) -> str:
    """Make a line on stdout bold, if it should be."""
    return f"{_BOLD}{line}{_RESET}" if wanted(sys.stdout) else line


def state(cell: str) -> str:
    """Give what begins with the word for a state its colour."""
    word = _WORD.match(cell)
    colour = _STATES.get(word[0], "") if word else ""
    return f"{colour}{cell}{_RESET}" if colour else cell
