"""What happens in a graph while it runs, and how it ended, for any view to show.

Output of tasks is here as it was printed: views must make it harmless.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from taskyard.core.states import GraphState, Reason, State

__all__ = [
    "SIGNALED_BASE",
    "Decide",
    "GraphState",
    "Outcome",
    "Printed",
    "Progress",
    "Question",
    "Reason",
    "RunningTask",
    "State",
    "shell_exit_code",
]

#: The exit code of a process that a signal ended is this plus the number of the signal, as in a shell.
SIGNALED_BASE: Final = 128


def shell_exit_code(code: int | None) -> int | None:
    """Return an exit code as a shell does: bots report a signal as a negative number."""
    return SIGNALED_BASE - code if code is not None and code < 0 else code


@dataclass(frozen=True, slots=True)
class Progress:
    """A task as it is now, with the end of its last attempt; `attempt` counts from 1, and 0 means that none began."""

    label: str
    state: str
    attempt: int = 0
    reason: str | None = None
    exit_code: int | None = None
    elapsed_ms: int | None = None
    tail: str = ""
    blocked_by: tuple[str, ...] = ()
    result: object = None  # what its last attempt published; only in an outcome
    note: str | None = None  # what was missing, if no bot could run it; only of a task on a server,
    id: str = ""  # as its id


@dataclass(frozen=True, slots=True)
class Printed:
    """A piece of the output of a task, as it was printed."""

    label: str
    output: bytes


class RunningTask(NamedTuple):
    """An attempt that runs."""

    label: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Question:
    """What a task asks a person."""

    task: str
    label: str
    message: str


#: Answers a question, or returns None if there is no answer yet; called with None if there is no question.
Decide = Callable[[Question | None], bool | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a graph ended, with each task as it is then, in the order of the document."""

    name: str
    state: GraphState
    elapsed_ms: int
    tasks: Mapping[str, Progress]
    deadlock: str = ""  # which graphs inside tasks wait for each other, if that is why nothing moves
