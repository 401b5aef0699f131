"""The view of a run: which one suits the terminal, and the plain one for everything that is no terminal.

A view is told of progress and shows it on stderr. It decides nothing and keeps only what it shows.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from taskyard.cli import paint, standing, telling, text
from taskyard.wire.progress import Observer, Printed, Progress, Reason, State

if TYPE_CHECKING:
    from taskyard.cli.work import Plan
    from taskyard.wire.explain import WhyGraphView


class View(AbstractContextManager["View"], Observer, Protocol):
    """Shows progress while it is open."""

    def say(self, line: str) -> None:
        """Say something that stays."""
        ...

    def ask(self, line: str) -> None:
        """Say something that a person answers on the same terminal, and leave the terminal to that person."""
        ...

    def go_on(self) -> None:
        """Take the terminal back: nothing is asked any more."""
        ...


def choose(plan: "Plan", jobs: int, show_output: bool) -> View:
    """Choose the live view for a terminal that can draw, and plain lines for everything else."""
    if not paint.can_draw(sys.stderr):
        return PlainView(plan, jobs, sys.stderr, show_output)
    from taskyard.cli.live import LiveView  # noqa: PLC0415 - drawing costs time to load

    return LiveView(plan, show_output)


class PlainView:
    """One line for everything that happens, free of escape codes."""

    def __init__(self, plan: "Plan", jobs: int, stream: TextIO, show_output: bool) -> None:
        self._opening = f"{text.harmless(plan.name)}: {text.many(len(plan.labels), 'task')}, {jobs} at a time"
        self._stream = stream
        self._held = standing.Held()
        self._output = Output(show_output)

    def __enter__(self) -> Self:
        self.say(self._opening)
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been shown already."""

    def show(self, progress: Progress) -> None:
        for line in (*self._output.rest(progress), *self._output.lines(progress)):
            self.say(line)

    def printed(self, piece: Printed) -> None:
        for line in self._output.of(piece):
            self.say(line)

    def hold(self, held: "WhyGraphView | None") -> None:
        for line in self._held.news(held):
            self.say(line)

    def say(self, line: str) -> None:
        # Nobody may be listening any more; the work goes on all the same.
        with suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()

    ask = say

    def go_on(self) -> None:
        """Nothing was taken away."""


class Output:
    """What tasks print, as lines with the label of the task; and progress, without output that has been shown."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._begun: dict[str, text.Lines] = {}

    def of(self, piece: Printed) -> list[str]:
        """Give the lines that a piece of output completes."""
        return _labeled(piece.label, self._begun.setdefault(piece.label, text.Lines()).of(piece.output))

    def rest(self, progress: Progress) -> list[str]:
        """Give the line that an attempt had begun when something became of it."""
        begun = self._begun.pop(progress.label, None)
        return [] if begun is None else _labeled(progress.label, begun.rest())

    def lines(self, progress: Progress) -> list[str]:
        """Put what became of a task in a line, with what it printed last unless that has been shown."""
        is_shown = self._shown and progress.reason is not Reason.GRAPH_FAILED
        return lines(progress)[:1] if is_shown else lines(progress)


def _labeled(label: str, output: list[bytes]) -> list[str]:
    return [f"{text.harmless(label)} | {text.shown_line(line)}" for line in output]


def lines(progress: Progress) -> list[str]:
    """Put what became of a task in a line, and what it printed last below it when it went wrong."""
    line = f"{progress.state:<11} {text.harmless(progress.label)}"
    told = _TOLD.get(progress.state, telling.ending)(progress)
    first = f"{line} ({told})" if told else line
    # Pending with an end behind it: the attempt failed and is going to be repeated.
    went_wrong = progress.exit_code not in (None, 0) or progress.state in _WENT_WRONG
    return [first, *_tail(progress)] if went_wrong else [first]


def _tail(progress: Progress) -> list[str]:
    """Show the last that a task printed, and whether there was more."""
    shown = text.last_lines(progress.tail, text.TAIL_LINES_MAX + 1)
    cut = ["  (the lines before are left out; --logs DIR keeps all)"] if len(shown) > text.TAIL_LINES_MAX else []
    return cut + [f"  | {line}" for line in shown[-text.TAIL_LINES_MAX :]]


def _blocked(progress: Progress) -> str:
    return f"waits for {', '.join(map(text.harmless, progress.blocked_by))}"


def _running(progress: Progress) -> str:
    return f"attempt {progress.attempt}" if progress.attempt > 1 else ""


_WENT_WRONG = frozenset({State.FAILED, State.ERROR, State.PENDING})
_TOLD: dict[State, Callable[[Progress], str]] = {
    State.BLOCKED: _blocked,
    State.RUNNING: _running,
    State.STOPPING: lambda _: "Ctrl-C again kills it",
    State.UNSCHEDULED: _blocked,
    State.WAITING: lambda _: "no bot here can run it",
    State.PENDING: lambda progress: f"{telling.ending(progress)}; again",
}
