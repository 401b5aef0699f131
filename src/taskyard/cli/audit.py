"""The command `audit`: who asked for what, and when."""

import time
from typing import Annotated, Final, NamedTuple

from taskyard.cli import forms, naming, spans
from taskyard.cli.grammar import Parameter
from taskyard.cli.looking import Limit
from taskyard.cli.session import HERE, Server, connected

EXAMPLES: Final = """\
Examples:

    taskyard audit                             the newest 100
    taskyard audit --action denied --since 1h  who was turned away
    taskyard audit --actor ci --limit 1000     what the token `ci` was used for
    taskyard audit --about 78a6ff3e8d8c0f28    what was asked about a graph
"""

_COLUMNS: Final[list[forms.Column]] = [
    ("at", lambda one: forms.moment(one.at_ms)),
    ("actor", lambda one: one.actor),
    ("action", lambda one: one.action),
    ("subject", lambda one: forms.Id(one.subject) if one.subject else None),
    ("note", lambda one: one.note),
]


class WantedAudit(NamedTuple):
    """Which rows."""

    actor: Annotated[str | None, Parameter(help="Only what they asked for: the name or the id of a token.")] = None
    action: Annotated[str | None, Parameter(help="Only this, such as submit, make_token or denied.")] = None
    about: Annotated[
        str | None, Parameter(help="Only what is about this graph or task: its id or its end, or GRAPH/LABEL.")
    ] = None
    since: Annotated[
        str | None, Parameter(validator=spans.check, help="Only what happened within this time: 1h, 30d.")
    ] = None
    limit: Limit = 100


ANYTHING: Final = WantedAudit()


def audit(*, wanted: WantedAudit = ANYTHING, listing: forms.Listing = forms.TABLE, server: Server = HERE) -> int:
    """List who asked for what, the newest first. It is for admins."""
    since_ms = None
    if wanted.since is not None:
        since_ms = max(0, round((time.time() - spans.seconds_of(wanted.since)) * 1000))
    with connected(server) as client:
        about = None if wanted.about is None else naming.any_id(client, wanted.about)
        found = client.audit(
            actor=wanted.actor, action=wanted.action, subject=about, since_ms=since_ms, limit=wanted.limit
        )
        return forms.give_all(found, listing, _COLUMNS, lambda one: one.id)
