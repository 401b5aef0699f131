"""The commands `webhooks`, `webhooks set`, `delete`, `test`, `dead` and `resend`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from taskyard.cli.client import GRAPH, Server, connected, graph_id, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import PATH, command, completes, flag, listing_options
from taskyard.cli.output import Column, Listing, format_age, harmless, plural, print_err, print_error, print_list

if TYPE_CHECKING:
    from taskyard.wire.api import WebhookView

LIST_EXAMPLES: Final = """\
Examples:

    taskyard webhooks             list webhooks, with what waits
    taskyard webhooks -o json
"""
SET_EXAMPLES: Final = """\
Examples:

    taskyard webhooks set ci https://ci.example.org/hook --pool lab > ci.secret
    taskyard webhooks set ci https://ci.example.org/hook --kind graph.finished
    taskyard webhooks set ci https://ci.example.org/hook --paused
"""
DELETE_EXAMPLES: Final = """\
Examples:

    taskyard webhooks delete ci
"""
TEST_EXAMPLES: Final = """\
Examples:

    taskyard webhooks test ci
"""
DEAD_EXAMPLES: Final = """\
Examples:

    taskyard webhooks dead ci
"""
RESEND_EXAMPLES: Final = """\
Examples:

    taskyard webhooks resend ci                        all that was given up
    taskyard webhooks resend ci 78a6ff3e8d8c0f28-12    one event
"""
#: Longer than any secret.
_SECRET_MAX: Final = 1_024
_SECRET_BYTES: Final = 32


def _state(one: "WebhookView") -> str:
    if one.paused:
        return "paused"
    return "ok" if one.failing_since_ms is None else f"failing for {format_age(one.failing_since_ms)}"


_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("pool", lambda one: one.pool or "*"),
    ("graph", lambda one: one.graph or "*"),
    ("kinds", lambda one: " ".join(one.kinds) or "*"),
    ("state", _state),
    ("waiting", lambda one: one.backlog),
    ("given up", lambda one: one.dead),
    ("url", lambda one: one.url),
    ("error", lambda one: one.error),
]
_DEAD_COLUMNS: Final[list[Column]] = [
    ("event", lambda one: one.id),
    ("age", lambda one: format_age(one.died_ms)),
    ("again", lambda one: one.again),
    ("error", lambda one: one.error),
]
_name_argument = click.argument("name", metavar="NAME", help="Name of the webhook.")


@command("webhooks", LIST_EXAMPLES)
@listing_options
@server_options
def webhooks(listing: Listing, server: Server) -> int:
    """List webhooks, with how many events wait and how many were given up."""
    with connected(server) as client:
        return print_list(client.webhooks(), listing, _COLUMNS, lambda one: one.name)


@command("webhooks set", SET_EXAMPLES)
@_name_argument
@click.argument("receiver", metavar="URL", help="Where to send events.")
@click.option(
    "--pool", metavar="POOL", help="Only events of graphs with tasks of this pool.", shell_complete=completes("pool")
)
@click.option(
    "--graph", type=GRAPH, metavar="GRAPH", help="Only events of this graph.", shell_complete=completes("graph")
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind; can be repeated.")
@flag("--paused", help="Send nothing until it is set again without this.")
@click.option(
    "--secret-file", type=PATH, metavar="PATH", help="File with the secret [default: a new one for a new webhook]."
)
@server_options
def set_webhook(  # noqa: PLR0913, PLR0917 - each is an option
    name: str,
    receiver: str,
    pool: str | None,
    graph: str | None,
    kinds: tuple[str, ...],
    paused: bool,
    secret_file: Path | None,
    server: Server,
) -> int:
    """Create a webhook, or change it; what is left out gets its default.

    The secret of a new webhook is made here and printed on stdout: give it to
    the receiver, which checks signatures with it. A change keeps the secret.
    """
    secret = None if secret_file is None else _read_secret(secret_file)
    made = ""
    with connected(server) as client:
        if secret is None and name not in {one.name for one in client.webhooks()}:
            secret = made = _new_secret()
        whole = None if graph is None else graph_id(client, graph)
        client.set_webhook(name, receiver, secret=secret, pool=pool, graph=whole, kinds=kinds, paused=paused)
    if made:
        sys.stdout.write(f"{made}\n")
        print_err(f"webhook {harmless(name)} is set; its secret is printed only now")
    else:
        print_err(f"webhook {harmless(name)} is set")
    return Exit.OK


@command("webhooks delete", DELETE_EXAMPLES)
@_name_argument
@server_options
def delete(name: str, server: Server) -> int:
    """Delete a webhook, with the deliveries that were given up."""
    with connected(server) as client:
        client.delete_webhook(name)
    print_err(f"webhook {harmless(name)} is deleted")
    return Exit.OK


@command("webhooks test", TEST_EXAMPLES)
@_name_argument
@server_options
def try_out(name: str, server: Server) -> int:
    """Send an event that never was, and say what the receiver answers."""
    with connected(server) as client:
        done = client.test_webhook(name)
    if done.delivered:
        print_err(f"the receiver of {harmless(name)} answered {done.status}")
        return Exit.OK
    print_error(f"webhook {harmless(name)}: {harmless(done.error)}")
    return Exit.ERROR


@command("webhooks dead", DEAD_EXAMPLES)
@_name_argument
@listing_options
@server_options
def dead(name: str, listing: Listing, server: Server) -> int:
    """List the deliveries of a webhook that were given up."""
    with connected(server) as client:
        return print_list(client.dead_deliveries(name), listing, _DEAD_COLUMNS, lambda one: one.id)


@command("webhooks resend", RESEND_EXAMPLES)
@_name_argument
@click.argument("events", nargs=-1, metavar="[EVENT]...", help="Ids of events, from `webhooks dead`; all without any.")
@server_options
def resend(name: str, events: tuple[str, ...], server: Server) -> int:
    """Send deliveries again that were given up, each once."""
    with connected(server) as client:
        count = client.send_again(name, events)
    print_err(f"{plural(count, 'delivery') if count == 1 else f'{count} deliveries'} to send again")
    return Exit.OK


def _new_secret() -> str:
    import base64  # noqa: PLC0415
    import secrets  # noqa: PLC0415

    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def _read_secret(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.readline(_SECRET_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        print_error(f"cannot read the secret from {file}: {getattr(error, 'strerror', None) or 'it is not text'}")
        raise CommandFailed(Exit.ERROR) from error
