"""Where a graph or a task on a server stands, in a line for people. All text of tasks is made harmless here."""

from typing import TYPE_CHECKING, Final

from taskyard.cli import forms, text
from taskyard.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from taskyard.wire.api import GraphView, Reused, TaskView
    from taskyard.wire.explain import WhyGraphView

#: States that a task comes to rest in, and those of them that are a failure.
RESTING: Final = frozenset({"successful", "failed", "error", "canceled", "skipped", "blocked"})
FAILED: Final = ("failed", "error")
WELL: Final = frozenset({"successful", "skipped"})
#: States of tasks that run, or are being ended.
MOVING: Final = frozenset({"running", "stopping"})
#: States of tasks that have not begun, and may.
LEFT: Final = frozenset({"unscheduled", "blocked", "pending", "waiting"})
#: Reasons of tasks that run, or are being ended.
UNDER_WAY: Final = frozenset({"under_way", "assigned", "stop_asked"})


def headline(seen: "GraphView") -> str:
    """Say where a graph stands."""
    return f"{text.harmless(seen.name or seen.id)}: {text.harmless(seen.state)}: {forms.counted(counts(seen))}"


def counts(seen: "GraphView") -> dict[str, int]:
    """Give how many tasks are in each state; those that a bot has in hand and has not begun do not run yet."""
    if not seen.assigned:
        return seen.counts
    return {**seen.counts, "running": running(seen), "assigned": seen.assigned}


def running(seen: "GraphView") -> int:
    """How many tasks of a graph are in state running and have begun."""
    return max(0, seen.counts.get("running", 0) - seen.assigned)


def done(seen: "GraphView") -> tuple[int, int]:
    """How many tasks of a graph have come to rest, and how many there are."""
    return sum(count for state, count in seen.counts.items() if state in RESTING), sum(seen.counts.values())


def failed(seen: "GraphView") -> int:
    """How many tasks of a graph failed."""
    return count(seen, FAILED)


def count(seen: "GraphView", states: "Iterable[str]") -> int:
    """How many tasks of a graph are in some states."""
    return sum(seen.counts.get(state, 0) for state in states)


def end_of(task: "TaskView") -> Exit | None:
    """Give the exit code for how a task ended; None while it has not."""
    if task.state not in RESTING:
        return None
    return Exit.OK if task.state in WELL else Exit.FAILED


def ending(reason: str | None, exit_code: int | None) -> str:
    """Name the reason for an end, with the exit code, or with a sentence where the word alone does not tell."""
    if reason == "bad_result":
        return f"{reason}: its result, progress or checkpoint cannot be taken"
    return " ".join(str(part) for part in (reason, exit_code) if part is not None)


def failure(task: "TaskView") -> str:
    """Tell of a failed task."""
    tries = f", attempt {task.attempt}" if task.attempt > 1 else ""
    note = f": {task.note}" if task.note else ""
    reason = text.harmless(f"{ending(task.reason, task.exit_code)}{note}{tries}")
    return f"{text.harmless(task.state):<11} {text.harmless(task.label)} ({reason}; {text.harmless(task.id)})"


class Held:
    """Tells in a log what holds a graph: once for each cause. That tasks run is no news there."""

    def __init__(self) -> None:
        self._told: object = None

    def news(self, held: "WhyGraphView | None") -> "Iterator[str]":
        """Give the line that is new, if there is one; None says that the graph has moved."""
        if held is None:
            self._told = None
            return
        causes = [(group.state, group.reason, group.count) for group in held.groups]
        if causes != self._told and any(group.reason not in UNDER_WAY for group in held.groups):
            yield text.harmless(held.sentence)
        self._told = causes


def again(seen: "GraphView") -> str:
    """Tell what a graph runs again."""
    labels = forms.cell(", ".join(seen.rerun_from))
    return f"{text.harmless(seen.rerun_of or '')} from {labels}; {text.many(seen.reused, 'task')} taken over"


def taken_over(source: "Reused") -> str:
    """Tell whose end was taken over."""
    where = f"task {source.task}, attempt {source.attempt}, of graph {source.graph_id}"
    return f"taken over from {text.harmless(where)}"
