"""The way into a run: signals are heeded, the bot is started, and the server is loaded while the bot gets ready."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskyard.embedded.companion import Companion
from taskyard.embedded.signals import signals_to
from taskyard.embedded.wishes import Wishes

if TYPE_CHECKING:
    from taskyard.wire.progress import Outcome, Progress


def run_graph(
    document: Mapping[str, Any],
    labels: tuple[str, ...],
    jobs: int,
    watch: "Callable[[Progress], None]",
    logs: Path | None,
) -> "Outcome":
    """Run a graph to its end, at most `jobs` tasks at a time, and say how it ended; `logs` is a folder for all output.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    """
    wishes = Wishes()
    with signals_to(wishes.add), Companion(jobs) as bot:
        from taskyard.embedded.feed import Feed  # noqa: PLC0415 - most of what a run costs to load
        from taskyard.embedded.run import run  # noqa: PLC0415

        return run(document, Feed(labels, logs), bot, wishes, watch)
