"""The commands that change the course of things: `cancel` and `rerun`, for a graph or a task."""

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, any_arguments, connected, graph_id, graph_or_task, server_options, task_id
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import bundle, command, duration, flag, output_option
from taskyard.cli.output import Column, Listing, harmless, plural, print_err, print_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskyard.sdk.client import Client
    from taskyard.wire.api import Wished

CANCEL_EXAMPLES: Final = """\
Examples:

    taskyard cancel 78a6ff3e8d8c0f28            a graph, or one task
    taskyard cancel --subtree 00c0ffee12345678  a task and all behind it
    taskyard cancel 78a6ff3e8d8c0f28/deploy     a task by its label
    taskyard cancel --from test 78a6ff3e8d8c0f28  test and all behind it
    taskyard cancel $(taskyard graphs --state running -o name)
"""
RERUN_EXAMPLES: Final = """\
Examples:

    taskyard rerun 00c0ffee12345678   a task that failed
    taskyard rerun 78a6ff3e8d8c0f28/test
    taskyard rerun --failed 78a6ff3e8d8c0f28   all that failed in a graph
    taskyard rerun --from test 78a6ff3e8d8c0f28
        a new graph: test and all behind it; the rest is taken over
"""

_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: one.subject),
    ("tasks", lambda one: one.moved),
    ("more", lambda one: one.promised),
]


class Waiting(NamedTuple):
    """Whether to wait, and for how long."""

    wait: bool = False
    timeout: int = 86_400_000


@command("cancel", CANCEL_EXAMPLES)
@any_arguments
@flag("--subtree", help="Cancel also everything that depends on the task.")
@click.option(
    "--from", "start", multiple=True, metavar="LABEL", help="Cancel in a graph only this task and its dependents."
)
@output_option("name")
@server_options
def cancel(ids: tuple[str, ...], subtree: bool, start: tuple[str, ...], output: str, server: Server) -> int:
    """End graphs, or tasks: what runs is stopped, what waits never starts."""

    def ask(client: "Client", named: str) -> "Wished":
        if subtree:
            return client.cancel_task(task_id(client, named), subtree=True)
        if start:
            return client.cancel_graph(graph_id(client, named), start=start)
        return graph_or_task(client, named, client.cancel_graph, client.cancel_task)

    return _each(server, ids, ask, "canceled", output)[1]


@command("rerun", RERUN_EXAMPLES)
@any_arguments
@flag("--failed", help="Rerun in a graph all that failed, and what it blocked.")
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="LABEL",
    help="Rerun a settled graph as a new one, from this task on; can be repeated.",
)
@click.option(
    "--key", metavar="KEY", default="", show_default=False, help="Idempotency key for --from: the same new graph."
)
@bundle(
    "waiting",
    Waiting,
    flag("--wait", help="Show progress until what runs again is settled."),
    duration("--timeout", default=("1d", 86_400_000), help="Stop waiting after this time."),
)
@output_option("name")
@server_options
def rerun(  # noqa: PLR0913, PLR0917
    ids: tuple[str, ...],
    failed: bool,
    start: tuple[str, ...],
    key: str,
    waiting: Waiting,
    output: str,
    server: Server,
) -> int:
    """Try again: tasks, all that failed in graphs, or whole graphs from some of their tasks on."""
    if failed and start:
        raise click.UsageError("--failed reruns in the same graph, --from makes a new one: give one of them")

    def ask(client: "Client", named: str) -> "Wished":
        if start:
            return client.rerun_from(graph_id(client, named), start, key=key)
        if failed:
            return client.rerun_graph(graph_id(client, named))
        return graph_or_task(client, named, client.rerun_graph, client.rerun_task)

    done, code = _each(server, ids, ask, "to run again", output)
    return _watched(server, done, waiting.timeout / 1000) if waiting.wait and code == Exit.OK else code


def _each(
    server: Server, ids: "Sequence[str]", ask: "Callable[[Client, str], Wished]", what: str, output: str
) -> "tuple[list[Wished], int]":
    """Ask for one after the other, though one may be refused; print what was done, say what was not.

    The exit code is that of the first that was refused.
    """
    done: list[Wished] = []
    refused: list[Exit] = []
    for named in ids:
        try:
            with connected(server) as client:
                result = ask(client, named)
        except CommandFailed as ended:
            refused.append(ended.code)
        else:
            _tell(result, what)
            done.append(result)
    code = print_list(done, Listing(output), _COLUMNS, lambda one: one.subject) if done else Exit.OK
    return done, refused[0] if refused else code


def _watched(server: Server, done: "Sequence[Wished]", timeout_s: float) -> int:
    """Watch graphs until they are settled, one after the other; the exit code is that of the first that failed."""
    codes: list[int] = []
    for result in done:
        with connected(server) as client:
            seen = progress.watch(client, _graph_of(client, result.subject), timeout_s)
            codes.append(progress.exit_of_graph(client, seen))
    return next((code for code in codes if code), Exit.OK)


def _graph_of(client: "Client", id: str) -> str:
    return graph_or_task(client, id, lambda graph: client.graph(graph).id, lambda task: client.task(task).graph_id)


def _tell(result: "Wished", what: str) -> None:
    if result.rerun_of:
        before = " before" if result.echo else ""
        reused = f"{result.reused} taken over from graph {harmless(result.rerun_of)}"
        print_err(f"stored{before}: {plural(result.moved, 'task')} {what}, {reused}")
    elif result.echo:
        print_err("there was nothing left to do")
    else:
        print_err(f"{_count(result)} {what}{_beside(result)}")


def _count(result: "Wished") -> str:
    """Count the tasks that a request changes, with those that follow page by page if they were counted."""
    return plural(max(result.moved, result.total) if result.promised else result.moved, "task")


def _beside(result: "Wished") -> str:
    freed = f", and {result.unblocked} that they blocked can go on" if result.unblocked else ""
    return f"{freed}; page by page" if result.promised else freed
