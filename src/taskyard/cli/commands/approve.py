"""The command `approve`: list, approve or deny pending approvals."""

from dataclasses import asdict
from typing import Final

import click

from taskyard.cli.client import Server, connected, server_options, task_id
from taskyard.cli.options import command, completes, flag, output_option
from taskyard.cli.output import Column, Id, Listing, format_age, format_time, harmless, print_err, print_list, print_one

EXAMPLES: Final = """\
Examples:

    taskyard approve                           list pending approvals
    taskyard approve 00c0ffee12345678          approve one
    taskyard approve --deny --comment "not on a Friday" 00c0ffee12345678
    taskyard approve -o name | xargs -n1 taskyard approve
"""

_COLUMNS: Final[list[Column]] = [
    ("task", lambda one: Id(one.task)),
    ("label", lambda one: one.label),
    ("asked", lambda one: format_age(one.since_ms)),
    ("until", lambda one: None if one.until_ms is None else format_time(one.until_ms)),
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
@flag("--deny", "--reject", help="Deny it: the task fails.")
@click.option("--comment", metavar="TEXT", default="", show_default=False, help="Reason, stored with the decision.")
@output_option("table")
@server_options
def approve(task: str | None, deny: bool, comment: str, output: str, server: Server) -> int:
    """Approve or deny a task that waits for an approval, or list these tasks.

    Dependents of the task get the decision and the name of its author.
    """
    with connected(server) as client:
        if task is None:
            return print_list(client.approvals(), Listing(output), _COLUMNS, lambda one: one.task)
        made = client.approve(task_id(client, task), approved=not deny, comment=comment)
        print_err(f"{'approved' if made.approved else 'denied'}; the task is {harmless(made.state)}")
        return print_one(asdict(made), output, lambda: [harmless(made.task)], made.task)
