"""The admission rule kept as an index, so that its cost follows what changed and not how many tasks are pending.

`AdmissionIndex` receives changes (a task becomes pending, ends or is released; a bot appears; a pool grows), and its
`decide` then admits exactly what `rules.decide` would admit from the same facts. Every held task waits in one queue:
that of the mutex key, the limit or the pool that holds it. A change marks the oldest task there that may now pass; when
that one has been judged, the next is marked. Judging a task can only free younger ones, so one walk in order is enough.
The rule itself is `rules.judge`; the index stores nothing that cannot be rebuilt from the facts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
from taskyard.core.structs import struct_replace

# The queues of a mutex key, a named limit and a pool: who holds it, who waits for it, and which of those may pass next.
# No operation shifts entries, so its cost does not grow with the length of the queue.


#: Removed entries stay in a heap until they reach its top; it is rebuilt with this many beyond twice the live ones.
SLACK_ENTRIES = 32

#: An amount or a moment, and the task it belongs to.
Amount: TypeAlias = tuple[int, TaskId]
Party: TypeAlias = str | None
#: Before every turn.
BEFORE_ALL: Turn = (-(2**63), 0, TaskId(""))
E = TypeVar("E", Turn, Amount)
G = TypeVar("G", Party, int)


class LazyHeap(Generic[E]):
    """A heap with lazy removal: a removed entry is dropped when it reaches the top."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[E] = []
        self._live: set[E] = set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[E]:
        return iter(self._live)

    def add(self, entry: E) -> bool:
        """Add `entry`; True if it is new."""
        if entry in self._live:
            return False
        self._live.add(entry)
        heappush(self._heap, entry)
        return True

    def discard(self, entry: E) -> bool:
        """Remove `entry`; True if it was there."""
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
        """Remove and return the least entry."""
        entry = self.first()
        if entry is not None:
            self.discard(entry)
        return entry


class GroupedQueue(Generic[G]):
    """Turns in order, in groups that pass or are held alike, so that only the oldest of each group must be judged.

    Operations cost as much as there are groups, which are few: the parties at a key, the weights in a pool.
    """

    __slots__ = ("_all", "_groups")

    def __init__(self) -> None:
        self._groups: dict[G, LazyHeap[Turn]] = {}
        self._all: LazyHeap[Turn] = LazyHeap()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, turn: Turn, group: G) -> bool:
        """Add `turn`; True if it is new."""
        self._groups.setdefault(group, LazyHeap()).add(turn)
        return self._all.add(turn)

    def discard(self, turn: Turn, group: G) -> bool:
        """Remove `turn`; True if it was there."""
        heap = self._groups.get(group)
        if heap is None or not heap.discard(turn):
            return False
        self._all.discard(turn)
        if not heap:
            del self._groups[group]
        return True

    def oldest_per_group(self) -> Iterator[tuple[Turn, G]]:
        """Return the oldest turn of each group."""
        return ((front, group) for group, heap in self._groups.items() if (front := heap.first()) is not None)

    def first(self) -> Turn | None:
        """Return the oldest turn."""
        return self._all.first()

    def before(self, turn: Turn) -> int:
        """Count the turns before `turn`; this walks through all of them."""
        return sum(each < turn for each in self._all)


@dataclass(slots=True, eq=False)
class MutexQueue:
    """One mutex key: its holders, its stakes, the tasks that it holds, and those to judge again after a new holder."""

    holders: dict[Party, dict[TaskId, Occupant]] = field(default_factory=dict)
    stakes: GroupedQueue[Party] = field(default_factory=GroupedQueue)
    waiting: GroupedQueue[Party] = field(default_factory=GroupedQueue)
    watchers: GroupedQueue[Party] = field(
        default_factory=GroupedQueue
    )  # tasks that something else holds; the youngest first

    @property
    def idle(self) -> bool:
        return not (self.holders or self.stakes or self.waiting or self.watchers)

    def clash(self, party: Party, turn: Turn) -> Occupant | None:
        """Return the first holder or stake that excludes a task with this party and turn."""
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

    def pop_affected(self, party: Party, older: Turn = BEFORE_ALL) -> Iterator[TaskId]:
        """Remove and yield the watchers behind `older` that a new holder or stake of `party` excludes."""
        while pop_affected := [
            (youth, other)
            for youth, other in self.watchers.oldest_per_group()
            if excludes(party, other) and youth[:2] <= youngest_first(older)[:2]
        ]:
            for youth, other in pop_affected:
                self.watchers.discard(youth, other)
                yield youth[2]

    def remove(self, turn: Turn, party: Party) -> bool:
        """Remove a pending task; True if it waited here or had a stake, so that the next one may pass."""
        self.watchers.discard(youngest_first(turn), party)
        waited, staked = self.waiting.discard(turn, party), self.stakes.discard(turn, party)
        return waited or staked

    def next_free(self) -> Turn | None:
        """Return the oldest task that waits here and is no longer excluded."""
        # The oldest of each party is enough: what excludes it excludes those behind it as well.
        firsts = self._first_stakes()
        free = (
            turn
            for turn, party in self.waiting.oldest_per_group()
            if not self._holder_against(party)
            and all(stake >= turn or not excludes(party, other) for stake, other in firsts)
        )
        return min(free, default=None)

    def _first_stakes(self) -> list[tuple[Turn, Party]]:
        """Return the oldest stake and the oldest of another party: if any stake excludes a task, one of these does."""
        return sorted(self.stakes.oldest_per_group())[:2] if self.stakes else []

    def _holder_against(self, party: Party) -> Occupant | None:
        for other, occupants in self.holders.items():
            if excludes(party, other):
                return next(iter(occupants.values()))
        return None


@dataclass(slots=True, eq=False)
class LimitQueue:
    """One named limit: how much is used, which tasks wait for it, and which to judge again when less is left."""

    total: int
    used: int = 0
    waiting: GroupedQueue[int] = field(default_factory=GroupedQueue)  # by amount
    watchers: LazyHeap[Amount] = field(default_factory=LazyHeap)  # the largest amount first

    @property
    def room(self) -> int:
        return self.total - self.used

    def pop_short(self) -> Iterator[TaskId]:
        """Remove and yield the watchers for which too little is left."""
        while (largest := self.watchers.first()) is not None and -largest[0] > self.room:
            self.watchers.discard(largest)
            yield largest[1]

    def remove(self, turn: Turn, amount: int) -> bool:
        """Remove a pending task; True if it waited here, so that the next one may pass."""
        self.watchers.discard((-amount, turn[2]))
        return self.waiting.discard(turn, amount)

    def next_free(self) -> Turn | None:
        """Return the oldest task that waits here and for which enough is left."""
        return min((turn for turn, amount in self.waiting.oldest_per_group() if amount <= self.room), default=None)


@dataclass(slots=True, eq=False)
class PoolQueue:
    """One pool: how much is used, which tasks wait for capacity, and for which task it is reserved."""

    capacity: int | None
    used: int = 0
    reserver: tuple[Turn, Occupant] | None = None
    waiting: GroupedQueue[int] = field(default_factory=GroupedQueue)  # by weight

    def fits(self, weight: int) -> bool:
        return carries(self.capacity, self.used, weight)

    def reserver_before(self, turn: Turn) -> Occupant | None:
        return self.reserver[1] if self.reserver is not None and self.reserver[0] < turn else None

    def remove(self, turn: Turn, weight: int) -> bool:
        """Remove a pending task; True if it waited here, so that the next one may pass."""
        if self.reserver is not None and self.reserver[0] == turn:
            self.reserver = None
        return self.waiting.discard(turn, weight)

    def next_free(self) -> Turn | None:
        """Return the oldest task that waits here, fits, and is not behind a reservation."""
        firsts = (turn for turn, weight in self.waiting.oldest_per_group() if self.fits(weight))
        return min((turn for turn in firsts if self.reserver_before(turn) is None), default=None)


WaitQueue: TypeAlias = MutexQueue | LimitQueue | PoolQueue


def youngest_first(turn: Turn) -> Turn:
    return (-turn[0], -turn[1], turn[2])


class AdmissionIndex:
    """All pending and holding tasks, each held task in the queue of what holds it. `now` must never decrease."""

    def __init__(self, facts: Facts) -> None:
        self._stake_after = facts.stake_after
        self._reserve_after_ms = facts.reserve_after_ms
        self._keys: dict[str, MutexQueue] = {}
        self._limits = {name: LimitQueue(total) for name, total in facts.limits.items()}
        self._pools = {pool.name: PoolQueue(pool.capacity) for pool in facts.pools}
        self._pending: dict[TaskId, _PendingTask] = {}
        self._holding: dict[TaskId, Holder] = {}
        self._start_timers: LazyHeap[Amount] = LazyHeap()
        self._stake_timers: LazyHeap[Amount] = LazyHeap()  # when the next key of a task that mutexes hold is staked
        self._to_judge: LazyHeap[Turn] = LazyHeap()
        self._to_judge_next: LazyHeap[Turn] = LazyHeap()
        self._reached: Turn | None = None  # the last turn that the walk of `decide` judged
        self._admitted_some = False  # whether that walk has admitted a task
        self._changed: dict[TaskId, Held] = {}  # tasks whose reason has changed since the last complete decision
        self._watching = 0  # how many tasks with mutexes are held by something else
        self._catching_up = False  # whether more timers are due than one decision may handle
        self.judged = 0  # how many tasks were judged or staked a key by age
        for holder in facts.holding:
            self.take(holder)
        for task in facts.pending:
            self.arrive(task)

    # Changes. Repeats are allowed; a change of an unknown task does nothing.

    def arrive(self, task: Contender) -> None:
        """Add a pending task, whatever it was before."""
        self.leave(task.id)
        self.give_back(task.id)
        self._pending[task.id] = _PendingTask(task)
        self._mark_to_judge(task.turn)

    def leave(self, id: TaskId) -> None:
        """Remove a pending task, for instance because it was canceled or expired."""
        entry = self._pending.pop(id, None)
        if entry is not None:
            self._to_judge.discard(entry.task.turn)
            self._to_judge_next.discard(entry.task.turn)
            self._changed.pop(id, None)
            self._mark_next_in(self._detach(entry))

    def take(self, holder: Holder) -> None:
        """Add a task that is waiting, running or stopping, whatever it was before."""
        self.leave(holder.id)
        self.give_back(holder.id)
        self._add_holder(holder)

    def give_back(self, id: TaskId) -> None:
        """Remove a holding task: it gives back what it held."""
        holder = self._holding.pop(id, None)
        if holder is not None:
            self._mark_next_in(self._drop_holder(holder))

    def serve(self, id: TaskId, served: bool) -> None:
        """Set whether a live bot matches a pending task."""
        entry = self._pending.get(id)
        if entry is not None:
            entry.task = struct_replace(entry.task, served=served)
            self._mark_to_judge(entry.task.turn)

    def set_capacity(self, pool: Pool) -> None:
        """Set the capacity of a pool."""
        queue = self._pool(pool.name)
        queue.capacity = pool.capacity
        self._mark_next_in([queue])

    def set_limit_total(self, limit: str, total: int) -> None:
        """Set the total of a named limit."""
        queue = self._limit(limit)
        queue.total = total
        self._mark_next_in([queue])
        self._mark_all_to_judge(queue.pop_short())

    # The walk.

    def decide(self, now: Millis, judged_max: int | None = None) -> Decision:
        """Judge the tasks that a change could have touched; of the held ones, name those whose reason has changed.

        After `judged_max` tasks it stops (`cut`); the next call goes on there, and the last one names the held tasks.
        """
        admitted: list[TaskId] = []
        last = None if judged_max is None else self.judged + judged_max
        self._catching_up = not self._apply_timers(now, last)
        while not self._catching_up and self._walk(admitted, now, last):
            # As in `rules.decide`: only a reservation that was given up can admit a task on a second walk.
            if not any(pool.reserver for pool in self._pools.values()):
                break
        if self.cut:
            return Decision(tuple(admitted), ())
        changed, self._changed = self._changed, {}
        return Decision(tuple(admitted), tuple(self._final(each, now) for each in changed.values()))

    @property
    def cut(self) -> bool:
        """Whether the last decision stopped before every marked task was judged."""
        return self._catching_up or self._reached is not None

    def next_moment(self) -> Millis | None:
        """Return the next moment at which a task stakes a key by age, if that may change what holds another task."""
        # A task that waits for a mutex keeps waiting. One that something else holds may now be held by the mutex, and
        # lose its reservation by that.
        first = self._stake_timers.first() if self._watching else None
        return None if first is None else Millis(first[0])

    def reason(self, id: TaskId) -> Reason | None:
        """Return why a pending task was held at the last `decide`; None if it has not been judged."""
        entry = self._pending[id]
        if entry.held is None:
            return None
        if entry.held.reason not in FOR_CAPACITY:
            return entry.held.reason
        # Every task behind the reserver is held by the reservation, without being judged again one by one.
        return Reason.CAPACITY if self.reserver(entry.task) is None else Reason.RESERVED

    def explain(self, id: TaskId, now: Millis) -> Held | None:
        """Judge a pending task now, with its place in line; None if the next `decide` admits it."""
        task = self._pending[id].task
        held = judge(task, self, now)
        if held is None or held.reason not in FOR_CAPACITY:
            return held
        return struct_replace(held, place=self._pool(task.pool).waiting.before(task.turn) + 1)

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
        """Not known here: places change with every task that leaves, so only `explain` counts them."""

    def limit_use(self, limit: str) -> tuple[int, int]:
        queue = self._limit(limit)
        return queue.used, queue.total

    def pool_use(self, pool: str) -> tuple[int, int | None]:
        queue = self._pool(pool)
        return queue.used, queue.capacity

    # Which tasks are judged, and in which order.

    def _walk(self, admitted: list[TaskId], now: Millis, last: int | None) -> bool:
        """Judge the marked tasks in order; True if the walk is complete and admitted a task."""
        while (turn := self._to_judge.first()) is not None:
            if last is not None and self.judged >= last and self._reached is not None:
                return False
            self._to_judge.discard(turn)
            self._reached = turn
            self._judge(self._pending[turn[2]], admitted, now)
        self._reached = None
        self._to_judge, self._to_judge_next = self._to_judge_next, self._to_judge
        admitted_some, self._admitted_some = self._admitted_some, False
        return admitted_some

    def _judge(self, entry: "_PendingTask", admitted: list[TaskId], now: Millis) -> None:
        """Admit the task, or queue it at what holds it and record a changed reason."""
        self.judged += 1
        before, held_now = entry.held, judge(entry.task, self, now)
        self._move(entry, held_now, now)
        if held_now is None:
            self._changed.pop(entry.task.id, None)
            admitted.append(entry.task.id)
            self._admitted_some = True
        elif held_now != before:
            self._changed[entry.task.id] = held_now

    def _final(self, held: Held, now: Millis) -> Held:
        """Bring the answer of a task in line up to date: a reservation may have come or gone since it was judged."""
        if held.reason not in FOR_CAPACITY or held.since is None:
            return held
        entry = self._pending[held.id]
        entry.task = entry.task.waiting_for_capacity(held.since)
        entry.held = crowded(entry.task, self, now) or held
        return entry.held

    def _apply_timers(self, now: Millis, last: int | None) -> bool:
        """Handle the timers that are due; False if the limit `last` was reached first."""
        while (timer := self._start_timers.first()) is not None and timer[0] <= now:
            self._start_timers.discard(timer)
            self._mark_to_judge(self._pending[timer[1]].task.turn)
        while (aged := self._stake_timers.first()) is not None and aged[0] <= now:
            if last is not None and self.judged >= last:
                return False
            self.judged += 1
            self._stake(self._pending[aged[1]], now)
        for pool in self._pools.values():
            self._mark_reserver(pool, now)
        return True

    def _mark_to_judge(self, turn: Turn) -> None:
        # The walk does not go back: a task that it has passed is judged by the next one.
        passed = self._reached is not None and turn <= self._reached
        (self._to_judge_next if passed else self._to_judge).add(turn)

    def _mark_all_to_judge(self, ids: Iterable[TaskId]) -> None:
        for id in ids:
            self._mark_to_judge(self._pending[id].task.turn)

    def _mark_next_in(self, queues: "Iterable[WaitQueue]") -> None:
        for queue in queues:
            turn = queue.next_free()
            if turn is not None:
                self._mark_to_judge(turn)

    def _mark_reserver(self, pool: "PoolQueue", now: Millis) -> None:
        """Mark the reserver of a pool, or the task that should reserve it, when they differ."""
        head = pool.waiting.first()
        if pool.reserver is not None and pool.reserver[0] != head:
            self._mark_to_judge(pool.reserver[0])
        if head is not None and pool.reserver is None and self._has_waited_long(head, now):
            self._mark_to_judge(head)

    def _has_waited_long(self, turn: Turn, now: Millis) -> bool:
        held = self._pending[turn[2]].held
        return held is not None and has_waited_long(held, self._reserve_after_ms, now)

    # Where a judged task goes.

    def _move(self, entry: "_PendingTask", held_now: Held | None, now: Millis) -> None:
        left = self._detach(entry)
        if held_now is None:
            del self._pending[entry.task.id]
            self._add_holder(entry.task.admitted(now))
        else:
            self._attach(entry, held_now, now)
        # Last, because the next task depends on where this one went.
        self._mark_next_in(left)
        self._mark_reserver(self._pool(entry.task.pool), now)

    def _detach(self, entry: "_PendingTask") -> "list[WaitQueue]":
        """Remove the task from all queues; name those where another task may pass now."""
        task = entry.task
        if entry.held is None:
            return []
        if task.not_before is not None:
            self._start_timers.discard((task.not_before, task.id))
        if entry.stakes_next is not None:
            self._stake_timers.discard((entry.stakes_next, task.id))
            entry.stakes_next = None
        self._watching -= entry.watches_keys
        left: list[WaitQueue] = [key for mutex, key in self._keys_of(task) if key.remove(task.turn, mutex.party)]
        left += [limit for amount, limit in self._limits_of(task) if limit.remove(task.turn, amount)]
        left += [pool for pool in (self._pool(task.pool),) if pool.remove(task.turn, task.weight)]
        self._drop_idle_keys(task.mutexes)
        return left

    def _attach(self, entry: "_PendingTask", held: Held, now: Millis) -> None:
        """Queue the task at what holds it; only a task held by its mutexes can stake keys."""
        entry.held, task = held, entry.task
        if held.until is not None:
            self._start_timers.add((held.until, task.id))
        elif held.reason is Reason.MUTEX:
            self._wait_at_key(entry, held)
            self._stake(entry, now)
        else:
            self._watch_keys(task)
        self._watching += entry.watches_keys
        if held.reason is Reason.LIMIT:
            self._wait_for_limit(task, held)
        elif held.reason in FOR_CAPACITY:
            self._wait_for_capacity(task, held, now)

    def _wait_at_key(self, entry: "_PendingTask", held: Held) -> None:
        if held.mutex_since is not None:
            entry.task = entry.task.held_by_mutex(held.mutex_since)
        for mutex in entry.task.mutexes:
            if mutex.key == held.name:
                self._key(mutex.key).waiting.add(entry.task.turn, mutex.party)

    def _stake(self, entry: "_PendingTask", now: Millis) -> None:
        """Stake the keys for which mutexes have held the task long enough, and note when the next one is due."""
        task, later = entry.task, None
        if entry.stakes_next is not None:
            self._stake_timers.discard((entry.stakes_next, task.id))
        for mutex in task.mutexes:
            at = stakes_at(self._stake_after, mutex.key, now if task.mutex_since is None else task.mutex_since)
            if at is not None and at <= now:
                key = self._key(mutex.key)
                if key.stakes.add(task.turn, mutex.party):
                    self._mark_all_to_judge(key.pop_affected(mutex.party, task.turn))
            elif at is not None and (later is None or at < later):
                later = at
        entry.stakes_next = later
        if later is not None:
            self._stake_timers.add((later, task.id))

    def _watch_keys(self, task: Contender) -> None:
        for mutex in task.mutexes:
            self._key(mutex.key).watchers.add(youngest_first(task.turn), mutex.party)

    def _wait_for_limit(self, task: Contender, held: Held) -> None:
        for name, amount in task.limits:
            if name == held.name:
                self._limit(name).waiting.add(task.turn, amount)

    def _wait_for_capacity(self, task: Contender, held: Held, now: Millis) -> None:
        pool = self._pool(task.pool)
        pool.waiting.add(task.turn, task.weight)
        for amount, limit in self._limits_of(task):
            limit.watchers.add((-amount, task.id))
        if pool.waiting.first() == task.turn and has_waited_long(held, self._reserve_after_ms, now):
            pool.reserver = (task.turn, Occupant(task.id, task.created))

    def _add_holder(self, holder: Holder) -> None:
        self._holding[holder.id] = holder
        for mutex in holder.mutexes:
            key = self._key(mutex.key)
            key.take(mutex.party, Occupant(holder.id, holder.since))
            self._mark_all_to_judge(key.pop_affected(mutex.party))
        for amount, limit in self._limits_of(holder):
            limit.used += amount
            self._mark_all_to_judge(limit.pop_short())
        self._pool(holder.pool).used += holder.weight

    def _drop_holder(self, holder: Holder) -> "list[WaitQueue]":
        """Undo `_add_holder`; name the queues where another task may pass now."""
        for mutex in holder.mutexes:
            self._keys[mutex.key].give_back(mutex.party, holder.id)
        for amount, limit in self._limits_of(holder):
            limit.used -= amount
        self._pool(holder.pool).used -= holder.weight
        self._drop_idle_keys(holder.mutexes)
        keys, limits = self._keys_of(holder), self._limits_of(holder)
        return [*(key for _, key in keys), *(limit for _, limit in limits), self._pool(holder.pool)]

    # Queues by name.

    def _keys_of(self, task: Contender | Holder) -> "list[tuple[Mutex, MutexQueue]]":
        return [(mutex, self._keys[mutex.key]) for mutex in task.mutexes if mutex.key in self._keys]

    def _limits_of(self, task: Contender | Holder) -> "list[tuple[int, LimitQueue]]":
        return [(amount, self._limit(name)) for name, amount in task.limits]

    def _key(self, name: str) -> "MutexQueue":
        if name not in self._keys:
            self._keys[name] = MutexQueue()
        return self._keys[name]

    def _limit(self, name: str) -> "LimitQueue":
        return self._limits.get(name) or self._limits.setdefault(name, LimitQueue(total=0))

    def _pool(self, name: str) -> "PoolQueue":
        return self._pools.get(name) or self._pools.setdefault(name, PoolQueue(capacity=None))

    def _drop_idle_keys(self, mutexes: Iterable[Mutex]) -> None:
        # Users may name any number of keys, so unused ones are dropped.
        for mutex in mutexes:
            if mutex.key in self._keys and self._keys[mutex.key].idle:
                del self._keys[mutex.key]


@dataclass(slots=True)
class _PendingTask:
    """A pending task, and what held it when it was last judged."""

    task: Contender
    held: Held | None = None
    stakes_next: Millis | None = None  # when it stakes another key, if mutexes hold it until then

    @property
    def watches_keys(self) -> bool:
        """Whether it has mutexes and something else holds it."""
        held = self.held
        return bool(self.task.mutexes) and held is not None and held.until is None and held.reason is not Reason.MUTEX
