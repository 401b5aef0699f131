"""The commands about what is kept for a time: `retention`, `retention set` and `graphs delete`."""

from typing import TYPE_CHECKING, Final

import click

from taskyard.cli.client import GRAPH, Server, connected, graph_id, server_options
from taskyard.cli.exit_codes import CommandFailed, Exit
from taskyard.cli.options import command, completes, listing_options
from taskyard.cli.output import Column, Listing, format_duration, plural, print_err, print_list
from taskyard.wire.api import DEFAULT_TIME, FOREVER, KEPT_KINDS

if TYPE_CHECKING:
    from taskyard.wire.api import RetentionView

RETENTION_EXAMPLES: Final = """\
Examples:

    taskyard retention              list how long things are kept
    taskyard retention -o json
"""
SET_EXAMPLES: Final = """\
Examples:

    taskyard retention set '*' output=30d graphs=365d   for all pools
    taskyard retention set lab output=7d results=forever
    taskyard retention set lab output=default           as for all pools
"""
DELETE_EXAMPLES: Final = """\
Examples:

    taskyard graphs delete 78a6ff3e8d8c0f28
    taskyard graphs delete $(taskyard graphs --name nightly -o name)
"""


def _column(kind: str) -> Column:
    return (kind, lambda one: _time(one, kind))


_COLUMNS: Final[list[Column]] = [("pool", lambda one: one.pool), *map(_column, KEPT_KINDS)]


@command("retention", RETENTION_EXAMPLES)
@listing_options
@server_options
def retention(listing: Listing, server: Server) -> int:
    """List how long things are kept: for all pools (*), and for pools that differ."""
    with connected(server) as client:
        return print_list(client.retention(), listing, _COLUMNS, lambda one: one.pool)


def _time_of(written: str) -> tuple[str, str]:
    """Read `output=30d`."""
    kind, equals, time = written.partition("=")
    if not equals or kind not in KEPT_KINDS:
        raise click.UsageError(f"{written!r} is not KIND=DURATION; the kinds are {', '.join(KEPT_KINDS)}")
    return kind, time


@command("retention set", SET_EXAMPLES)
@click.argument("pool", metavar="POOL", help="Pool, or * for all pools.", shell_complete=completes("pool"))
@click.argument(
    "times",
    metavar="KIND=DURATION...",
    nargs=-1,
    required=True,
    help=f"How long a kind is kept: a duration, {FOREVER} or {DEFAULT_TIME}. The kinds: {', '.join(KEPT_KINDS)}.",
)
@listing_options
@server_options
def set_retention(pool: str, times: tuple[str, ...], listing: Listing, server: Server) -> int:
    """Set how long things of a pool are kept, or of all pools (*)."""
    chosen = dict(map(_time_of, times))
    with connected(server) as client:
        return print_list(client.set_retention(pool, **chosen), listing, _COLUMNS, lambda one: one.pool)


@command("graphs delete", DELETE_EXAMPLES)
@click.argument(
    "graphs",
    metavar="GRAPH...",
    nargs=-1,
    required=True,
    type=GRAPH,
    help="Graph id, or its end.",
    shell_complete=completes("graph"),
)
@server_options
def delete_graphs(graphs: tuple[str, ...], server: Server) -> int:
    """Delete settled graphs with their tasks, attempts, output and results.

    They are gone at once; their rows are deleted in the background. It is for
    admins of all pools of a graph.
    """
    refused: list[Exit] = []
    for named in graphs:
        try:
            with connected(server) as client:
                client.delete_graph(graph_id(client, named))
        except CommandFailed as ended:
            refused.append(ended.code)
    print_err(f"{plural(len(graphs) - len(refused), 'graph')} deleted")
    return refused[0] if refused else Exit.OK


def _time(one: "RetentionView", kind: str) -> str:
    if kind not in one.times:
        return DEFAULT_TIME if one.pool != "*" else ""
    ms = one.times[kind]
    return FOREVER if ms is None else format_duration(ms)
