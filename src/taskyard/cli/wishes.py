"""The commands that change the course of things: `cancel` and `rerun`, for a graph or a task."""

from typing import TYPE_CHECKING, Annotated, Final

from taskyard.cli import forms, reports, text
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import Parameter
from taskyard.cli.naming import AnyId, either, task_id
from taskyard.cli.session import HERE, Server, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskyard.sdk.client import Client
    from taskyard.wire.api import Wished

CANCEL_EXAMPLES: Final = """\
Examples:

    taskyard cancel 78a6ff3e8d8c0f28            a graph, or one task
    taskyard cancel --subtree 00c0ffee12345678  a task and all behind it
    taskyard cancel 78a6ff3e8d8c0f28/deploy     a task by its label
    taskyard cancel $(taskyard graphs --state running -o name)
"""
RERUN_EXAMPLES: Final = """\
Examples:

    taskyard rerun 00c0ffee12345678   a task that failed
    taskyard rerun 78a6ff3e8d8c0f28   all that failed in a graph
    taskyard rerun 78a6ff3e8d8c0f28/test
"""

_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: one.subject),
    ("tasks", lambda one: one.moved),
    ("more", lambda one: one.promised),
]


def cancel(
    *ids: AnyId,
    subtree: Annotated[bool, Parameter(negative="", help="Of a task: everything behind it, too.")] = False,
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """End graphs, or tasks: what runs is stopped, what waits never starts."""

    def ask(client: "Client", named: str) -> "Wished":
        if subtree:
            return client.cancel_task(task_id(client, named), subtree=True)
        return either(client, named, client.cancel_graph, client.cancel_task)

    return _each(server, ids, ask, "canceled", output)


def rerun(*ids: AnyId, output: forms.Form = "name", server: Server = HERE) -> int:
    """Try again: a task, or all that failed in a graph. What was blocked by it goes on."""

    def ask(client: "Client", named: str) -> "Wished":
        return either(client, named, client.rerun_graph, client.rerun_task)

    return _each(server, ids, ask, "to run again", output)


def _each(
    server: Server, ids: "Sequence[str]", ask: "Callable[[Client, str], Wished]", what: str, output: forms.Form
) -> int:
    """Ask for one after the other, though one may be refused; print what was done, say what was not.

    The exit code is that of the first that was refused.
    """
    done: list[Wished] = []
    refused: list[Exit] = []
    for named in ids:
        try:
            with connected(server) as client:
                wished = ask(client, named)
        except Ended as ended:
            refused.append(ended.code)
        else:
            _tell(wished, what)
            done.append(wished)
    code = forms.give_all(done, forms.Listing(output), _COLUMNS, lambda one: one.subject) if done else Exit.OK
    return refused[0] if refused else code


def _tell(wished: "Wished", what: str) -> None:
    if wished.echo:
        reports.talk("there was nothing left to do")
    else:
        more = "; the others follow" if wished.promised else ""
        reports.talk(f"{text.many(wished.moved, 'task')} {what}{more}")
