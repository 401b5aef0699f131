"""The commands that only look: `graphs`, `tasks`, `show`, `story`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from taskyard.cli import forms, paths, standing, text
from taskyard.cli.approving import Questions
from taskyard.cli.session import HERE, Server, connected, either

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import AttemptView, CriticalPath, GraphView, Parent, StoryItem, StoryView, TaskView

GRAPHS_EXAMPLES: Final = """\
Examples:

    taskyard graphs                     the newest graphs
    taskyard graphs --state blocked     those that need somebody
    taskyard graphs --name nightly -o name | head -1
"""
TASKS_EXAMPLES: Final = """\
Examples:

    taskyard tasks 78a6ff3e8d8c0f28
    taskyard tasks 78a6ff3e8d8c0f28 --state failed -o name
    taskyard tasks 78a6ff3e8d8c0f28 -o jsonl | jq .label
"""
SHOW_EXAMPLES: Final = """\
Examples:

    taskyard show 78a6ff3e8d8c0f28           a graph: counts, failures, expected end
    taskyard show 00c0ffee12345678           a task: its attempts
    taskyard show -o json 78a6ff3e8d8c0f28   all of it, for a program
"""
STORY_EXAMPLES: Final = """\
Examples:

    taskyard story 00c0ffee12345678
    taskyard story -o json 00c0ffee12345678
"""

#: How many failed tasks of a graph are named; `taskyard tasks` has them all.
FAILED_SHOWN_MAX: Final = 20

Limit = Annotated[int, Parameter(validator=Number(gte=1, lte=1_000_000), help="How many at most.")]
GraphId = Annotated[str, Parameter(help="The graph's id.")]
TaskId = Annotated[str, Parameter(help="The task's id.")]

_GRAPH_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: one.id),
    ("name", lambda one: one.name),
    ("state", lambda one: one.state),
    ("active", lambda one: one.active),
    ("behind", lambda one: one.behind),
    ("failed", lambda one: one.unhandled),
    ("age", lambda one: forms.age(one.created_ms)),
]
_TASK_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: one.id),
    ("label", lambda one: one.label),
    ("state", lambda one: one.state),
    ("reason", lambda one: one.reason),
    ("attempt", lambda one: one.attempt),
    ("bot", lambda one: one.bot),
    ("moved", lambda one: forms.age(one.moved_ms)),
]


def graphs(
    *,
    state: Annotated[str | None, Parameter(help="Only those: running, blocked, finished or canceled.")] = None,
    name: Annotated[str | None, Parameter(help="Only those of this name.")] = None,
    limit: Limit = 50,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """List graphs, the newest first."""
    with connected(server) as client:
        found = client.graphs(state=state, name=name, limit=limit)
        return forms.give_all(found, output, _GRAPH_COLUMNS, lambda one: one.id)


def tasks(
    graph: GraphId,
    /,
    *,
    state: Annotated[str | None, Parameter(help="Only those in this state, such as failed.")] = None,
    label: Annotated[str | None, Parameter(help="Only the one of this label.")] = None,
    limit: Limit = 1_000,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """List the tasks of a graph."""
    with connected(server) as client:
        found = client.tasks(graph, state=state, label=label, limit=limit)
        return forms.give_all(found, output, _TASK_COLUMNS, lambda one: one.id)


def show(
    id: Annotated[str, Parameter(help="The id of a graph or a task.")],
    /,
    *,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """Show a graph with its counts and failures, or a task with its attempts."""
    with connected(server) as client:
        return either(lambda: _show_graph(client, id, output), lambda: _show_task(client, id, output))


def story(task: TaskId, /, *, output: forms.Form = "table", server: Server = HERE) -> int:
    """Tell everything that happened to a task, and who asked for it."""
    with connected(server) as client:
        told = client.story(task)
        return forms.give_one(asdict(told), output, lambda: _story_lines(told), told.task)


def _show_graph(client: "Client", id: str, output: str) -> int:
    graph = client.graph(id)
    failed = [
        task
        for state in standing.FAILED
        if graph.counts.get(state)
        for task in client.tasks(id, state=state, limit=FAILED_SHOWN_MAX)
    ]
    path = client.critical_path(id)
    shape = {**asdict(graph), "failed": [asdict(task) for task in failed], "critical_path": asdict(path)}
    return forms.give_one(
        shape, output, lambda: (*_graph_lines(graph, failed, path), *Questions(client).new_in(graph)), graph.id
    )


def _graph_lines(graph: "GraphView", failed: "list[TaskView]", path: "CriticalPath") -> Iterator[str]:
    settled = "settled" if graph.settled else "still moving"
    yield from forms.table(
        [
            ("graph", forms.cell(graph.id)),
            ("name", forms.cell(graph.name)),
            ("state", f"{forms.cell(graph.state)}, {settled}"),
            ("created", forms.moment(graph.created_ms)),
            ("moved", forms.moment(graph.moved_ms)),
            ("tasks", forms.counted(graph.counts)),
            *([("inside", _parent(graph.parent))] if graph.parent else []),
            *([("again", standing.again(graph))] if graph.rerun_of else []),
            *paths.line(path),
        ]
    )
    for task in failed:
        yield f"  {standing.failure(task)}"
    if standing.failed(graph) > len(failed):
        yield f"  and {standing.failed(graph) - len(failed)} more"
    yield from paths.lines(path)


def _parent(parent: "Parent") -> str:
    return f"attempt {parent.attempt} of task {forms.cell(parent.task)} in graph {forms.cell(parent.graph)}"


def _show_task(client: "Client", id: str, output: str) -> int:
    task = client.task(id)
    attempts = client.attempts(id)
    shape = {**asdict(task), "attempts": [asdict(attempt) for attempt in attempts]}
    return forms.give_one(shape, output, lambda: _task_lines(task, attempts), task.id)


def _task_lines(task: "TaskView", attempts: "list[AttemptView]") -> Iterator[str]:
    yield from forms.table(
        [
            ("task", forms.cell(task.id)),
            ("label", forms.cell(task.label)),
            ("graph", forms.cell(task.graph_id)),
            ("state", f"{forms.cell(task.state)} ({forms.cell(task.reason)})"),
            ("kind", forms.cell(task.kind)),
            ("created", forms.moment(task.created_ms)),
            ("moved", forms.moment(task.moved_ms)),
            ("reruns left", f"{task.rerunsLeft} of {task.rerunsAllowed}"),
            ("requires", forms.cell(", ".join(edge.label for edge in task.requires))),
            ("progress", forms.cell(task.progress)),
            *([("inner graph", forms.cell(task.inner_graph))] if task.inner_graph else []),
            *([("its end", standing.taken_over(task.reused))] if task.reused else []),
        ]
    )
    if attempts:
        head = ("ATTEMPT", "BOT", "BEGAN", "TOOK", "ENDED", "OUTPUT")
        yield from forms.table([head, *map(_attempt_row, attempts)], indent="  ")


def _attempt_row(attempt: "AttemptView") -> tuple[str, ...]:
    took = None if attempt.ended_ms is None else text.seconds(attempt.ended_ms - attempt.claimed_ms)
    ended = " ".join(str(part) for part in (attempt.signal, attempt.reason, attempt.exit_code) if part is not None)
    cut = ", cut" if attempt.truncated else ""
    return (
        str(attempt.number),
        forms.cell(attempt.bot),
        forms.moment(attempt.claimed_ms),
        forms.cell(took),
        forms.cell(ended),
        f"{attempt.output_bytes} bytes{cut}",
    )


def _story_lines(told: "StoryView") -> Iterator[str]:
    reused = f", its end {standing.taken_over(told.reused)}" if told.reused else ""
    yield f"{forms.moment(told.created_ms)}  {text.harmless(told.label)} is submitted{reused}"
    yield from map(_story_line, told.items)
    if not told.whole:
        yield "there is more than is told here"


def _story_line(item: "StoryItem") -> str:
    when = forms.moment(item.at_ms)
    if item.action is not None:
        note = f": {item.note}" if item.note else ""
        return f"{when}  {text.harmless(f'{item.actor} asks: {item.action} ({item.about}){note}')}"
    extra = [
        f"attempt {item.attempt}" if item.attempt else "",
        f"bot {item.bot}" if item.bot else "",
        item.reason or "",
    ]
    told = ", ".join(part for part in extra if part)
    return f"{when}  {text.harmless(f'{item.source} -> {item.target} by {item.signal}')}" + (
        f" ({text.harmless(told)})" if told else ""
    )
