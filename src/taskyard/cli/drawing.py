"""The live view: a bar, the running tasks with their time, and every failure as it comes, above them.

It draws on stderr. All text of tasks is made harmless and never read as markup.
"""

import sys
import time
from collections.abc import Callable
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskyard.cli.output import format_duration, harmless
from taskyard.cli.ports import Plan
from taskyard.cli.progress import Output, Running, done, failed, headline
from taskyard.wire.progress import Printed, Progress, State

if TYPE_CHECKING:
    from taskyard.wire.api import GraphView
    from taskyard.wire.explain import WhyGraphView

#: What an eye can follow.
FRAMES_PER_SECOND = 8
#: The rest is counted: lines above the drawing are to be seen, too.
RUNNING_SHOWN_MAX = 12
#: Lines of a terminal that the running tasks leave free: for the bar, what holds the graph, the count of the rest, and
#: a line above.
FREE_LINES: Final = 6

_STYLES = {
    State.SUCCESSFUL: "green",
    State.FAILED: "bold red",
    State.ERROR: "bold red",
    State.PENDING: "yellow",
    State.BLOCKED: "yellow",
}
_FAILED = {State.FAILED, State.ERROR}
_ENDED = {State.SUCCESSFUL, State.BLOCKED, State.CANCELED, State.SKIPPED, *_FAILED}
_BEGINS = {State.RUNNING}
_GOES_ON = {State.STOPPING}


class Drawing:
    """Lines that stay, and below them a drawing that a thread draws anew while it is open.

    Every write happens under one lock. The refresh thread of `rich.live.Live` may draw between the moment when a print
    on another thread reads the height of the drawing and the moment when it writes: then a line is overwritten, or a
    part of the drawing is left standing.
    """

    def __init__(self, draw: Callable[[], RenderableType]) -> None:
        self._console = Console(file=sys.stderr)
        self._draw = draw
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

    def print(self, *lines: Text) -> None:
        """Print lines that stay; each takes one line of the terminal."""
        with self._lock:
            # The rest of a long line would look like words of our own.
            self._console.print(*lines, sep="\n", no_wrap=True, overflow="ellipsis")

    def pause(self) -> None:
        """Take the drawing away: what a person types would move it."""
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

    def running_shown(self) -> int:
        """Tell how many running tasks a drawing may name, so that it fits on the terminal."""
        return max(1, min(RUNNING_SHOWN_MAX, self._console.height - FREE_LINES))

    def _refresh(self) -> None:
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            with self._lock:
                if self._live is not None:
                    self._live.refresh()


def bar(name: str, ended: int, total: int, since: float, failed: int) -> RenderableType:
    """Draw how far a graph is, in one line."""
    row = Table.grid(padding=(0, 1))
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(
        Text(harmless(name), style="bold"),
        ProgressBar(max(total, 1), ended, width=30, complete_style="red" if failed else "green"),
        Text(f"{ended}/{total}", no_wrap=True),
        Text(format_duration(_elapsed_ms(since)), style="dim", no_wrap=True),
        Text(f"{failed} failed" if failed else "", style="bold red", no_wrap=True),
    )
    return row


def reason(held: "WhyGraphView | None") -> list[RenderableType]:
    """Draw what holds a graph, if that is known: whole, as it is read."""
    return [] if held is None else [Text(f"  {harmless(held.sentence)}", "yellow")]


class LiveRunProgress:
    """Draws a run on a terminal."""

    def __init__(self, plan: Plan, show_output: bool = False) -> None:
        self._name = plan.name
        self._labels = set(plan.labels)  # and those that tasks add
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended: dict[str, State] = {}
        self._held: WhyGraphView | None = None
        self._output = Output(show_output)
        self._drawing = Drawing(self._draw)

    def __enter__(self) -> Self:
        self._drawing.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._drawing.__exit__(*error)

    def printed(self, piece: Printed) -> None:
        if shown := self._output.of(piece):
            self._drawing.print(*map(Text, shown))

    def show(self, progress: Progress) -> None:
        self._labels.add(progress.label)
        if progress.state in _BEGINS:
            self._running[progress.label] = time.monotonic()
            return  # it is seen below the bar
        if progress.state not in _GOES_ON:
            self._running.pop(progress.label, None)
        if progress.state in _ENDED:
            self._ended[progress.label] = progress.state
        first, *tail = self._output.lines(progress)
        begun = map(Text, self._output.rest(progress))
        self._drawing.print(*begun, Text(first, style=_STYLES.get(progress.state, "")), *map(Text, tail))

    def hold(self, held: "WhyGraphView | None") -> None:
        self._held = held

    def say(self, line: str) -> None:
        self._drawing.print(Text(line))

    def ask(self, line: str) -> None:
        self._drawing.pause()
        self.say(line)

    def go_on(self) -> None:
        self._drawing.resume()

    def _draw(self) -> RenderableType:
        # The drawing thread works on copies: the dicts change under it.
        running, states = list(self._running.items()), list(self._ended.values())
        most = self._drawing.running_shown()
        shown = [self._running_line(label, since) for label, since in running[:most]]
        if len(running) > most:
            shown.append(Text(f"  and {len(running) - most} more"))
        failed = sum(state in _FAILED for state in states)
        return Group(bar(self._name, len(states), len(self._labels), self._began, failed), *reason(self._held), *shown)

    def _running_line(self, label: str, since: float) -> RenderableType:
        parts = ("  ", (format_duration(_elapsed_ms(since)), "dim"), " ", (harmless(label), "cyan"))
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


class LiveGraphProgress:
    """A bar and what runs, as the last look saw it."""

    def __init__(self) -> None:
        self._drawing = Drawing(self._draw)
        self._began = time.monotonic()
        self._seen: GraphView | None = None
        self._labels: list[str] = []
        self._held: WhyGraphView | None = None

    def __enter__(self) -> Self:
        self._drawing.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._drawing.__exit__(*error)
        # What was drawn is gone: how it ended stays.
        if self._seen is not None and self._seen.settled:
            self.say(headline(self._seen))

    def show(self, seen: "GraphView", running: Running) -> None:
        self._labels = running() if seen.counts.get("running") else []
        self._seen = seen

    def hold(self, held: "WhyGraphView | None") -> None:
        self._held = held

    def say(self, line: str) -> None:
        self._drawing.print(Text(line))

    def _draw(self) -> RenderableType:
        seen, labels = self._seen, self._labels[: self._drawing.running_shown()]
        if seen is None:
            return ""
        ended, total = done(seen)
        drawn = bar(seen.name or seen.id, ended, total, self._began, failed(seen))
        lines = [Text(f"  {harmless(label)}", "cyan", no_wrap=True, overflow="ellipsis") for label in labels]
        return Group(drawn, *reason(self._held), *lines)


def _elapsed_ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
