"""The command `events`: list everything that happened in a graph, or print events as they happen."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskyard.cli.client import Server, connected, graph_id, optional_graph_argument, server_options
from taskyard.cli.commands.show import all_option, limit_option
from taskyard.cli.exit_codes import Exit
from taskyard.cli.options import bundle, command, completes, flag, listing_options
from taskyard.cli.output import (
    Column,
    Id,
    Listing,
    format_cell,
    format_time,
    harmless,
    print_err,
    print_line,
    print_list,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskyard.wire.api import StreamedEvent

EXAMPLES: Final = """\
Examples:

    taskyard events 78a6ff3e8d8c0f28            list the first 1000 events
    taskyard events 78a6ff3e8d8c0f28 --all      list all events
    taskyard events c0f28 --all -o jsonl        print each event as JSON
    taskyard events c0f28 --columns at,label,kind,reason
    taskyard events -f                          print what happens in all graphs
    taskyard events -f c0f28 --kind task.failed -o jsonl
"""

_COLUMNS: Final[list[Column]] = [
    ("number", lambda one: one.number),
    ("at", lambda one: format_time(one.at_ms)),
    ("kind", lambda one: one.kind),
    ("label", lambda one: one.label),
    ("task", lambda one: Id(one.task) if one.task else None),
    ("attempt", lambda one: one.attempt),
    ("bot", lambda one: one.bot),
    ("reason", lambda one: one.reason),
]


class WantedEvents(NamedTuple):
    """Which events to list."""

    follow: bool = False
    kind: tuple[str, ...] = ()
    pool: str | None = None
    limit: int = 1_000
    all: bool = False


@command("events", EXAMPLES)
@optional_graph_argument
@bundle(
    "wanted",
    WantedEvents,
    flag("--follow", "-f", help="Print events as they happen, until interrupted."),
    click.option("--kind", multiple=True, metavar="KIND", help="With -f, filter by kind; can be repeated."),
    click.option("--pool", metavar="POOL", help="With -f, filter by pool.", shell_complete=completes("pool")),
    limit_option(1_000),
    all_option,
)
@listing_options
@server_options
def events(graph: str | None, wanted: WantedEvents, listing: Listing, server: Server) -> int:
    """List everything that happened in a graph, the oldest first.

    With -f, print what happens from now on in a graph or in all graphs. If the
    server is restarted meanwhile, nothing is missed.
    """
    if not wanted.follow and (graph is None or wanted.kind or wanted.pool):
        raise click.UsageError("without -f, name a GRAPH; --kind and --pool need -f")
    with connected(server) as client:
        id = None if graph is None else graph_id(client, graph)
        if wanted.follow or id is None:
            return _follow(client.follow_events(graph=id, kinds=wanted.kind, pool=wanted.pool), listing)
        most = None if wanted.all else wanted.limit
        return print_list(client.events(id, limit=most), listing, _COLUMNS, lambda one: one.id)


def _follow(found: "Iterable[StreamedEvent]", listing: Listing) -> Exit:
    """Print events as they come, each in a line of its own."""
    for one in found:
        if one.event is None:
            print_err("some events are lost: the server does not keep them any more")
        elif listing.output in ("json", "jsonl"):
            print_line(json.dumps(asdict(one.event)))
        elif listing.output == "name":
            print_line(harmless(one.event.id))
        else:
            print_line("  ".join(format_cell(value(one.event)) for _, value in listing.chosen(_COLUMNS)))
        sys.stdout.flush()
    return Exit.OK


TARGETS_EXAMPLES: Final = """\
Examples:

    taskyard targets                  show how far behind each target is
"""
REMOVE_TARGET_EXAMPLES: Final = """\
Examples:

    taskyard targets remove amqp      keep nothing more for the broker
"""

_TARGET_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("backlog", lambda one: one.backlog),
    ("oldest", lambda one: f"{one.oldest_ms // 1_000}s" if one.backlog else None),
]


@command("targets", TARGETS_EXAMPLES)
@listing_options
@server_options
def targets(listing: Listing, server: Server) -> int:
    """List the targets to which all events are delivered, and how far behind each is."""
    with connected(server) as client:
        return print_list(client.targets(), listing, _TARGET_COLUMNS, lambda one: one.name)


@command("targets remove", REMOVE_TARGET_EXAMPLES)
@click.argument("name", metavar="NAME", help="Target name.")
@server_options
def remove_target(name: str, server: Server) -> int:
    """Remove a target of events, and what it has not got yet."""
    with connected(server) as client:
        client.remove_target(name)
    print_err(f"removed {harmless(name)}")
    return Exit.OK
