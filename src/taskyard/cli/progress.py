"""Progress of graphs on stderr: of local runs, of `submit --wait`, and the refreshing of `--watch`.

A view is told of progress and shows it on stderr. It decides nothing and keeps only what it shows.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TextIO

import click

from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import bundle, duration, flag
from taskyard.cli.output import (
    TAIL_LINES_MAX,
    Lines,
    can_draw,
    format_cell,
    format_counts,
    format_duration,
    harmless,
    last_lines,
    plural,
    print_err,
    print_error,
    print_line,
    shown_line,
    write_stdout,
)
from taskyard.wire.progress import STILL_SECONDS, Observer, Outcome, Printed, Progress, Reason, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskyard.cli.ports import Plan
    from taskyard.sdk.client import Client
    from taskyard.wire.api import GraphView, Reused, TaskView
    from taskyard.wire.explain import WhyGraphView


# Where a graph or a task on a server stands, in a line for people. All text of tasks is made harmless here.


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
    return f"{harmless(seen.name or seen.id)}: {harmless(seen.state)}: {format_counts(counts(seen))}"


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
    if reason == "exit_code" and exit_code is not None:
        return f"exit code {exit_code}"
    return " ".join(str(part) for part in (reason, exit_code) if part is not None)


def failure(task: "TaskView") -> str:
    """Tell of a failed task."""
    tries = f", attempt {task.attempt}" if task.attempt > 1 else ""
    note = f": {task.note}" if task.note else ""
    reason = harmless(f"{ending(task.reason, task.exit_code)}{note}{tries}")
    return f"{harmless(task.state):<11} {harmless(task.label)} ({reason}; {harmless(task.id)})"


class HeldLines:
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
            yield harmless(held.sentence)
        self._told = causes


def again(seen: "GraphView") -> str:
    """Tell what a graph runs again."""
    labels = format_cell(", ".join(seen.rerun_from))
    return f"{harmless(seen.rerun_of or '')} from {labels}; {plural(seen.reused, 'task')} taken over"


def taken_over(source: "Reused") -> str:
    """Tell whose end was taken over."""
    where = f"task {source.task}, attempt {source.attempt}, of graph {source.graph_id}"
    return f"taken over from {harmless(where)}"


# How attempts and graphs of a run ended, in words for people. All text of tasks is made harmless.


def attempt_ending(progress: Progress) -> str:
    """Say how an attempt ended."""
    parts = [_cause(progress)]
    if progress.attempt > 1:
        parts.append(f"attempt {progress.attempt}")
    if progress.elapsed_ms is not None:
        parts.append(format_duration(progress.elapsed_ms))
    return ", ".join(part for part in parts if part)


def state_counts(tasks: Iterable[Progress]) -> str:
    """Count tasks by state: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {state}" for state, count in Counter(task.state.value for task in tasks).items())


def outcome_headline(outcome: Outcome) -> str:
    """Say how a graph ended, in a line."""
    ended = f"{harmless(outcome.name)}: {outcome.state} in {format_duration(outcome.elapsed_ms)}"
    return f"{ended}: {state_counts(outcome.tasks.values())}" if outcome.tasks else ended


#: Ends that no exit code tells.
_CAUSES = {
    Reason.TIMED_OUT: "timed out",
    Reason.DENIED: "denied",
    Reason.GRAPH_FAILED: "the graph inside it did not finish",
    Reason.SILENT: "printed nothing for too long",
    Reason.BAD_RESULT: "its result, progress or checkpoint cannot be taken",
    Reason.BOT_LOST: "its bot was lost",
    Reason.EXPIRED: "waited too long for a bot",
    Reason.NO_BOT: "no bot here can run it",
    Reason.DEADLINE: "its deadline is over",
}


def _cause(progress: Progress) -> str:
    if progress.reason in _CAUSES:
        return _CAUSES[progress.reason]
    if progress.reason is Reason.SIGNALED and progress.exit_code:
        return f"ended by signal {progress.exit_code - 128}"
    return f"exit code {progress.exit_code}" if progress.exit_code else ""


class RunProgress(AbstractContextManager["RunProgress"], Observer, Protocol):
    """Shows progress while it is open."""

    def say(self, line: str) -> None:
        """Say something that stays."""
        ...

    def ask(self, line: str) -> None:
        """Say something that a person answers on the same terminal, and leave the terminal to that person."""
        ...

    def go_on(self) -> None:
        """Take the terminal back: nothing is asked any more."""
        ...


def choose_run_progress(plan: "Plan", jobs: int, show_output: bool) -> RunProgress:
    """Choose the live view for a terminal that can draw, and plain lines for everything else."""
    if not can_draw(sys.stderr):
        return PlainRunProgress(plan, jobs, sys.stderr, show_output)
    from taskyard.cli.drawing import LiveRunProgress  # noqa: PLC0415 - drawing costs time to load

    return LiveRunProgress(plan, show_output)


class PlainRunProgress:
    """One line for everything that happens, free of escape codes."""

    def __init__(self, plan: "Plan", jobs: int, stream: TextIO, show_output: bool) -> None:
        self._opening = f"{harmless(plan.name)}: {plural(len(plan.labels), 'task')}, {jobs} at a time"
        self._stream = stream
        self._held = HeldLines()
        self._output = Output(show_output)

    def __enter__(self) -> Self:
        self.say(self._opening)
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been shown already."""

    def show(self, progress: Progress) -> None:
        for line in (*self._output.rest(progress), *self._output.lines(progress)):
            self.say(line)

    def printed(self, piece: Printed) -> None:
        for line in self._output.of(piece):
            self.say(line)

    def hold(self, held: "WhyGraphView | None") -> None:
        for line in self._held.news(held):
            self.say(line)

    def say(self, line: str) -> None:
        # Nobody may be listening any more; the work goes on all the same.
        with suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()

    ask = say

    def go_on(self) -> None:
        """Nothing was taken away."""


class Output:
    """What tasks print, as lines with the label of the task; and progress, without output that has been shown."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._begun: dict[str, Lines] = {}

    def of(self, piece: Printed) -> list[str]:
        """Give the lines that a piece of output completes."""
        return _labeled(piece.label, self._begun.setdefault(piece.label, Lines()).of(piece.output))

    def rest(self, progress: Progress) -> list[str]:
        """Give the line that an attempt had begun when something became of it."""
        begun = self._begun.pop(progress.label, None)
        return [] if begun is None else _labeled(progress.label, begun.rest())

    def lines(self, progress: Progress) -> list[str]:
        """Put what became of a task in a line, with what it printed last unless that has been shown."""
        is_shown = self._shown and progress.reason is not Reason.GRAPH_FAILED
        return lines(progress)[:1] if is_shown else lines(progress)


def _labeled(label: str, output: list[bytes]) -> list[str]:
    return [f"{harmless(label)} | {shown_line(line)}" for line in output]


def lines(progress: Progress) -> list[str]:
    """Put what became of a task in a line, and what it printed last below it when it went wrong."""
    line = f"{progress.state:<11} {harmless(progress.label)}"
    told = _TOLD.get(progress.state, attempt_ending)(progress)
    first = f"{line} ({told})" if told else line
    # Pending with an end behind it: the attempt failed and is going to be repeated.
    went_wrong = progress.exit_code not in (None, 0) or progress.state in _WENT_WRONG
    return [first, *_tail(progress)] if went_wrong else [first]


def _tail(progress: Progress) -> list[str]:
    """Show the last that a task printed, and whether there was more."""
    shown = last_lines(progress.tail, TAIL_LINES_MAX + 1)
    cut = ["  (the lines before are left out; --logs DIR keeps all)"] if len(shown) > TAIL_LINES_MAX else []
    return cut + [f"  | {line}" for line in shown[-TAIL_LINES_MAX:]]


def _blocked(progress: Progress) -> str:
    return f"not run: {', '.join(map(harmless, progress.blocked_by))} failed"


def _unscheduled(progress: Progress) -> str:
    return f"not run: waits for {', '.join(map(harmless, progress.blocked_by))}"


def _running(progress: Progress) -> str:
    return f"attempt {progress.attempt}" if progress.attempt > 1 else ""


_WENT_WRONG = frozenset({State.FAILED, State.ERROR, State.PENDING})
_TOLD: dict[State, Callable[[Progress], str]] = {
    State.BLOCKED: _blocked,
    State.RUNNING: _running,
    State.STOPPING: lambda _: "Ctrl-C again kills it",
    State.UNSCHEDULED: _unscheduled,
    State.WAITING: lambda _: "no bot here can run it",
    State.PENDING: lambda progress: f"{attempt_ending(progress)}; again",
}


# How far a graph on a server is, on stderr: drawn on a terminal, now and then a line elsewhere.


#: A log must not fill up with lines that say almost the same.
LINE_SECONDS: Final = 5.0

Running = Callable[[], list[str]]


class GraphProgress(AbstractContextManager["GraphProgress"], Protocol):
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


class PlainGraphProgress:
    """Lines without escape codes: one when something has changed and the last one is some time ago."""

    def __init__(self) -> None:
        self._last = ""
        self._next = 0.0
        self._held = HeldLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been shown already."""

    def show(self, seen: "GraphView", running: Running) -> None:  # noqa: ARG002 - counts are enough for a log
        line = headline(seen)
        if line != self._last and (seen.settled or time.monotonic() >= self._next):
            self._last, self._next = line, time.monotonic() + LINE_SECONDS
            self.say(line)

    def hold(self, held: "WhyGraphView | None") -> None:
        for line in self._held.news(held):
            self.say(line)

    def say(self, line: str) -> None:
        # Nobody may be listening any more; the waiting goes on all the same.
        with suppress(OSError):
            print_err(line)


# Watching a graph on a server until it is settled: how far it is, what runs, and every failure as it comes.
#
# It asks the server for counts, and for tasks only where these have changed: watching costs the same for a graph of
# any size. All of it goes to stderr, made harmless.


#: How many running tasks are named: the drawing must fit on a terminal of 24 lines.
RUNNING_MAX: Final = 12
#: How many failures are told with what they printed; the others are counted.
FAILURES_MAX: Final = 20
#: How many questions of a graph are told while it is watched, and how deep they are looked for.
TOLD_MAX: Final = 20
DEEP_MAX: Final = 8
#: How much of a failure's output is asked for: the last lines are in it.
TAIL_BYTES: Final = 8_192


def watch(client: "Client", graph: str, timeout_s: float) -> "GraphView":
    """Show a graph until it is settled; say so and end when that takes too long."""
    told, asked, held = _Failures(client, graph), Questions(client), _Held(client)
    try:
        with _graph_progress() as shown:
            for seen in client.watch(graph, timeout_s):
                _show(client, seen, [told, asked], held, shown)
    except TimeoutError as late:
        print_error(f"{late}; it goes on, and `taskyard show {graph}` looks at it")
        raise CommandFailed(Exit.TIMED_OUT) from late
    return seen


def _show(
    client: "Client",
    seen: "GraphView",
    tellers: "Sequence[_Failures | Questions]",
    held: "_Held",
    shown: GraphProgress,
) -> None:
    from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415

    # A server that is away just now is asked for the details with the next look.
    with suppress(Overloaded, Unreachable):
        for line in (line for one in tellers for line in one.new_in(seen)):
            shown.say(line)
        shown.hold(held.by(seen))
        shown.show(seen, lambda: _running_labels(client, seen))


def _running_labels(client: "Client", seen: "GraphView") -> list[str]:
    """Name some of the tasks of a graph that run; not what bots have in hand and have not begun."""
    found = client.tasks(seen.id, state="running", limit=RUNNING_MAX + seen.assigned)
    return [task.label for task in found if task.reason != "assigned"][:RUNNING_MAX]


def exit_of_graph(client: "Client", seen: "GraphView") -> Exit:
    """Say with an exit code how a settled graph ended, or one in which nothing moves any more."""
    if not seen.settled and seen.deadlock is not None:
        print_error(harmless(seen.deadlock.sentence))
        return Exit.NO_BOT
    if seen.state == "finished":
        return Exit.OK
    failed = [task for state in FAILED for task in client.tasks(seen.id, state=state, limit=FAILURES_MAX)]
    return Exit.NO_BOT if failed and all(task.reason == "no_bot" for task in failed) else Exit.FAILED


def _graph_progress() -> GraphProgress:
    if not can_draw(sys.stderr):
        return PlainGraphProgress()
    from taskyard.cli.drawing import LiveGraphProgress  # noqa: PLC0415 - drawing costs time to load

    return LiveGraphProgress()


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
        counts = Counter({state: seen.counts.get(state, 0) for state in FAILED})
        for state in FAILED:
            if counts[state] != self._counts[state]:
                for task in self._client.tasks(self._graph, state=state, limit=FAILURES_MAX):
                    yield from self._tell(task)
        self._counts = counts

    def _tell(self, task: "TaskView") -> "Iterator[str]":
        if (task.id, task.attempt) in self._told or len(self._told) >= FAILURES_MAX:
            return
        self._told.add((task.id, task.attempt))
        yield failure(task)
        if task.inner_graph is not None:
            yield f"  its graph: taskyard show {harmless(task.inner_graph)}"
        elif task.attempt:
            yield from (f"  | {line}" for line in tail(self._client, task.id, task.attempt))


def tail(client: "Client", task: str, attempt: int) -> list[str]:
    """Give the last lines that an attempt printed."""
    size = next((one.output_bytes for one in client.attempts(task) if one.number == attempt), 0)
    if not size:
        return []
    body = client.output(task, attempt=attempt, start=max(0, size - TAIL_BYTES))
    return last_lines(body.decode(errors="replace"))


class Questions:
    """Tells what a graph, or one inside it, asks people: each question once."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._told: set[tuple[str, int]] = set()

    def new_in(self, seen: "GraphView") -> "Iterator[str]":
        """Put each new question in a line, with how to answer it."""
        for task in self._asking(seen.id, DEEP_MAX) if seen.counts.get("running") else ():
            if (task.id, task.attempt) not in self._told and len(self._told) < TOLD_MAX:
                self._told.add((task.id, task.attempt))
                asked = harmless(message_of(self._client.task(task.id).definition))
                yield f"waiting for approval: {harmless(task.label)}: {asked}; taskyard approve {task.id}"

    def _asking(self, graph: str, deep: int) -> "Iterator[TaskView]":
        for task in self._client.tasks(graph, state="running", limit=TOLD_MAX):
            if task.kind == "approval":
                yield task
            elif task.inner_graph is not None and deep:
                yield from self._asking(task.inner_graph, deep - 1)


def message_of(definition: Any) -> str:
    """Find what an approval asks in the definition of its task."""
    asked = definition["slices"][0]["payload"]["approval"]
    return str(asked["message"] if isinstance(asked, dict) else asked)


# `--watch`: looking again and again, until it is over, somebody ends it, or time is up.
#
# A terminal is drawn anew with each look; elsewhere each change is one line of JSON. A server that is away for some
# minutes is waited for.


#: For how long nobody may answer: a server that is started again is back within that.
AWAY_SECONDS_MAX: Final = 300.0
#: A look costs the server something.
EVERY_SECONDS_MIN: Final = 0.2
#: How high a terminal is that does not say so.
LINES_UNTOLD: Final = 24


class Watch(NamedTuple):
    """Whether to go on looking, and for how long."""

    watch: bool = False
    every: int = 2_000
    timeout: int = 86_400_000


watch_options = bundle(
    "watch",
    Watch,
    flag("--watch", "-w", help="Refresh until interrupted, or until a graph is settled or a task has ended."),
    duration("--every", default=("2s", 2_000), help="Time between two refreshes of --watch."),
    duration("--timeout", default=("1d", 86_400_000), help="Stop --watch after this time."),
)


class Snapshot(NamedTuple):
    """What one look saw: things with ids, the same for people, and the exit code if nothing is going to change."""

    shapes: Sequence[dict[str, Any]]
    lines: Sequence[str]
    end: Exit | None = None


def follow(look: Callable[[], Snapshot], watch: Watch, output: str) -> Exit:
    """Look until it is over; give the exit code."""
    eye = _renderer(output)
    until = time.monotonic() + watch.timeout / 1000
    pause = max(EVERY_SECONDS_MIN, watch.every / 1000)
    ended: list[Exit] = []
    arrived = write_stdout(lambda: ended.append(_rounds(look, eye, until, pause)))
    return (ended or [Exit.OK])[0] if arrived else Exit.ERROR


def _rounds(look: Callable[[], Snapshot], eye: "Renderer", until: float, pause: float) -> Exit:
    from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415 - it comes with the client

    heard = time.monotonic()
    while True:
        try:
            seen = look()
        except (Overloaded, Unreachable):
            if time.monotonic() > min(until, heard + AWAY_SECONDS_MAX):
                raise
        else:
            heard = time.monotonic()
            eye(seen)
            if seen.end is not None:
                return seen.end
        left = until - time.monotonic()
        if left <= 0:
            print_error("the time for watching is up; --timeout says how long")
            return Exit.TIMED_OUT
        time.sleep(min(pause, left))


Renderer = Callable[[Snapshot], None]


def _renderer(output: str) -> Renderer:
    """Choose how changes are shown; refuse what cannot be shown again and again."""
    if output == "jsonl":
        return _Lines()
    if output != "table":
        raise click.UsageError("--watch goes with -o table or -o jsonl")
    if not sys.stdout.isatty():
        raise click.UsageError("--watch into a pipe or a file needs -o jsonl, one line for each change")
    return _draw if can_draw(sys.stdout) else _Changes()


def _draw(seen: Snapshot) -> None:
    """Draw over what was there, as far as the terminal is high."""
    room = max(1, _height() - 2)
    shown = list(seen.lines[:room]) or ["nothing to show"]
    if len(seen.lines) > room:
        shown[-1] = f"and {len(seen.lines) - room + 1} more lines"
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or LINES_UNTOLD
    except OSError:
        return LINES_UNTOLD


class _Changes:
    """Prints everything again when something has changed."""

    def __init__(self) -> None:
        self._last: Sequence[dict[str, Any]] | None = None

    def __call__(self, seen: Snapshot) -> None:
        if seen.shapes != self._last:
            self._last = seen.shapes
            print_line("\n".join([*seen.lines, ""]))
            sys.stdout.flush()


class _Lines:
    """Prints each thing that is new or has changed; one that is not seen any more is told as gone."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, seen: Snapshot) -> None:
        import json  # noqa: PLC0415 - a table does not need it

        now = {str(one["id"]): json.dumps(one) for one in seen.shapes}
        for id, line in now.items():
            if self._known.get(id) != line:
                print_line(line)
        for id in self._known.keys() - now.keys():
            print_line(json.dumps({"id": id, "gone": True}))
        self._known = now
        sys.stdout.flush()
