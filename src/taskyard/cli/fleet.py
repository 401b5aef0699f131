"""The commands about the fleet: `bots` and `pools`, each with `set`, and what happened to a bot."""

from dataclasses import asdict
from typing import Annotated, Final, Literal, NamedTuple

from taskyard.cli import forms, lookout
from taskyard.cli.grammar import Number, Parameter
from taskyard.cli.looking import All, Limit, show_all
from taskyard.cli.parsing import Unusable
from taskyard.cli.session import HERE, Server, connected
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

BotWord = Literal["alive", "dead", "healthy", "quarantined", "not_in_maintenance", "in_maintenance", "idle", "busy"]

_BOT_COLUMNS: Final[list[forms.Column]] = [
    ("name", lambda one: one.id),
    ("pool", lambda one: one.pool),
    ("state", lambda one: _bot_state(one)),  # noqa: PLW0108 - it is defined below
    ("busy", lambda one: f"{one.busy}/{one.slots}" + (f" +{one.assigned}" if one.assigned else "")),
    ("seen", lambda one: forms.age(one.last_seen_ms)),
    ("dimensions", lambda one: " ".join(f"{key}={'|'.join(values)}" for key, values in one.dimensions.items())),
]
_EVENT_COLUMNS: Final[list[forms.Column]] = [
    ("age", lambda one: forms.age(one.at_ms)),
    ("event", lambda one: one.kind.replace("_", " ")),
    ("task", lambda one: forms.Id(one.task) if one.task else ""),
    ("attempt", lambda one: "" if one.attempt is None else one.attempt),
    ("note", lambda one: one.note),
]
_POOL_COLUMNS: Final[list[forms.Column]] = [
    ("name", lambda one: one.name),
    ("capacity", lambda one: "its bots" if one.from_bots else "any" if one.capacity is None else one.capacity),
    ("bots", lambda one: one.bots),
    ("slots", lambda one: one.slots),
]


class WantedBots(NamedTuple):
    """Which bots."""

    pool: Annotated[str | None, Parameter(help="Only those in this pool.", completes="pool")] = None
    state: Annotated[BotWord | None, Parameter(help="Only those that are so.")] = None
    dimension: Annotated[
        list[str] | None, Parameter(help="Only those that have it, as key=value; all, if several.")
    ] = None
    limit: Limit = 1_000
    all: All = False


ANY_BOTS: Final = WantedBots()


def bots(
    *,
    wanted: WantedBots = ANY_BOTS,
    listing: forms.Listing = forms.TABLE,
    watch: lookout.Watch = lookout.ONCE,
    server: Server = HERE,
) -> int:
    """List the bots: where they are, what they can, what they do."""
    dimensions = [one.replace("=", ":", 1) for one in wanted.dimension or ()]
    most = None if wanted.all else wanted.limit
    with connected(server) as client:
        return show_all(
            lambda: client.bots(pool=wanted.pool, state=wanted.state, dimensions=dimensions, limit=most),
            listing,
            _BOT_COLUMNS,
            watch,
        )


def bot_events(
    name: Annotated[str, Parameter(help="The bot's name.", completes="bot")],
    /,
    *,
    limit: Limit = 100,
    listing: forms.Listing = forms.TABLE,
    server: Server = HERE,
) -> int:
    """List what happened to a bot and what it ran, the newest first."""
    with connected(server) as client:
        return forms.give_all(client.bot_events(name, limit=limit), listing, _EVENT_COLUMNS, lambda one: one.id)


class Orders(NamedTuple):
    """What a bot is told; what is not said stays as it is."""

    quarantine: Annotated[str | None, Parameter(help="Give it nothing to do; say why.")] = None
    no_quarantine: Annotated[bool, Parameter(negative="", help="Let it work again.")] = False
    maintenance: Annotated[str | None, Parameter(help="It is being worked on; say what is done.")] = None
    no_maintenance: Annotated[bool, Parameter(negative="", help="The work on it is done.")] = False
    drain: Annotated[bool | None, Parameter(help="Let it end what it has and take nothing new.")] = None
    terminate: Annotated[
        bool | None,
        Parameter(help="Let its process end after what it has in hand; one that begins in its place goes on."),
    ] = None

    def changes(self) -> dict[str, str | bool | None]:
        """Give what changes, as the server takes it."""
        wish: dict[str, str | bool | None] = {}
        if self.quarantine is not None or self.no_quarantine:
            wish["quarantined"] = None if self.no_quarantine else self.quarantine
        if self.maintenance is not None or self.no_maintenance:
            wish["maintenance"] = None if self.no_maintenance else self.maintenance
        if self.drain is not None:
            wish["draining"] = self.drain
        if self.terminate is not None:
            wish["terminated"] = self.terminate
        return wish


NO_ORDERS: Final = Orders()


def set_bot(
    name: Annotated[str, Parameter(help="The bot's name.", completes="bot")],
    /,
    *,
    orders: Orders = NO_ORDERS,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """Say what a bot may do."""
    changes = orders.changes()
    if not changes:
        raise Unusable("say what the bot should do: --quarantine MESSAGE, --drain, ...")
    with connected(server) as client:
        bot = client.set_bot(name, **changes)
        return forms.give_one(asdict(bot), output, lambda: forms.pairs(bot, _BOT_COLUMNS), bot.id)


def free_bot(
    name: Annotated[str, Parameter(help="The bot's name.", completes="bot")],
    /,
    *,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """Let the name of a bot that has ended belong to whichever pool enrols it next."""
    with connected(server) as client:
        bot = client.free_bot(name)
        return forms.give_one(asdict(bot), output, lambda: forms.pairs(bot, _BOT_COLUMNS), bot.id)


def pools(*, listing: forms.Listing = forms.TABLE, server: Server = HERE) -> int:
    """List the pools: how much each may run at once, and who is in it."""
    with connected(server) as client:
        return forms.give_all(client.pools(), listing, _POOL_COLUMNS, lambda one: one.name)


def set_pool(
    name: Annotated[str, Parameter(help="The pool's name; a new one is made.", completes="pool")],
    /,
    *,
    capacity: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="The sum of weights that may run at once.")
    ] = None,
    no_capacity: Annotated[bool, Parameter(negative="", help="Any: as much as bots take.")] = False,
    from_bots: Annotated[bool, Parameter(negative="", help="As many as its live bots have slots.")] = False,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """Make a pool, or change how much it may run at once; what is not said stays as it is."""
    if (capacity is not None) + no_capacity + from_bots > 1:
        raise Unusable("--capacity, --no-capacity and --from-bots exclude each other: take one of them")
    wish: dict[str, int | bool | None] = {"from_bots": True} if from_bots else {}
    if capacity is not None or no_capacity:
        wish["capacity"] = capacity
    with connected(server) as client:
        pool = client.set_pool(name, **wish)
        return forms.give_one(asdict(pool), output, lambda: forms.pairs(pool, _POOL_COLUMNS), pool.name)


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
