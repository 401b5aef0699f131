"""Lines: admission kept local, so that its cost follows what changed and not what is pending.

`Lines` is told of changes (a task arrives, leaves or is released; a bot appears; a pool grows) and `decide` then admits
exactly what `admission.decide` would admit from the same facts. Every held task stands at one post: the key, the limit
or the pool that holds it. A change calls the oldest task there that may now pass; once judged, it calls the next.
What is judged only ever frees somebody younger, so one walk in order is enough. The rule is `admission.judge` and
stays there; nothing here is a truth of its own, it can be built from the facts at any time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from taskyard.core.admission.rules import (
    FOR_CAPACITY,
    Contender,
    Decision,
    Facts,
    Held,
    Holder,
    Occupant,
    Pool,
    Turn,
    carries,
    crowded,
    excludes,
    has_waited_long,
    judge,
    stakes_at,
)
from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, Reason, TaskId

# Posts: where held tasks stand, in order, and who is the next that may pass.
#
# A post is a mutex key, a named limit or a pool. It keeps who has it and who waits for it in lines that never shift an
# entry, so that its cost does not go with the length of the line. A post judges nobody; `lines` does, by the rule.


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


class Lines:
    """The pending and the holding tasks, each pending one at the post that holds it. `now` never goes back."""

    def __init__(self, facts: Facts) -> None:
        self._stake_after = facts.stake_after
        self._reserve_after_ms = facts.reserve_after_ms
        self._keys: dict[str, KeyPost] = {}
        self._limits = {name: LimitPost(total) for name, total in facts.limits.items()}
        self._pools = {pool.name: PoolPost(pool.capacity) for pool in facts.pools}
        self._pending: dict[TaskId, _Seat] = {}
        self._holding: dict[TaskId, Holder] = {}
        self._alarms: Lane[Amount] = Lane()
        self._aging: Lane[Amount] = Lane()  # when the next key of a task that mutexes hold is staked
        self._called: Lane[Turn] = Lane()
        self._called_next_time: Lane[Turn] = Lane()
        self._reached: Turn | None = None  # how far the walk of `decide` is
        self._fruitful = False  # whether that walk has admitted somebody
        self._news: dict[TaskId, Held] = {}  # whose reason is new since a decision was last told whole
        self._standing_by = 0  # how many tasks that name mutexes are held by something else
        self._waking = False  # whether time has brought more than one decision was allowed to take up
        self.judged = 0  # how often a task was judged or staked a key by age
        for holder in facts.holding:
            self.take(holder)
        for task in facts.pending:
            self.arrive(task)

    # Changes. Each may be repeated; one about an unknown task changes nothing.

    def arrive(self, task: Contender) -> None:
        """`task` is pending now, whatever it was before."""
        self.leave(task.id)
        self.give_back(task.id)
        self._pending[task.id] = _Seat(task)
        self._call(task.turn)

    def leave(self, id: TaskId) -> None:
        """The task is no longer pending: it was canceled, or it expired."""
        seat = self._pending.pop(id, None)
        if seat is not None:
            self._called.discard(seat.task.turn)
            self._called_next_time.discard(seat.task.turn)
            self._news.pop(id, None)
            self._call_next_at(self._rise(seat))

    def take(self, holder: Holder) -> None:
        """`holder` is waiting, running or stopping now, whatever it was before."""
        self.leave(holder.id)
        self.give_back(holder.id)
        self._add_holder(holder)

    def give_back(self, id: TaskId) -> None:
        """The task no longer holds anything."""
        holder = self._holding.pop(id, None)
        if holder is not None:
            self._call_next_at(self._drop_holder(holder))

    def serve(self, id: TaskId, served: bool) -> None:
        """A live bot matches the pending task now, or none does any more."""
        seat = self._pending.get(id)
        if seat is not None:
            seat.task = replace(seat.task, served=served)
            self._call(seat.task.turn)

    def resize(self, pool: Pool) -> None:
        """The pool has this capacity now."""
        post = self._pool(pool.name)
        post.capacity = pool.capacity
        self._call_next_at([post])

    def ration(self, limit: str, total: int) -> None:
        """The named limit has this total now."""
        post = self._limit(limit)
        post.total = total
        self._call_next_at([post])
        self._call_all(post.short())

    # The walk.

    def decide(self, now: Millis, judged_max: int | None = None) -> Decision:
        """Judge whom a change could have touched; of the held, name those whose reason is new.

        After `judged_max` it stops where it is (`cut`). Asked again it goes on there, and the held are told in the end.
        """
        admitted: list[TaskId] = []
        last = None if judged_max is None else self.judged + judged_max
        self._waking = not self._wake(now, last)
        while not self._waking and self._walk(admitted, now, last):
            # As in `decide`: only a reservation that fell can let anybody go on a second walk.
            if not any(pool.reserver for pool in self._pools.values()):
                break
        if self.cut:
            return Decision(tuple(admitted), ())
        news, self._news = self._news, {}
        return Decision(tuple(admitted), tuple(self._final(each, now) for each in news.values()))

    @property
    def cut(self) -> bool:
        """Whether the last decision stopped before everybody was judged."""
        return self._waking or self._reached is not None

    def next_moment(self) -> Millis | None:
        """The next moment at which a task stakes a key by age, if that may change what holds another task."""
        # Whoever waits for a mutex anyway goes on waiting. A task that something else holds may now be held by the
        # mutex, and lose a reservation by that.
        first = self._aging.first() if self._standing_by else None
        return None if first is None else Millis(first[0])

    def reason(self, id: TaskId) -> Reason | None:
        """Why the pending task was held when `decide` was last done; None if it has not seen it."""
        seat = self._pending[id]
        if seat.held is None:
            return None
        if seat.held.reason not in FOR_CAPACITY:
            return seat.held.reason
        # All behind the one that reserves are reserved against, without being judged again one by one.
        return Reason.CAPACITY if self.reserver(seat.task) is None else Reason.RESERVED

    def look(self, id: TaskId, now: Millis) -> Held | None:
        """Say afresh what holds the pending task, with its place in line; None if the next `decide` admits it."""
        task = self._pending[id].task
        held = judge(task, self, now)
        if held is None or held.reason not in FOR_CAPACITY:
            return held
        return replace(held, place=self._pool(task.pool).waiting.before(task.turn) + 1)

    # What `judge` asks.

    def clash(self, task: Contender, mutex: Mutex) -> Occupant | None:
        key = self._keys.get(mutex.key)
        return None if key is None else key.clash(mutex.party, task.turn)

    def room(self, limit: str) -> int:
        return self._limit(limit).room

    def reserver(self, task: Contender) -> Occupant | None:
        return self._pool(task.pool).reserver_before(task.turn)

    def fits(self, task: Contender) -> bool:
        return self._pool(task.pool).fits(task.weight)

    def place(self, task: Contender) -> None:
        """Everybody's place changes with everybody's leaving, so it is counted by `look` alone."""

    def limit_use(self, limit: str) -> tuple[int, int]:
        post = self._limit(limit)
        return post.used, post.total

    def pool_use(self, pool: str) -> tuple[int, int | None]:
        post = self._pool(pool)
        return post.used, post.capacity

    # Calling: who is judged, and in which order.

    def _walk(self, admitted: list[TaskId], now: Millis, last: int | None) -> bool:
        """Judge whoever is called, in order; tell whether that is done and has admitted somebody."""
        while (turn := self._called.first()) is not None:
            if last is not None and self.judged >= last and self._reached is not None:
                return False
            self._called.discard(turn)
            self._reached = turn
            self._judge(self._pending[turn[2]], admitted, now)
        self._reached = None
        self._called, self._called_next_time = self._called_next_time, self._called
        fruitful, self._fruitful = self._fruitful, False
        return fruitful

    def _judge(self, seat: "_Seat", admitted: list[TaskId], now: Millis) -> None:
        """Let the task go, or put it where it is held and keep the news."""
        self.judged += 1
        before, verdict = seat.held, judge(seat.task, self, now)
        self._move(seat, verdict, now)
        if verdict is None:
            self._news.pop(seat.task.id, None)
            admitted.append(seat.task.id)
            self._fruitful = True
        elif verdict != before:
            self._news[seat.task.id] = verdict

    def _final(self, held: Held, now: Millis) -> Held:
        """What is told in the end of a task in line: since it was judged, a reservation may have come or gone."""
        if held.reason not in FOR_CAPACITY or held.since is None:
            return held
        seat = self._pending[held.id]
        seat.task = seat.task.waiting_for_capacity(held.since)
        seat.held = crowded(seat.task, self, now) or held
        return seat.held

    def _wake(self, now: Millis, last: int | None) -> bool:
        """Do what time has brought; False if `last` came before the end of it."""
        while (alarm := self._alarms.first()) is not None and alarm[0] <= now:
            self._alarms.discard(alarm)
            self._call(self._pending[alarm[1]].task.turn)
        while (aged := self._aging.first()) is not None and aged[0] <= now:
            if last is not None and self.judged >= last:
                return False
            self.judged += 1
            self._stake(self._pending[aged[1]], now)
        for pool in self._pools.values():
            self._call_head(pool, now)
        return True

    def _call(self, turn: Turn) -> None:
        # Whoever is older than the walk has been looked at: a pass does not turn round, the next one sees it.
        passed = self._reached is not None and turn <= self._reached
        (self._called_next_time if passed else self._called).add(turn)

    def _call_all(self, ids: Iterable[TaskId]) -> None:
        for id in ids:
            self._call(self._pending[id].task.turn)

    def _call_next_at(self, posts: "Iterable[Post]") -> None:
        for post in posts:
            turn = post.next_free()
            if turn is not None:
                self._call(turn)

    def _call_head(self, pool: "PoolPost", now: Millis) -> None:
        """Have whoever reserves the pool, or should, judged again when they are not the same."""
        head = pool.waiting.first()
        if pool.reserver is not None and pool.reserver[0] != head:
            self._call(pool.reserver[0])
        if head is not None and pool.reserver is None and self._has_waited_long(head, now):
            self._call(head)

    def _has_waited_long(self, turn: Turn, now: Millis) -> bool:
        held = self._pending[turn[2]].held
        return held is not None and has_waited_long(held, self._reserve_after_ms, now)

    # Moving: where a judged task goes.

    def _move(self, seat: "_Seat", verdict: Held | None, now: Millis) -> None:
        left = self._rise(seat)
        if verdict is None:
            del self._pending[seat.task.id]
            self._add_holder(seat.task.admitted(now))
        else:
            self._sit(seat, verdict, now)
        # Only now: who is next depends on where this one went.
        self._call_next_at(left)
        self._call_head(self._pool(seat.task.pool), now)

    def _rise(self, seat: "_Seat") -> "list[Post]":
        """Take the task out of everything; name the posts where that may let somebody pass."""
        task = seat.task
        if seat.held is None:
            return []
        if task.not_before is not None:
            self._alarms.discard((task.not_before, task.id))
        if seat.stakes_next is not None:
            self._aging.discard((seat.stakes_next, task.id))
            seat.stakes_next = None
        self._standing_by -= seat.stands_by
        left: list[Post] = [key for mutex, key in self._keys_of(task) if key.forget(task.turn, mutex.party)]
        left += [limit for amount, limit in self._limits_of(task) if limit.forget(task.turn, amount)]
        left += [pool for pool in (self._pool(task.pool),) if pool.forget(task.turn, task.weight)]
        self._drop_idle_keys(task.mutexes)
        return left

    def _sit(self, seat: "_Seat", held: Held, now: Millis) -> None:
        """Put the task where its reason is; what it may say to those behind it depends on that."""
        seat.held, task = held, seat.task
        if held.until is not None:
            self._alarms.add((held.until, task.id))
        elif held.reason is Reason.MUTEX:
            self._wait_at_key(seat, held)
            self._stake(seat, now)
        else:
            self._stand_by(task)
        self._standing_by += seat.stands_by
        if held.reason is Reason.LIMIT:
            self._wait_for_more(task, held)
        elif held.reason in FOR_CAPACITY:
            self._line_up(task, held, now)

    def _wait_at_key(self, seat: "_Seat", held: Held) -> None:
        if held.mutex_since is not None:
            seat.task = seat.task.held_by_mutex(held.mutex_since)
        for mutex in seat.task.mutexes:
            if mutex.key == held.name:
                self._key(mutex.key).waiting.add(seat.task.turn, mutex.party)

    def _stake(self, seat: "_Seat", now: Millis) -> None:
        """Stake the keys for which mutexes have held the task long enough, and note when the next one is due."""
        task, later = seat.task, None
        if seat.stakes_next is not None:
            self._aging.discard((seat.stakes_next, task.id))
        for mutex in task.mutexes:
            at = stakes_at(self._stake_after, mutex.key, now if task.mutex_since is None else task.mutex_since)
            if at is not None and at <= now:
                key = self._key(mutex.key)
                if key.stakes.add(task.turn, mutex.party):
                    self._call_all(key.disturbed(mutex.party, task.turn))
            elif at is not None and (later is None or at < later):
                later = at
        seat.stakes_next = later
        if later is not None:
            self._aging.add((later, task.id))

    def _stand_by(self, task: Contender) -> None:
        for mutex in task.mutexes:
            self._key(mutex.key).bystanders.add(youth_of(task.turn), mutex.party)

    def _wait_for_more(self, task: Contender, held: Held) -> None:
        for name, amount in task.limits:
            if name == held.name:
                self._limit(name).waiting.add(task.turn, amount)

    def _line_up(self, task: Contender, held: Held, now: Millis) -> None:
        pool = self._pool(task.pool)
        pool.waiting.add(task.turn, task.weight)
        for amount, limit in self._limits_of(task):
            limit.bystanders.add((-amount, task.id))
        if pool.waiting.first() == task.turn and has_waited_long(held, self._reserve_after_ms, now):
            pool.reserver = (task.turn, Occupant(task.id, task.created))

    def _add_holder(self, holder: Holder) -> None:
        self._holding[holder.id] = holder
        for mutex in holder.mutexes:
            key = self._key(mutex.key)
            key.take(mutex.party, Occupant(holder.id, holder.since))
            self._call_all(key.disturbed(mutex.party))
        for amount, limit in self._limits_of(holder):
            limit.used += amount
            self._call_all(limit.short())
        self._pool(holder.pool).used += holder.weight

    def _drop_holder(self, holder: Holder) -> "list[Post]":
        """Undo `_add_holder`; name the posts where that may let somebody pass."""
        for mutex in holder.mutexes:
            self._keys[mutex.key].give_back(mutex.party, holder.id)
        for amount, limit in self._limits_of(holder):
            limit.used -= amount
        self._pool(holder.pool).used -= holder.weight
        self._drop_idle_keys(holder.mutexes)
        keys, limits = self._keys_of(holder), self._limits_of(holder)
        return [*(key for _, key in keys), *(limit for _, limit in limits), self._pool(holder.pool)]

    # The posts by name.

    def _keys_of(self, task: Contender | Holder) -> "list[tuple[Mutex, KeyPost]]":
        return [(mutex, self._keys[mutex.key]) for mutex in task.mutexes if mutex.key in self._keys]

    def _limits_of(self, task: Contender | Holder) -> "list[tuple[int, LimitPost]]":
        return [(amount, self._limit(name)) for name, amount in task.limits]

    def _key(self, name: str) -> "KeyPost":
        if name not in self._keys:
            self._keys[name] = KeyPost()
        return self._keys[name]

    def _limit(self, name: str) -> "LimitPost":
        return self._limits.get(name) or self._limits.setdefault(name, LimitPost(total=0))

    def _pool(self, name: str) -> "PoolPost":
        return self._pools.get(name) or self._pools.setdefault(name, PoolPost(capacity=None))

    def _drop_idle_keys(self, mutexes: Iterable[Mutex]) -> None:
        # Keys are named by users without end; those nobody uses are dropped.
        for mutex in mutexes:
            if mutex.key in self._keys and self._keys[mutex.key].idle:
                del self._keys[mutex.key]


@dataclass(slots=True)
class _Seat:
    """A pending task, and what held it when it was last judged."""

    task: Contender
    held: Held | None = None
    stakes_next: Millis | None = None  # when it stakes another key, if mutexes hold it until then

    @property
    def stands_by(self) -> bool:
        """Whether it names mutexes and something else holds it."""
        held = self.held
        return bool(self.task.mutexes) and held is not None and held.until is None and held.reason is not Reason.MUTEX
