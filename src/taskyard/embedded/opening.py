"""The way into a run: signals are heeded, the bot is started, and the server is loaded while the bot gets ready."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskyard.embedded.companion import Companion
from taskyard.embedded.signals import signals_to
from taskyard.embedded.wishes import Wishes

if TYPE_CHECKING:
    from taskyard.wire.progress import Observer, Outcome, Question


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be run, and how."""

    document: Mapping[str, Any]  # found good
    limits: Mapping[str, int]  # how much there is of what tasks share
    labels: tuple[str, ...]  # of its tasks, in their order
    jobs: int  # at most so many at a time
    logs: Path | None  # a folder for everything that attempts print
    show_output: bool = False  # whether the observer hears of it, too


def run_graph(wish: Wish, observer: "Observer", decide: "Callable[[Question | None], bool | None]") -> "Outcome":
    """Run a graph to its end, and say how it ended; `decide` answers what it asks.

    The first signal asks running tasks to end, a second one kills them; both make the graph `canceled`.
    """
    wishes = Wishes()
    with signals_to(wishes.add), Companion(wish.jobs, wish.logs) as bot:
        from taskyard.embedded.run import run  # noqa: PLC0415 - most of what a run costs to load

        return run(wish, bot, wishes, observer, decide)
