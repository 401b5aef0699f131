"""The matching guard: which bot may run which slice, and who goes first.

A slice requires dimensions and a bot has dimensions; both are written in one canonical form. Every required value is
needed, a value such as `a|b` is met by either alternative, `>=16` by a number that compares so, and whatever
else the bot has does not matter.
`id` and `pool` are dimensions like any other; every bot has exactly one `id` and at least one `pool`.

The hash of dimensions only finds a queue fast. It never decides: two queues may share a hash, so a task is given to a
bot only after its full dimensions were compared.
"""

import heapq
import json
from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import sha1
from itertools import product
from math import prod
from typing import Final, TypeAlias

from taskyard.core import comparison, ids
from taskyard.core.close_match import closest
from taskyard.core.ids import Key
from taskyard.core.states import BotId, Millis, TaskId
from taskyard.core.structs import value

#: Dimensions in canonical form: keys sorted, the values of a key sorted and once each, alternatives likewise.
Dimensions: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]

ID: Final = "id"
POOL: Final = "pool"
#: The pool of every task that a bot runs and that names none.
DEFAULT_POOL: Final = "default"
#: What stands between the alternatives of a value.
OR: Final = "|"
#: Each combination is a queue to look into; Swarming found eight to be enough and cheap.
COMBINATIONS_MAX: Final = 8
#: How alike two keys are of which one is a misspelling of the other; `gpu` is not meant for `cpu`.
SAME_KEY: Final = 0.75


#: A waiting task in its queue: priority, creation, key, and the bot that must leave it to others.
Turn: TypeAlias = tuple[int, int, int, str | None]


@value
class Candidate:
    """A waiting task in a queue."""

    task: TaskId | Key  # the text of a key sorts as the key does
    dimensions: Dimensions
    hash: int  # of the queue in which it was found
    priority: int  # 0..255, lower first
    created_ms: Millis
    avoid_bot: BotId | None = None  # the bot that lost it, when another one could try it


@value
class Nearest:
    """The bot that comes nearest to what a slice asks for, and what it lacks."""

    bot: BotId
    lacks: Dimensions


def canonical(dimensions: Mapping[str, str | Iterable[str]]) -> Dimensions:
    """Write dimensions in the one form in which equal ones are equal."""
    return tuple((key, _canonical_values(key, dimensions[key])) for key in sorted(dimensions))


def dimension_hash(dimensions: Dimensions) -> int:
    """Return the key of a queue: the first 32 bits of the SHA-1 of its dimensions, from 1 on.

    JSON keeps keys and values apart, so `{a: [b, c, d]}` and `{a: [b], c: [d]}` differ. No queue has the hash 0, not
    even that of no dimensions at all, so that 0 is free to say "none".
    """
    text = json.dumps(dimensions, separators=(",", ":"))
    digest = sha1(text.encode("ascii"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") or 1


def combination_count(dimensions: Dimensions) -> int:
    """Count the sets without alternatives that dimensions stand for."""
    return prod(value.count(OR) + 1 for _, values in dimensions for value in values)


def combinations(dimensions: Dimensions) -> tuple[Dimensions, ...]:
    """Expand every `a|b`: the sets without alternatives that would each serve, sorted."""
    count = combination_count(dimensions)
    if count > COMBINATIONS_MAX:
        raise ValueError(f"the alternatives make {count} combinations: at most {COMBINATIONS_MAX} are allowed")
    choices = [[(key, choice) for choice in value.split(OR)] for key, values in dimensions for value in values]
    return tuple(sorted({_flat(chosen) for chosen in product(*choices)}))


def matches(dimensions: Dimensions, bot_dimensions: Dimensions) -> bool:
    """Whether a bot has everything that is asked for."""
    return _is_met(dimensions, dict(bot_dimensions))


def missing(dimensions: Dimensions, bot_dimensions: Dimensions) -> Dimensions:
    """Return what is asked for and the bot lacks; nothing if it matches."""
    had = dict(bot_dimensions)
    lacks = ((key, tuple(value for value in values if not _has(had, key, value))) for key, values in dimensions)
    return tuple((key, values) for key, values in lacks if values)


def absent(dimensions: Dimensions, bots: Iterable[Dimensions]) -> Dimensions:
    """Return what is asked for and no bot has, whatever else it has."""
    lacks = dimensions
    for bot_dimensions in bots:
        lacks = missing(lacks, bot_dimensions) if lacks else ()
    return lacks


def meant_keys(dimensions: Dimensions, bots: Iterable[Dimensions]) -> tuple[tuple[str, str], ...]:
    """Find the keys that no bot of the pool has, and the key of those bots that was probably meant by each."""
    pool = pool_of(dimensions)
    known = {key for had in bots if pool in dict(had).get(POOL, ()) for key, _ in had}
    unknown = (key for key, _ in dimensions if key not in known)
    return tuple((key, meant) for key in unknown if (meant := closest(key, known, SAME_KEY)) is not None)


def nearest(dimensions: Dimensions, bots: Iterable[tuple[BotId, Dimensions]]) -> Nearest | None:
    """Find the bot that lacks the fewest values, the first by name among equals; none if there is no bot."""
    near = (Nearest(bot, missing(dimensions, bot_dimensions)) for bot, bot_dimensions in bots)
    return min(near, key=lambda one: (sum(len(values) for _, values in one.lacks), one.bot), default=None)


def queue_root(dimensions: Dimensions) -> str:
    """Return the entity that a queue belongs to: the one bot it is pinned to, else its pool."""
    asked = dict(dimensions)
    match asked.get(ID, ()):
        case (bot,) if OR not in bot:
            return ids.bot_root(BotId(bot))
        case (_, _, *_):
            raise ValueError("a task is pinned to several ids at once, and a bot has one")
    match asked.get(POOL, ()):
        case (pool,) if OR not in pool:
            return ids.pool_root(pool)
        case _:
            raise ValueError("the dimensions name no pool, or several: a task belongs to one")


#: What nearly every task needs. They share it, because it is compared for each of them (`benchmarks.submit`).
_DEFAULT_POOL_ALONE: Final[Dimensions] = ((POOL, (DEFAULT_POOL,)),)


def with_pool(dimensions: Dimensions) -> Dimensions:
    """Add the default pool to dimensions that name none."""
    if not dimensions:
        return _DEFAULT_POOL_ALONE
    if any(key == POOL for key, _ in dimensions):
        return dimensions
    return tuple(sorted((*dimensions, (POOL, (DEFAULT_POOL,)))))


def with_need(dimensions: Dimensions, key: str, value: str) -> Dimensions:
    """Add a value that the kind of a task needs, beside those that the task asks for."""
    asked = dict(dimensions)
    return canonical({**asked, key: {*asked.get(key, ()), value}})


def pool_of(dimensions: Dimensions) -> str:
    """Return the pool of dimensions; empty for a task that the server runs and that names none."""
    return next(iter(dict(dimensions).get(POOL, ())), "")


def choose(candidates: Iterable[Candidate], bot_dimensions: Dimensions, count: int) -> list[Candidate]:
    """Pick up to `count` tasks for a bot: by priority, then the oldest, then by id.

    Age is compared as absolute time, so the order holds over any change of the year. A task that this bot has lost is
    left to another one, if there is any.
    """
    had = dict(bot_dimensions)
    left_to_others = had.get(ID, ())
    # Queues are found by hash, which may collide: compare the dimensions themselves.
    matching = {
        one.task: one  # a task with alternatives stands in several queues of one bot
        for one in candidates
        if one.avoid_bot not in left_to_others and _is_met(one.dimensions, had)
    }
    return heapq.nsmallest(count, matching.values(), key=_turn)


def deal(waiting: Iterable[Turn], asked: Iterable[tuple[str, int]]) -> list[list[int]]:
    """Distribute tasks among bots that serve the same queues, as `choose` would for one after the other."""
    left = deque(sorted(set(waiting)))
    return [_dealt(left, bot, count) for bot, count in asked]


def _dealt(left: deque[Turn], bot: str, count: int) -> list[int]:
    if count == 1 and left and left[0][3] != bot:
        return [left.popleft()[2]]
    dealt: list[int] = []
    passed: list[Turn] = []
    while left and len(dealt) < count:
        one = left.popleft()
        if one[3] == bot:
            passed.append(one)
        else:
            dealt.append(one[2])
    left.extendleft(reversed(passed))
    return dealt


def _canonical_values(key: str, values: str | Iterable[str]) -> tuple[str, ...]:
    listed = (values,) if isinstance(values, str) else values
    once = sorted({OR.join(sorted(set(map(comparison.canonical, value.split(OR))))) for value in listed})
    if not key or not once or not all(all(value.split(OR)) for value in once):
        raise ValueError(f"dimension {key!r} is or has an empty name or value")
    return tuple(once)


def _flat(chosen: Iterable[tuple[str, str]]) -> Dimensions:
    values_by_key: dict[str, set[str]] = {}
    for key, one in chosen:
        values_by_key.setdefault(key, set()).add(one)
    return canonical(values_by_key)


def _is_met(dimensions: Dimensions, had: Mapping[str, tuple[str, ...]]) -> bool:
    return all(_has(had, key, value) for key, values in dimensions for value in values)


def _has(had: Mapping[str, tuple[str, ...]], key: str, value: str) -> bool:
    values = had.get(key, ())
    return any(choice in values or comparison.meets(values, choice) for choice in value.split(OR))


def _turn(candidate: Candidate) -> tuple[int, Millis, TaskId | Key]:
    return candidate.priority, candidate.created_ms, candidate.task
