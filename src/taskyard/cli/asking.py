"""Who answers what a run asks: the command line, or whoever sits at the terminal.

The terminal is read as its lines come, between two looks at the run: nothing here waits, so a run goes on while
somebody thinks, and Ctrl-C ends it as ever.
"""

import os
import select
import sys
from collections.abc import Callable
from typing import Final

from taskyard.cli import text, views
from taskyard.wire.progress import Question

#: What counts as an answer.
ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False}
#: More than anybody types at once.
LINE_MAX: Final = 4_096

#: Answers the open question, or says by None that there is no answer yet; it is also told when no question is open.
Decide = Callable[[Question | None], bool | None]


def told(approved: bool | None) -> Decide:
    """Answer every question in the same way, or none."""
    return lambda _: approved


class Terminal:
    """Reads answers from a terminal; the view shows questions, and draws nothing while one is open."""

    def __init__(self, view: views.View, source: int | None = None) -> None:
        self._view = view
        self._source: int | None = sys.stdin.fileno() if source is None else source
        self._typed = b""
        self._asked = ""

    def decide(self, question: Question | None) -> bool | None:
        """Show a question once, and give the answer when it is there."""
        if question is None:
            self._go_on()
            return None
        if question.task != self._asked:
            self._asked = question.task
            self._forget()
            asked = f"{text.harmless(question.label)} asks: {text.harmless(question.message)}"
            self._view.ask(f"{asked}  (y or n, then Enter)")
        line = self._line()
        if line is None:
            return None
        answer = ANSWERS.get(line.strip().lower())
        if answer is None:
            self._view.say("answer y or n; Ctrl-C ends the run")
        return answer

    def _go_on(self) -> None:
        if self._asked:
            self._asked = ""
            self._view.go_on()

    def _forget(self) -> None:
        """Leave out what was typed before a question was seen: it cannot be the answer."""
        while self._reads():
            pass
        self._typed = b""

    def _line(self) -> str | None:
        """Give the next line that was typed, if there is one."""
        if b"\n" not in self._typed:
            self._reads()
        line, end, rest = self._typed.partition(b"\n")
        if not end:
            return None
        self._typed = rest
        return line.decode(errors="replace")

    def _reads(self) -> bool:
        """Read what was typed; tell whether there was something."""
        if self._source is None or not select.select([self._source], [], [], 0)[0]:
            return False
        more = os.read(self._source, LINE_MAX)
        self._typed = (self._typed + more)[-LINE_MAX:]
        if not more:
            self._source = None  # nothing more will come: only Ctrl-C is left
        return bool(more)
