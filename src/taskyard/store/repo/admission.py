"""Verbs about admission: its lock, what it has to look at, what limits it, and what it said."""

from collections.abc import Collection, Iterable, Sequence

from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, Reason, State
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session
from taskyard.store.row_cache import RowCache

_STATES = {state.value: state for state in State}


@value
class PassLock:
    """Who is at a pass, until when, and under which number."""

    epoch: int
    holder: str | None
    until_ms: int | None


@value
class ContenderRow:
    """A task that takes part in admission."""

    id: int
    state: State
    priority: int
    created_ms: Millis
    weight: int
    queue: int
    not_before_ms: Millis | None
    moved_ms: Millis
    is_constrained: bool
    waits_since_ms: Millis | None


@value
class PoolRow:
    """A pool: a fixed capacity, that of its live bots, or none."""

    name: str
    capacity: int | None
    from_bots: bool


@value
class MutexRow:
    """A task that names a mutex: where it is, and what holds it if it is pending."""

    key: str
    party: str | None
    task: int
    graph: int
    state: str
    moved_ms: int
    reason: str | None
    held_at: str | None  # the mutex, the limit or the pool that holds it
    mutex_since_ms: int | None


@value
class HoldRow:
    """What the last pass said of a task that it held."""

    task: int
    reason: Reason
    name: str | None
    by: int | None
    since_ms: Millis | None
    mutex_since_ms: Millis | None = None  # since a mutex first held it


class AdmissionRepo:
    """What the tables of admission can be asked and told."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def mark_dirty(self, tasks: Iterable[int | None]) -> None:
        """Note what the next pass has to look at; None means at all bots and pools."""
        self._session.execute_many("insert_dirty", [(task,) for task in tasks])

    def dirty(self, after: int, count: int) -> list[tuple[int, int | None]]:
        """Read what a pass has to look at, beyond a number: number, task."""
        return [(row[0], row[1]) for row in self._session.fetch("select_dirty", after, count)]

    def delete_dirty(self, numbers: Collection[int]) -> None:
        """A pass has taken these up."""
        if numbers:
            self._session.execute("delete_dirty", numbers)

    def read_lock(self) -> PassLock | None:
        """Read the lock of the pass; None while somebody else is just taking it."""
        found = self._session.fetch("lock_admission_lock")
        return PassLock(*found[0]) if found else None

    def take_lock(self, epoch: int, holder: str, until: Millis) -> None:
        """Give the lock to `holder`."""
        self._session.execute("take_admission_lock", epoch, holder, until)

    def extend_lock(self, epoch: int, until: Millis) -> bool:
        """Tell whether the lock is still that of `epoch`, and keep it so until this transaction ends."""
        return self._session.execute("extend_admission_lock", epoch, until) == 1

    def release_lock(self, epoch: int) -> None:
        """Give the lock back, if it still is that of `epoch`."""
        self._session.execute("release_admission_lock", epoch)

    def contenders(self, state: State, after: int, count: int) -> list[ContenderRow]:
        """Read tasks of one state that take part in admission, in pages by id."""
        return _contenders(self._session.fetch("select_contenders", str(state), after, count))

    def contenders_among(self, ids: Collection[int]) -> list[ContenderRow]:
        """Read those of some tasks that take part in admission."""
        return _contenders(self._session.fetch("select_contenders_by_id", ids)) if ids else []

    def mutexes_of(self, ids: Collection[int]) -> dict[int, tuple[Mutex, ...]]:
        """Read the mutexes that tasks name."""
        found: dict[int, tuple[Mutex, ...]] = {}
        known: dict[tuple[str, str | None], Mutex] = {}  # tasks contend, so the same ones come again and again
        for task, key, party in self._session.fetch("select_mutexes", ids) if ids else ():
            mutex = known.get((key, party)) or known.setdefault((key, party), Mutex(key, party))
            found[task] = (*found.get(task, ()), mutex)
        return found

    def limits_of(self, ids: Collection[int]) -> dict[int, tuple[tuple[str, int], ...]]:
        """Read the demands of tasks."""
        found: dict[int, tuple[tuple[str, int], ...]] = {}
        for task, name, amount in self._session.fetch("select_limits", ids) if ids else ():
            found[task] = (*found.get(task, ()), (name, amount))
        return found

    def pools(self) -> list[PoolRow]:
        """Read every pool that is described."""
        return [PoolRow(row[0], row[1], row[2] == 1) for row in self._session.fetch("select_pools")]

    def locked_pools(self) -> list[PoolRow]:
        """Give every pool that is described; nobody describes one otherwise before this transaction ends."""
        if self._cache.pools is None:
            self._session.fetch("lock_pools_shared")
            self._cache.pools = self.pools()
        return self._cache.pools

    def prefetch_pools(self) -> None:
        """Hint: pools will be relied on."""
        if self._cache.pools is None:
            self._session.prefetch("lock_pools_shared")
            self._session.prefetch("select_pools")

    def set_pool(self, name: str, capacity: int | None, from_bots: bool) -> None:
        """Describe a pool, once nobody relies any more on what it was."""
        self._session.fetch("lock_pools_exclusive")
        self._session.execute("upsert_pool", name, capacity, int(from_bots))
        self._cache.pools = None

    def tasks_without_admission(self, pool: str, states: Iterable[State], count: int) -> list[int]:
        """Name tasks of a pool that no pass looks at yet."""
        found = self._session.fetch("select_tasks_without_admission", pool, [str(one) for one in states], count)
        return [row[0] for row in found]

    def named_limits(self) -> dict[str, int]:
        """Read every named limit."""
        return {row[0]: row[1] for row in self._session.fetch("select_named_limits")}

    def set_limit(self, name: str, total: int) -> None:
        """Describe a named limit."""
        self._session.execute("upsert_named_limit", name, total)

    def stake_after(self) -> dict[str, int | None]:
        """Read per mutex key how long mutexes hold a task before it stakes the key; None: it never does."""
        return {row[0]: row[1] for row in self._session.fetch("select_stake_after")}

    def set_stake_after(self, key: str, stake_after_ms: int | None) -> None:
        """Say how long mutexes hold a task before it stakes a key; None: it never does."""
        self._session.execute("upsert_stake_after", key, stake_after_ms)

    def mutexes_in_state(self, state: State, count: int) -> list[MutexRow]:
        """Read the mutexes of tasks in a state, the oldest tasks first."""
        return [MutexRow(*row) for row in self._session.fetch("select_mutexes_in_state", str(state), count)]

    def holds_of(self, ids: Collection[int]) -> dict[int, HoldRow]:
        """Read what the last pass said of tasks that it held."""
        found = self._session.fetch("select_holds", ids) if ids else []
        return {row[0]: HoldRow(row[0], Reason(row[1]), *row[2:]) for row in found}

    def set_holds(self, rows: Sequence[Row]) -> None:
        """Note why tasks are held: task, reason, name, by, since, since when by a mutex."""
        self._session.execute_many("upsert_holds", rows)

    def delete_holds(self, ids: Collection[int]) -> None:
        """Tasks are held no more."""
        self._session.execute_many("delete_holds", [(id,) for id in ids])


def _contenders(rows: Sequence[Row]) -> list[ContenderRow]:
    return [
        ContenderRow(row[0], _STATES[row[1]], row[2], row[3], row[4], row[5], row[6], row[7], row[8] == 1, row[9])
        for row in rows
    ]
