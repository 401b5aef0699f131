"""The commands `graphs`, `tasks`, `show` and `story`: read graphs and tasks."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import (
    Server,
    any_argument,
    connected,
    graph_id,
    graph_or_task,
    optional_graph_argument,
    server_options,
    task_argument,
    task_id,
)
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import (
    Decorator,
    Number,
    bundle,
    choice,
    command,
    completes,
    duration,
    flag,
    listing_options,
    output_option,
)
from taskyard.cli.output import (
    Column,
    Id,
    Listing,
    format_age,
    format_cell,
    format_counts,
    format_duration,
    format_list,
    format_table,
    format_time,
    harmless,
    plural,
    print_list,
    print_one,
)

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import AttemptView, CriticalPath, GraphView, Parent, PathTask, StoryItem, StoryView, TaskView
    from taskyard.wire.explain import WhyGraphView


# The critical path of a graph: how long the graph took or when it is expected to end, and a table of tasks.


#: How many tasks of a path are shown; JSON has all.
SHOWN_MAX: Final = 12


def _path_fields(seen: "CriticalPath") -> list[tuple[str, str]]:
    """Say how long a graph took or when it is expected to end, as a row of a table; no row if there is no path."""
    if seen.settled:
        return [("took", _took(seen))] if seen.path else []
    if not seen.path:
        return []
    return [("expected", _expected(seen))]


def _path_lines(seen: "CriticalPath") -> Iterator[str]:
    """Show the tasks of a path, if there are at least two."""
    if len(seen.path) < 2:
        return
    yield ""
    shown = seen.path[-SHOWN_MAX:] if seen.settled else seen.path[:SHOWN_MAX]
    head = ("CRITICAL PATH", "STATE", *(("WAITED", "RAN") if seen.settled else ("RAN", "EXPECTED", "LEFT")))
    rows = [head, *(_row(one, seen.settled) for one in shown)]
    yield from format_table(rows, sys.stdout, indent="  ", titled=True)
    if more := len(seen.path) - len(shown):
        yield f"  and {more}{'' if seen.whole else ' or more'} {'before' if seen.settled else 'after'} these"


def _took(seen: "CriticalPath") -> str:
    total = format_duration(seen.total_ms)
    if seen.waiting_ms is None or not seen.total_ms:
        return total
    return f"{total}, {round(100 * seen.waiting_ms / seen.total_ms)} % of it waiting"


def _expected(seen: "CriticalPath") -> str:
    past = f"durations known for {seen.known} of {plural(seen.left, 'task')} left"
    stuck = f"; {seen.stuck} blocked" if seen.stuck else ""
    if seen.expected_end_ms is None:
        return f"unknown; {past}{stuck}"
    left = format_duration(max(0, seen.expected_end_ms - seen.at_ms))
    return f"{format_time(seen.expected_end_ms)} at the earliest, in {left}; {past}{stuck}"


def _row(one: "PathTask", settled: bool) -> tuple[str, ...]:
    times = (one.waited_ms, one.ran_ms) if settled else (one.ran_ms, one.expected_ms, one.remaining_ms)
    return (format_cell(one.label), format_cell(one.state), *(_span(ms) for ms in times))


def _span(ms: int | None) -> str:
    return "-" if ms is None else format_duration(ms)


# The history of a task: a line for each event, with its time, cause, attempt and bot.


def history_lines(story: "StoryView") -> "Iterator[str]":
    """Print a history as a table."""
    reused = f", {progress.reused_from(story.reused)}" if story.reused else ""
    first = (format_time(story.created_ms), "", "", f"{harmless(story.label)} is submitted{reused}", "", "")
    head = ("TIME", "AFTER", "STATE", "CAUSE", "ATTEMPT", "BOT")
    yield from format_table([head, first, *map(_history_row, story.items)], sys.stdout, titled=True)
    if not story.whole:
        yield "there are more events"


def _history_row(item: "StoryItem") -> tuple[str, ...]:
    return (
        format_time(item.at_ms),
        f"+{format_duration(item.after_ms)}",
        harmless(item.target or ""),
        harmless(item.cause),
        str(item.attempt or ""),
        harmless(item.bot or ""),
    )


GRAPHS_EXAMPLES: Final = """\
Examples:

    taskyard graphs                         list the newest graphs
    taskyard graphs --state blocked         list graphs that need attention
    taskyard graphs --since 1d --all        list all graphs of the last day
    taskyard graphs --name nightly -o name --limit 1
    taskyard graphs --tag team=db --watch   refresh the list
"""
TASKS_EXAMPLES: Final = """\
Examples:

    taskyard tasks 78a6ff3e8d8c0f28         list the tasks of a graph
    taskyard tasks c0f28                    name it by the end of its id
    taskyard tasks 78a6ff3e8d8c0f28 --state failed -o name
    taskyard tasks --tag build:1234 --state failed --since 1d
    taskyard tasks --user ada --state running --state waiting
    taskyard tasks --bot rack4-11 --since 1h --count
    taskyard tasks 78a6ff3e8d8c0f28 --columns label,state,bot
    taskyard tasks 78a6ff3e8d8c0f28 -o jsonl --all | jq .label
"""
SHOW_EXAMPLES: Final = """\
Examples:

    taskyard show 78a6ff3e8d8c0f28           show a graph
    taskyard show 00c0ffee12345678           show a task and its attempts
    taskyard show 78a6ff3e8d8c0f28/build     show a task by its label
    taskyard show --watch 78a6ff3e8d8c0f28   refresh until it is settled
    taskyard show -o json 78a6ff3e8d8c0f28   print everything as JSON
"""
STORY_EXAMPLES: Final = """\
Examples:

    taskyard story 00c0ffee12345678
    taskyard story 78a6ff3e8d8c0f28/build
    taskyard story -o jsonl 00c0ffee12345678   print each event as JSON
"""

#: How many failed tasks of a graph are named; `taskyard tasks` lists all.
FAILED_SHOWN_MAX: Final = 20

#: How many characters of a result are shown.
RESULT_SHOWN_MAX: Final = 400

GRAPH_STATES: Final = ("running", "blocked", "failed", "finished", "canceling", "canceled")
#: A graph is blocked as soon as a failed task is not handled; people search for it as failed.
_STATE_OF: Final = {"failed": "blocked"}
TASK_STATES: Final = (
    "unscheduled", "blocked", "pending", "waiting", "running", "stopping",
    "successful", "failed", "error", "canceled", "skipped",
)  # fmt: skip
all_option = flag("--all", help="No limit.")

_GRAPH_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: Id(one.id)),
    ("name", lambda one: one.name),
    ("state", lambda one: one.state),
    ("succeeded", lambda one: one.counts.get("successful", 0)),
    ("failed", progress.failed),
    ("running", lambda one: progress.running(one) + one.counts.get("stopping", 0)),
    ("left", lambda one: progress.count(one, progress.LEFT) + one.assigned),
    ("age", lambda one: format_age(one.created_ms)),
]
_TASK_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: Id(one.id)),
    ("label", lambda one: one.label),
    ("state", lambda one: one.state),
    ("reason", lambda one: one.reason),
    ("attempt", lambda one: one.attempt),
    ("bot", lambda one: one.bot),
    ("moved", lambda one: format_age(one.moved_ms)),
]
_GRAPH_COLUMN: Final[Column] = ("graph", lambda one: Id(one.graph_id))


def limit_option(default: int) -> Decorator:
    """Make the option that limits the length of a list."""
    return click.option("--limit", type=Number(1, 1_000_000), default=default, metavar="N", help="Maximum number.")


class WantedGraphs(NamedTuple):
    """Which graphs to list."""

    state: str | None = None
    name: str | None = None
    tag: tuple[str, ...] = ()
    since: int | None = None
    limit: int = 50
    all: bool = False


class WantedTasks(NamedTuple):
    """Which tasks to list."""

    state: tuple[str, ...] = ()
    label: str | None = None
    tag: tuple[str, ...] = ()
    bot: str | None = None
    user: str | None = None
    pool: str | None = None
    since: int | None = None
    counted: bool = False
    limit: int = 1_000
    all: bool = False

    def conditions(self) -> dict[str, Any]:
        """Return the conditions as the client takes them."""
        state = self.state[0] if len(self.state) == 1 else self.state or None
        return {
            "state": state,
            "tags": tuple(map(tag_of, self.tag)),
            "bot": self.bot,
            "user": self.user,
            "pool": self.pool,
            "since_ms": None if self.since is None else max(0, round(time.time() * 1000) - self.since),
        }


def tag_of(written: str) -> str:
    """Read a tag that is written with a colon, or with `=`."""
    return written if ":" in written else written.replace("=", ":", 1)


@command("graphs", GRAPHS_EXAMPLES)
@bundle(
    "wanted",
    WantedGraphs,
    choice("--state", words=GRAPH_STATES, help="Filter by state; failed means blocked."),
    click.option("--name", metavar="NAME", help="Filter by name."),
    click.option("--tag", multiple=True, metavar="KEY=VALUE", help="Filter by tag; can be repeated, all must match."),
    duration("--since", help="Only graphs submitted within this time."),
    limit_option(50),
    all_option,
)
@listing_options
@progress.watch_options
@server_options
def graphs(wanted: WantedGraphs, listing: Listing, watch: progress.Watch, server: Server) -> int:
    """List graphs, the newest first."""
    with connected(server) as client:
        counts = listing.output != "name"
        return show_all(lambda: _graphs(client, wanted, counts), listing, _GRAPH_COLUMNS, watch)


#: The conditions on tasks of all graphs.
task_conditions: Final = (
    click.option("--tag", multiple=True, metavar="KEY:VALUE", help="Filter by tag; can be repeated, all must match."),
    click.option("--bot", metavar="BOT", help="Filter by a bot that had an attempt.", shell_complete=completes("bot")),
    click.option("--user", metavar="USER", help="Filter by the user for whom the task runs."),
    click.option("--pool", metavar="POOL", help="Filter by pool.", shell_complete=completes("pool")),
    duration("--since", help="Only tasks submitted within this time."),
)


@command("tasks", TASKS_EXAMPLES)
@optional_graph_argument
@bundle(
    "wanted",
    WantedTasks,
    choice("--state", words=TASK_STATES, help="Filter by state; can be repeated, one must match.", multiple=True),
    click.option("--label", metavar="LABEL", help="Filter the tasks of a graph by label."),
    *task_conditions,
    flag("--count", "counted", help="Only count them, by state."),
    limit_option(1_000),
    all_option,
)
@listing_options
@progress.watch_options
@server_options
def tasks(graph: str | None, wanted: WantedTasks, listing: Listing, watch: progress.Watch, server: Server) -> int:
    """List the tasks of a graph, or those of all graphs, the newest first.

    Beside its own tags, a task has its dimensions, its pool, its priority and
    its user as tags: `--tag os:Linux`, `--tag priority:20`.
    """
    if wanted.label is not None and (graph is None or any(wanted.conditions().values())):
        raise click.UsageError("--label needs a GRAPH, and goes with no other condition")
    most = None if wanted.all else wanted.limit
    with connected(server) as client:
        id = None if graph is None else graph_id(client, graph)
        if wanted.counted:
            return _print_counts(client.count_tasks(id, **wanted.conditions()), listing)
        columns = _TASK_COLUMNS if graph is not None else [_TASK_COLUMNS[0], _GRAPH_COLUMN, *_TASK_COLUMNS[1:]]
        return show_all(
            lambda: client.tasks(id, label=wanted.label, limit=most, **wanted.conditions()), listing, columns, watch
        )


def _print_counts(counts: dict[str, int], listing: Listing) -> Exit:
    rows = [TaskCount(state, counts[state]) for state in TASK_STATES if state in counts]
    return print_list(rows, listing, [("state", lambda one: one.state), ("tasks", lambda one: one.tasks)], str)


@dataclass
class TaskCount:
    """How many tasks are in a state."""

    state: str
    tasks: int


@command("show", SHOW_EXAMPLES)
@any_argument
@output_option("table")
@progress.watch_options
@server_options
def show(id: str, output: str, watch: progress.Watch, server: Server) -> int:
    """Show a graph with its counts and failures, or a task with its attempts.

    With --watch it refreshes until the graph is settled or the task has
    ended; the exit code is then 0 for success, 3 for failed or canceled.
    """
    with connected(server) as client:
        return graph_or_task(
            client,
            id,
            lambda graph: _show(lambda: _seen_graph(client, graph), watch, output),
            lambda task: _show(lambda: _seen_task(client, task), watch, output),
        )


@command("story", STORY_EXAMPLES)
@task_argument
@output_option("table")
@server_options
def story(task: str, output: str, server: Server) -> int:
    """Show the history of a task: each event with its cause, attempt and bot."""
    with connected(server) as client:
        found = client.story(task_id(client, task))
        if output == "jsonl":
            return print_list(found.items, Listing("jsonl"), [], lambda _: found.task)
        return print_one(asdict(found), output, lambda: history_lines(found), found.task)


def show_all(
    look: Callable[[], Iterable[Any]],
    listing: Listing,
    columns: list[Column],
    watch: progress.Watch,
) -> Exit:
    """Print a list of objects with an `id`, once or with --watch."""
    if not watch.watch:
        return print_list(look(), listing, columns, lambda one: str(one.id))
    chosen = listing.chosen(columns)

    def seen() -> progress.Snapshot:
        found = list(look())
        return progress.Snapshot([asdict(one) for one in found], format_list(found, chosen))

    return progress.follow(seen, watch, listing.output)


def _graphs(client: "Client", wanted: WantedGraphs, counts: bool) -> "Iterator[GraphView]":
    """Yield the wanted graphs, the newest first; --since ends the list at the first older one."""
    tags = [one.replace("=", ":", 1) for one in wanted.tag]
    most = None if wanted.all else wanted.limit
    state = _STATE_OF.get(wanted.state or "", wanted.state)
    found = client.graphs(state=state, name=wanted.name, tags=tags, limit=most, counts=counts)
    if wanted.since is None:
        return found
    since_ms = time.time() * 1000 - wanted.since
    return takewhile(lambda one: one.created_ms >= since_ms, found)


class _Shown(NamedTuple):
    """A graph or a task: its id, its JSON, its lines for people, and the exit code if it has ended."""

    id: str
    shape: dict[str, Any]
    lines: Callable[[], Iterable[str]]
    end: Exit | None


def _show(look: Callable[[], _Shown], watch: progress.Watch, output: str) -> Exit:
    """Show one object, once or until its end."""
    if not watch.watch:
        seen = look()
        return print_one(seen.shape, output, seen.lines, seen.id)

    def again() -> progress.Snapshot:
        seen = look()
        return progress.Snapshot([seen.shape], list(seen.lines()), seen.end)

    return progress.follow(again, watch, output)


def _seen_graph(client: "Client", id: str) -> _Shown:
    graph = client.graph(id)
    failed = [
        task
        for state in progress.FAILED
        if graph.counts.get(state)
        for task in client.tasks(id, state=state, limit=FAILED_SHOWN_MAX)
    ]
    path = client.critical_path(id)
    held = client.why_graph(id) if _is_held(graph) else None
    shape = {**asdict(graph), "failed": [asdict(task) for task in failed], "critical_path": asdict(path)}
    end = progress.exit_of_graph(client, graph) if graph.settled else None
    return _Shown(
        graph.id,
        shape,
        lambda: (*_graph_lines(graph, failed, path, held), *progress.Approvals(client).new_in(graph)),
        end,
    )


def _is_held(graph: "GraphView") -> bool:
    """Check whether a graph is not settled, and yet none of its tasks runs."""
    return not graph.settled and not any(graph.counts.get(state) for state in progress.MOVING)


def _graph_lines(
    graph: "GraphView", failed: "list[TaskView]", path: "CriticalPath", held: "WhyGraphView | None"
) -> Iterator[str]:
    settled = "settled" if graph.settled else "still moving" if held is None else "no task runs now"
    yield from format_table(
        [
            ("graph", format_cell(graph.id)),
            ("name", format_cell(graph.name)),
            ("state", f"{format_cell(graph.state)}, {settled}"),
            ("created", format_time(graph.created_ms)),
            ("moved", format_time(graph.moved_ms)),
            ("tasks", format_counts(progress.counts(graph))),
            *([("why", harmless(held.sentence))] if held else []),
            *([("inside", _parent(graph.parent))] if graph.parent else []),
            *([("rerun of", progress.rerun_of(graph))] if graph.rerun_of else []),
            *_launch_fields(graph),
            *_path_fields(path),
        ],
        sys.stdout,
    )
    for task in failed:
        yield f"  {progress.failure(task)}"
        if task.inner_graph is not None:
            yield f"    its graph: taskyard show {harmless(task.inner_graph)}"
    if progress.failed(graph) > len(failed):
        yield f"  and {progress.failed(graph) - len(failed)} more"
    yield from _path_lines(path)


def _launch_fields(graph: "GraphView") -> Iterator[tuple[str, str]]:
    """Say what a graph was launched from, and which updates it uses."""
    launch = graph.launch
    if launch is None:
        return
    by = f"schedule {launch.schedule}" if launch.schedule else launch.actor
    said = f"{launch.kind} {launch.name}, version {launch.version}; {launch.launch_type}, by {by}"
    yield "launch", harmless(said)
    if launch.relaunch_of:
        yield "repeats", format_cell(launch.relaunch_of)
    given = {**launch.variables, **launch.options}
    if given:
        yield "given", harmless(", ".join(f"{name}={_json(value)}" for name, value in given.items()))
    for link in graph.links:
        yield "uses", harmless(f"{link.resource}, {link.state or 'deleted'}: graph {link.graph_id or '-'}")


def _json(value: object) -> str:
    import json  # noqa: PLC0415 - slow to load

    return json.dumps(value, ensure_ascii=False)


def _parent(parent: "Parent") -> str:
    return f"attempt {parent.attempt} of task {format_cell(parent.task)} in graph {format_cell(parent.graph)}"


def _seen_task(client: "Client", id: str) -> _Shown:
    task = client.task(id)
    attempts = client.attempts(id)
    shape = {**asdict(task), "attempts": [asdict(attempt) for attempt in attempts]}
    return _Shown(task.id, shape, lambda: _task_lines(task, attempts), progress.end_of(task))


def _task_lines(task: "TaskView", attempts: "list[AttemptView]") -> Iterator[str]:
    yield from format_table(
        [
            ("task", format_cell(task.id)),
            ("label", format_cell(task.label)),
            ("graph", format_cell(task.graph_id)),
            (
                "state",
                f"{format_cell(task.state)} ({format_cell(progress.ending(task.reason, None))})",
            ),
            ("kind", format_cell(task.kind)),
            ("created", format_time(task.created_ms)),
            ("moved", format_time(task.moved_ms)),
            ("reruns left", f"{task.rerunsLeft} of {task.rerunsAllowed}"),
            ("requires", format_cell(", ".join(edge.label for edge in task.requires))),
            ("progress", format_cell(task.progress)),
            *([] if task.result is None else [("result", _result(task.result))]),
            *([("inner graph", format_cell(task.inner_graph))] if task.inner_graph else []),
            *([("outcome", progress.reused_from(task.reused))] if task.reused else []),
        ],
        sys.stdout,
    )
    if attempts:
        head = ("ATTEMPT", "BOT", "BEGAN", "TOOK", "ENDED", "OUTPUT")
        yield from format_table([head, *map(_attempt_row, attempts)], sys.stdout, indent="  ", titled=True)


def _result(result: object) -> str:
    """Write a result in one line, shortened if it is long."""
    import json  # noqa: PLC0415 - few tasks have a result

    written = json.dumps(result)
    return written if len(written) <= RESULT_SHOWN_MAX else f"{written[:RESULT_SHOWN_MAX]}... (-o json prints all)"


def _attempt_row(attempt: "AttemptView") -> tuple[str, ...]:
    took = None if attempt.ended_ms is None else format_duration(attempt.ended_ms - attempt.claimed_ms)
    ended = " ".join(filter(None, (attempt.signal, progress.ending(attempt.reason, attempt.exit_code))))
    cut = ", cut" if attempt.truncated else ""
    return (
        str(attempt.number),
        format_cell(attempt.bot),
        format_time(attempt.claimed_ms),
        format_cell(took),
        format_cell(ended),
        f"{attempt.output_bytes} byte{'s' * (attempt.output_bytes != 1)}{cut}",
    )
