"""The commands that change the course of things: `cancel` and `rerun`, for a graph or a task."""

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from taskyard.cli import forms, reports, spans, text, watching
from taskyard.cli.exits import Ended, Exit
from taskyard.cli.grammar import Parameter
from taskyard.cli.naming import AnyId, either, graph_id, task_id
from taskyard.cli.parsing import Unusable
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

_COLUMNS: Final[list[forms.Column]] = [
    ("id", lambda one: one.subject),
    ("tasks", lambda one: one.moved),
    ("more", lambda one: one.promised),
]


class Waiting(NamedTuple):
    """Whether to wait, and for how long."""

    wait: Annotated[bool, Parameter(negative="", help="Watch what runs again until it is settled.")] = False
    timeout: Annotated[str, Parameter(validator=spans.check, help="How long to wait at most: 90s, 5m, 1h, 2d.")] = "1d"


AT_ONCE: Final = Waiting()


def cancel(
    *ids: AnyId,
    subtree: Annotated[bool, Parameter(negative="", help="Of a task: everything behind it, too.")] = False,
    start: Annotated[
        list[str] | None, Parameter(name="--from", help="Of a graph: only the task of this label and all behind it.")
    ] = None,
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """End graphs, or tasks: what runs is stopped, what waits never starts."""

    def ask(client: "Client", named: str) -> "Wished":
        if subtree:
            return client.cancel_task(task_id(client, named), subtree=True)
        if start:
            return client.cancel_graph(graph_id(client, named), start=start)
        return either(client, named, client.cancel_graph, client.cancel_task)

    return _each(server, ids, ask, "canceled", output)[1]


def rerun(
    *ids: AnyId,
    failed: Annotated[bool, Parameter(negative="", help="Of a graph: all that failed, and what it blocked.")] = False,
    start: Annotated[
        list[str] | None,
        Parameter(name="--from", help="Of a settled graph: anew from this label on; may be repeated."),
    ] = None,
    key: Annotated[str, Parameter(help="With --from: asked for again with this key, it is the same graph.")] = "",
    waiting: Waiting = AT_ONCE,
    output: forms.Form = "name",
    server: Server = HERE,
) -> int:
    """Try again: tasks, all that failed in graphs, or whole graphs from some of their tasks on."""
    if failed and start:
        raise Unusable("--failed runs in the same graph, --from makes a new one: take one of them")

    def ask(client: "Client", named: str) -> "Wished":
        if start:
            return client.rerun_from(graph_id(client, named), start, key=key)
        if failed:
            return client.rerun_graph(graph_id(client, named))
        return either(client, named, client.rerun_graph, client.rerun_task)

    done, code = _each(server, ids, ask, "to run again", output)
    return _watched(server, done, spans.seconds_of(waiting.timeout)) if waiting.wait and code == Exit.OK else code


def _each(
    server: Server, ids: "Sequence[str]", ask: "Callable[[Client, str], Wished]", what: str, output: forms.Form
) -> "tuple[list[Wished], int]":
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
    return done, refused[0] if refused else code


def _watched(server: Server, done: "Sequence[Wished]", timeout_s: int) -> int:
    """Watch graphs until they are settled, one after the other; the exit code is that of the first that failed."""
    codes: list[int] = []
    for wished in done:
        with connected(server) as client:
            seen = watching.watch(client, _graph_of(client, wished.subject), timeout_s)
            codes.append(watching.verdict(client, seen))
    return next((code for code in codes if code), Exit.OK)


def _graph_of(client: "Client", id: str) -> str:
    return either(client, id, lambda graph: client.graph(graph).id, lambda task: client.task(task).graph_id)


def _tell(wished: "Wished", what: str) -> None:
    if wished.rerun_of:
        before = " before" if wished.echo else ""
        reused = f"{wished.reused} taken over from graph {text.harmless(wished.rerun_of)}"
        reports.talk(f"stored{before}: {text.many(wished.moved, 'task')} {what}, {reused}")
    elif wished.echo:
        reports.talk("there was nothing left to do")
    else:
        reports.talk(f"{_count(wished)} {what}{_beside(wished)}")


def _count(wished: "Wished") -> str:
    """Say how many tasks a wish takes; of those that follow page by page, how many they are if somebody counted."""
    return text.many(max(wished.moved, wished.total) if wished.promised else wished.moved, "task")


def _beside(wished: "Wished") -> str:
    freed = f", and {wished.unblocked} that they blocked can go on" if wished.unblocked else ""
    return f"{freed}; page by page" if wished.promised else freed
