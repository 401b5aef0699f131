"""Posts: where held tasks stand, in order, and who is the next that may pass.

A post is a mutex key, a named limit or a pool. It keeps who has it and who waits for it in lines that never shift an
entry, so that its cost does not go with the length of the line. A post judges nobody; `lines` does, by the rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from taskyard.core.admission import Occupant, carries, excludes
from taskyard.core.partials import Turn
from taskyard.core.words import Millis, TaskId

#: Entries that left stay in a heap until they come up; beyond twice the live ones and these few it is built anew.
SLACK_ENTRIES = 32

#: An amount or a moment, and whose it is.
Amount: TypeAlias = tuple[int, TaskId]
Party: TypeAlias = str | None
#: Before every turn.
BEFORE_ALL: Turn = (-(2**63), 0, TaskId(""))
E = TypeVar("E", Turn, Amount)
G = TypeVar("G", Party, int)


class Lane(Generic[E]):
    """Entries, the least first. One that left is only forgotten when it would come up, so nothing is ever shifted."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[E] = []
        self._live: set[E] = set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[E]:
        return iter(self._live)

    def add(self, entry: E) -> bool:
        """Put `entry` in; True if it was not in."""
        if entry in self._live:
            return False
        self._live.add(entry)
        heappush(self._heap, entry)
        return True

    def discard(self, entry: E) -> bool:
        """Take `entry` out; True if it was in."""
        if entry not in self._live:
            return False
        self._live.remove(entry)
        if len(self._heap) > 2 * len(self._live) + SLACK_ENTRIES:
            self._heap = list(self._live)
            heapify(self._heap)
        return True

    def first(self) -> E | None:
        while self._heap and self._heap[0] not in self._live:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> E | None:
        """Take out the least."""
        entry = self.first()
        if entry is not None:
            self.discard(entry)
        return entry


class Line(Generic[G]):
    """Turns in order, in groups that pass or are held alike, so that the oldest of a group, its front, speaks for it.

    Its cost goes with the number of groups, and those are few: the parties at a key, the different weights in a pool.
    """

    __slots__ = ("_all", "_lanes")

    def __init__(self) -> None:
        self._lanes: dict[G, Lane[Turn]] = {}
        self._all: Lane[Turn] = Lane()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, turn: Turn, group: G) -> bool:
        """Put `turn` in; True if it was not in."""
        self._lanes.setdefault(group, Lane()).add(turn)
        return self._all.add(turn)

    def discard(self, turn: Turn, group: G) -> bool:
        """Take `turn` out; True if it was in."""
        lane = self._lanes.get(group)
        if lane is None or not lane.discard(turn):
            return False
        self._all.discard(turn)
        if not lane:
            del self._lanes[group]
        return True

    def fronts(self) -> Iterator[tuple[Turn, G]]:
        """The oldest of each group."""
        return ((front, group) for group, lane in self._lanes.items() if (front := lane.first()) is not None)

    def first(self) -> Turn | None:
        """The oldest of all."""
        return self._all.first()

    def before(self, turn: Turn) -> int:
        """Count those older than `turn`, one by one."""
        return sum(each < turn for each in self._all)


@dataclass(slots=True, eq=False)
class KeyPost:
    """A mutex key: who holds it, who has staked it, who waits here, and who would mind a new occupant."""

    holders: dict[Party, dict[TaskId, Occupant]] = field(default_factory=dict)
    stakes: Line[Party] = field(default_factory=Line)
    waiting: Line[Party] = field(default_factory=Line)
    bystanders: Line[Party] = field(default_factory=Line)  # the youngest first

    @property
    def idle(self) -> bool:
        return not (self.holders or self.stakes or self.waiting or self.bystanders)

    def clash(self, party: Party, turn: Turn) -> Occupant | None:
        """The first that excludes a task with this party and turn."""
        held = self._holder_against(party)
        if held is not None or not self.stakes:
            return held
        for stake, other in self._first_stakes():
            if stake < turn and excludes(party, other):
                return Occupant(stake[2], Millis(stake[1]))
        return None

    def take(self, party: Party, occupant: Occupant) -> None:
        """Add a holder."""
        self.holders.setdefault(party, {})[occupant.id] = occupant

    def give_back(self, party: Party, id: TaskId) -> None:
        """Take a holder out."""
        del self.holders[party][id]
        if not self.holders[party]:
            del self.holders[party]

    def disturbed(self, party: Party, older: Turn = BEFORE_ALL) -> Iterator[TaskId]:
        """Take out the bystanders behind `older` whom a new occupant of `party` excludes."""
        while disturbed := [
            (youth, other)
            for youth, other in self.bystanders.fronts()
            if excludes(party, other) and youth[:2] <= youth_of(older)[:2]
        ]:
            for youth, other in disturbed:
                self.bystanders.discard(youth, other)
                yield youth[2]

    def forget(self, turn: Turn, party: Party) -> bool:
        """Take a pending task out; True if it stood in somebody's way or was the one to call the next."""
        self.bystanders.discard(youth_of(turn), party)
        waited, staked = self.waiting.discard(turn, party), self.stakes.discard(turn, party)
        return waited or staked

    def next_free(self) -> Turn | None:
        """The oldest that waits here and that nothing at this key excludes any more."""
        # Of each party, the oldest is enough: whatever excludes it excludes those behind it as well.
        firsts = self._first_stakes()
        free = (
            turn
            for turn, party in self.waiting.fronts()
            if not self._holder_against(party)
            and all(stake >= turn or not excludes(party, other) for stake, other in firsts)
        )
        return min(free, default=None)

    def _first_stakes(self) -> list[tuple[Turn, Party]]:
        """The oldest stake and the oldest of another party: if any excludes a task, one of these does."""
        return sorted(self.stakes.fronts())[:2] if self.stakes else []

    def _holder_against(self, party: Party) -> Occupant | None:
        for other, occupants in self.holders.items():
            if excludes(party, other):
                return next(iter(occupants.values()))
        return None


@dataclass(slots=True, eq=False)
class LimitPost:
    """A named limit: how much of it is used, who waits for more, and who would mind if it shrank."""

    total: int
    used: int = 0
    waiting: Line[int] = field(default_factory=Line)  # by amount
    bystanders: Lane[Amount] = field(default_factory=Lane)  # the largest amount first

    @property
    def room(self) -> int:
        return self.total - self.used

    def short(self) -> Iterator[TaskId]:
        """Take out the bystanders for whom too little is left."""
        while (largest := self.bystanders.first()) is not None and -largest[0] > self.room:
            self.bystanders.discard(largest)
            yield largest[1]

    def forget(self, turn: Turn, amount: int) -> bool:
        """Take a pending task out; True if it waited here, so that it calls the next."""
        self.bystanders.discard((-amount, turn[2]))
        return self.waiting.discard(turn, amount)

    def next_free(self) -> Turn | None:
        """The oldest that waits here and for which enough is left."""
        return min((turn for turn, amount in self.waiting.fronts() if amount <= self.room), default=None)


@dataclass(slots=True, eq=False)
class PoolPost:
    """A pool: how much of it is used, who waits for capacity, and for whom it is kept free."""

    capacity: int | None
    used: int = 0
    reserver: tuple[Turn, Occupant] | None = None
    waiting: Line[int] = field(default_factory=Line)  # by weight

    def fits(self, weight: int) -> bool:
        return carries(self.capacity, self.used, weight)

    def reserver_before(self, turn: Turn) -> Occupant | None:
        return self.reserver[1] if self.reserver is not None and self.reserver[0] < turn else None

    def forget(self, turn: Turn, weight: int) -> bool:
        """Take a pending task out; True if it waited here, so that it calls the next."""
        if self.reserver is not None and self.reserver[0] == turn:
            self.reserver = None
        return self.waiting.discard(turn, weight)

    def next_free(self) -> Turn | None:
        """The oldest that waits here, fits, and is not reserved against."""
        firsts = (turn for turn, weight in self.waiting.fronts() if self.fits(weight))
        return min((turn for turn in firsts if self.reserver_before(turn) is None), default=None)


Post: TypeAlias = KeyPost | LimitPost | PoolPost


def youth_of(turn: Turn) -> Turn:
    return (-turn[0], -turn[1], turn[2])
