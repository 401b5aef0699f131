"""The command `why`: what a task waits for, down to the root causes, or what holds a graph."""

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

    taskyard why 00c0ffee12345678          a task: what it waits for
    taskyard why 78a6ff3e8d8c0f28/deploy   the same by graph and label
    taskyard why 78a6ff3e8d8c0f28          a graph: what holds it
    taskyard why -o json 00c0ffee12345678  all of it, for a program
    taskyard why -o name 00c0ffee12345678  the ids of the root causes
"""


@command("why", EXAMPLES)
@any_argument
@output_option("table")
@server_options
def why(id: str, output: str, server: Server) -> int:
    """Say why a task does not run, in one sentence and a table; or what holds a graph.

    It looks and changes nothing. Of a task that runs it says where, of one
    that ended how.
    """
    with connected(server) as client:
        return graph_or_task(
            client, id, lambda graph: _why_graph(client, graph, output), lambda task: _why_task(client, task, output)
        )


def _why_task(client: "Client", task: str, output: str) -> int:
    told = client.why(task)
    roots = [one.why.task for one in told.causes if one.root] or [told.why.task]
    return _give(asdict(told), output, lambda: _task_lines(told), roots)


def _why_graph(client: "Client", graph: str, output: str) -> int:
    told = client.why_graph(graph)
    roots = [task for group in told.groups for task in group.tasks.values()]
    return _give(asdict(told), output, lambda: _graph_lines(told), roots)


@dataclass(frozen=True, slots=True)
class _Root:
    """A root cause, by its task."""

    task: str


def _give(shape: dict[str, Any], output: str, lines: "Callable[[], Iterator[str]]", roots: list[str]) -> int:
    if output == "name":
        return print_list(map(_Root, roots), Listing("name"), (), lambda one: one.task)
    return print_one(shape, output, lines, "")


def _task_lines(told: "WhyView") -> "Iterator[str]":
    yield harmless(told.sentence)
    yield ""
    rows = [(name, format_cell(value)) for name, value in _facts(told.why) if value not in (None, "")]
    yield from format_table(rows, sys.stdout)
    if told.causes:
        yield ""
        head = ("WAITS FOR", "STATE", "REASON", "SINCE", "TASK")
        yield from format_table([head, *map(_cause_row, told.causes)], sys.stdout, titled=True)
    if told.more:
        yield f"and {told.more} more that were not looked at"


def _facts(one: "Reasoned") -> "Iterator[tuple[str, object]]":
    """Name every fact of an answer; those that do not belong to its reason are empty."""
    yield "task", one.task
    yield "graph", one.graph_id
    yield "state", f"{one.state} ({one.reason})"
    yield "since", one.since_ms and format_time(one.since_ms)
    yield "guard", one.guard
    yield from _in_the_way(one)
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


def _in_the_way(one: "Reasoned") -> "Iterator[tuple[str, object]]":
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
    yield "nobody has", _dimensions(bots.absent)
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


def _graph_lines(told: "WhyGraphView") -> "Iterator[str]":
    yield harmless(told.sentence)
    if told.groups:
        yield ""
        head = ("TASKS", "STATE", "REASON", "WHY")
        yield from format_table([head, *map(_group_row, told.groups)], sys.stdout, titled=True)
    if not told.whole:
        yield "there are more tasks than were looked at"


def _group_row(group: "WhyGroup") -> tuple[str, ...]:
    return (
        str(group.count),
        format_cell(group.state),
        format_cell(group.reason),
        harmless(group.example.sentence),
    )
