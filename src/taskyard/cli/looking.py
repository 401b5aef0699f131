"""The commands that only look: `graphs`, `tasks`, `show`, `story`."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskyard.cli import forms, layout, lookout, naming, paths, session, standing, storytelling, text, watching
from taskyard.cli.approving import Questions
from taskyard.cli.exits import Exit
from taskyard.cli.options import Decorator, Number, bundle, choice, command, duration, flag
from taskyard.cli.session import Server, connected

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import AttemptView, CriticalPath, GraphView, Parent, TaskView
    from taskyard.wire.explain import WhyGraphView

GRAPHS_EXAMPLES: Final = """\
Examples:

    taskyard graphs                         the newest graphs
    taskyard graphs --state blocked         those that need somebody
    taskyard graphs --since 1d --all        every graph of the last day
    taskyard graphs --name nightly -o name --limit 1
    taskyard graphs --tag team=db --watch   look again and again
"""
TASKS_EXAMPLES: Final = """\
Examples:

    taskyard tasks 78a6ff3e8d8c0f28         by its id, or the end of it:
    taskyard tasks c0f28
    taskyard tasks 78a6ff3e8d8c0f28 --state failed -o name
    taskyard tasks 78a6ff3e8d8c0f28 --columns label,state,bot
    taskyard tasks 78a6ff3e8d8c0f28 -o jsonl --all | jq .label
"""
SHOW_EXAMPLES: Final = """\
Examples:

    taskyard show 78a6ff3e8d8c0f28           a graph: counts, failures, its end
    taskyard show 00c0ffee12345678           a task: its attempts
    taskyard show 78a6ff3e8d8c0f28/build     a task by its label
    taskyard show --watch 78a6ff3e8d8c0f28   until it is settled
    taskyard show -o json 78a6ff3e8d8c0f28   all of it, for a program
"""
STORY_EXAMPLES: Final = """\
Examples:

    taskyard story 00c0ffee12345678
    taskyard story 78a6ff3e8d8c0f28/build
    taskyard story -o jsonl 00c0ffee12345678   a line for each event
"""

#: How many failed tasks of a graph are named; `taskyard tasks` has them all.
FAILED_SHOWN_MAX: Final = 20

#: How many characters of a task's result are shown to people.
RESULT_SHOWN_MAX: Final = 400

GRAPH_STATES: Final = ("running", "blocked", "failed", "finished", "canceling", "canceled")
#: A graph is blocked as soon as a task failed that nothing handles: people look for it as failed.
_STATE_OF: Final = {"failed": "blocked"}
TASK_STATES: Final = (
    "unscheduled", "blocked", "pending", "waiting", "running", "stopping",
    "successful", "failed", "error", "canceled", "skipped",
)  # fmt: skip
all_option = flag("--all", help="No limit.")

_GRAPH_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: forms.Id(one.id)),
    ("name", lambda one: one.name),
    ("state", lambda one: one.state),
    ("succeeded", lambda one: one.counts.get("successful", 0)),
    ("failed", standing.failed),
    ("running", lambda one: standing.running(one) + one.counts.get("stopping", 0)),
    ("left", lambda one: standing.count(one, standing.LEFT) + one.assigned),
    ("age", lambda one: forms.age(one.created_ms)),
]
_TASK_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: forms.Id(one.id)),
    ("label", lambda one: one.label),
    ("state", lambda one: one.state),
    ("reason", lambda one: one.reason),
    ("attempt", lambda one: one.attempt),
    ("bot", lambda one: one.bot),
    ("moved", lambda one: forms.age(one.moved_ms)),
]


def limit_option(default: int) -> Decorator:
    """Make the option that bounds a list."""
    return click.option("--limit", type=Number(1, 1_000_000), default=default, metavar="N", help="Maximum number.")


class WantedGraphs(NamedTuple):
    """Which graphs."""

    state: str | None = None
    name: str | None = None
    tag: tuple[str, ...] = ()
    since: int | None = None
    limit: int = 50
    all: bool = False


class WantedTasks(NamedTuple):
    """Which tasks."""

    state: str | None = None
    label: str | None = None
    limit: int = 1_000
    all: bool = False


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
@forms.listing_options
@lookout.watch_options
@session.server_options
def graphs(wanted: WantedGraphs, listing: forms.Listing, watch: lookout.Watch, server: Server) -> int:
    """List graphs, the newest first."""
    with connected(server) as client:
        counts = listing.output != "name"
        return show_all(lambda: _graphs(client, wanted, counts), listing, _GRAPH_COLUMNS, watch)


@command("tasks", TASKS_EXAMPLES)
@naming.graph_argument
@bundle(
    "wanted",
    WantedTasks,
    choice("--state", words=TASK_STATES, help="Filter by state."),
    click.option("--label", metavar="LABEL", help="Filter by label."),
    limit_option(1_000),
    all_option,
)
@forms.listing_options
@lookout.watch_options
@session.server_options
def tasks(graph: str, wanted: WantedTasks, listing: forms.Listing, watch: lookout.Watch, server: Server) -> int:
    """List the tasks of a graph."""
    most = None if wanted.all else wanted.limit
    with connected(server) as client:
        id = naming.graph_id(client, graph)
        return show_all(
            lambda: client.tasks(id, state=wanted.state, label=wanted.label, limit=most),
            listing,
            _TASK_COLUMNS,
            watch,
        )


@command("show", SHOW_EXAMPLES)
@naming.any_argument
@forms.output_option("table")
@lookout.watch_options
@session.server_options
def show(id: str, output: str, watch: lookout.Watch, server: Server) -> int:
    """Show a graph with its counts and failures, or a task with its attempts.

    With --watch it goes on until a graph is settled or a task has ended, and
    the exit code is the outcome: 0 well, 3 failed or canceled.
    """
    with connected(server) as client:
        return naming.either(
            client,
            id,
            lambda graph: _show(lambda: _seen_graph(client, graph), watch, output),
            lambda task: _show(lambda: _seen_task(client, task), watch, output),
        )


@command("story", STORY_EXAMPLES)
@naming.task_argument
@forms.output_option("table")
@session.server_options
def story(task: str, output: str, server: Server) -> int:
    """Tell everything that happened to a task: each move with its cause, attempt and bot."""
    with connected(server) as client:
        told = client.story(naming.task_id(client, task))
        if output == "jsonl":
            return forms.give_all(told.items, forms.Listing("jsonl"), [], lambda _: told.task)
        return forms.give_one(asdict(told), output, lambda: storytelling.lines(told), told.task)


def show_all(
    look: Callable[[], Iterable[Any]], listing: forms.Listing, columns: list[forms.Column], watch: lookout.Watch
) -> Exit:
    """Print a list, once or again and again. What it lists has an `id`."""
    if not watch.watch:
        return forms.give_all(look(), listing, columns, lambda one: str(one.id))
    chosen = listing.chosen(columns)

    def seen() -> lookout.Seen:
        found = list(look())
        return lookout.Seen([asdict(one) for one in found], forms.lines_of(found, chosen))

    return lookout.follow(seen, watch, listing.output)


def _graphs(client: "Client", wanted: WantedGraphs, counts: bool) -> "Iterator[GraphView]":
    """Give the graphs that are wanted; the newest come first, so a moment is where to stop."""
    tags = [one.replace("=", ":", 1) for one in wanted.tag]
    most = None if wanted.all else wanted.limit
    state = _STATE_OF.get(wanted.state or "", wanted.state)
    found = client.graphs(state=state, name=wanted.name, tags=tags, limit=most, counts=counts)
    if wanted.since is None:
        return found
    since_ms = time.time() * 1000 - wanted.since
    return takewhile(lambda one: one.created_ms >= since_ms, found)


class _Shown(NamedTuple):
    """One thing as it is shown: for programs, for people, by name; and the exit code if it has come to its end."""

    id: str
    shape: dict[str, Any]
    lines: Callable[[], Iterable[str]]
    end: Exit | None


def _show(look: Callable[[], _Shown], watch: lookout.Watch, output: str) -> Exit:
    """Show one thing, once or until its end."""
    if not watch.watch:
        seen = look()
        return forms.give_one(seen.shape, output, seen.lines, seen.id)

    def again() -> lookout.Seen:
        seen = look()
        return lookout.Seen([seen.shape], list(seen.lines()), seen.end)

    return lookout.follow(again, watch, output)


def _seen_graph(client: "Client", id: str) -> _Shown:
    graph = client.graph(id)
    failed = [
        task
        for state in standing.FAILED
        if graph.counts.get(state)
        for task in client.tasks(id, state=state, limit=FAILED_SHOWN_MAX)
    ]
    path = client.critical_path(id)
    held = client.why_graph(id) if _is_held(graph) else None
    shape = {**asdict(graph), "failed": [asdict(task) for task in failed], "critical_path": asdict(path)}
    end = watching.verdict(client, graph) if graph.settled else None
    return _Shown(
        graph.id, shape, lambda: (*_graph_lines(graph, failed, path, held), *Questions(client).new_in(graph)), end
    )


def _is_held(graph: "GraphView") -> bool:
    """Tell whether nothing of a graph runs though it is not settled."""
    return not graph.settled and not any(graph.counts.get(state) for state in standing.MOVING)


def _graph_lines(
    graph: "GraphView", failed: "list[TaskView]", path: "CriticalPath", held: "WhyGraphView | None"
) -> Iterator[str]:
    settled = "settled" if graph.settled else "still moving" if held is None else "nothing of it runs now"
    yield from layout.table(
        [
            ("graph", forms.cell(graph.id)),
            ("name", forms.cell(graph.name)),
            ("state", f"{forms.cell(graph.state)}, {settled}"),
            ("created", forms.moment(graph.created_ms)),
            ("moved", forms.moment(graph.moved_ms)),
            ("tasks", forms.counted(standing.counts(graph))),
            *([("why", text.harmless(held.sentence))] if held else []),
            *([("inside", _parent(graph.parent))] if graph.parent else []),
            *([("again", standing.again(graph))] if graph.rerun_of else []),
            *paths.line(path),
        ],
        sys.stdout,
    )
    for task in failed:
        yield f"  {standing.failure(task)}"
    if standing.failed(graph) > len(failed):
        yield f"  and {standing.failed(graph) - len(failed)} more"
    yield from paths.lines(path)


def _parent(parent: "Parent") -> str:
    return f"attempt {parent.attempt} of task {forms.cell(parent.task)} in graph {forms.cell(parent.graph)}"


def _seen_task(client: "Client", id: str) -> _Shown:
    task = client.task(id)
    attempts = client.attempts(id)
    shape = {**asdict(task), "attempts": [asdict(attempt) for attempt in attempts]}
    return _Shown(task.id, shape, lambda: _task_lines(task, attempts), standing.end_of(task))


def _task_lines(task: "TaskView", attempts: "list[AttemptView]") -> Iterator[str]:
    yield from layout.table(
        [
            ("task", forms.cell(task.id)),
            ("label", forms.cell(task.label)),
            ("graph", forms.cell(task.graph_id)),
            ("state", f"{forms.cell(task.state)} ({forms.cell(standing.ending(task.reason, None))})"),
            ("kind", forms.cell(task.kind)),
            ("created", forms.moment(task.created_ms)),
            ("moved", forms.moment(task.moved_ms)),
            ("reruns left", f"{task.rerunsLeft} of {task.rerunsAllowed}"),
            ("requires", forms.cell(", ".join(edge.label for edge in task.requires))),
            ("progress", forms.cell(task.progress)),
            *([] if task.result is None else [("result", _result(task.result))]),
            *([("inner graph", forms.cell(task.inner_graph))] if task.inner_graph else []),
            *([("its end", standing.taken_over(task.reused))] if task.reused else []),
        ],
        sys.stdout,
    )
    if attempts:
        head = ("ATTEMPT", "BOT", "BEGAN", "TOOK", "ENDED", "OUTPUT")
        yield from layout.table([head, *map(_attempt_row, attempts)], sys.stdout, indent="  ", titled=True)


def _result(result: object) -> str:
    """Write what a task published in a line; of a long one only the beginning."""
    import json  # noqa: PLC0415 - few tasks publish something

    written = json.dumps(result)
    return written if len(written) <= RESULT_SHOWN_MAX else f"{written[:RESULT_SHOWN_MAX]}... (-o json has all of it)"


def _attempt_row(attempt: "AttemptView") -> tuple[str, ...]:
    took = None if attempt.ended_ms is None else text.seconds(attempt.ended_ms - attempt.claimed_ms)
    ended = " ".join(filter(None, (attempt.signal, standing.ending(attempt.reason, attempt.exit_code))))
    cut = ", cut" if attempt.truncated else ""
    return (
        str(attempt.number),
        forms.cell(attempt.bot),
        forms.moment(attempt.claimed_ms),
        forms.cell(took),
        forms.cell(ended),
        f"{attempt.output_bytes} byte{'s' * (attempt.output_bytes != 1)}{cut}",
    )
