"""The graph or the task that is meant: an id, or a task as `GRAPH/LABEL`. Nothing is guessed from parts of an id."""

from typing import TYPE_CHECKING, Annotated, Final

from taskyard.cli import reports, session
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import Parameter
from taskyard.cli.session import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskyard.sdk.client import Client

#: What stands between a graph and a label; an id has none, a label may.
BETWEEN: Final = "/"


def _refuse_label(_: object, named: str) -> None:
    if BETWEEN in named:
        raise ValueError(f"a graph is wanted here, and {named!r} names a task.")


GraphId = Annotated[str, Parameter(name="GRAPH", help="The graph's id.", validator=_refuse_label, completes="graph")]
TaskId = Annotated[str, Parameter(name="TASK", help="The task's id, or GRAPH/LABEL.", completes="task")]
AnyId = Annotated[
    str, Parameter(name="ID", help="The id of a graph or a task, or GRAPH/LABEL for a task.", completes="any")
]


def task_id(client: "Client", named: str) -> str:
    """Give the id of a task; one that is named by its label is looked up."""
    graph, is_label, label = named.partition(BETWEEN)
    if not is_label:
        return named
    found = next(iter(client.tasks(graph, label=label, limit=1)), None) if label else None
    if found is None:
        reports.say_error(f"graph {graph} has no task {label!r}; `taskyard tasks {graph}` lists those it has")
        raise Ended(Exit.MISSING)
    return found.id


def either(client: "Client", named: str, graph: "Callable[[str], Answer]", task: "Callable[[str], Answer]") -> Answer:
    """Take what was named for a graph, or else for a task: both have ids of one form."""
    if BETWEEN in named:
        return task(task_id(client, named))
    from taskyard.sdk.errors import NotFound  # noqa: PLC0415 - it comes with the client

    try:
        return session.either(lambda: graph(named), lambda: task(named))
    except NotFound as missing:
        reports.say_error(f"there is no graph or task {named}; `taskyard graphs` lists graphs")
        raise Ended(Exit.MISSING) from missing
