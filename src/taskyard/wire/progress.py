"""What is told of a graph while it runs, and of its end: plain facts, for any view to draw.

Text that a task printed is in here as it came; whoever shows it makes it harmless first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from taskyard.core.words import GraphState, Reason, State

__all__ = ["GraphState", "Outcome", "Progress", "Question", "Reason", "State"]


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
