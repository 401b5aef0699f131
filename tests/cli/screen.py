"""The lines that a user sees on a terminal: an emulator interprets what a program writes."""

import os
import select
import subprocess
import time
from collections.abc import Callable

import pyte

from tests.cli.waiting import DEADLINE_SECONDS

#: More lines than any test writes.
HISTORY = 10_000
#: The character of progress bars.
BAR = "━"


class Screen:
    """A terminal of some size, and the lines on it."""

    def __init__(self, program: subprocess.Popen[bytes], person: int, columns: int, rows: int) -> None:
        self._program = program
        self._person = person
        self._screen = pyte.HistoryScreen(columns, rows, history=HISTORY)
        self._stream = pyte.ByteStream(self._screen)

    def lines(self) -> list[str]:
        """Return all lines, including those that were scrolled away."""
        gone = ["".join(line[at].data for at in range(self._screen.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in [*gone, *self._screen.display]]

    def bars(self) -> int:
        """Count the progress bars on the screen and in the lines that were scrolled away."""
        return sum(BAR in line for line in self.lines())

    def until(self, fact: Callable[["Screen"], bool], what: str) -> None:
        """Read the output of the program until `fact` holds; fail if the program ends first."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not fact(self):
            has_ended = self._program.poll() is not None
            has_written = self._read()
            shown = "\n".join(self.lines())
            assert has_written or not has_ended, f"ended without {what}:\n{shown}"
            assert time.monotonic() < deadline, f"waited too long for {what}:\n{shown}"

    def to_the_end(self) -> int:
        """Read until the program has ended; return its exit code."""
        self.until(lambda _: self._program.poll() is not None, "the end")
        while self._read():
            pass
        return self._program.wait(DEADLINE_SECONDS)

    def _read(self) -> bool:
        """Read new output; return whether there was any."""
        if not select.select([self._person], [], [], 0.05)[0]:
            return False
        try:
            chunk = os.read(self._person, 65_536)
        except OSError:
            return False  # the other side of the terminal is closed
        self._stream.feed(chunk)
        return bool(chunk)
