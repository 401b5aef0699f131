"""The commands about the fleet: `bots` and `pools`, each with `set`, and what happened to a bot."""

from dataclasses import asdict
from typing import Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.commands.show import all_option, limit_option, show_all
from taskyard.cli.options import Number, bundle, choice, command, completes, flag, listing_options, output_option
from taskyard.cli.output import Column, Id, Listing, format_age, format_fields, print_list, print_one
from taskyard.wire.api import BotView

BOTS_EXAMPLES: Final = """\
Examples:

    taskyard bots                         every bot
    taskyard bots --dimension os=Linux    those that have it
    taskyard bots --state dead -o name    the names of those that are lost
    taskyard bots --watch                 look again and again
"""
EVENTS_EXAMPLES: Final = """\
Examples:

    taskyard bots events rack4-11         what happened to it, and what it ran
"""
SET_BOT_EXAMPLES: Final = """\
Examples:

    taskyard bots set rack4-11 --quarantine "its disk is full"
    taskyard bots set rack4-11 --no-quarantine
    taskyard bots set rack4-11 --drain    take nothing new
"""
FREE_BOT_EXAMPLES: Final = """\
Examples:

    taskyard bots free rack4-11    a bot of another pool may have this name now
"""
POOLS_EXAMPLES: Final = """\
Examples:

    taskyard pools                        every pool
    taskyard pools -o json                for a program
"""
SET_POOL_EXAMPLES: Final = """\
Examples:

    taskyard pools set lab --capacity 8   at most a weight of 8 at once
    taskyard pools set lab --from-bots    as many as its bots have slots
"""

BOT_STATES: Final = (
    "alive", "dead", "healthy", "quarantined", "not_in_maintenance", "in_maintenance", "idle", "busy",
)  # fmt: skip
name_argument = click.argument("name", metavar="NAME", help="Bot name.", shell_complete=completes("bot"))

_BOT_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.id),
    ("pool", lambda one: one.pool),
    ("state", lambda one: _bot_state(one)),  # noqa: PLW0108 - it is defined below
    ("busy", lambda one: f"{one.busy}/{one.slots}" + (f" +{one.assigned}" if one.assigned else "")),
    ("seen", lambda one: format_age(one.last_seen_ms)),
    ("dimensions", lambda one: " ".join(f"{key}={'|'.join(values)}" for key, values in one.dimensions.items())),
]
_EVENT_COLUMNS: Final[list[Column]] = [
    ("age", lambda one: format_age(one.at_ms)),
    ("event", lambda one: one.kind.replace("_", " ")),
    ("task", lambda one: Id(one.task) if one.task else ""),
    ("attempt", lambda one: "" if one.attempt is None else one.attempt),
    ("note", lambda one: one.note),
]
_POOL_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("capacity", lambda one: "its bots" if one.from_bots else "any" if one.capacity is None else one.capacity),
    ("bots", lambda one: one.bots),
    ("slots", lambda one: one.slots),
]


class WantedBots(NamedTuple):
    """Which bots."""

    pool: str | None = None
    state: str | None = None
    dimension: tuple[str, ...] = ()
    limit: int = 1_000
    all: bool = False


@command("bots", BOTS_EXAMPLES)
@bundle(
    "wanted",
    WantedBots,
    click.option("--pool", metavar="NAME", help="Filter by pool.", shell_complete=completes("pool")),
    choice("--state", words=BOT_STATES, help="Filter by state."),
    click.option(
        "--dimension", multiple=True, metavar="KEY=VALUE", help="Filter by dimension; can be repeated, all must match."
    ),
    limit_option(1_000),
    all_option,
)
@listing_options
@progress.watch_options
@server_options
def bots(wanted: WantedBots, listing: Listing, watch: progress.Watch, server: Server) -> int:
    """List the bots: where they are, what they can, what they do."""
    dimensions = [one.replace("=", ":", 1) for one in wanted.dimension]
    most = None if wanted.all else wanted.limit
    with connected(server) as client:
        return show_all(
            lambda: client.bots(pool=wanted.pool, state=wanted.state, dimensions=dimensions, limit=most),
            listing,
            _BOT_COLUMNS,
            watch,
        )


@command("bots events", EVENTS_EXAMPLES)
@name_argument
@limit_option(100)
@listing_options
@server_options
def bot_events(name: str, limit: int, listing: Listing, server: Server) -> int:
    """List what happened to a bot and what it ran, the newest first."""
    with connected(server) as client:
        return print_list(client.bot_events(name, limit=limit), listing, _EVENT_COLUMNS, lambda one: one.id)


class BotChanges(NamedTuple):
    """Changes to a bot; what is not given stays as it is."""

    quarantine: str | None = None
    no_quarantine: bool = False
    maintenance: str | None = None
    no_maintenance: bool = False
    drain: bool | None = None
    terminate: bool | None = None

    def fields(self) -> dict[str, str | bool | None]:
        """Return the changes as the server takes them."""
        changes: dict[str, str | bool | None] = {}
        if self.quarantine is not None or self.no_quarantine:
            changes["quarantined"] = None if self.no_quarantine else self.quarantine
        if self.maintenance is not None or self.no_maintenance:
            changes["maintenance"] = None if self.no_maintenance else self.maintenance
        if self.drain is not None:
            changes["draining"] = self.drain
        if self.terminate is not None:
            changes["terminated"] = self.terminate
        return changes


@command("bots set", SET_BOT_EXAMPLES)
@name_argument
@bundle(
    "changes",
    BotChanges,
    click.option("--quarantine", metavar="REASON", help="Give the bot no work."),
    flag("--no-quarantine", help="End the quarantine."),
    click.option("--maintenance", metavar="REASON", help="Mark the bot as under maintenance."),
    flag("--no-maintenance", help="End the maintenance."),
    click.option("--drain/--no-drain", default=None, help="Let the bot finish its tasks and take no new ones."),
    click.option(
        "--terminate/--no-terminate",
        default=None,
        help="End the process of the bot after its tasks; a new process of this name works on.",
    ),
)
@output_option("table")
@server_options
def set_bot(name: str, changes: BotChanges, output: str, server: Server) -> int:
    """Quarantine, drain or terminate a bot."""
    fields = changes.fields()
    if not fields:
        raise click.UsageError("nothing to change: give --quarantine REASON, --drain, ...")
    with connected(server) as client:
        bot = client.set_bot(name, **fields)
        return print_one(asdict(bot), output, lambda: format_fields(bot, _BOT_COLUMNS), bot.id)


@command("bots free", FREE_BOT_EXAMPLES)
@name_argument
@output_option("table")
@server_options
def free_bot(name: str, output: str, server: Server) -> int:
    """Let the name of a bot that has ended belong to whichever pool enrols it next."""
    with connected(server) as client:
        bot = client.free_bot(name)
        return print_one(asdict(bot), output, lambda: format_fields(bot, _BOT_COLUMNS), bot.id)


@command("pools", POOLS_EXAMPLES)
@listing_options
@server_options
def pools(listing: Listing, server: Server) -> int:
    """List the pools: how much each may run at once, and who is in it."""
    with connected(server) as client:
        return print_list(client.pools(), listing, _POOL_COLUMNS, lambda one: one.name)


@command("pools set", SET_POOL_EXAMPLES)
@click.argument("name", metavar="NAME", help="Pool name; a new pool is created.", shell_complete=completes("pool"))
@click.option("--capacity", type=Number(0), metavar="N", help="Sum of the weights of tasks that run at once.")
@flag("--no-capacity", help="No bound: as much as the bots take.")
@flag("--from-bots", help="As many tasks as the live bots have slots.")
@output_option("table")
@server_options
def set_pool(name: str, capacity: int | None, no_capacity: bool, from_bots: bool, output: str, server: Server) -> int:
    """Make a pool, or change how much it may run at once; what is not said stays as it is."""
    if (capacity is not None) + no_capacity + from_bots > 1:
        raise click.UsageError("--capacity, --no-capacity and --from-bots exclude each other: give one of them")
    changes: dict[str, int | bool | None] = {"from_bots": True} if from_bots else {}
    if capacity is not None or no_capacity:
        changes["capacity"] = capacity
    with connected(server) as client:
        pool = client.set_pool(name, **changes)
        return print_one(asdict(pool), output, lambda: format_fields(pool, _POOL_COLUMNS), pool.name)


def _bot_state(bot: BotView) -> str:
    """Say in words what a bot is up to: what a person has to know first comes first."""
    if not bot.alive:
        return "dead"
    if bot.quarantined is not None:
        return f"quarantined: {bot.quarantined}"
    if bot.maintenance is not None:
        return f"maintenance: {bot.maintenance}"
    if bot.ending:
        return "ending"
    return "draining" if bot.draining else "alive"
