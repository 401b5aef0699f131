"""What tasks take of a bot while they run: slots, processors, memory, GPUs.

What a task takes is also a comparison with the bot's total, so it is part of the dimensions of its slice, and of its
queue: all tasks of a queue take the same. A bot is given such a task only if everything that it has in hand, together
with the task, fits into its totals. So the task begins at once: it is never handed ahead.

A task that takes much would wait for ever on a bot that small tasks keep busy. Once it has waited for long, it reserves
a bot: whatever would keep it from fitting is not given to that bot any more.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from taskyard.core import comparison
from taskyard.core.matching import Dimensions, Turn, canonical
from taskyard.core.states import Millis
from taskyard.core.structs import terse_value

#: The dimensions in which a bot says how much it has in all.
SLOTS: Final = "slots"
CORES: Final = "cores"
MEMORY: Final = "memory_mb"
GPUS: Final = "gpus"
#: How many of a processor's parts are counted.
MILLI: Final = 1_000
_UNIT_BYTES: Final[Mapping[str, int]] = {
    **{f"{letter}iB": 1 << 10 * power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("KMGT", 1)},
}
_MIB: Final = 1 << 20
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]i?B)")


@terse_value
class Resources:
    """What a task takes, or what a bot has in all."""

    slots: int = 1
    cpus: int = 0  # processors in thousandths
    memory: int = 0  # in MiB
    gpus: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.slots + other.slots,
            self.cpus + other.cpus,
            self.memory + other.memory,
            self.gpus + other.gpus,
        )

    def fits(self, total: "Resources") -> bool:
        """Whether there is as much as this in all."""
        return (
            self.slots <= total.slots
            and self.cpus <= total.cpus
            and self.memory <= total.memory
            and self.gpus <= total.gpus
        )


NOTHING: Final = Resources(0)
#: The most that a task may take of each: more than any machine has.
SLOTS_MAX: Final = 1_000_000
CPUS_MAX: Final = 65_536
MEMORY_MAX_MB: Final = 1 << 30
GPUS_MAX: Final = 1_024
#: What a task takes that names nothing.
ONE_SLOT: Final = Resources()


def size_mb(text: str) -> int | None:
    """Read a size such as `512MiB` or `1.5GB` in whole MiB, rounded up; None if the text is none."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    exact = Decimal(found[1]) * _UNIT_BYTES[found[2]] / _MIB
    return int(exact.to_integral_value(ROUND_CEILING))


def with_taken(dimensions: Dimensions, takes: Resources) -> Dimensions:
    """Add to the dimensions of a slice what its task takes; one slot is what every task takes."""
    found = {key: set(values) for key, values in dimensions}
    for key, amount in _amounts(takes):
        found.setdefault(key, set()).add(comparison.taken(amount))
    return canonical(found)


def _amounts(takes: Resources) -> Iterator[tuple[str, Decimal]]:
    if takes.slots > 1:
        yield SLOTS, Decimal(takes.slots)
    if takes.cpus:
        yield CORES, Decimal(takes.cpus) / MILLI
    if takes.memory:
        yield MEMORY, Decimal(takes.memory)
    if takes.gpus:
        yield GPUS, Decimal(takes.gpus)


def taken(dimensions: Dimensions) -> Resources:
    """Return what a task with these dimensions takes."""
    found = {
        key: amount
        for key, values in dimensions
        for value in values
        if (amount := comparison.amount_taken(value)) is not None
    }
    return _resources(found, slots=1) if found else ONE_SLOT


def total(dimensions: Dimensions) -> Resources:
    """Return what a bot with these dimensions has in all: of each, the largest number that it names."""
    found = {
        key: max(numbers)
        for key, values in dimensions
        if (numbers := [number for value in values if (number := comparison.number(value)) is not None])
    }
    return _resources(found, slots=0)


def with_slots(dimensions: Dimensions, slots: int) -> Dimensions:
    """Add to the dimensions of a bot how many slots it has."""
    return canonical({**dict(dimensions), SLOTS: str(slots)})


def without_marks(dimensions: Dimensions) -> Dimensions:
    """Write dimensions for people: what a task takes as a plain comparison."""
    return tuple((key, tuple(value.removesuffix(comparison.TAKEN) for value in values)) for key, values in dimensions)


def _resources(found: Mapping[str, Decimal], slots: int) -> Resources:
    return Resources(
        _floor(found.get(SLOTS, Decimal(slots))),
        _floor(found.get(CORES, Decimal(0)) * MILLI),
        _floor(found.get(MEMORY, Decimal(0))),
        _floor(found.get(GPUS, Decimal(0))),
    )


def _floor(amount: Decimal) -> int:
    return max(0, int(amount.to_integral_value(ROUND_FLOOR)))


# Who gets what.


@dataclass(slots=True)
class Reservation:
    """The task for which a bot is kept free, its queue, and what it takes."""

    task: int
    queue: int
    takes: Resources


@dataclass(slots=True)
class Room:
    """What a bot has in all, and what everything takes that it has in hand."""

    total: Resources
    used: Resources = NOTHING
    hands_ahead: bool = True  # more tasks may be given than can begin at once, if they take one slot each
    reservation: Reservation | None = None

    def copy(self) -> "Room":
        """Return a copy."""
        return replace(self)

    def hold(self, takes: Resources) -> None:
        """Count a task that the bot has in hand."""
        self.used += takes
        self.hands_ahead = self.hands_ahead and takes == ONE_SLOT

    def admits(self, queue: int, takes: Resources) -> bool:
        """Whether a task of a queue may be given: beside what is in hand and what the bot is kept free for."""
        kept = self.reservation
        if kept is None and self.hands_ahead and takes == ONE_SLOT:
            return True
        used = self.used if kept is None or kept.queue == queue else self.used + kept.takes
        return (used + takes).fits(self.total)


@dataclass(frozen=True, slots=True)
class Dealt:
    """The tasks that a bot gets, and those that take more than it has left: the first one of each queue, in order."""

    given: list[int]
    blocked: list[int]


class Waiting:
    """Waiting tasks of the queues that some bots serve, in order. What was given is given once."""

    def __init__(
        self, turns: Iterable[Turn], queue_of: Mapping[int, int], takes_of: Callable[[int], Resources]
    ) -> None:
        self._turns = sorted(set(turns))
        self._queue_of = queue_of
        self._takes_of = takes_of  # what each task of a queue takes
        self._given: set[int] = set()

    def deal(
        self, bot: str, count: int, room: Room, ordered: Callable[[list[Turn]], list[Turn]] | None = None
    ) -> Dealt:
        """Give a bot up to `count` tasks for which it has room: by priority, then the oldest, then by key.

        Tasks that take one slot are handed ahead as long as no other one comes before them or is in hand: otherwise
        those behind it could keep it from fitting for ever. `ordered` may put some of them first.
        """
        given: list[int] = []
        blocked: dict[int, int] = {}
        left = [turn for turn in self._turns if turn[2] not in self._given]
        for _, _, id, excluded in left if ordered is None else ordered(left):
            if len(given) >= count:
                break
            queue = self._queue_of[id]
            if excluded == bot or queue in blocked:
                continue
            takes = self._takes_of(queue)
            if room.admits(queue, takes):
                given.append(id)
                room.hold(takes)
            else:
                blocked[queue] = id
                room.hands_ahead = False
        self._given.update(given)
        return Dealt(given, [id for queue, id in blocked.items() if self._takes_of(queue) != ONE_SLOT])


def may_reserve(since: Millis | None, now: Millis, reserve_after_ms: int) -> bool:
    """Whether a task that waits since then may have a bot kept free for it."""
    return since is not None and now - since >= reserve_after_ms
