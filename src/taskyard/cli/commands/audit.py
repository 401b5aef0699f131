"""The command `audit`: list requests of users."""

import time
from typing import Final, NamedTuple

import click

from taskyard.cli.client import Server, any_id, connected, server_options
from taskyard.cli.commands.show import limit_option
from taskyard.cli.options import bundle, command, duration, listing_options
from taskyard.cli.output import Column, Id, Listing, format_time, print_list

EXAMPLES: Final = """\
Examples:

    taskyard audit                             list the newest 100 requests
    taskyard audit --action denied --since 1h  list refused requests
    taskyard audit --actor ci --limit 1000     list requests with the token ci
    taskyard audit --about 78a6ff3e8d8c0f28    list requests about a graph
"""

_COLUMNS: Final[list[Column]] = [
    ("at", lambda one: format_time(one.at_ms)),
    ("actor", lambda one: one.actor),
    ("action", lambda one: one.action),
    ("subject", lambda one: Id(one.subject) if one.subject else None),
    ("note", lambda one: one.note),
]


class WantedAudit(NamedTuple):
    """Which requests to list."""

    actor: str | None = None
    action: str | None = None
    about: str | None = None
    since: int | None = None
    limit: int = 100


@command("audit", EXAMPLES)
@bundle(
    "wanted",
    WantedAudit,
    click.option("--actor", metavar="NAME", help="Filter by token name or id."),
    click.option("--action", metavar="ACTION", help="Filter by action, such as submit, make_token or denied."),
    click.option("--about", metavar="ID", help="Filter by graph or task: an id, its end, or GRAPH/LABEL."),
    duration("--since", help="Only requests that are newer than this, such as 1h."),
    limit_option(100),
)
@listing_options
@server_options
def audit(wanted: WantedAudit, listing: Listing, server: Server) -> int:
    """List the requests of users, the newest first; only for admins."""
    since_ms = None
    if wanted.since is not None:
        since_ms = max(0, round(time.time() * 1000) - wanted.since)
    with connected(server) as client:
        about = None if wanted.about is None else any_id(client, wanted.about)
        found = client.audit(
            actor=wanted.actor, action=wanted.action, subject=about, since_ms=since_ms, limit=wanted.limit
        )
        return print_list(found, listing, _COLUMNS, lambda one: one.id)
