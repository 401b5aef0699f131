"""The commands `bots` and `pools`, with `bots events`, `bots set`, `bots free` and `pools set`."""

from dataclasses import asdict
from typing import Final, NamedTuple

import click

from taskyard.cli import progress
from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.commands.show import all_option, limit_option, show_all
from taskyard.cli.options import Number, bundle, choice, command, completes, flag, listing_options, output_option
from taskyard.cli.output import (
    Column,
    Id,
    Listing,
    format_age,
    format_fields,
    harmless,
    print_err,
    print_list,
    print_one,
)
from taskyard.wire.api import BotView, PoolView
from taskyard.wire.durations import span_text

BOTS_EXAMPLES: Final = """\
Examples:

    taskyard bots                         list all bots
    taskyard bots --dimension os=Linux    list the bots with a dimension
    taskyard bots --state dead -o name    print the names of dead bots
    taskyard bots --watch                 refresh the list
"""
EVENTS_EXAMPLES: Final = """\
Examples:

    taskyard bots events rack4-11         list what happened to a bot
"""
SET_BOT_EXAMPLES: Final = """\
Examples:

    taskyard bots set rack4-11 --quarantine "its disk is full"
    taskyard bots set rack4-11 --no-quarantine
    taskyard bots set rack4-11 --drain    let it take no new tasks
"""
FREE_BOT_EXAMPLES: Final = """\
Examples:

    taskyard bots free rack4-11    let a bot of another pool use this name
"""
QUEUES_EXAMPLES: Final = """\
Examples:

    taskyard bots queues rack4-11    list its queues with their lengths
"""
DELETE_BOT_EXAMPLES: Final = """\
Examples:

    taskyard bots delete rack4-11    delete a dead bot and its history
    taskyard bots --state dead -o name | xargs taskyard bots delete
"""
POOLS_EXAMPLES: Final = """\
Examples:

    taskyard pools                        list all pools
    taskyard pools -o json                print them as JSON
"""
SET_POOL_EXAMPLES: Final = """\
Examples:

    taskyard pools set lab --capacity 8        limit the total weight to 8
    taskyard pools set lab --from-bots         limit it to the slots of the bots
    taskyard pools set lab --reuse-window 1d   reuse results for a day
    taskyard pools set lab --external          run its tasks behind a broker
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
    ("version", lambda one: f"{one.version} (update it)" if one.outdated else one.version or ""),
    ("dimensions", lambda one: _dimensions(one.dimensions)),
]
_EVENT_COLUMNS: Final[list[Column]] = [
    ("age", lambda one: format_age(one.at_ms)),
    ("event", lambda one: one.kind.replace("_", " ")),
    ("task", lambda one: Id(one.task) if one.task else ""),
    ("attempt", lambda one: "" if one.attempt is None else one.attempt),
    ("note", lambda one: one.note),
]
_QUEUE_COLUMNS: Final[list[Column]] = [
    ("waiting", lambda one: one.waiting),
    ("hash", lambda one: f"{one.hash:08x}"),
    ("dimensions", lambda one: _dimensions(one.dimensions)),
]
_POOL_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("capacity", lambda one: _capacity(one)),  # noqa: PLW0108 - defined below
    ("bots", lambda one: one.bots),
    ("slots", lambda one: one.slots),
    ("reuse", lambda one: span_text(one.reuse_window_ms) if one.reuse_window_ms else "never"),
    ("shared", lambda one: one.reuse_shared),
]


class WantedBots(NamedTuple):
    """Which bots to list."""

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
    """List bots with their pools, states and dimensions."""
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
    """List the events of a bot and the tasks that it ran, the newest first."""
    with connected(server) as client:
        return print_list(client.bot_events(name, limit=limit), listing, _EVENT_COLUMNS, lambda one: one.id)


class BotChanges(NamedTuple):
    """Changes to a bot; fields that are not given do not change."""

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
        help="End the bot process after its tasks; a new process with this name can start.",
    ),
)
@output_option("table")
@server_options
def set_bot(name: str, changes: BotChanges, output: str, server: Server) -> int:
    """Quarantine, drain or terminate a bot."""
    fields = changes.fields()
    if not fields:
        raise click.UsageError("nothing to change: add --quarantine REASON, --drain or another change")
    with connected(server) as client:
        bot = client.set_bot(name, **fields)
        return print_one(asdict(bot), output, lambda: format_fields(bot, _BOT_COLUMNS), bot.id)


@command("bots free", FREE_BOT_EXAMPLES)
@name_argument
@output_option("table")
@server_options
def free_bot(name: str, output: str, server: Server) -> int:
    """Release the name of a bot that has ended, so that any pool can use it."""
    with connected(server) as client:
        bot = client.free_bot(name)
        return print_one(asdict(bot), output, lambda: format_fields(bot, _BOT_COLUMNS), bot.id)


@command("bots queues", QUEUES_EXAMPLES)
@name_argument
@limit_option(100)
@listing_options
@server_options
def bot_queues(name: str, limit: int, listing: Listing, server: Server) -> int:
    """List the queues of a bot: the dimensions of their tasks, and how many wait."""
    with connected(server) as client:
        return print_list(client.bot_queues(name, limit=limit), listing, _QUEUE_COLUMNS, lambda one: f"{one.hash:08x}")


@command("bots delete", DELETE_BOT_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", help="Bot name.", shell_complete=completes("bot"))
@server_options
def delete_bot(names: tuple[str, ...], server: Server) -> int:
    """Delete dead bots with their history. Bots of any pool can use their names then."""
    with connected(server) as client:
        for name in names:
            client.delete_bot(name)
            print_err(f"bot {harmless(name)} is deleted")
    return 0


@command("pools", POOLS_EXAMPLES)
@listing_options
@server_options
def pools(listing: Listing, server: Server) -> int:
    """List pools with their capacities, bots and slots."""
    with connected(server) as client:
        return print_list(client.pools(), listing, _POOL_COLUMNS, lambda one: one.name)


class PoolChanges(NamedTuple):
    """What is to change about a pool."""

    capacity: int | None
    no_capacity: bool
    from_bots: bool
    unit: str | None
    adjustment: float | None
    reuse_window: str | None
    reuse_shared: bool | None
    external: bool | None

    def fields(self) -> dict[str, float | str | None]:
        """Return the settings that change."""
        if (self.capacity is not None) + self.no_capacity + self.from_bots > 1:
            raise click.UsageError("--capacity, --no-capacity and --from-bots exclude each other: give one of them")
        changes: dict[str, float | str | None] = {"from_bots": True} if self.from_bots else {}
        if self.capacity is not None or self.no_capacity:
            changes["capacity"] = self.capacity
        for name in ("unit", "adjustment"):
            if (value := getattr(self, name)) is not None:
                changes[name] = value
        if self.reuse_window is not None:
            changes["reuse_window"] = self.reuse_window
        for name in ("reuse_shared", "external"):
            if (value := getattr(self, name)) is not None:
                changes[name] = value
        return changes


@command("pools set", SET_POOL_EXAMPLES)
@click.argument("name", metavar="NAME", help="Pool name; a new pool is created.", shell_complete=completes("pool"))
@bundle(
    "changes",
    PoolChanges,
    click.option(
        "--capacity", type=Number(0), metavar="N", help="Maximum total weight of tasks that run at the same time."
    ),
    flag("--no-capacity", help="Remove the limit."),
    flag("--from-bots", help="Limit the total weight to what the live bots can carry."),
    click.option(
        "--unit",
        type=click.Choice(["slots", "forks"]),
        help="With --from-bots: count slots, or forks of ansible by processors and memory.",
    ),
    click.option(
        "--adjustment",
        type=click.FloatRange(0, 1),
        metavar="0..1",
        help="With --unit forks: 0 for the scarcer of processors and memory, 1 for the other.",
    ),
    click.option(
        "--reuse-window", metavar="DURATION", help="How long results of idempotent tasks are reused; 0s: never."
    ),
    click.option("--reuse-shared/--no-reuse-shared", default=None, help="Reuse results of other submitters, too."),
    click.option(
        "--external/--no-external", default=None, help="Let workers behind a message broker run its tasks, not bots."
    ),
)
@output_option("table")
@server_options
def set_pool(name: str, changes: PoolChanges, output: str, server: Server) -> int:
    """Create a pool, or change its settings."""
    fields = changes.fields()
    with connected(server) as client:
        pool = client.set_pool(name, **fields)
        return print_one(asdict(pool), output, lambda: format_fields(pool, _POOL_COLUMNS), pool.name)


def _dimensions(found: dict[str, list[str]]) -> str:
    return " ".join(f"{key}={'|'.join(values)}" for key, values in found.items())


def _capacity(pool: PoolView) -> str:
    """Describe the capacity of a pool."""
    if pool.from_bots:
        return f"{pool.total} {pool.unit} of its bots"
    return "any" if pool.capacity is None else str(pool.capacity)


def _bot_state(bot: BotView) -> str:
    """Return the state of a bot; the most urgent one, if several apply."""
    if not bot.alive:
        return "dead"
    if bot.quarantined is not None:
        return f"quarantined: {bot.quarantined}"
    if bot.maintenance is not None:
        return f"maintenance: {bot.maintenance}"
    if bot.ending:
        return "ending"
    return "draining" if bot.draining else "alive"
