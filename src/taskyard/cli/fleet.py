"""The commands about the fleet: `bots` and `pools`, each with `set`, and what happened to a bot."""

from dataclasses import asdict, dataclass
from typing import Annotated, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number

from taskyard.cli import forms, reports
from taskyard.cli.exits import Exit
from taskyard.cli.looking import Limit
from taskyard.cli.session import HERE, Server, connected

BOTS_EXAMPLES: Final = """\
Examples:

    taskyard bots                         every bot
    taskyard bots --dimension os=Linux    those that have it
    taskyard bots events rack4-11         what happened to it, and what it ran
    taskyard bots set rack4-11 --quarantine "its disk is full"
    taskyard bots set rack4-11 --no-quarantine
    taskyard bots set rack4-11 --drain    take nothing new
"""
POOLS_EXAMPLES: Final = """\
Examples:

    taskyard pools                        every pool
    taskyard pools set lab --capacity 8   at most a weight of 8 at once
    taskyard pools set lab --from-bots    as many as its bots have slots
"""

_BOT_COLUMNS: Final[list[forms.Column]] = [
    ("name", lambda one: one.id),
    ("pool", lambda one: one.pool),
    ("state", lambda one: _bot_state(one.alive, one.quarantined, one.maintenance, one.draining)),
    ("busy", lambda one: f"{one.busy}/{one.slots}"),
    ("seen", lambda one: forms.age(one.last_seen_ms)),
    ("dimensions", lambda one: " ".join(f"{key}={'|'.join(values)}" for key, values in one.dimensions.items())),
]
_EVENT_COLUMNS: Final[list[forms.Column]] = [
    ("age", lambda one: forms.age(one.at_ms)),
    ("event", lambda one: one.kind.replace("_", " ")),
    ("task", lambda one: one.task or ""),
    ("attempt", lambda one: "" if one.attempt is None else one.attempt),
    ("note", lambda one: one.note),
]
_POOL_COLUMNS: Final[list[forms.Column]] = [
    ("name", lambda one: one.name),
    ("capacity", lambda one: "its bots" if one.from_bots else "any" if one.capacity is None else one.capacity),
    ("bots", lambda one: one.bots),
    ("slots", lambda one: one.slots),
]


def bots_app() -> App:
    """Make `bots` with what is below it."""
    app = App(name="bots", help_epilogue=BOTS_EXAMPLES)
    app.default(bots)
    app.command(set_bot, name="set", help_epilogue=BOTS_EXAMPLES)
    app.command(bot_events, name="events", help_epilogue=BOTS_EXAMPLES)
    return app


def pools_app() -> App:
    """Make `pools` with what is below it."""
    app = App(name="pools", help_epilogue=POOLS_EXAMPLES)
    app.default(pools)
    app.command(set_pool, name="set", help_epilogue=POOLS_EXAMPLES)
    return app


def bots(
    *,
    pool: Annotated[str | None, Parameter(help="Only those in this pool.")] = None,
    state: Annotated[str | None, Parameter(help="Only those in this state, such as dead or quarantined.")] = None,
    dimension: Annotated[
        list[str] | None, Parameter(negative="", help="Only those that have it, as key=value.")
    ] = None,
    limit: Limit = 1_000,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """List the bots: where they are, what they can, what they do."""
    with connected(server) as client:
        wanted = [one.replace("=", ":", 1) for one in dimension or ()]
        found = client.bots(pool=pool, state=state, dimensions=wanted, limit=limit)
        return forms.give_all(found, output, _BOT_COLUMNS, lambda one: one.id)


def bot_events(
    name: Annotated[str, Parameter(help="The bot's name.")],
    /,
    *,
    limit: Limit = 100,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """List what happened to a bot and what it ran, the newest first."""
    with connected(server) as client:
        return forms.give_all(client.bot_events(name, limit=limit), output, _EVENT_COLUMNS, lambda one: one.id)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Orders:
    """What a bot is told; what is not said stays as it is."""

    quarantine: Annotated[str | None, Parameter(help="Give it nothing to do; say why.")] = None
    no_quarantine: Annotated[bool, Parameter(negative="", help="Let it work again.")] = False
    maintenance: Annotated[str | None, Parameter(help="It is being worked on; say what is done.")] = None
    no_maintenance: Annotated[bool, Parameter(negative="", help="The work on it is done.")] = False
    drain: Annotated[bool | None, Parameter(help="Let it end what it has and take nothing new.")] = None
    terminate: Annotated[bool, Parameter(negative="", help="Let it end what it has, and then itself.")] = False

    def changes(self) -> dict[str, str | bool | None]:
        """Give what changes, as the server takes it."""
        wish: dict[str, str | bool | None] = {}
        if self.quarantine is not None or self.no_quarantine:
            wish["quarantined"] = None if self.no_quarantine else self.quarantine
        if self.maintenance is not None or self.no_maintenance:
            wish["maintenance"] = None if self.no_maintenance else self.maintenance
        if self.drain is not None:
            wish["draining"] = self.drain
        if self.terminate:
            wish["terminated"] = True
        return wish


NO_ORDERS: Final = Orders()


def set_bot(
    name: Annotated[str, Parameter(help="The bot's name.")],
    /,
    *,
    orders: Orders = NO_ORDERS,
    server: Server = HERE,
) -> int:
    """Say what a bot may do."""
    changes = orders.changes()
    if not changes:
        reports.say_error("say what the bot should do: --quarantine MESSAGE, --drain, ...")
        return Exit.USAGE
    with connected(server) as client:
        return forms.give_all([client.set_bot(name, **changes)], "table", _BOT_COLUMNS, lambda one: one.id)


def pools(*, output: forms.Form = "table", server: Server = HERE) -> int:
    """List the pools: how much each may run at once, and who is in it."""
    with connected(server) as client:
        return forms.give_all(client.pools(), output, _POOL_COLUMNS, lambda one: one.name)


def set_pool(
    name: Annotated[str, Parameter(help="The pool's name; a new one is made.")],
    /,
    *,
    capacity: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="The sum of weights that may run at once; any unless told.")
    ] = None,
    from_bots: Annotated[bool, Parameter(negative="", help="As many as its live bots have slots.")] = False,
    output: forms.Form = "table",
    server: Server = HERE,
) -> int:
    """Make a pool, or change how much it may run at once."""
    with connected(server) as client:
        pool = client.set_pool(name, capacity=capacity, from_bots=from_bots)
        lines = forms.table([[title.upper(), forms.cell(value(pool))] for title, value in _POOL_COLUMNS])
        return forms.give_one(asdict(pool), output, lambda: lines, pool.name)


def _bot_state(alive: bool, quarantined: str | None, maintenance: str | None, draining: bool) -> str:
    """Say in words what a bot is up to: what a person has to know first comes first."""
    if not alive:
        return "dead"
    if quarantined is not None:
        return f"quarantined: {quarantined}"
    if maintenance is not None:
        return f"maintenance: {maintenance}"
    return "draining" if draining else "alive"
