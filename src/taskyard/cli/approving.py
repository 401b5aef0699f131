"""The command `taskyard approve`: what waits for a person, and the person's decision."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from taskyard.cli import forms, naming, reports, session, text
from taskyard.cli.options import command, completes, flag
from taskyard.cli.session import Server, connected

if TYPE_CHECKING:
    from taskyard.sdk.client import Client
    from taskyard.wire.api import GraphView, TaskView

EXAMPLES: Final = """\
Examples:

    taskyard approve                           list what waits for a person
    taskyard approve 00c0ffee12345678          say yes
    taskyard approve --deny --comment "not on a Friday" 00c0ffee12345678
    taskyard approve -o name | xargs -n1 taskyard approve
"""
#: How many questions of a graph are told while it is watched, and how deep they are looked for.
TOLD_MAX: Final = 20
DEEP_MAX: Final = 8

_COLUMNS: Final[list[forms.Column]] = [
    ("task", lambda one: forms.Id(one.task)),
    ("label", lambda one: one.label),
    ("asked", lambda one: forms.age(one.since_ms)),
    ("until", lambda one: None if one.until_ms is None else forms.moment(one.until_ms)),
    ("then", lambda one: None if one.until_ms is None else one.on_timeout),
    ("message", lambda one: one.message),
]


@command("approve", EXAMPLES)
@click.argument(
    "task",
    required=False,
    metavar="[TASK]",
    help="Task id, its end, or GRAPH/LABEL; without it, pending approvals are listed.",
    shell_complete=completes("task"),
)
@flag("--deny", "--reject", help="Deny: the task fails.")
@click.option(
    "--comment", metavar="TEXT", default="", show_default=False, help="Reason, which is kept with the decision."
)
@forms.output_option("table")
@session.server_options
def approve(task: str | None, deny: bool, comment: str, output: str, server: Server) -> int:
    """Decide about a task that asks a person, or list those that do.

    What waits behind the task is given the decision, with who decided.
    """
    with connected(server) as client:
        if task is None:
            return forms.give_all(client.approvals(), forms.Listing(output), _COLUMNS, lambda one: one.task)
        made = client.approve(naming.task_id(client, task), approved=not deny, comment=comment)
        reports.talk(f"{'approved' if made.approved else 'denied'}; the task is {text.harmless(made.state)}")
        return forms.give_one(asdict(made), output, lambda: [text.harmless(made.task)], made.task)


class Questions:
    """Tells what a graph, or one inside it, asks people: each question once."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._told: set[tuple[str, int]] = set()

    def new_in(self, seen: "GraphView") -> Iterator[str]:
        """Put each new question in a line, with how to answer it."""
        for task in self._asking(seen.id, DEEP_MAX) if seen.counts.get("running") else ():
            if (task.id, task.attempt) not in self._told and len(self._told) < TOLD_MAX:
                self._told.add((task.id, task.attempt))
                asked = text.harmless(message_of(self._client.task(task.id).definition))
                yield f"waiting for approval: {text.harmless(task.label)}: {asked}; taskyard approve {task.id}"

    def _asking(self, graph: str, deep: int) -> "Iterator[TaskView]":
        for task in self._client.tasks(graph, state="running", limit=TOLD_MAX):
            if task.kind == "approval":
                yield task
            elif task.inner_graph is not None and deep:
                yield from self._asking(task.inner_graph, deep - 1)


def message_of(definition: Any) -> str:
    """Find what an approval asks in the definition of its task."""
    asked = definition["slices"][0]["payload"]["approval"]
    return str(asked["message"] if isinstance(asked, dict) else asked)
