"""The live view on stderr: a bar, the running tasks with their times, and lines that stay above them.

Text of tasks is made harmless and never read as markup.
"""

import sys
import time
from collections.abc import Mapping
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskyard.cli import progress
from taskyard.cli.output import format_duration, harmless
from taskyard.cli.progress import Line, Running
from taskyard.wire.progress import RunningTask, State

if TYPE_CHECKING:
    from taskyard.wire.api import GraphView
    from taskyard.wire.explain import WhyGraphView

#: Fast enough for people.
FRAMES_PER_SECOND = 8
#: More running tasks are only counted: lines above the drawing should be visible, too.
RUNNING_SHOWN_MAX = 12
#: Lines of a terminal kept free for the bar, what holds the graph, the count of the rest, and a line above.
FREE_LINES: Final = 6

_STYLES: Final[Mapping[str, str]] = {
    State.SUCCESSFUL: "green",
    State.FAILED: "bold red",
    State.ERROR: "bold red",
    State.PENDING: "yellow",
    State.BLOCKED: "yellow",
}


class LiveView:
    """Lines that stay; below them a bar, what holds the graph, and the running tasks, drawn anew by a thread.

    A running task has the time since it was first seen. Every write happens under one lock: the refresh thread of
    `rich.live.Live` may draw between the moment when a print on another thread reads the height of the drawing and the
    moment when it writes, so that a line is overwritten, or a part of the drawing is left standing.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._began = time.monotonic()
        self._done = (0, total)
        self._failed = 0
        self._running: dict[RunningTask, float] = {}
        self._more = 0
        self._held: WhyGraphView | None = None
        self._console = Console(file=sys.stderr)
        self._live: Live | None = None
        self._lock = RLock()
        self._over = Event()
        self._thread = Thread(target=self._refresh, daemon=True)

    def __enter__(self) -> Self:
        self.resume()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.pause()

    def show(self, seen: "GraphView", running: Running) -> None:
        count = progress.running(seen)
        most = max(1, min(RUNNING_SHOWN_MAX, self._console.height - FREE_LINES))
        shown = running()[:most] if count else ()
        now = time.monotonic()
        self._name, self._done, self._failed = seen.name or seen.id, progress.done(seen), progress.failed(seen)
        # The drawing thread must never see a dict that changes.
        self._running = {task: self._running.get(task, now) for task in shown}
        self._more = max(0, count - len(shown))

    def hold(self, held: "WhyGraphView | None") -> None:
        self._held = held

    def say(self, *lines: Line) -> None:
        if not lines:
            return  # the console would print an empty line
        shown = [Text(line.text, style=_STYLES.get(line.state, "")) for line in lines]
        with self._lock:
            # Each takes one line of the terminal: a wrapped line of a task could look like a line of this program.
            self._console.print(*shown, sep="\n", no_wrap=True, overflow="ellipsis")

    def pause(self) -> None:
        """Remove the drawing: what a person types would move it."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def resume(self) -> None:
        """Draw again."""
        with self._lock:
            if self._live is None:
                self._live = Live(
                    console=self._console,
                    get_renderable=self._draw,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start(refresh=True)

    def _refresh(self) -> None:
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            with self._lock:
                if self._live is not None:
                    self._live.refresh()

    def _draw(self) -> RenderableType:
        ended, total = self._done
        if not total:
            return ""  # the graph has not been seen yet
        lines = [_running_line(task.label, since) for task, since in self._running.items()]
        more = [Text(f"  and {self._more} more")] if self._more else []
        return Group(_bar(self._name, ended, total, self._began, self._failed), *_reason(self._held), *lines, *more)


def _bar(name: str, ended: int, total: int, since: float, failed: int) -> RenderableType:
    """Draw how far a graph is, in one line."""
    row = Table.grid(padding=(0, 1))
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(
        Text(harmless(name), style="bold"),
        ProgressBar(total, ended, width=30, complete_style="red" if failed else "green"),
        Text(f"{ended}/{total}", no_wrap=True),
        Text(_elapsed(since), style="dim", no_wrap=True),
        Text(f"{failed} failed" if failed else "", style="bold red", no_wrap=True),
    )
    return row


def _reason(held: "WhyGraphView | None") -> list[RenderableType]:
    """Draw what holds a graph, if that is known. It is read as a whole, so it may take several lines."""
    return [] if held is None else [Text(f"  {harmless(held.sentence)}", "yellow")]


def _running_line(label: str, since: float) -> RenderableType:
    parts = ("  ", (_elapsed(since), "dim"), " ", (harmless(label), "cyan"))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _elapsed(since: float) -> str:
    return format_duration(round((time.monotonic() - since) * 1000))
