"""The commands `cancel` and `rerun`, for graphs and tasks."""

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import (
    Server,
    any_arguments,
    connected,
    graph_id,
    graph_or_task,
    optional_arguments,
    server_options,
    task_id,
)
from taskyard.cli.commands.show import tag_of, task_conditions
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import bundle, choice, command, flag, output_option
from taskyard.cli.output import Column, Listing, harmless, plural, print_err, print_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskyard.sdk.client import Client
    from taskyard.wire.api import CommandResult

CANCEL_EXAMPLES: Final = """\
Examples:

    taskyard cancel 78a6ff3e8d8c0f28              cancel a graph or a task
    taskyard cancel 78a6ff3e8d8c0f28/deploy       cancel a task by its label
    taskyard cancel --subtree 00c0ffee12345678    ... with its dependents
    taskyard cancel --from test 78a6ff3e8d8c0f28  ... by label
    taskyard cancel $(taskyard graphs --state running -o name)
    taskyard cancel --tag build:1234              cancel tasks of all graphs
    taskyard cancel --user ada --state waiting
"""
RERUN_EXAMPLES: Final = """\
Examples:

    taskyard rerun 00c0ffee12345678            rerun a failed task
    taskyard rerun 78a6ff3e8d8c0f28/test       name it by its label
    taskyard rerun --failed 78a6ff3e8d8c0f28   rerun all failed tasks
    taskyard rerun --from test 78a6ff3e8d8c0f28
        rerun test and its dependents in a new graph, and reuse the rest
"""

#: The states from which a task can be canceled.
CANCELABLE: Final = ("unscheduled", "blocked", "pending", "waiting", "running")
_COLUMNS: Final[list[Column]] = [
    ("id", lambda one: one.subject),
    ("tasks", lambda one: one.moved),
    ("more", lambda one: one.promised),
]


class WantedTasks(NamedTuple):
    """Which tasks of all graphs."""

    state: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    bot: str | None = None
    user: str | None = None
    pool: str | None = None
    since: int | None = None


@command("cancel", CANCEL_EXAMPLES)
@optional_arguments
@flag("--subtree", help="Also cancel all dependents of the task.")
@click.option(
    "--from", "start", multiple=True, metavar="LABEL", help="Cancel only this task of a graph and its dependents."
)
@bundle(
    "wanted",
    WantedTasks,
    choice("--state", words=CANCELABLE, help="Cancel only tasks in this state; can be repeated.", multiple=True),
    *task_conditions,
)
@output_option("name")
@server_options
def cancel(
    ids: tuple[str, ...],
    subtree: bool,
    start: tuple[str, ...],
    wanted: WantedTasks,
    output: str,
    server: Server,
) -> int:
    """Cancel graphs or tasks: running tasks are stopped, other tasks never start.

    Without an ID, --tag, --bot, --user or --pool select tasks of all graphs;
    --state and --since restrict them.
    """
    if not ids:
        return _cancel_wanted(server, wanted)
    if any(wanted):
        raise click.UsageError("name what to cancel by ID, or by --tag, --bot, --user or --pool; not both")

    def ask(client: "Client", named: str) -> "CommandResult":
        if subtree:
            return client.cancel_task(task_id(client, named), subtree=True)
        if start:
            return client.cancel_graph(graph_id(client, named), start=start)
        return graph_or_task(client, named, client.cancel_graph, client.cancel_task)

    return _each(server, ids, ask, "canceled", output)[1]


def _cancel_wanted(server: Server, wanted: WantedTasks) -> int:
    if not (wanted.tag or wanted.bot or wanted.user or wanted.pool):
        raise click.UsageError("missing argument ID, or --tag, --bot, --user or --pool")
    since_ms = None if wanted.since is None else max(0, round(time.time() * 1000) - wanted.since)
    with connected(server) as client:
        canceled = client.cancel_tasks(
            state=wanted.state,
            tags=tuple(map(tag_of, wanted.tag)),
            bot=wanted.bot,
            user=wanted.user,
            pool=wanted.pool,
            since_ms=since_ms,
        )
    print_err(f"{plural(canceled, 'task')} canceled")
    return Exit.OK


@command("rerun", RERUN_EXAMPLES)
@any_arguments
@flag("--failed", help="Rerun all failed tasks of a graph, and the tasks that they blocked.")
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="LABEL",
    help="Rerun a settled graph from this task on, as a new graph; can be repeated.",
)
@click.option(
    "--key",
    metavar="KEY",
    default="",
    show_default=False,
    help="Idempotency key for --from: the same key gives the same new graph.",
)
@progress.waiting_options
@output_option("name")
@server_options
def rerun(  # noqa: PLR0913, PLR0917
    ids: tuple[str, ...],
    failed: bool,
    start: tuple[str, ...],
    key: str,
    waiting: progress.Waiting,
    output: str,
    server: Server,
) -> int:
    """Rerun tasks, all failed tasks of graphs, or graphs from some tasks on."""
    if failed and start:
        raise click.UsageError("--failed reruns in the same graph, --from makes a new graph: use one of them")

    def ask(client: "Client", named: str) -> "CommandResult":
        if start:
            return client.rerun_from(graph_id(client, named), start, key=key)
        if failed:
            return client.rerun_graph(graph_id(client, named))
        return graph_or_task(client, named, client.rerun_graph, client.rerun_task)

    done, code = _each(server, ids, ask, "to run again", output)
    return _wait(server, done, waiting.timeout / 1000) if waiting.wait and code == Exit.OK else code


def _each(
    server: Server, ids: "Sequence[str]", ask: "Callable[[Client, str], CommandResult]", what: str, output: str
) -> "tuple[list[CommandResult], int]":
    """Send a request for each id, even if one is refused; print the results and the errors.

    The exit code is that of the first refusal.
    """
    done: list[CommandResult] = []
    refused: list[Exit] = []
    for named in ids:
        try:
            with connected(server) as client:
                result = ask(client, named)
        except CommandFailed as ended:
            refused.append(ended.code)
        else:
            _print_result(result, what)
            done.append(result)
    code = print_list(done, Listing(output), _COLUMNS, lambda one: one.subject) if done else Exit.OK
    return done, refused[0] if refused else code


def _wait(server: Server, done: "Sequence[CommandResult]", timeout_s: float) -> int:
    """Wait for graphs, one after the other; the exit code is that of the first failure."""
    codes: list[int] = []
    for result in done:
        with connected(server) as client:
            seen = progress.wait(client, _graph_of(client, result.subject), timeout_s)
            codes.append(progress.exit_of_graph(client, seen))
    return next((code for code in codes if code), Exit.OK)


def _graph_of(client: "Client", id: str) -> str:
    return graph_or_task(client, id, lambda graph: client.graph(graph).id, lambda task: client.task(task).graph_id)


def _print_result(result: "CommandResult", what: str) -> None:
    if result.rerun_of:
        before = " before" if result.echo else ""
        reused = f"{result.reused} reused from graph {harmless(result.rerun_of)}"
        print_err(f"submitted{before}: {plural(result.moved, 'task')} {what}, {reused}")
    elif result.echo:
        print_err("nothing to do")
    else:
        print_err(f"{_count(result)} {what}{_consequences(result)}")


def _count(result: "CommandResult") -> str:
    """Count the tasks that a request changes, with those that change later if their number is known."""
    return plural(max(result.moved, result.total) if result.promised else result.moved, "task")


def _consequences(result: "CommandResult") -> str:
    freed = f", and {plural(result.unblocked, 'blocked task')} can go on" if result.unblocked else ""
    return f"{freed}; still in progress" if result.promised else freed
