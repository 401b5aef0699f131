"""The facts of admission: what a pass looks at, and what it finds.

They are partials in AWX's sense: of every record only the part that the rule needs, free of any store. All of them go
to JSON, and `Facts` with everything in it comes back equal, so a pass can be thought through anywhere. Nothing here
decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Self, TypeAlias

from taskyard.core.graph.document import Mutex
from taskyard.core.words import Millis, Reason, TaskId

#: Held for capacity this long, the oldest reserves its pool: a big task is delayed, never starved.
RESERVE_AFTER_MS = 600_000
#: Held by mutexes this long, a task stakes its keys: no younger task that clashes with it passes it any more.
STAKE_AFTER_MS = 60_000
#: Whoever means longer means never.
STAKE_AFTER_MAX_MS = 365 * 24 * 60 * 60 * 1_000

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"
#: A named limit and how much of it a task takes.
Demand: TypeAlias = tuple[str, int]
#: A task's place in the one order of everything: priority, then creation, then id.
Turn: TypeAlias = tuple[int, int, TaskId]


class Partial:
    """The part of a record that admission needs; it goes to JSON and comes back equal."""

    __slots__ = ()

    def to_json(self) -> Json:
        """Say it in plain dicts and lists."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class Contender(Partial):
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

    def __post_init__(self) -> None:
        if len({mutex.key for mutex in self.mutexes}) < len(self.mutexes):
            raise ValueError(f"task {self.id} names a mutex key twice: name each key once")
        if len({name for name, _ in self.limits}) < len(self.limits):
            raise ValueError(f"task {self.id} names a limit twice: name each limit once, with the sum")

    @property
    def turn(self) -> Turn:
        return (self.priority, self.created, self.id)

    def admitted(self, now: Millis) -> "Holder":
        """The same task as a holder, from `now` on."""
        return Holder(self.id, self.pool, self.weight, self.mutexes, self.limits, now)

    def waiting_for_capacity(self, since: Millis) -> "Contender":
        """The same task with the moment it first had to wait for its pool; a known moment stays."""
        return self if self.capacity_since is not None else replace(self, capacity_since=since)

    def held_by_mutex(self, since: Millis) -> "Contender":
        """The same task with the moment a mutex first held it; a known moment stays."""
        return self if self.mutex_since is not None else replace(self, mutex_since=since)

    @classmethod
    def from_json(cls, json: Json) -> Self:
        match json:
            case {
                "id": str(id),
                "priority": int(priority),
                "created": int(created),
                "pool": str(pool),
                "weight": int(weight),
                "mutexes": [*mutexes],
                "limits": [*limits],
                "not_before": int() | None as not_before,
                "served": bool(served),
                "capacity_since": int() | None as capacity_since,
                "mutex_since": int() | None as mutex_since,
            }:
                shape = (pool, weight, _mutexes(mutexes), _demands(limits))
                since = (_moment(capacity_since), _moment(mutex_since))
                return cls(TaskId(id), priority, Millis(created), *shape, _moment(not_before), served, *since)
        raise _malformed(cls, json)


@dataclass(frozen=True, slots=True)
class Holder(Partial):
    """A task that is waiting, running or stopping: it has its mutexes, its weight and its share of limits."""

    id: TaskId
    pool: str
    weight: int
    mutexes: tuple[Mutex, ...]
    limits: tuple[Demand, ...]
    since: Millis

    @classmethod
    def from_json(cls, json: Json) -> Self:
        match json:
            case {
                "id": str(id),
                "pool": str(pool),
                "weight": int(weight),
                "mutexes": [*mutexes],
                "limits": [*limits],
                "since": int(since),
            }:
                return cls(TaskId(id), pool, weight, _mutexes(mutexes), _demands(limits), Millis(since))
        raise _malformed(cls, json)


@dataclass(frozen=True, slots=True)
class Pool(Partial):
    """A pool's name and the weight it carries at once; None is without limit, as is a pool nobody described."""

    name: str
    capacity: int | None = None

    @classmethod
    def from_json(cls, json: Json) -> Self:
        match json:
            case {"name": str(name), "capacity": int() | None as capacity}:
                return cls(name, capacity)
        raise _malformed(cls, json)


@dataclass(frozen=True, slots=True)
class Facts(Partial):
    """Everything a pass looks at."""

    pending: tuple[Contender, ...] = ()
    holding: tuple[Holder, ...] = ()
    pools: tuple[Pool, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    # Per key, how long mutexes hold a task before it stakes the key; None: it never does. Others: STAKE_AFTER_MS.
    stake_after: Mapping[str, int | None] = field(default_factory=dict)
    reserve_after_ms: int = RESERVE_AFTER_MS

    def after(self, admitted: Iterable[TaskId], now: Millis) -> "Facts":
        """The facts once these are admitted."""
        gone = frozenset(admitted)
        admits = sorted((task for task in self.pending if task.id in gone), key=lambda task: task.turn)
        left = tuple(task for task in self.pending if task.id not in gone)
        return replace(self, pending=left, holding=(*self.holding, *(task.admitted(now) for task in admits)))

    @classmethod
    def from_json(cls, json: Json) -> Self:
        match json:
            case {
                "pending": [*pending],
                "holding": [*holding],
                "pools": [*pools],
                "limits": Mapping() as limits,
                "stake_after": Mapping() as stake_after,
                "reserve_after_ms": int(reserve_after_ms),
            }:
                return cls(
                    pending=tuple(Contender.from_json(each) for each in pending),
                    holding=tuple(Holder.from_json(each) for each in holding),
                    pools=tuple(Pool.from_json(each) for each in pools),
                    limits=dict(_demands(limits.items())),
                    stake_after={str(key): _span(after) for key, after in stake_after.items()},
                    reserve_after_ms=reserve_after_ms,
                )
        raise _malformed(cls, json)


@dataclass(frozen=True, slots=True)
class Held(Partial):
    """Why a task stays pending, as data."""

    id: TaskId
    reason: Reason
    name: str | None = None  # the mutex key, the limit or the pool it is about
    by: TaskId | None = None  # the holder, or the older task that stands first
    since: Millis | None = None  # since when that one has it; for its pool, since when this task waits
    until: Millis | None = None  # when a start that is too early ends
    place: int | None = None  # place in the line for the pool, from 1
    # How much of the limit or the pool is in use, of how much, and how much this task needs. These change all the time
    # and are no news by themselves, so they do not make two answers differ.
    used: int | None = field(default=None, compare=False)
    total: int | None = field(default=None, compare=False)
    need: int | None = field(default=None, compare=False)
    mutex_since: Millis | None = field(default=None, compare=False)  # since a mutex first held this task
    stakes_at: Millis | None = field(default=None, compare=False)  # when it stakes the mutex that holds it; None: never


@dataclass(frozen=True, slots=True)
class Decision(Partial):
    """What a pass found, both in order."""

    admitted: tuple[TaskId, ...]
    held: tuple[Held, ...]


# To JSON and back.


def _plain(value: object) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case Mutex():
            return {"key": value.key, "party": value.party}
    assert is_dataclass(value), f"{value!r} has no JSON form here"
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _mutexes(json: Iterable[Json]) -> tuple[Mutex, ...]:
    return tuple(_mutex(each) for each in json)


def _mutex(json: Json) -> Mutex:
    match json:
        case {"key": str(key), "party": str() | None as party}:
            return Mutex(key, party)
    raise _malformed(Mutex, json)


def _demands(json: Iterable[Json]) -> tuple[Demand, ...]:
    return tuple(_demand(each) for each in json)


def _demand(json: Json) -> Demand:
    match json:
        case [str(name), int(amount)]:
            return (name, amount)
    raise _malformed(tuple, json)


def _moment(json: int | None) -> Millis | None:
    return None if json is None else Millis(json)


def _span(json: Json) -> int | None:
    match json:
        case int() | None:
            return json
    raise _malformed(int, json)


def _malformed(kind: type, json: Json) -> ValueError:
    return ValueError(f"not a {kind.__name__.lower()}: {json!r}")
