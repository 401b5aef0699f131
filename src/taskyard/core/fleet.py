"""Bots: which are alive, which take work, which count as capacity.

A bot lives while it has not said goodbye and is not marked missing: so all who ask agree, and whatever follows from
its end happens in the transaction that marks it. Nothing here gives a task to a bot, and nothing looks at a clock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from typing import Final, TypeAlias

from taskyard.core.matching import POOL, Dimensions, matches
from taskyard.core.states import BotId, Millis
from taskyard.core.structs import value

#: How long a bot may run an attempt without renewing, unless a server is told otherwise. A few renewals may be lost and
#: nothing happens.
LEASE_MS: Final = 60_000
#: The shortest: a renewal takes its time on a poor network. And the longest: work of a dead machine waits for as long.
LEASE_MIN_MS: Final = 2_000
LEASE_MAX_MS: Final = 3_600_000
#: What the server waits beyond a lease: the bot's runner has ended the process before, clocks drift by less.
GUARD_MS: Final = 5_000
#: How often the server looks for timeouts that are due.
SWEEP_MS: Final = 5_000
#: A silent bot is marked missing within this time, however long its leases are: it is heard of more often.
MISSING_WITHIN_MS: Final = LEASE_MS + GUARD_MS + SWEEP_MS


@value
class BotFacts:
    """What is known about a bot."""

    id: BotId
    dimensions: Dimensions
    last_seen_ms: Millis
    slots: int = 1  # how many attempts it runs at once
    busy: int = 0  # how many it runs now
    quarantined: str | None = None  # why it, or an admin, says that it is unfit
    maintenance: str | None = None  # why it is away for a while
    draining: bool = False  # ends what it runs and takes nothing new
    terminated: bool = False  # has said goodbye
    missing: bool = False  # its silence was noticed
    ending: bool = False  # an admin told it to end once it has nothing in hand


@unique
class Condition(StrEnum):
    """One word about a bot; a bot has one of each pair."""

    ALIVE = "alive"
    DEAD = "dead"
    HEALTHY = "healthy"
    QUARANTINED = "quarantined"
    NOT_IN_MAINTENANCE = "not_in_maintenance"
    IN_MAINTENANCE = "in_maintenance"
    IDLE = "idle"  # a slot is free
    BUSY = "busy"  # every slot is taken


Composite: TypeAlias = tuple[Condition, Condition, Condition, Condition]


def alive(bot: BotFacts) -> bool:
    """Tell whether a bot is live: it has not said goodbye and is not marked missing."""
    return not bot.terminated and not bot.missing


def silence_max_ms(lease_ms: int) -> int:
    """Say after which silence the next sweep marks a bot missing: what it runs is lost by then."""
    return min(lease_ms, MISSING_WITHIN_MS - SWEEP_MS - GUARD_MS) + GUARD_MS


def wait_max_ms(lease_ms: int) -> int:
    """Say how long a poll may wait for work: the lease of what it brings counts from when it was sent."""
    return lease_ms // 3


def lives_of(session: str) -> str:
    """Give the common prefix of all sessions that used the same folder on the same machine as this one.

    `folder/life` is the name of a session. A folder has one bot at a time, and the next one begins by clearing what was
    left in it; so whatever an earlier session of a folder ran is gone. Sessions that name no folder are taken for lives
    of the only bot of that name.
    """
    return session[: session.rfind("/") + 1]


def takes_work(bot: BotFacts) -> bool:
    """Tell whether a bot may be given an attempt, if it has a slot for it."""
    return _may_work(bot) and bot.maintenance is None


def idle_slots(bot: BotFacts) -> int:
    """Count the attempts that a bot could be given now."""
    return _free_slots(bot) if takes_work(bot) else 0


def capacity_seen(dimensions: Dimensions, bots: Iterable[BotFacts]) -> bool:
    """Tell whether some live bot could serve these dimensions, now or as soon as it is free or its maintenance ends."""
    return any(_may_work(bot) and matches(dimensions, bot.dimensions) for bot in bots)


def served(dimensions: Dimensions, bots: Iterable[BotFacts]) -> bool:
    """Tell whether some live bot takes such work, now or when it is free: else a task must not hold mutexes for it."""
    return any(takes_work(bot) and matches(dimensions, bot.dimensions) for bot in bots)


def served_elsewhere(dimensions: Dimensions, lost_by: BotId, bots: Iterable[BotFacts]) -> bool:
    """Tell whether a task that one bot has lost can be left to another."""
    return served(dimensions, (bot for bot in bots if bot.id != lost_by))


def slots(pool: str, bots: Iterable[BotFacts]) -> int:
    """Count what the live bots of a pool can run at once: its capacity, where that is not fixed."""
    return sum(bot.slots for bot in bots if takes_work(bot) and pool in dict(bot.dimensions).get(POOL, ()))


def composite(bot: BotFacts) -> Composite:
    """Describe a bot by one word of each pair."""
    return (
        Condition.ALIVE if alive(bot) else Condition.DEAD,
        Condition.HEALTHY if bot.quarantined is None else Condition.QUARANTINED,
        Condition.NOT_IN_MAINTENANCE if bot.maintenance is None else Condition.IN_MAINTENANCE,
        Condition.IDLE if _free_slots(bot) else Condition.BUSY,
    )


def stands(bot: BotFacts, words: Collection[Condition]) -> bool:
    """Tell whether all of `words` are true of a bot."""
    return set(words) <= set(composite(bot))


def counts(bots: Iterable[BotFacts]) -> Mapping[Condition, int]:
    """Count the bots for each word, also those that are true of none."""
    counted = Counter(word for bot in bots for word in composite(bot))
    return {word: counted[word] for word in Condition}


def _free_slots(bot: BotFacts) -> int:
    # A bot may have been given fewer slots than it has attempts under way.
    return max(0, bot.slots - bot.busy)


def _may_work(bot: BotFacts) -> bool:
    # Maintenance ends and the bot is back; one that is quarantined, drains or ends may never take work again.
    return alive(bot) and bot.quarantined is None and not bot.draining and not bot.ending
