"""The live view: a bar, the running tasks with their time, and every failure as it comes, above them.

It draws on stderr, from a thread of rich's own. All text of tasks is made harmless and never read as markup.
"""

import sys
import time
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskyard.cli import text, views
from taskyard.cli.work import Plan
from taskyard.wire.progress import Progress, State

#: What an eye can follow.
FRAMES_PER_SECOND = 8
#: The rest is counted: the drawing must fit on a terminal of 24 lines.
RUNNING_SHOWN_MAX = 12

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


class LiveView:
    """Draws a run on a terminal."""

    def __init__(self, plan: Plan) -> None:
        self._name = text.harmless(plan.name)
        self._labels = set(plan.labels)  # and those that tasks add
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended: dict[str, State] = {}
        self._console = Console(file=sys.stderr)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        self._labels.add(progress.label)
        if progress.state in _BEGINS:
            self._running[progress.label] = time.monotonic()
            return  # it is seen below the bar
        if progress.state not in _GOES_ON:
            self._running.pop(progress.label, None)
        if progress.state in _ENDED:
            self._ended[progress.label] = progress.state
        first, *tail = views.lines(progress)
        self._console.print(
            Text(first, style=_STYLES.get(progress.state, "")),
            *(Text(line) for line in tail),
            sep="\n",
            no_wrap=True,  # the rest of a long line would look like words of our own
            overflow="ellipsis",
        )

    def say(self, line: str) -> None:
        self._console.print(Text(line), no_wrap=True, overflow="ellipsis")

    def _draw(self) -> RenderableType:
        # The drawing thread works on copies: the dicts change under it.
        running, states = list(self._running.items()), list(self._ended.values())
        shown = [self._running_line(label, since) for label, since in running[:RUNNING_SHOWN_MAX]]
        if len(running) > RUNNING_SHOWN_MAX:
            shown.append(Text(f"  and {len(running) - RUNNING_SHOWN_MAX} more"))
        return Group(self._bar(states), *shown)

    def _bar(self, states: list[State]) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        failed, total = sum(state in _FAILED for state in states), len(self._labels)
        row.add_row(
            Text(self._name, style="bold"),
            ProgressBar(total, len(states), width=30, complete_style="red" if failed else "green"),
            Text(f"{len(states)}/{total}"),
            Text(text.seconds(_elapsed_ms(self._began)), style="dim"),
            Text(f"{failed} failed" if failed else "", style="bold red"),
        )
        return row

    def _running_line(self, label: str, since: float) -> RenderableType:
        parts = ("  ", (text.seconds(_elapsed_ms(since)), "dim"), " ", (text.harmless(label), "cyan"))
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _elapsed_ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
