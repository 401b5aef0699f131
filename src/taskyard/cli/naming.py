"""The graph or the task that is meant: an id or the end of one, or a task as `GRAPH/LABEL`."""

import re
from typing import TYPE_CHECKING, Final

import click

from taskyard.cli import reports, session, text
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.options import PlainText, completes
from taskyard.cli.session import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskyard.sdk.client import Client

#: What stands between a graph and a label; an id has none, a label may.
BETWEEN: Final = "/"
#: The end of an id. Its beginning is time, which is the same for days.
_ENDING: Final = re.compile("[0-9a-f]{5,15}")


def _refuse_label(named: str) -> None:
    if BETWEEN in named:
        raise ValueError(f"{named!r} names a task, and a graph is expected")


#: What a graph is named by on a command line.
GRAPH: Final = PlainText(_refuse_label)
graph_argument = click.argument(
    "graph", type=GRAPH, metavar="GRAPH", help="Graph id, or its end.", shell_complete=completes("graph")
)
task_argument = click.argument(
    "task", metavar="TASK", help="Task id, its end, or GRAPH/LABEL.", shell_complete=completes("task")
)
_ANY_HELP: Final = "Id of a graph or a task, its end, or GRAPH/LABEL for a task."
any_argument = click.argument("id", metavar="ID", help=_ANY_HELP, shell_complete=completes("any"))
any_arguments = click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, help=_ANY_HELP, shell_complete=completes("any")
)


def graph_id(client: "Client", named: str) -> str:
    """Give the id of a graph; one that is named by the end of its id is looked up."""
    return _whole(client, named, "graph")


def task_id(client: "Client", named: str) -> str:
    """Give the id of a task; one that is named by its label, or by the end of its id, is looked up."""
    graph, is_label, label = named.partition(BETWEEN)
    if not is_label:
        return _whole(client, named, "task")
    graph = graph_id(client, graph)
    found = next(iter(client.tasks(graph, label=label, limit=1)), None) if label else None
    if found is None:
        reports.say_error(f"graph {graph} has no task {label!r}; `taskyard tasks {graph}` lists those it has")
        raise Ended(Exit.MISSING)
    return found.id


def any_id(client: "Client", named: str) -> str:
    """Give the id of a graph or a task, of which nothing else has to be known."""
    return task_id(client, named) if BETWEEN in named else _whole(client, named)


def either(client: "Client", named: str, graph: "Callable[[str], Answer]", task: "Callable[[str], Answer]") -> Answer:
    """Take what was named for a graph, or else for a task: both have ids of one form."""
    return _first_of(client, named, task, [graph, task])


def task_or_graph(
    client: "Client", named: str, task: "Callable[[str], Answer]", graph: "Callable[[str], Answer]"
) -> Answer:
    """Take what was named for a task, or else for a graph."""
    return _first_of(client, named, task, [task, graph])


def _first_of(
    client: "Client",
    named: str,
    task: "Callable[[str], Answer]",
    kinds: "Sequence[Callable[[str], Answer]]",
) -> Answer:
    if BETWEEN in named:
        return task(task_id(client, named))
    named = _whole(client, named)
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415 - it comes with the client

    first, second = kinds
    try:
        return session.either(lambda: first(named), lambda: second(named))
    except NotFound as missing:
        reports.say_error(f"there is no graph or task {named}; `taskyard graphs` lists graphs")
        raise Ended(Exit.MISSING) from missing


def _whole(client: "Client", named: str, kind: str = "") -> str:
    """Give the id that ends as was written, if it is one alone; what may be a whole id stays as it is."""
    if not _ENDING.fullmatch(named):
        return named
    told = client.ids(named)
    found = [one for one in told.items if kind in ("", one.kind)]
    if len(found) == 1 and told.whole:
        return found[0].id
    if not found:
        reports.say_error(
            f"no {kind or 'graph or task'} has an id that ends in {named}; `taskyard graphs` lists graphs"
        )
        raise Ended(Exit.MISSING)
    reports.say_error(f"{named} is the end of {'' if told.whole else 'more than '}{len(found)} ids; write more digits")
    for one in found:
        inside = f" of graph {text.harmless(one.graph_id)}" if one.kind == "task" else ""
        reports.talk(f"  {text.harmless(one.id)}  {one.kind} {text.harmless(one.name)}{inside}")
    raise Ended(Exit.USAGE)
