"""Bots: which are alive, which take work, which count as capacity.

A bot is live while it has not said goodbye and is not marked missing. So all servers agree, and everything that follows
from its end happens in the transaction that marks it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from typing import Final, TypeAlias

from taskyard.core import resources
from taskyard.core.matching import POOL, Dimensions, matches
from taskyard.core.resources import NOTHING, ONE_SLOT, Resources
from taskyard.core.states import BotId, Millis
from taskyard.core.structs import value

#: How long a bot may run an attempt without renewing, by default. A few renewals may be lost without
#: effect.
LEASE_MS: Final = 60_000
#: The shortest lease, because a renewal is slow on a poor network; and the longest, because the tasks of a dead machine
#: wait for that long.
LEASE_MIN_MS: Final = 2_000
LEASE_MAX_MS: Final = 3_600_000
#: What the server waits beyond a lease: the bot's runner has ended the process before, clocks drift by less.
GUARD_MS: Final = 5_000
#: How often the server looks for timeouts that are due.
SWEEP_MS: Final = 5_000
#: Bots of older versions cannot speak with this server.
BOT_VERSION_MIN: Final = "0.1.0"
#: A bot that loses attempts so often in a row, and ends none meanwhile, is quarantined: its machine or its network is
#: broken, and it only costs tasks their retries.
FAILURES_MAX: Final = 5
#: A silent bot is marked missing within this time, however long its leases are, because it polls more often.
MISSING_WITHIN_MS: Final = LEASE_MS + GUARD_MS + SWEEP_MS


#: The bot that stands for all workers behind the message broker that run the tasks of an external pool.
EXTERNAL: Final = "external."


def external_bot(pool: str) -> BotId:
    """Return the name of the bot that stands for the workers of an external pool."""
    return BotId(f"{EXTERNAL}{pool}")


def is_external(bot: str | None) -> bool:
    """Whether a bot stands for the workers of an external pool."""
    return bot is not None and bot.startswith(EXTERNAL)


@value
class BotFacts:
    """What is known about a bot."""

    id: BotId
    dimensions: Dimensions
    last_seen_ms: Millis
    slots: int = 1  # how many attempts it runs at once
    busy: int = 0  # how many it runs now
    quarantined: str | None = None  # the reason, from the bot or an admin
    maintenance: str | None = None  # why it is away for a while
    draining: bool = False  # ends what it runs and takes nothing new
    terminated: bool = False  # has said goodbye
    missing: bool = False  # it was marked missing
    ending: bool = False  # an admin asked it to end after its tasks
    taken: Resources = NOTHING  # what its tasks take, beside one slot for each
    kept_for: Dimensions | None = None  # of the task for which it is kept free


@unique
class Condition(StrEnum):
    """One property of a bot; a bot has one of each pair."""

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
    """Whether a bot is live: it has not said goodbye and is not marked missing."""
    return not bot.terminated and not bot.missing


def silence_max_ms(lease_ms: int) -> int:
    """Return the silence after which the next sweep marks a bot missing: its leases are lost by then."""
    return min(lease_ms, MISSING_WITHIN_MS - SWEEP_MS - GUARD_MS) + GUARD_MS


def wait_max_ms(lease_ms: int) -> int:
    """Return how long a poll may wait for work: the lease of its answer counts from when it was sent."""
    return lease_ms // 3


def lives_of(session: str) -> str:
    """Return the common prefix of all sessions that used the same folder on the same machine as this one.

    `folder/instance` is the name of a session. A folder has one bot at a time, and the next one first ends what is left
    of it; so no attempt of an earlier session of a folder is alive. Sessions without a folder count as instances of the
    only bot of that name.
    """
    return session[: session.rfind("/") + 1]


def takes_work(bot: BotFacts) -> bool:
    """Whether a bot may be given an attempt, if it has a slot for it."""
    return _may_work(bot) and bot.maintenance is None


def idle_slots(bot: BotFacts) -> int:
    """Count the attempts that a bot could be given now."""
    return _free_slots(bot) if takes_work(bot) else 0


def has_room(bot: BotFacts, dimensions: Dimensions) -> bool:
    """Whether a bot that matches has room for one more such task, whatever it is kept free for."""
    takes = resources.taken(dimensions)
    if takes == ONE_SLOT:
        return idle_slots(bot) > 0
    used = bot.taken + Resources(bot.busy)
    return takes_work(bot) and (used + takes).fits(resources.total(bot.dimensions))


def is_kept_from(bot: BotFacts, dimensions: Dimensions) -> bool:
    """Whether a bot has no room for such a task only because it is kept free for another one."""
    if bot.kept_for is None or bot.kept_for == dimensions:
        return False
    used = bot.taken + Resources(bot.busy) + resources.taken(bot.kept_for)
    return not (used + resources.taken(dimensions)).fits(resources.total(bot.dimensions))


def capacity_seen(dimensions: Dimensions, bots: Iterable[BotFacts]) -> bool:
    """Whether some live bot could serve these dimensions, now or as soon as it is free or its maintenance ends."""
    return any(_may_work(bot) and matches(dimensions, bot.dimensions) for bot in bots)


def served(dimensions: Dimensions, bots: Iterable[BotFacts]) -> bool:
    """Whether some live bot takes such work, now or when it is free: else a task must not hold mutexes for it."""
    return any(takes_work(bot) and matches(dimensions, bot.dimensions) for bot in bots)


def served_elsewhere(dimensions: Dimensions, lost_by: BotId, bots: Iterable[BotFacts]) -> bool:
    """Whether a task that one bot has lost can be left to another."""
    return served(dimensions, (bot for bot in bots if bot.id != lost_by))


@unique
class CapacityUnit(StrEnum):
    """What the capacity of a pool counts where it follows from its bots."""

    SLOTS = "slots"
    FORKS = "forks"  # of ansible: by the processors and the memory of the bots


#: AWX's figures: forks of a processor, the memory that a machine keeps for itself, and that of one fork.
FORKS_PER_CORE: Final = 4
OWN_MEMORY_MB: Final = 2_048
FORK_MEMORY_MB: Final = 100


def capacity(pool: str, bots: Iterable[BotFacts], unit: str = CapacityUnit.SLOTS, adjustment: float = 1.0) -> int:
    """Return what the live bots of a pool can run at once: its capacity, where that is not fixed."""
    working = [bot for bot in bots if takes_work(bot) and pool in dict(bot.dimensions).get(POOL, ())]
    if unit == CapacityUnit.SLOTS:
        return sum(bot.slots for bot in working)
    return sum(forks(bot, adjustment) for bot in working)


def forks(bot: BotFacts, adjustment: float) -> int:
    """Return how many forks a bot can run: 0 adjusts to the scarcer of processors and memory, 1 to the other.

    A bot that does not say how much it has of one is judged by the other, and without both by its slots.
    """
    total = resources.total(bot.dimensions)
    found = []
    if total.cpus:
        found.append(max(1, total.cpus * FORKS_PER_CORE // resources.MILLI))
    if total.memory:
        found.append(max(1, (total.memory - OWN_MEMORY_MB) // FORK_MEMORY_MB))
    low, high = min(found, default=bot.slots), max(found, default=bot.slots)
    return low + int((high - low) * adjustment)


def composite(bot: BotFacts) -> Composite:
    """Describe a bot by one word of each pair."""
    return (
        Condition.ALIVE if alive(bot) else Condition.DEAD,
        Condition.HEALTHY if bot.quarantined is None else Condition.QUARANTINED,
        Condition.NOT_IN_MAINTENANCE if bot.maintenance is None else Condition.IN_MAINTENANCE,
        Condition.IDLE if _free_slots(bot) else Condition.BUSY,
    )


def stands(bot: BotFacts, words: Collection[Condition]) -> bool:
    """Whether all of `words` are true of a bot."""
    return set(words) <= set(composite(bot))


def counts(bots: Iterable[BotFacts]) -> Mapping[Condition, int]:
    """Count the bots for each word, also those that are true of none."""
    counted = Counter(word for bot in bots for word in composite(bot))
    return {word: counted[word] for word in Condition}


def after_failure(failures: int, failed_ms: Millis | None, now: Millis, lease_ms: int) -> int:
    """Count one more time that a bot has lost attempts.

    What it loses within a lease of the last loss is counted once: a machine that goes dark loses whatever it runs.
    """
    return failures if failed_ms is not None and now - failed_ms <= lease_ms + GUARD_MS else failures + 1


# Versions: numbers with dots between them; what follows the numbers, such as `rc1`, does not count.

_RELEASE: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})*")


def is_older(version: str, other: str) -> bool:
    """Whether one version is older than another; one that cannot be read is not."""
    release, others = _release(version), _release(other)
    return bool(release and others) and release < others


def update_advice(version: str, of_server: str) -> str | None:
    """Say that a bot should be updated, if it is older than its server."""
    if not is_older(version, of_server):
        return None
    return f"this bot has version {version} and its server {of_server}: update taskyard on this machine"


def _release(version: str) -> tuple[int, ...]:
    found = _RELEASE.match(version)
    if found is None:
        return ()
    numbers = [int(number) for number in found.group().split(".")]
    while numbers and numbers[-1] == 0:  # 1.0 is 1.0.0
        numbers.pop()
    return (*numbers,) or (0,)


def _free_slots(bot: BotFacts) -> int:
    # A bot may have been given fewer slots than it has attempts under way.
    return max(0, bot.slots - bot.busy - bot.taken.slots)


def _may_work(bot: BotFacts) -> bool:
    # Maintenance ends and the bot is back; one that is quarantined, drains or ends may never take work again.
    return alive(bot) and bot.quarantined is None and not bot.draining and not bot.ending
