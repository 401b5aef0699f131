"""Admission: which pending tasks may wait for a bot, and what holds the others.

`decide` folds over the pending tasks in order (priority, created, id) and asks `judge` about each: its time, its
mutexes, a bot for it, its named limits, the capacity of its pool; the first guard that says no is its reason.
`judge` is the rule, written once; `index` calls it too, for fewer tasks. Holders and used amounts are computed from the
facts: nothing here is stored, and nothing depends on the kind of work of a task.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, Reason, TaskId
from taskyard.core.structs import struct_replace, value

# The input and output of the rule.
#
# They have only the part of each record that the rule needs. msgspec converts them to JSON and back, so a pass can be
# replayed anywhere.


#: Held for capacity this long, the oldest reserves its pool: a big task is delayed, never starved.
RESERVE_AFTER_MS = 600_000
#: Held by mutexes this long, a task stakes its keys: no younger task that clashes with it passes it any more.
STAKE_AFTER_MS = 60_000
#: The longest finite value; longer means never.
STAKE_AFTER_MAX_MS = 365 * 24 * 60 * 60 * 1_000

#: A named limit and how much of it a task takes.
Demand: TypeAlias = tuple[str, int]
#: Why a secret cannot be given to a task, and its name: `no_secret` or `no_secret_key`.
Lack: TypeAlias = tuple[Reason, str]
#: A task's place in the one order of everything: priority, then creation, then id.
Turn: TypeAlias = tuple[int, int, TaskId]


@value
class Contender:
    """A pending task. It names each mutex key and each limit once."""

    id: TaskId
    priority: int
    created: Millis
    pool: str
    weight: int = 1
    mutexes: tuple[Mutex, ...] = ()
    limits: tuple[Demand, ...] = ()
    not_before: Millis | None = None
    served: bool = True  # a live bot matches it
    capacity_since: Millis | None = None  # since it first had to wait for its pool
    mutex_since: Millis | None = None  # since a mutex first held it; kept until it is admitted
    lacks: Lack | None = None  # the first secret that it names and cannot be given

    def __post_init__(self) -> None:
        if len(self.mutexes) > 1 and len({mutex.key for mutex in self.mutexes}) < len(self.mutexes):
            raise ValueError(f"task {self.id} names a mutex key twice: name each key once")
        if len(self.limits) > 1 and len({name for name, _ in self.limits}) < len(self.limits):
            raise ValueError(f"task {self.id} names a limit twice: name each limit once, with the sum")

    @property
    def turn(self) -> Turn:
        return (self.priority, self.created, self.id)

    def admitted(self, now: Millis) -> "Holder":
        """The same task as a holder, from `now` on."""
        return Holder(self.id, self.pool, self.weight, self.mutexes, self.limits, now)

    def waiting_for_capacity(self, since: Millis) -> "Contender":
        """The same task with the moment it first had to wait for its pool; a known moment stays."""
        return self if self.capacity_since is not None else struct_replace(self, capacity_since=since)

    def held_by_mutex(self, since: Millis) -> "Contender":
        """The same task with the moment a mutex first held it; a known moment stays."""
        return self if self.mutex_since is not None else struct_replace(self, mutex_since=since)


@value
class Holder:
    """A task that is waiting, running or stopping: it has its mutexes, its weight and its share of limits."""

    id: TaskId
    pool: str
    weight: int
    mutexes: tuple[Mutex, ...]
    limits: tuple[Demand, ...]
    since: Millis


@value
class Pool:
    """A pool's name and its capacity; None means unlimited, and so does a pool that is not listed."""

    name: str
    capacity: int | None = None


@value
class Facts:
    """Everything that a pass decides from."""

    pending: tuple[Contender, ...] = ()
    holding: tuple[Holder, ...] = ()
    pools: tuple[Pool, ...] = ()
    limits: Mapping[str, int] = {}
    # Per key, how long mutexes hold a task before it stakes the key; None: it never does. Others: STAKE_AFTER_MS.
    stake_after: Mapping[str, int | None] = {}
    reserve_after_ms: int = RESERVE_AFTER_MS

    def after(self, admitted: Iterable[TaskId], now: Millis) -> "Facts":
        """The facts once these are admitted."""
        gone = frozenset(admitted)
        admits = sorted((task for task in self.pending if task.id in gone), key=lambda task: task.turn)
        left = tuple(task for task in self.pending if task.id not in gone)
        return struct_replace(self, pending=left, holding=(*self.holding, *(task.admitted(now) for task in admits)))


@value
class Held:
    """Why a task stays pending, as data."""

    id: TaskId
    reason: Reason
    name: str | None = None  # the mutex key, the limit or the pool it is about
    by: TaskId | None = None  # the holder, or the older task that stands first
    since: Millis | None = None  # since when that one has it; for its pool, since when this task waits
    until: Millis | None = None  # when a start that is too early ends
    place: int | None = None  # place in the line for the pool, from 1
    # How much of the limit or the pool is in use, of how much, and how much this task needs. What follows from here on
    # changes all the time and does not make two answers differ.
    used: int | None = None
    total: int | None = None
    need: int | None = None
    mutex_since: Millis | None = None  # since a mutex first held this task
    stakes_at: Millis | None = None  # when it stakes the mutex that holds it; None: never

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[object, ...]:
        return (self.id, self.reason, self.name, self.by, self.since, self.until, self.place)


@value
class Decision:
    """The result of a pass, both parts in order."""

    admitted: tuple[TaskId, ...]
    held: tuple[Held, ...]


#: The reasons of a task that stands in the line for its pool.
FOR_CAPACITY = frozenset({Reason.CAPACITY, Reason.RESERVED})


@value
class Occupant:
    """The task that holds something, or has staked it."""

    id: TaskId
    since: Millis


class Standing(Protocol):
    """What `judge` needs to know about the holders and the older tasks."""

    def clash(self, task: Contender, mutex: Mutex) -> Occupant | None:
        """The first holder or stake that excludes `task` from `mutex`."""

    def room(self, limit: str) -> int:
        """What is left of `limit`."""

    def reserver(self, task: Contender) -> Occupant | None:
        """The older task for which the pool of `task` is reserved."""

    def fits(self, task: Contender) -> bool:
        """Whether the pool of `task` can carry it now."""

    def place(self, task: Contender) -> int | None:
        """The place of `task` in the line for its pool, where it is known."""

    def limit_use(self, limit: str) -> tuple[int, int]:
        """How much of `limit` is in use, and its total."""

    def pool_use(self, pool: str) -> tuple[int, int | None]:
        """How much of `pool` is in use, and its capacity."""


def decide(facts: Facts, now: Millis) -> Decision:
    """Decide which pending tasks are admitted and what holds the others, over all pools. A repeat admits no more.

    No admitted task depends on those admitted after it, so any first part of `admitted` may be carried out alone.
    """
    admitted: tuple[TaskId, ...] = ()
    while True:
        walk = _Walk(facts)
        found = walk.through(sorted(facts.pending, key=lambda task: task.turn), now)
        admitted += found.admitted
        # One walk is enough, unless it reserved a pool for a task that then lost a mutex or a limit to a younger one:
        # the reservation is given up, and tasks behind it may be admitted. Each walk admits a task, so this ends.
        if not (found.admitted and walk.reserved):
            return Decision(admitted, found.held)
        facts = facts.after(found.admitted, now)


def judge(task: Contender, standing: Standing, now: Millis) -> Held | None:
    """Return what holds `task`: the first guard that refuses, or None if it is admitted."""
    return (
        _too_early(task, now)
        or _without_secret(task)
        or _excluded(task, standing, now)
        or _unserved(task)
        or _short_of(task, standing)
        or crowded(task, standing, now)
    )


def unadmitted(waiting: Iterable[Contender]) -> tuple[TaskId, ...]:
    """Return the waiting tasks that must release their mutexes because no live bot matches them any more."""
    return tuple(task.id for task in waiting if _unserved(task))


def impossible_demands(limits: Iterable[Demand], totals: Mapping[str, int]) -> tuple[Demand, ...]:
    """Return the demands that can never fit, so that their task is refused when it is submitted."""
    return tuple((name, amount) for name, amount in limits if amount > totals.get(name, 0))


# The guards, in the order in which they are asked.


def _too_early(task: Contender, now: Millis) -> Held | None:
    if task.not_before is None or task.not_before <= now:
        return None
    return Held(task.id, Reason.NOT_BEFORE, until=task.not_before)


def _without_secret(task: Contender) -> Held | None:
    # Before its mutexes: it could not use them, and nothing that other tasks do helps it.
    return None if task.lacks is None else Held(task.id, *task.lacks)


def _excluded(task: Contender, standing: Standing, now: Millis) -> Held | None:
    for mutex in task.mutexes:
        occupant = standing.clash(task, mutex)
        if occupant is not None:
            since = now if task.mutex_since is None else task.mutex_since
            return Held(task.id, Reason.MUTEX, mutex.key, occupant.id, occupant.since, mutex_since=since)
    return None


def _unserved(task: Contender) -> Held | None:
    # Without a bot it would hold its mutexes for nothing. A task without mutexes can wait in its queue.
    if task.served or not task.mutexes:
        return None
    return Held(task.id, Reason.NO_BOT)


def _short_of(task: Contender, standing: Standing) -> Held | None:
    for name, amount in task.limits:
        if amount > standing.room(name):
            used, total = standing.limit_use(name)
            return Held(task.id, Reason.LIMIT, name, used=used, total=total, need=amount)
    return None


def crowded(task: Contender, standing: Standing, now: Millis) -> Held | None:
    """The last guard: whether the pool of `task` is full, or reserved for an older task."""
    if task.weight == 0:
        return None
    reserver = standing.reserver(task)
    if reserver is not None:
        return _in_line(task, standing, Reason.RESERVED, reserver.id, now)
    return None if standing.fits(task) else _in_line(task, standing, Reason.CAPACITY, None, now)


def _in_line(task: Contender, standing: Standing, reason: Reason, by: TaskId | None, now: Millis) -> Held:
    since, place = task.capacity_since, standing.place(task)
    used, total = standing.pool_use(task.pool)
    return Held(task.id, reason, task.pool, by, now if since is None else since, None, place, used, total, task.weight)


def excludes(one: str | None, other: str | None) -> bool:
    """Whether two parties clash at one key: they share it only if both name the same one."""
    return one is None or one != other


def carries(capacity: int | None, used: int, weight: int) -> bool:
    """Whether a pool can carry `weight` more. One task always runs: when nothing is used, anything fits."""
    return capacity is None or used == 0 or used + weight <= capacity


class _Walk:
    """One walk through the pending tasks in order; it knows the holders and the tasks before."""

    def __init__(self, facts: Facts) -> None:
        self._stake_after = facts.stake_after
        self._reserve_after_ms = facts.reserve_after_ms
        self._capacities = {pool.name: pool.capacity for pool in facts.pools}
        # Per key the first occupant of each party: one that clashes is among the first two.
        self._occupants: dict[str, dict[str | None, Occupant]] = {}
        self._totals = facts.limits
        self._left = defaultdict(int, facts.limits)
        self._used: defaultdict[str, int] = defaultdict(int)
        self._in_line: defaultdict[str, int] = defaultdict(int)
        self._reservers: dict[str, Occupant] = {}
        for holder in facts.holding:
            self._take(holder)

    @property
    def reserved(self) -> bool:
        """Whether a pool was reserved for a task."""
        return bool(self._reservers)

    def through(self, tasks: Iterable[Contender], now: Millis) -> Decision:
        """Judge the tasks one after the other."""
        admitted: list[TaskId] = []
        held: list[Held] = []
        for task in tasks:
            verdict = judge(task, self, now)
            if verdict is None:
                self._take(task.admitted(now))
                admitted.append(task.id)
            else:
                self._hold(task, verdict, now)
                held.append(verdict)
        return Decision(tuple(admitted), tuple(held))

    def clash(self, task: Contender, mutex: Mutex) -> Occupant | None:  # noqa: ARG002 - everyone here is older
        for party, occupant in self._occupants.get(mutex.key, _NOBODY).items():
            if excludes(party, mutex.party):
                return occupant
        return None

    def room(self, limit: str) -> int:
        return self._left[limit]

    def reserver(self, task: Contender) -> Occupant | None:
        return self._reservers.get(task.pool)

    def fits(self, task: Contender) -> bool:
        return carries(self._capacities.get(task.pool), self._used[task.pool], task.weight)

    def place(self, task: Contender) -> int:
        return self._in_line[task.pool] + 1

    def limit_use(self, limit: str) -> tuple[int, int]:
        total = self._totals.get(limit, 0)
        return total - self._left[limit], total

    def pool_use(self, pool: str) -> tuple[int, int | None]:
        return self._used[pool], self._capacities.get(pool)

    def _take(self, holder: Holder) -> None:
        self._occupy(holder.mutexes, Occupant(holder.id, holder.since))
        for name, amount in holder.limits:
            self._left[name] -= amount
        self._used[holder.pool] += holder.weight

    def _hold(self, task: Contender, held: Held, now: Millis) -> None:
        if held.reason is Reason.MUTEX:
            # Held for long, it stakes its mutexes: else sharing tasks would starve one that needs the key alone.
            since = now if held.mutex_since is None else held.mutex_since
            staked = (m for m in task.mutexes if stakes(self._stake_after, m.key, since, now))
            self._occupy(staked, Occupant(task.id, task.created))
        elif held.reason in FOR_CAPACITY:
            self._in_line[task.pool] += 1
            if self._in_line[task.pool] == 1 and has_waited_long(held, self._reserve_after_ms, now):
                self._reservers[task.pool] = Occupant(task.id, task.created)

    def _occupy(self, mutexes: Iterable[Mutex], occupant: Occupant) -> None:
        for mutex in mutexes:
            self._occupants.setdefault(mutex.key, {}).setdefault(mutex.party, occupant)


_NOBODY: Mapping[str | None, Occupant] = {}


def stakes_at(stake_after: Mapping[str, int | None], key: str, since: Millis) -> Millis | None:
    """The moment from which a task that mutexes have held since `since` stakes `key`; None: it never does."""
    after = stake_after.get(key, STAKE_AFTER_MS)
    return None if after is None else Millis(since + after)


def stakes(stake_after: Mapping[str, int | None], key: str, since: Millis, now: Millis) -> bool:
    """Whether a task that mutexes have held since `since` stakes `key` by now."""
    at = stakes_at(stake_after, key, since)
    return at is not None and at <= now


def has_waited_long(held: Held, reserve_after_ms: int, now: Millis) -> bool:
    """Whether a task that waits for its pool has done so long enough to reserve it, should it be the first."""
    return held.since is not None and now - held.since >= reserve_after_ms
