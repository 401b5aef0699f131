"""Runs that the runner was told of ahead, and that wait for their turn: so that none waits for the agent in between.

None of them has begun. It starts nothing and has no clock.
"""

from math import inf

from taskyard.bot.frames import Start


class Waiting:
    """One that waits, since when, and until when it may still begin."""

    __slots__ = ("since", "start", "until")

    def __init__(self, start: Start, since: float) -> None:
        self.start, self.since, self.until = start, since, start.until


class Turns:
    """All that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: Start, now: float) -> None:
        """Let it wait."""
        self._waiting[start.run] = Waiting(start, now)

    def next(self, runs: int) -> Waiting | None:
        """Take the one whose turn it is while so many run, if there is one."""
        first = next(iter(self._waiting.values()), None)
        if first is None or runs >= first.start.abreast:
            return None
        return self._waiting.pop(first.start.run)

    def take(self, run: int) -> Waiting | None:
        """Take this one out of the line, if it is there."""
        return self._waiting.pop(run, None)

    def hold(self, run: int, until: float) -> bool:
        """Let it begin as late as that; say whether it waits at all."""
        found = self._waiting.get(run)
        if found is not None:
            found.until = until
        return found is not None

    def over(self, now: float) -> list[Waiting]:
        """Take out those that may not begin any more."""
        return [self._waiting.pop(one.start.run) for one in list(self._waiting.values()) if one.until <= now]

    def due(self) -> float:
        """When the first of them may not begin any more."""
        return min((one.until for one in self._waiting.values()), default=inf)

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
