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
    taskyard cancel --from test 78a6ff3e8d8c0f28  the same, by its label
    taskyard graphs --state running -o name | xargs -n1 taskyard cancel
"""
RERUN_EXAMPLES: Final = """\
Examples:

    taskyard rerun 00c0ffee12345678   a task that failed
    taskyard rerun --failed 78a6ff3e8d8c0f28   all that failed in a graph
    taskyard rerun --from test 78a6ff3e8d8c0f28
        a new graph: test and all behind it; the rest is taken over
"""

Id = Annotated[str, Parameter(help="The id of a graph or a task.")]


def cancel(
    id: Id,
    /,
    *,
    subtree: Annotated[bool, Parameter(negative="", help="Of a task: everything behind it, too.")] = False,
    start: Annotated[
        list[str] | None,
        Parameter(name="--from", negative="", help="Of a graph: only the task of this label and all behind it."),
    ] = None,
    server: Server = HERE,
) -> int:
    """End a graph, or a task: what runs is stopped, what waits never starts."""
    with connected(server) as client:
        if subtree:
            return _told(client.cancel_task(id, subtree=True), "canceled")
        if start:
            return _told(client.cancel_graph(id, start=start), "canceled")
        return either(
            lambda: _told(client.cancel_graph(id), "canceled"), lambda: _told(client.cancel_task(id), "canceled")
        )


def rerun(
    id: Id,
    /,
    *,
    failed: Annotated[bool, Parameter(negative="", help="Of a graph: all that failed, and what it blocked.")] = False,
    start: Annotated[
        list[str] | None,
        Parameter(name="--from", negative="", help="Of a settled graph: anew from this label on; may be repeated."),
    ] = None,
    key: Annotated[str, Parameter(help="With --from: asked for again with this key, it is the same graph.")] = "",
    server: Server = HERE,
) -> int:
    """Try again: a task, all that failed in a graph, or a whole graph from some of its tasks on."""
    if failed and start:
        reports.say_error("--failed runs in the same graph, --from makes a new one: take one of them")
        return Exit.USAGE
    with connected(server) as client:
        if start:
            return _told_anew(client.rerun_from(id, start, key=key))
        if failed:
            return _told(client.rerun_graph(id), "to run again")
        return either(
            lambda: _told(client.rerun_graph(id), "to run again"), lambda: _told(client.rerun_task(id), "to run again")
        )


def _told(wished: "Wished", what: str) -> int:
    if wished.echo:
        reports.talk("there was nothing left to do")
    else:
        reports.talk(f"{_count(wished)} {what}{_beside(wished)}")
    reports.answer(text.harmless(wished.subject))
    return Exit.OK


def _count(wished: "Wished") -> str:
    """Say how many tasks a wish takes; of those that follow page by page, how many they are if somebody counted."""
    return text.many(max(wished.moved, wished.total) if wished.promised else wished.moved, "task")


def _beside(wished: "Wished") -> str:
    freed = f", and {wished.unblocked} that they blocked can go on" if wished.unblocked else ""
    return f"{freed}; page by page" if wished.promised else freed


def _told_anew(wished: "Wished") -> int:
    """Tell of a new graph; its id is what is printed."""
    before = " before" if wished.echo else ""
    reused = f"{wished.reused} taken over from graph {text.harmless(wished.rerun_of or '')}"
    reports.talk(f"stored{before}: {text.many(wished.moved, 'task')} to run again, {reused}")
    reports.answer(text.harmless(wished.subject))
    return Exit.OK
