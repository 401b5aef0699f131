"""What is told of a graph while it runs, and of its end: plain facts, for any view to draw.

Text that a task printed is in here as it came; whoever shows it makes it harmless first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from taskyard.core.states import GraphState, Reason, State

if TYPE_CHECKING:
    from taskyard.wire.explain import WhyGraphView

__all__ = ["STILL_SECONDS", "GraphState", "Observer", "Outcome", "Printed", "Progress", "Question", "Reason", "State"]

#: When no task of a graph has moved for so long, it is told what holds the graph.
STILL_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a task is now; `attempt` counts from 1, 0 says that none began. Of an ended attempt, also how it ended."""

    label: str
    state: State
    attempt: int = 0
    reason: Reason | None = None
    exit_code: int | None = None
    elapsed_ms: int | None = None
    tail: str = ""
    blocked_by: tuple[str, ...] = ()
    result: object = None  # what its last attempt published; only in an outcome


@dataclass(frozen=True, slots=True)
class Printed:
    """Some of what an attempt of a task printed, as it came."""

    label: str
    output: bytes


class Observer(Protocol):
    """Hears of everything that happens in a run, from one thread."""

    def show(self, progress: Progress) -> None:
        """Hear what became of a task."""
        ...

    def printed(self, piece: Printed) -> None:
        """Hear what a task printed, piece by piece, if that is wanted; the end of an attempt comes after its pieces."""
        ...

    def hold(self, held: "WhyGraphView | None") -> None:
        """Hear what holds the graph while nothing moves, again and again; None: it moves again."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a task asks a person."""

    task: str
    label: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a graph ended, with the last that is known of each task, in the document's order."""

    name: str
    state: GraphState
    elapsed_ms: int
    tasks: Mapping[str, Progress]
    deadlock: str = ""  # graphs inside wait for each other: who for whom
