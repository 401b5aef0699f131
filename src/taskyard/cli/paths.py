"""What determines when a graph ends, for people: one line, and a table of the tasks on its critical path."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from taskyard.cli import forms, layout, text

if TYPE_CHECKING:
    from taskyard.wire.api import CriticalPath, PathTask

#: How many tasks of a path are shown; JSON has more.
SHOWN_MAX: Final = 12


def line(seen: "CriticalPath") -> list[tuple[str, str]]:
    """Say how long a graph took or when it is expected to end, as a row of a table; none if there is nothing to say."""
    if seen.settled:
        return [("took", _took(seen))] if seen.path else []
    if not seen.path:
        return []
    return [("expected", _expected(seen))]


def lines(seen: "CriticalPath") -> Iterator[str]:
    """Show the tasks of a path. One alone says nothing that is not told anyway."""
    if len(seen.path) < 2:
        return
    yield ""
    shown = seen.path[-SHOWN_MAX:] if seen.settled else seen.path[:SHOWN_MAX]
    head = ("CRITICAL PATH", "STATE", *(("WAITED", "RAN") if seen.settled else ("RAN", "EXPECTED", "LEFT")))
    rows = [head, *(_row(one, seen.settled) for one in shown)]
    yield from layout.table(rows, sys.stdout, indent="  ", titled=True)
    if more := len(seen.path) - len(shown):
        yield f"  and {more}{'' if seen.whole else ' or more'} {'before' if seen.settled else 'behind'} these"


def _took(seen: "CriticalPath") -> str:
    total = text.seconds(seen.total_ms)
    if seen.waiting_ms is None or not seen.total_ms:
        return total
    return f"{total}, {round(100 * seen.waiting_ms / seen.total_ms)} % of it waiting"


def _expected(seen: "CriticalPath") -> str:
    past = f"{seen.known} of {text.many(seen.left, 'task')} left known from before"
    stuck = f"; {seen.stuck} blocked" if seen.stuck else ""
    if seen.expected_end_ms is None:
        return f"unknown; {past}{stuck}"
    left = text.seconds(max(0, seen.expected_end_ms - seen.at_ms))
    return f"{forms.moment(seen.expected_end_ms)} at the earliest, in {left}; {past}{stuck}"


def _row(one: "PathTask", settled: bool) -> tuple[str, ...]:
    times = (one.waited_ms, one.ran_ms) if settled else (one.ran_ms, one.expected_ms, one.remaining_ms)
    return (forms.cell(one.label), forms.cell(one.state), *(_span(ms) for ms in times))


def _span(ms: int | None) -> str:
    return "-" if ms is None else text.seconds(ms)
