"""Progress of graphs on stderr, for `run` and `--wait`, and the refreshing of `--watch`."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeAlias

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
    print_one,
    shown_line,
    write_stdout,
)
from taskyard.wire.progress import SIGNALED_BASE, Printed, Progress, Reason, RunningTask, State, shell_exit_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskyard.cli.drawing import LiveView
    from taskyard.sdk.client import Client
    from taskyard.wire.api import GraphView, Reused, TaskView
    from taskyard.wire.explain import WhyGraphView


# The state of a graph or a task on a server, for people. All text of tasks is made harmless here.


#: States in which a task stays by itself; the failures among them; and the successes.
RESTING: Final = frozenset({"successful", "failed", "error", "canceled", "skipped", "blocked"})
FAILED: Final = ("failed", "error")
WELL: Final = frozenset({"successful", "skipped"})
#: States of tasks that run or are being stopped.
MOVING: Final = frozenset({"running", "stopping"})
#: States of tasks that have not begun and still may.
LEFT: Final = frozenset({"unscheduled", "blocked", "pending", "waiting"})
#: Reasons of tasks that run or are being stopped.
UNDER_WAY: Final = frozenset({"under_way", "assigned", "stop_asked"})


def headline(seen: "GraphView") -> str:
    """Return the state of a graph and its tasks in one line."""
    return f"{harmless(seen.name or seen.id)}: {harmless(seen.state)}: {format_counts(counts(seen))}"


def counts(seen: "GraphView") -> dict[str, int]:
    """Count the tasks by state; those that a bot was handed ahead count as assigned, not as running."""
    if not seen.assigned:
        return seen.counts
    return {**seen.counts, "running": running(seen), "assigned": seen.assigned}


def running(seen: "GraphView") -> int:
    """Count the tasks that are in state running and have begun."""
    return max(0, seen.counts.get("running", 0) - seen.assigned)


def done(seen: "GraphView") -> tuple[int, int]:
    """Count the tasks that have come to rest, and all tasks."""
    return sum(count for state, count in seen.counts.items() if state in RESTING), sum(seen.counts.values())


def failed(seen: "GraphView") -> int:
    """Count the tasks that failed."""
    return count(seen, FAILED)


def count(seen: "GraphView", states: "Iterable[str]") -> int:
    """Count the tasks in some states."""
    return sum(seen.counts.get(state, 0) for state in states)


def end_of(task: "TaskView") -> Exit | None:
    """Return the exit code for the end of a task; None if it has not ended."""
    if task.state not in RESTING:
        return None
    return Exit.OK if task.state in WELL else Exit.FAILED


def ending(reason: str | None, exit_code: int | None) -> str:
    """Return the reason of an end with the exit code, if there is one."""
    if reason == "bad_result":
        return f"{reason}: its result, progress, checkpoint or files cannot be taken"
    if reason == "exit_code" and exit_code is not None:
        return f"exit code {exit_code}"
    return " ".join(str(part) for part in (reason, exit_code) if part is not None)


def rerun_of(seen: "GraphView") -> str:
    """Say which graph a graph reruns, and from which tasks."""
    labels = format_cell(", ".join(seen.rerun_from))
    return f"{harmless(seen.rerun_of or '')} from {labels}; {plural(seen.reused, 'task')} reused"


def reused_from(source: "Reused") -> str:
    """Say whose outcome a task reuses."""
    where = f"task {source.task}, attempt {source.attempt}, of graph {source.graph_id}"
    saved = "" if source.saved_ms is None else f", which saved {format_duration(source.saved_ms)}"
    return f"reused from {harmless(where)}{saved}"


# The end of an attempt, for people, with the end of its output. All text of tasks is made harmless.


class Line(NamedTuple):
    """A line that stays on the screen; its text is harmless."""

    text: str
    state: str = ""  # of the task that the line is about; the live view colours the line by it


#: Something that happened in a graph; `NewsLines` turns it into lines.
News = Line | Progress | Printed


def failure(task: "TaskView") -> str:
    """Describe a failed task on a server in a line."""
    return task_lines(_failure(task))[0]


def _failure(task: "TaskView", tail: str = "") -> Progress:
    exit_code = shell_exit_code(task.exit_code)
    return Progress(
        task.label, task.state, task.attempt, task.reason, exit_code, task.duration_ms, tail, note=task.note, id=task.id
    )


def attempt_ending(progress: Progress) -> str:
    """Describe the end of an attempt."""
    parts = [_cause(progress)]
    if progress.attempt > 1:
        parts.append(f"attempt {progress.attempt}")
    if progress.elapsed_ms is not None:
        parts.append(format_duration(progress.elapsed_ms))
    ending = ", ".join(part for part in parts if part)
    return f"{ending}; {harmless(progress.id)}" if progress.id else ending


#: Reasons that say more than an exit code.
_CAUSES: Final[Mapping[str, str]] = {
    Reason.TIMED_OUT: "timed out",
    Reason.DENIED: "denied",
    Reason.GRAPH_FAILED: "the graph inside it did not finish",
    Reason.SILENT: "printed nothing for too long",
    Reason.BAD_RESULT: "its result, progress, checkpoint or files cannot be taken",
    Reason.BOT_LOST: "its bot was lost",
    Reason.MISSING: "its playbook, inventory or files are not there",
    Reason.BOT_FAILED: "its bot could not run it",
    Reason.RETURNED: "given back by its bot",
    Reason.UNRENEWED: "its bot could not renew the lease",
    Reason.EXPIRED: "waited too long for a bot",
    Reason.NO_BOT: "no bot can run it",
    Reason.DEADLINE: "its deadline is over",
    Reason.PREREQUISITE_FAILED: "a prerequisite failed",
}


def _cause(progress: Progress) -> str:
    reason, exit_code = progress.reason or "", progress.exit_code
    if reason == Reason.SIGNALED and exit_code:
        cause = f"ended by signal {exit_code - SIGNALED_BASE}"
    else:
        unnamed = harmless(reason) if progress.state in _FAILING else ""
        cause = _CAUSES.get(reason) or (f"exit code {exit_code}" if exit_code else unnamed)
    return f"{cause}: {harmless(progress.note)}" if progress.note else cause


def task_lines(progress: Progress) -> list[str]:
    """Describe a task in a line; if it failed, add the last lines of its output."""
    line = f"{harmless(progress.state):<11} {harmless(progress.label)}"
    details = _DETAILS.get(progress.state, attempt_ending)(progress)
    first = f"{line} ({details})" if details else line
    # A pending task with an exit code has failed and is about to be repeated.
    failed = progress.exit_code not in (None, 0) or progress.state in _FAILING
    return [first, *_tail_lines(progress)] if failed else [first]


def _tail_lines(progress: Progress) -> list[str]:
    shown = last_lines(progress.tail, TAIL_LINES_MAX + 1)
    whole = f"`taskyard logs {harmless(progress.id)}` prints all" if progress.id else "--logs DIR keeps all"
    cut = [f"  (the lines before are left out; {whole})"] if len(shown) > TAIL_LINES_MAX else []
    return cut + [f"  | {line}" for line in shown[-TAIL_LINES_MAX:]]


def _labels(labels: Iterable[str]) -> str:
    return ", ".join(map(harmless, labels))


_FAILING = frozenset({State.FAILED, State.ERROR, State.PENDING})
_DETAILS: Final[Mapping[str, Callable[[Progress], str]]] = {
    State.BLOCKED: lambda progress: f"not run: {_labels(progress.blocked_by)} failed",
    State.STOPPING: lambda _: "Ctrl-C again kills it",
    State.UNSCHEDULED: lambda progress: f"not run: waits for {_labels(progress.blocked_by)}",
    State.WAITING: lambda _: "no bot here can run it",
    State.PENDING: lambda progress: f"{attempt_ending(progress)}; again",
}


class NewsLines:
    """Turns news into lines; with `show_output` also the output of tasks, each line with the label of its task."""

    def __init__(self, show_output: bool) -> None:
        self._show_output = show_output
        self._output: dict[str, Lines] = {}

    def lines_of(self, news: News) -> "Iterator[Line]":
        """Yield the lines for one piece of news."""
        if isinstance(news, Line):
            yield news
        elif isinstance(news, Printed):
            yield from _labeled(news.label, self._output.setdefault(news.label, Lines()).of(news.output))
        else:
            output = self._output.pop(news.label, None)
            yield from () if output is None else _labeled(news.label, output.rest())
            # A failed graph has no output of its own: its tail says which of its tasks failed.
            is_shown = self._show_output and news.reason != Reason.GRAPH_FAILED
            first, *tail = task_lines(news)
            yield Line(first, news.state)
            yield from () if is_shown else map(Line, tail)


def _labeled(label: str, output: Iterable[bytes]) -> list[Line]:
    return [Line(f"{harmless(label)} | {shown_line(line)}") for line in output]


# Views of a graph on stderr: drawn on a terminal, lines elsewhere.


#: Counts are logged at most this often: a log must not fill up with lines that say almost the same.
COUNTS_SECONDS: Final = 5.0
#: Asks for the tasks that run.
Running = Callable[[], "Sequence[RunningTask]"]
View: TypeAlias = "PlainView | LiveView"


def choose_view(counts: bool, name: str = "", total: int = 0) -> "View":
    """Choose the live view on a terminal that can draw, and lines elsewhere.

    A log gets the counts of tasks by state now and then, or instead a line for each task that begins. The live view
    begins with a name and a number of tasks, if they are known.
    """
    if not can_draw(sys.stderr):
        return PlainView(counts)
    from taskyard.cli.drawing import LiveView  # noqa: PLC0415 - drawing costs time to load

    return LiveView(name, total)


class PlainView:
    """Lines without escape codes."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._last = ""
        self._next = 0.0
        self._running: set[RunningTask] = set()
        self._causes: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Every line has been written already."""

    def show(self, seen: "GraphView", running: Running) -> None:
        if self._counts:
            self._say_counts(headline(seen))
        else:
            self._say_begun(running())

    def hold(self, held: "WhyGraphView | None") -> None:
        """Say it once for each cause; that tasks run is not worth a line."""
        causes = held and [(group.state, group.reason, group.count) for group in held.groups]
        if held and causes != self._causes and any(group.reason not in UNDER_WAY for group in held.groups):
            self.say(Line(harmless(held.sentence)))
        self._causes = causes

    def say(self, *lines: Line) -> None:
        for line in lines:
            print_err(line.text)

    def pause(self) -> None:
        """Nothing is drawn."""

    def resume(self) -> None:
        """Nothing is drawn."""

    def _say_counts(self, line: str) -> None:
        if line != self._last and time.monotonic() >= self._next:
            self._last, self._next = line, time.monotonic() + COUNTS_SECONDS
            self.say(Line(line))

    def _say_begun(self, running: "Sequence[RunningTask]") -> None:
        for task in running:
            if task not in self._running:
                attempt = f" (attempt {task.attempt})" if task.attempt > 1 else ""
                self.say(Line(f"{State.RUNNING:<11} {harmless(task.label)}{attempt}"))
        self._running = set(running)


# Watching a graph until nothing in it can move: `run`, and `--wait` of `submit` and `rerun`.


#: When no task of a graph has moved for so long, the view says what holds the graph.
STILL_SECONDS: Final = 3.0
#: How often that reason is refreshed: it contains times.
HELD_SECONDS: Final = 1.0


class WatchedGraph(Protocol):
    """A graph that is watched, on a server or in this process."""

    #: Errors after which the next look may succeed.
    transient_errors: tuple[type[Exception], ...]

    def looks(self) -> "Iterator[GraphView]":
        """Yield the graph as it is, again and again, the last time when nothing in it can move."""
        ...

    def news(self, seen: "GraphView") -> Iterable[News]:
        """Return what happened up to this look."""
        ...

    def running(self, seen: "GraphView") -> "Sequence[RunningTask]":
        """Return tasks that run; those that a bot was only handed ahead do not."""
        ...

    def why(self) -> "WhyGraphView":
        """Explain what holds the graph."""
        ...


def watch(graph: WatchedGraph, view: "View", *, show_output: bool = False) -> "GraphView":
    """Show a graph until nothing in it can move; return it as it is then."""
    lines, held = NewsLines(show_output), _Held(graph)
    for seen in graph.looks():
        with suppress(*graph.transient_errors):
            for news in graph.news(seen):
                view.say(*lines.lines_of(news))
            view.hold(held.by(seen))
            if not seen.settled:
                view.show(seen, partial(graph.running, seen))
    return seen


def exit_of_failures(reasons: Iterable[str]) -> Exit:
    """Choose the exit code of a graph that did not finish, by the reasons of its failed tasks."""
    return Exit.NO_BOT if set(reasons) == {Reason.NO_BOT} else Exit.FAILED


class _Held:
    """Asks what holds a graph when nothing has moved in it for a while."""

    def __init__(self, graph: WatchedGraph) -> None:
        self._graph = graph
        self._last: object = None
        self._ask_at = 0.0
        self._why: WhyGraphView | None = None

    def by(self, seen: "GraphView") -> "WhyGraphView | None":
        if (now := (seen.state, seen.moved_ms, seen.counts)) != self._last:
            self._last, self._ask_at, self._why = now, time.monotonic() + STILL_SECONDS, None
        elif time.monotonic() >= self._ask_at and not seen.settled:
            self._why = self._graph.why()
            self._ask_at = time.monotonic() + HELD_SECONDS
        return self._why


# A graph on a server. The server is asked for counts, and for tasks only if these have changed, so watching costs the
# same for a graph of any size.


#: How many running tasks are named: the drawing must fit on a terminal of 24 lines.
RUNNING_MAX: Final = 12
#: How many failures are described with the end of their output; the others are only counted.
FAILURES_MAX: Final = 20
#: How many approvals of a graph are named, and how deep graphs inside tasks are searched for them.
APPROVALS_MAX: Final = 20
APPROVALS_DEPTH_MAX: Final = 8
#: How much of a failure's output is asked for: the last lines are in it.
TAIL_BYTES: Final = 8_192


class Waiting(NamedTuple):
    """Whether a command waits for its graphs, and for how long."""

    wait: bool = False
    timeout: int = 86_400_000


waiting_options = bundle(
    "waiting",
    Waiting,
    flag("--wait", help="Show progress until the graph is settled."),
    duration("--timeout", default=("1d", 86_400_000), help="Stop waiting after this time."),
)


def wait_for_new(client: "Client", graphs: Sequence[str], what: str, timeout_ms: int, output: str) -> int:
    """Wait for graphs that a command has made, and print each; the exit code is that of the first failure."""
    codes = []
    for graph in graphs:
        print_err(f"graph {graph} is {what}; Ctrl-C stops waiting, the graph continues")
        seen = wait(client, graph, timeout_ms / 1000)
        code = exit_of_graph(client, seen)
        codes.append(print_one(asdict(seen), output, partial(_headline_alone, seen), graph) or code)
    return next((code for code in codes if code), Exit.OK)


def _headline_alone(seen: "GraphView") -> list[str]:
    return [headline(seen)]


def wait(client: "Client", graph: str, timeout_s: float) -> "GraphView":
    """Show a graph on a server until it is settled; fail the command if that takes too long."""
    try:
        with choose_view(counts=True) as view:
            seen = watch(ServerGraph(client, graph, timeout_s), view)
            if seen.settled:
                view.say(Line(headline(seen)))
    except TimeoutError as late:
        print_error(f"{late}; the graph continues: taskyard show {graph}")
        raise CommandFailed(Exit.TIMED_OUT) from late
    return seen


def exit_of_graph(client: "Client", seen: "GraphView") -> Exit:
    """Choose the exit code of a graph that is settled, or in which nothing moves any more."""
    if not seen.settled and seen.deadlock is not None:
        print_error(harmless(seen.deadlock.sentence))
        return Exit.NO_BOT
    if seen.state == "finished":
        return Exit.OK
    return exit_of_failures(
        task.reason for state in FAILED for task in client.tasks(seen.id, state=state, limit=FAILURES_MAX)
    )


class ServerGraph:
    """A graph on a server. Its news are each failure, with the end of the output, and each approval."""

    def __init__(self, client: "Client", graph: str, timeout_s: float) -> None:
        from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415 - it comes with the client

        self.transient_errors: tuple[type[Exception], ...] = (Overloaded, Unreachable)
        self._client = client
        self._graph = graph
        self._timeout_s = timeout_s
        self._failed: list[int] = []
        self._reported: set[tuple[str, int]] = set()
        self._approvals = Approvals(client)

    def looks(self) -> "Iterator[GraphView]":
        return self._client.watch(self._graph, self._timeout_s)

    def news(self, seen: "GraphView") -> "Iterator[News]":
        counts = [seen.counts.get(state, 0) for state in FAILED]
        if counts != self._failed:
            for state in FAILED:
                for task in self._client.tasks(self._graph, state=state, limit=FAILURES_MAX):
                    yield from self._new_failure(task)
            self._failed = counts
        yield from map(Line, self._approvals.new_in(seen))

    def running(self, seen: "GraphView") -> "list[RunningTask]":
        found = self._client.tasks(self._graph, state="running", limit=RUNNING_MAX + seen.assigned)
        return [RunningTask(task.label, task.attempt) for task in found if task.reason != "assigned"][:RUNNING_MAX]

    def why(self) -> "WhyGraphView":
        return self._client.why_graph(self._graph)

    def _new_failure(self, task: "TaskView") -> "Iterator[News]":
        if (task.id, task.attempt) in self._reported or len(self._reported) >= FAILURES_MAX:
            return
        self._reported.add((task.id, task.attempt))
        if task.inner_graph is not None:
            yield Line(failure(task), task.state)
            yield Line(f"  its graph: taskyard show {harmless(task.inner_graph)}")
        else:
            yield _failure(task, tail(self._client, task.id, task.attempt) if task.attempt else "")


class Approvals:
    """Names each approval for which a graph, or one inside it, waits, once."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._reported: set[tuple[str, int]] = set()

    def new_in(self, seen: "GraphView") -> "Iterator[str]":
        """Yield a line for each new approval, with the command that answers it."""
        for task in self._pending(seen.id, APPROVALS_DEPTH_MAX) if seen.counts.get("running") else ():
            if (task.id, task.attempt) not in self._reported and len(self._reported) < APPROVALS_MAX:
                self._reported.add((task.id, task.attempt))
                message = harmless(message_of(self._client.task(task.id).definition))
                yield f"waiting for approval: {harmless(task.label)}: {message}; taskyard approve {task.id}"

    def _pending(self, graph: str, depth: int) -> "Iterator[TaskView]":
        for task in self._client.tasks(graph, state="running", limit=APPROVALS_MAX):
            if task.kind == "approval":
                yield task
            elif task.inner_graph is not None and depth:
                yield from self._pending(task.inner_graph, depth - 1)


def tail(client: "Client", task: str, attempt: int) -> str:
    """Return the end of the output of an attempt."""
    size = next((one.output_bytes for one in client.attempts(task) if one.number == attempt), 0)
    if not size:
        return ""
    return client.output(task, attempt=attempt, start=max(0, size - TAIL_BYTES)).decode(errors="replace")


def message_of(definition: Any) -> str:
    """Return the message of an approval from the definition of its task."""
    asked = definition["slices"][0]["payload"]["approval"]
    return str(asked["message"] if isinstance(asked, dict) else asked)


# `--watch`: refresh until the end, an interrupt or the timeout.
#
# A terminal is redrawn at each refresh; elsewhere each change is one line of JSON. If the server cannot be reached for
# some minutes, the command waits for it.


#: For how long the server may be unreachable: a restart takes less.
UNREACHABLE_SECONDS_MAX: Final = 300.0
#: The shortest time between two refreshes: each one loads the server.
EVERY_SECONDS_MIN: Final = 0.2
#: The height of a terminal that does not tell its size.
DEFAULT_HEIGHT: Final = 24


class Watch(NamedTuple):
    """Whether to refresh, how often and for how long."""

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
    """One refresh: objects with ids, the lines for people, and the exit code if nothing will change any more."""

    shapes: Sequence[dict[str, Any]]
    lines: Sequence[str]
    end: Exit | None = None


def follow(look: Callable[[], Snapshot], watch: Watch, output: str) -> Exit:
    """Refresh until the end or the timeout; return the exit code."""
    render = _renderer(output)
    until = time.monotonic() + watch.timeout / 1000
    pause = max(EVERY_SECONDS_MIN, watch.every / 1000)
    ended: list[Exit] = []
    written = write_stdout(lambda: ended.append(_refresh(look, render, until, pause)))
    return (ended or [Exit.OK])[0] if written else Exit.ERROR


def _refresh(look: Callable[[], Snapshot], render: "Renderer", until: float, pause: float) -> Exit:
    from taskyard.sdk.errors import Overloaded, Unreachable  # noqa: PLC0415 - it comes with the client

    answered_at = time.monotonic()
    while True:
        try:
            seen = look()
        except (Overloaded, Unreachable):
            if time.monotonic() > min(until, answered_at + UNREACHABLE_SECONDS_MAX):
                raise
        else:
            answered_at = time.monotonic()
            render(seen)
            if seen.end is not None:
                return seen.end
        left = until - time.monotonic()
        if left <= 0:
            print_error("--watch timed out; --timeout DURATION sets the limit")
            return Exit.TIMED_OUT
        time.sleep(min(pause, left))


Renderer = Callable[[Snapshot], None]


def _renderer(output: str) -> Renderer:
    """Choose how changes are shown; refuse output formats that cannot be refreshed."""
    if output == "jsonl":
        return _Lines()
    if output != "table":
        raise click.UsageError("--watch needs -o table or -o jsonl")
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs -o jsonl if stdout is not a terminal: it prints a line for each change")
    return _redraw if can_draw(sys.stdout) else _Changes()


def _redraw(seen: Snapshot) -> None:
    """Draw the first lines, as many as fit, over the last drawing."""
    most = max(1, _height() - 2)
    shown = list(seen.lines[:most]) or ["nothing to show"]
    if len(seen.lines) > most:
        shown[-1] = f"and {len(seen.lines) - most + 1} more lines"
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or DEFAULT_HEIGHT
    except OSError:
        return DEFAULT_HEIGHT


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
    """Prints each object that is new or has changed, and `gone` for each that is not listed any more."""

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
