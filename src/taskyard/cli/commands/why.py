"""The command `why`: explain why a task or a graph does not go on."""

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.client import Server, any_argument, connected, graph_or_task, server_options
from taskyard.cli.options import command, output_option
from taskyard.cli.output import (
    Listing,
    format_age,
    format_cell,
    format_table,
    format_time,
    harmless,
    print_list,
    print_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taskyard.sdk.client import Client
    from taskyard.wire.explain import Cause, Reasoned, WhyBots, WhyGraphView, WhyGroup, WhySlice, WhyView

EXAMPLES: Final = """\
Examples:

    taskyard why 00c0ffee12345678          explain a task
    taskyard why 78a6ff3e8d8c0f28/deploy   explain a task by its label
    taskyard why 78a6ff3e8d8c0f28          explain a graph
    taskyard why -o json 00c0ffee12345678  print everything as JSON
    taskyard why -o name 00c0ffee12345678  print the ids of the root causes
"""


@command("why", EXAMPLES)
@any_argument
@output_option("table")
@server_options
def why(id: str, output: str, server: Server) -> int:
    """Explain why a task does not run, or what holds a graph.

    For a running task it says where the task runs, for an ended one how it
    ended.
    """
    with connected(server) as client:
        return graph_or_task(
            client, id, lambda graph: _why_graph(client, graph, output), lambda task: _why_task(client, task, output)
        )


def _why_task(client: "Client", task: str, output: str) -> int:
    found = client.why(task)
    roots = [one.why.task for one in found.causes if one.root] or [found.why.task]
    return _print(asdict(found), output, lambda: _task_lines(found), roots)


def _why_graph(client: "Client", graph: str, output: str) -> int:
    found = client.why_graph(graph)
    roots = [task for group in found.groups for task in group.tasks.values()]
    return _print(asdict(found), output, lambda: _graph_lines(found), roots)


@dataclass(frozen=True, slots=True)
class _Root:
    """A root cause, by its task."""

    task: str


def _print(shape: dict[str, Any], output: str, lines: "Callable[[], Iterator[str]]", roots: list[str]) -> int:
    if output == "name":
        return print_list(map(_Root, roots), Listing("name"), (), lambda one: one.task)
    return print_one(shape, output, lines, "")


def _task_lines(found: "WhyView") -> "Iterator[str]":
    yield harmless(found.sentence)
    yield ""
    rows = [(name, format_cell(value)) for name, value in _facts(found.why) if value not in (None, "")]
    yield from format_table(rows, sys.stdout)
    if found.causes:
        yield ""
        head = ("WAITS FOR", "STATE", "REASON", "SINCE", "TASK")
        yield from format_table([head, *map(_cause_row, found.causes)], sys.stdout, titled=True)
    if found.more:
        yield f"and {found.more} more that were not examined"


def _facts(one: "Reasoned") -> "Iterator[tuple[str, object]]":
    """Yield all facts of an explanation; those that do not apply to its reason are empty."""
    yield "task", one.task
    yield "graph", one.graph_id
    yield "state", f"{one.state} ({one.reason})"
    yield "since", one.since_ms and format_time(one.since_ms)
    yield "guard", one.guard
    yield from _obstacle(one)
    yield "until", one.until_ms and format_time(one.until_ms)
    yield "wants", _dimensions(one.dimensions)
    yield from _bots(one.bots) if one.bots else ()
    yield "before it", f"{one.ahead}{'' if one.ahead_whole else ' or more'}" if one.ahead else None
    yield from _slice(one.slice) if one.slice else ()
    yield "attempt", one.attempt
    yield "bot", one.bot
    yield "its graph", one.graph_inside
    yield "exit code", one.exit_code
    yield "asked by", one.actor


def _obstacle(one: "Reasoned") -> "Iterator[tuple[str, object]]":
    yield {"mutex": "mutex", "limit": "limit"}.get(one.reason, "pool"), one.name
    if one.other:
        yield "by", f"{one.other.label or 'a task that you may not see'} {one.other.task or ''}".strip()
        yield "of graph", one.other.graph_id
        yield "by since", one.other_since_ms and format_time(one.other_since_ms)
    yield "in use", None if one.total is None else f"{one.used} of {one.total}, it needs {one.need}"
    yield "place in line", one.place
    yield "in line since", one.waits_since_ms and format_time(one.waits_since_ms)


def _bots(bots: "WhyBots") -> "Iterator[tuple[str, object]]":
    yield "bots", f"{bots.matching} of {bots.known} match"
    yield "they are", ", ".join(f"{count} {standing}" for standing, count in bots.standing.items())
    for one in bots.named:
        yield f"  {harmless(one.bot)}", f"{one.standing}{f': {one.note}' if one.note else ''}"
    yield "no bot has", _dimensions(bots.absent)
    if bots.nearest:
        yield "nearest", bots.nearest.bot
        for key in bots.nearest.differs:
            yield (
                f"  {harmless(key.key)}",
                f"wants {', '.join(key.wanted)}, has {', '.join(key.has) or 'none'}",
            )


def _slice(one: "WhySlice") -> "Iterator[tuple[str, object]]":
    yield "slice", f"{one.number} of {one.count}" if one.count > 1 else None
    yield "expires", one.until_ms and format_time(one.until_ms)


def _dimensions(dimensions: dict[str, list[str]]) -> str:
    return ", ".join(f"{key}: {value}" for key, values in dimensions.items() for value in values)


def _cause_row(one: "Cause") -> tuple[str, ...]:
    mark = "* " if one.root else "  "
    since = None if one.why.since_ms is None else format_age(one.why.since_ms)
    label = f"{mark}{'  ' * (one.depth - 1)}{one.why.label}"
    return (
        harmless(label),
        format_cell(one.why.state),
        format_cell(one.why.reason),
        format_cell(since),
        format_cell(one.why.task),
    )


def _graph_lines(found: "WhyGraphView") -> "Iterator[str]":
    yield harmless(found.sentence)
    if found.groups:
        yield ""
        head = ("TASKS", "STATE", "REASON", "WHY")
        yield from format_table([head, *map(_group_row, found.groups)], sys.stdout, titled=True)
    if not found.whole:
        yield "there are more tasks than were examined"


def _group_row(group: "WhyGroup") -> tuple[str, ...]:
    return (
        str(group.count),
        format_cell(group.state),
        format_cell(group.reason),
        harmless(group.example.sentence),
    )
