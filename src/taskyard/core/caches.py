"""Named caches: folders that survive between tasks on a bot. Who shares one, and which bot gets a task that uses one.

A cache belongs to one pool, one submitter and one name: what a task leaves there is found by later tasks of the same
submitter only. A bot that has several tasks to choose from prefers one whose caches it holds, within bounds that keep
the order of tasks: only among those of equal priority, only among the first of them, and never past one that has
waited for long. Nothing waits for a bot that holds a cache.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from taskyard.core.matching import Turn
from taskyard.core.states import Millis
from taskyard.core.structs import value

#: How many tasks of equal priority, from the first on, a bot looks at for one whose caches it holds.
WINDOW_MAX: Final = 64
#: A task that has waited for this long is not passed any more.
WAITED_MS: Final = 60_000
#: Separates the name of a cache and the digest of its submitter; no name contains it.
SEPARATOR: Final = "."
#: Enough digits to distinguish all submitters of a pool.
_DIGEST_DIGITS: Final = 16


def cache_key(name: str, submitter: str) -> str:
    """Return the key of a cache within a pool: its name, and a digest of its submitter."""
    return f"{name}{SEPARATOR}{sha256(submitter.encode()).hexdigest()[:_DIGEST_DIGITS]}"


def cache_name(key: str) -> str:
    """Return the name in a key."""
    return key.partition(SEPARATOR)[0]


def deal(
    waiting: Iterable[Turn],
    asked: Sequence[tuple[str, int]],
    held: Mapping[str, frozenset[str]],
    used: Mapping[int, frozenset[str]],
    since: Mapping[int, Millis],
    now: Millis,
) -> list[list[int]]:
    """Deal tasks to the polls of bots, each of which asked for a number of tasks; return the tasks of each poll.

    `held` has the caches of bots, `used` those of tasks, and `since` tells since when tasks wait; a task that is not in
    `since` may be waiting behind others that are not in `waiting`, so it is not preferred.
    """
    table = _Table(sorted(set(waiting)), asked, held, used)
    while (chosen := table.warm(since, now) or table.first()) is not None:
        table.give(*chosen)
    return table.dealt


@value
class Warmth:
    """What a claim knows of caches: those of bots and of tasks, and since when the first tasks wait."""

    held: Mapping[str, frozenset[str]]
    used: Mapping[int, frozenset[str]]
    since: Mapping[int, Millis]
    now: Millis


def preferred(turns: Sequence[Turn], bot: str, warmth: Warmth, is_passed: Callable[[int], bool]) -> list[Turn]:
    """Order tasks for one bot: those first whose caches it holds, where `deal` may prefer them.

    They pass only tasks of which `is_passed` is true.
    """
    keys, warm, others = warmth.held.get(bot, frozenset()), list[Turn](), list[Turn]()
    for turn in turns[:WINDOW_MAX]:
        if turn[0] != turns[0][0] or turn[2] not in warmth.since:
            break
        (others if keys.isdisjoint(warmth.used.get(turn[2], ())) else warm).append(turn)
        if warmth.now - warmth.since[turn[2]] >= WAITED_MS or not is_passed(turn[2]):
            break
    return [*warm, *others, *turns[len(warm) + len(others) :]]


class _Table:
    """The tasks that are left, and how many more each poll can get."""

    def __init__(
        self,
        left: list[Turn],
        asked: Sequence[tuple[str, int]],
        held: Mapping[str, frozenset[str]],
        used: Mapping[int, frozenset[str]],
    ) -> None:
        self.dealt: list[list[int]] = [[] for _ in asked]
        self._left = left
        self._bots = [bot for bot, _ in asked]
        self._room = [count for _, count in asked]
        self._used, self._held = used, held
        self._holders: dict[int, list[int]] = {}  # the polls from holders, by task

    def warm(self, since: Mapping[int, Millis], now: Millis) -> tuple[int, int] | None:
        """Return the place of the first task that may go first because a poll is from a holder, and of that poll."""
        for place, turn in enumerate(self._left[:WINDOW_MAX]):
            if turn[0] != self._left[0][0] or turn[2] not in since:
                return None
            for poll in self._polls_from_holders(turn[2]) if turn[2] in self._used else ():
                if self._may_get(poll, turn):
                    return place, poll
            if now - since[turn[2]] >= WAITED_MS:
                return None
        return None

    def first(self) -> tuple[int, int] | None:
        """Return the place of the first task that a poll can get, and the first such poll."""
        polls = [poll for poll, room in enumerate(self._room) if room > 0]
        for place, turn in enumerate(self._left) if polls else ():
            for poll in polls:
                if self._may_get(poll, turn):
                    return place, poll
        return None

    def give(self, place: int, poll: int) -> None:
        """Give a task to a poll."""
        self.dealt[poll].append(self._left.pop(place)[2])
        self._room[poll] -= 1

    def _polls_from_holders(self, task: int) -> list[int]:
        """Return the polls that go first for a task; found once, and only for tasks that may go first."""
        if task not in self._holders:
            self._holders[task] = _holders(self._used[task], self._bots, self._held)
        return self._holders[task]

    def _may_get(self, poll: int, turn: Turn) -> bool:
        return self._room[poll] > 0 and turn[3] != self._bots[poll]


def _holders(keys: frozenset[str], bots: Sequence[str], held: Mapping[str, frozenset[str]]) -> list[int]:
    """Return the polls from bots that hold some of these caches: those with the most first, then in their order."""
    counts = [(len(keys & held[bot]), poll) for poll, bot in enumerate(bots) if bot in held]
    return [poll for count, poll in sorted(counts, key=lambda one: (-one[0], one[1])) if count]
