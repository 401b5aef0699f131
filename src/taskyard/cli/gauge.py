"""How far a graph on a server is, on stderr: drawn on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

from taskyard.cli import reports, standing, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from taskyard.wire.api import GraphView
    from taskyard.wire.explain import WhyGraphView

#: A log must not fill up with lines that say almost the same.
LINE_SECONDS: Final = 5.0

Running = Callable[[], list[str]]


class Gauge(AbstractContextManager["Gauge"], Protocol):
    """Shows how far a graph is while it is open."""

    def show(self, seen: "GraphView", running: Running) -> None:
        """Show a graph as it is now; `running` asks for the labels of what runs."""
        ...

    def hold(self, held: "WhyGraphView | None") -> None:
        """Show what holds the graph while nothing moves, again and again; None: it moves."""
        ...

    def say(self, line: str) -> None:
        """Say something that stays."""
        ...


class PlainGauge:
    """Lines without escape codes: one when something has changed and the last one is some time ago."""

    def __init__(self) -> None:
        self._last = ""
        self._next = 0.0
        self._held = standing.Held()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been shown already."""

    def show(self, seen: "GraphView", running: Running) -> None:  # noqa: ARG002 - counts are enough for a log
        line = standing.headline(seen)
        if line != self._last and (seen.settled or time.monotonic() >= self._next):
            self._last, self._next = line, time.monotonic() + LINE_SECONDS
            self.say(line)

    def hold(self, held: "WhyGraphView | None") -> None:
        for line in self._held.news(held):
            self.say(line)

    def say(self, line: str) -> None:
        # Nobody may be listening any more; the waiting goes on all the same.
        with suppress(OSError):
            reports.talk(line)


class LiveGauge:
    """A bar and what runs, as the last look saw it."""

    def __init__(self) -> None:
        from taskyard.cli import live  # noqa: PLC0415 - drawing costs time to load

        self._live = live
        self._drawing = live.Drawing(self._draw)
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
            self.say(standing.headline(self._seen))

    def show(self, seen: "GraphView", running: Running) -> None:
        self._labels = running() if seen.counts.get("running") else []
        self._seen = seen

    def hold(self, held: "WhyGraphView | None") -> None:
        self._held = held

    def say(self, line: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._drawing.print(Text(line))

    def _draw(self) -> "RenderableType":
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        seen, labels = self._seen, self._labels[: self._drawing.running_shown()]
        if seen is None:
            return ""
        ended, total = standing.done(seen)
        bar = self._live.bar(seen.name or seen.id, ended, total, self._began, standing.failed(seen))
        lines = [Text(f"  {text.harmless(label)}", "cyan", no_wrap=True, overflow="ellipsis") for label in labels]
        return Group(bar, *self._live.reason(self._held), *lines)
