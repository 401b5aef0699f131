"""The commands that change the course of things: `cancel` and `rerun`, for a graph or a task."""

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from taskyard.cli import reports, text
from taskyard.cli.exits import Exit
from taskyard.cli.session import HERE, Server, connected, either

if TYPE_CHECKING:
    from taskyard.wire.api import Wished

CANCEL_EXAMPLES: Final = """\
Examples:

    taskyard cancel 78a6ff3e8d8c0f28            a graph, or one task
    taskyard cancel --subtree 00c0ffee12345678  a task and all behind it
    taskyard graphs --state running -o name | xargs -n1 taskyard cancel
"""
RERUN_EXAMPLES: Final = """\
Examples:

    taskyard rerun 00c0ffee12345678   a task that failed
    taskyard rerun 78a6ff3e8d8c0f28   all that failed in a graph
"""

Id = Annotated[str, Parameter(help="The id of a graph or a task.")]


def cancel(
    id: Id,
    /,
    *,
    subtree: Annotated[bool, Parameter(negative="", help="Of a task: everything behind it, too.")] = False,
    server: Server = HERE,
) -> int:
    """End a graph, or a task: what runs is stopped, what waits never starts."""
    with connected(server) as client:
        if subtree:
            return _told(client.cancel_task(id, subtree=True), "canceled")
        return either(
            lambda: _told(client.cancel_graph(id), "canceled"), lambda: _told(client.cancel_task(id), "canceled")
        )


def rerun(id: Id, /, *, server: Server = HERE) -> int:
    """Try again: a task, or all that failed in a graph. What was blocked by it goes on."""
    with connected(server) as client:
        return either(
            lambda: _told(client.rerun_graph(id), "to run again"), lambda: _told(client.rerun_task(id), "to run again")
        )


def _told(wished: "Wished", what: str) -> int:
    if wished.echo:
        reports.talk("there was nothing left to do")
    else:
        more = "; the others follow" if wished.promised else ""
        reports.talk(f"{text.many(wished.moved, 'task')} {what}{more}")
    reports.answer(text.harmless(wished.subject))
    return Exit.OK
