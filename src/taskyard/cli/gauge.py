"""How far a graph on a server is, on stderr: drawn on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

from taskyard.cli import reports, standing, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from taskyard.wire.api import GraphView

#: A log must not fill up with lines that say almost the same.
LINE_SECONDS: Final = 5.0

Running = Callable[[], list[str]]


class Gauge(AbstractContextManager["Gauge"], Protocol):
    """Shows how far a graph is while it is open."""

    def show(self, seen: "GraphView", running: Running) -> None:
        """Show a graph as it is now; `running` asks for the labels of what runs."""
        ...

    def say(self, line: str) -> None:
        """Say something that stays."""
        ...


class PlainGauge:
    """Lines without escape codes: one when something has changed and the last one is some time ago."""

    def __init__(self) -> None:
        self._last = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been shown already."""

    def show(self, seen: "GraphView", running: Running) -> None:  # noqa: ARG002 - counts are enough for a log
        line = standing.headline(seen)
        if line != self._last and (seen.settled or time.monotonic() >= self._next):
            self._last, self._next = line, time.monotonic() + LINE_SECONDS
            self.say(line)

    def say(self, line: str) -> None:
        # Nobody may be listening any more; the waiting goes on all the same.
        with suppress(OSError):
            reports.talk(line)


class LiveGauge:
    """A bar and what runs, drawn anew with every look."""

    def __init__(self) -> None:
        import sys  # noqa: PLC0415

        from rich.console import Console  # noqa: PLC0415 - drawing costs time to load
        from rich.live import Live  # noqa: PLC0415

        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._began = time.monotonic()
        self._seen: GraphView | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()
        # What was drawn is gone: how it ended stays.
        if self._seen is not None and self._seen.settled:
            self.say(standing.headline(self._seen))

    def show(self, seen: "GraphView", running: Running) -> None:
        self._seen = seen
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        labels = running() if seen.counts.get("running") else []
        lines = [Text(f"  {text.harmless(label)}", "cyan", no_wrap=True, overflow="ellipsis") for label in labels]
        self._live.update(Group(self._bar(seen), *lines), refresh=True)

    def say(self, line: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._console.print(Text(line), no_wrap=True, overflow="ellipsis")

    def _bar(self, seen: "GraphView") -> "RenderableType":
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        ended, total = standing.done(seen)
        failed = standing.failed(seen)
        row = Table.grid(padding=(0, 1))
        row.add_row(
            Text(text.harmless(seen.name or seen.id), style="bold"),
            ProgressBar(max(total, 1), ended, width=30, complete_style="red" if failed else "green"),
            Text(f"{ended}/{total}"),
            Text(text.seconds(round((time.monotonic() - self._began) * 1000)), style="dim"),
            Text(f"{failed} failed" if failed else "", style="bold red"),
        )
        return row
