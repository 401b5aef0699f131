"""Watching a graph on a server until it is settled: how far it is, what runs, and every failure as it comes.

It asks the server for counts, and for tasks only where these have changed: watching costs the same for a graph of any
size. All of it goes to stderr, made harmless.
"""

import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from taskyard.cli import gauge, paint, reports, standing, text
from taskyard.cli.approving import Questions
from taskyard.cli.exits import Ended, Exit
from taskyard.wire.progress import STILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from taskyard.sdk.client import Client
    from taskyard.wire.api import GraphView, TaskView
    from taskyard.wire.explain import WhyGraphView

#: How many running tasks are named: the drawing must fit on a terminal of 24 lines.
RUNNING_MAX: Final = 12
#: How many failures are told with what they printed; the others are counted.
FAILURES_MAX: Final = 20
#: How much of a failure's output is asked for: the last lines are in it.
TAIL_BYTES: Final = 8_192


def watch(client: "Client", graph: str, timeout_s: float) -> "GraphView":
    """Show a graph until it is settled; say so and end when that takes too long."""
    told, asked, held = _Failures(client, graph), Questions(client), _Held(client)
    try:
        with _gauge() as shown:
            for seen in client.watch(graph, timeout_s):
                _show(client, seen, [told, asked], held, shown)
    except TimeoutError as late:
        reports.say_error(f"{late}; it goes on, and `taskyard show {graph}` looks at it")
        raise Ended(Exit.TIMED_OUT) from late
    return seen


def _show(
    client: "Client",
    seen: "GraphView",
    tellers: "Sequence[_Failures | Questions]",
    held: "_Held",
    shown: gauge.Gauge,
) -> None:
    from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415

    # A server that is away just now is asked for the details with the next look.
    with suppress(Overloaded, Unreachable):
        for line in (line for one in tellers for line in one.new_in(seen)):
            shown.say(line)
        shown.hold(held.by(seen))
        shown.show(seen, lambda: _running(client, seen))


def _running(client: "Client", seen: "GraphView") -> list[str]:
    """Name some of the tasks of a graph that run; not what bots have in hand and have not begun."""
    found = client.tasks(seen.id, state="running", limit=RUNNING_MAX + seen.assigned)
    return [task.label for task in found if task.reason != "assigned"][:RUNNING_MAX]


def verdict(client: "Client", seen: "GraphView") -> Exit:
    """Say with an exit code how a settled graph ended, or one in which nothing moves any more."""
    if not seen.settled and seen.deadlock is not None:
        reports.say_error(text.harmless(seen.deadlock.sentence))
        return Exit.NO_BOT
    if seen.state == "finished":
        return Exit.OK
    failed = [task for state in standing.FAILED for task in client.tasks(seen.id, state=state, limit=FAILURES_MAX)]
    return Exit.NO_BOT if failed and all(task.reason == "no_bot" for task in failed) else Exit.FAILED


def _gauge() -> gauge.Gauge:
    return gauge.LiveGauge() if paint.can_draw(sys.stderr) else gauge.PlainGauge()


class _Held:
    """Asks what holds a graph when nothing has moved in it for a while."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._last: object = None
        self._since = 0.0

    def by(self, seen: "GraphView") -> "WhyGraphView | None":
        if (now := (seen.state, seen.moved_ms, seen.counts)) != self._last:
            self._last, self._since = now, time.monotonic()
        still = time.monotonic() >= self._since + STILL_SECONDS
        return self._client.why_graph(seen.id) if still and not seen.settled else None


class _Failures:
    """Tells each failure once, with the last that it printed."""

    def __init__(self, client: "Client", graph: str) -> None:
        self._client = client
        self._graph = graph
        self._counts: Counter[str] = Counter()
        self._told: set[tuple[str, int]] = set()

    def new_in(self, seen: "GraphView") -> "Iterator[str]":
        counts = Counter({state: seen.counts.get(state, 0) for state in standing.FAILED})
        for state in standing.FAILED:
            if counts[state] != self._counts[state]:
                for task in self._client.tasks(self._graph, state=state, limit=FAILURES_MAX):
                    yield from self._tell(task)
        self._counts = counts

    def _tell(self, task: "TaskView") -> "Iterator[str]":
        if (task.id, task.attempt) in self._told or len(self._told) >= FAILURES_MAX:
            return
        self._told.add((task.id, task.attempt))
        yield standing.failure(task)
        if task.inner_graph is not None:
            yield f"  its graph: taskyard show {text.harmless(task.inner_graph)}"
        elif task.attempt:
            yield from (f"  | {line}" for line in tail(self._client, task.id, task.attempt))


def tail(client: "Client", task: str, attempt: int) -> list[str]:
    """Give the last lines that an attempt printed."""
    size = next((one.output_bytes for one in client.attempts(task) if one.number == attempt), 0)
    if not size:
        return []
    body = client.output(task, attempt=attempt, start=max(0, size - TAIL_BYTES))
    return text.last_lines(body.decode(errors="replace"))
