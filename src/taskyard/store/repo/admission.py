"""Repository of admission: its lock, the tasks it has to look at, the configured limits, and why tasks are held."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, Reason, State
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session
from taskyard.store.row_cache import RowCache

_STATES = {state.value: state for state in State}
#: The parts of `task.is_constrained`.
CONSTRAINED: Final = 1  # it names mutexes or limits
NAMES_SECRETS: Final = 2


@value
class AdmissionLock:
    """The lock of the admission scheduler: its holder, its end, and a number that grows with each holder."""

    epoch: int
    holder: str | None
    until_ms: int | None


@value
class ContenderRow:
    """A task that needs admission."""

    id: int
    state: State
    priority: int
    created_ms: Millis
    weight: int
    queue: int
    not_before_ms: Millis | None
    moved_ms: Millis
    is_constrained: bool  # it names mutexes or limits
    waits_since_ms: Millis | None
    names_secrets: bool = False


@value
class PoolRow:
    """A pool: its capacity is fixed, that of its live bots, or unlimited."""

    name: str
    capacity: int | None
    from_bots: bool
    unit: str = "slots"  # what a capacity from bots counts,
    adjustment: float = 1.0  # and where in its range it lies
    external: bool = False  # workers behind a message broker run its tasks, not bots


@value
class MutexRow:
    """A task with a mutex: its state, and what holds it while it is pending."""

    key: str
    party: str | None
    task: int
    graph: int
    state: str
    moved_ms: int
    reason: str | None
    held_at: str | None  # the name of the mutex, limit or pool that holds it
    mutex_since_ms: int | None


@value
class HoldRow:
    """Why the last admission pass held a task."""

    task: int
    reason: Reason
    name: str | None
    by: int | None
    since_ms: Millis | None
    mutex_since_ms: Millis | None = None  # since a mutex first held it


class AdmissionRepo:
    """The tables of admission."""

    __slots__ = ("_cache", "_session")

    def __init__(self, session: Session, cache: RowCache) -> None:
        self._session = session
        self._cache = cache

    def mark_dirty(self, tasks: Iterable[int | None]) -> None:
        """Mark tasks for the next admission pass; None stands for all bots and pools."""
        self._session.execute_many("insert_dirty", [(task,) for task in tasks])

    def dirty(self, after: int, count: int) -> list[tuple[int, int | None]]:
        """Return what an admission pass has to look at after a number: number, task."""
        return [(row[0], row[1]) for row in self._session.fetch("select_dirty", after, count)]

    def delete_dirty(self, numbers: Collection[int]) -> None:
        """Delete marks that an admission pass has taken up."""
        if numbers:
            self._session.execute("delete_dirty", numbers)

    def read_lock(self) -> AdmissionLock | None:
        """Read the admission lock; None while another transaction takes it."""
        found = self._session.fetch("lock_admission_lock")
        return AdmissionLock(*found[0]) if found else None

    def take_lock(self, epoch: int, holder: str, until: Millis) -> None:
        """Give the admission lock to a holder."""
        self._session.execute("take_admission_lock", epoch, holder, until)

    def extend_lock(self, epoch: int, until: Millis) -> bool:
        """Extend the admission lock until this transaction ends; False if `epoch` no longer holds it."""
        return self._session.execute("extend_admission_lock", epoch, until) == 1

    def release_lock(self, epoch: int) -> None:
        """Release the admission lock, if `epoch` still holds it."""
        self._session.execute("release_admission_lock", epoch)

    def contenders(self, state: State, after: int, count: int) -> list[ContenderRow]:
        """Return tasks of one state that need admission, in pages by id."""
        return _contenders(self._session.fetch("select_contenders", str(state), after, count))

    def contenders_among(self, ids: Collection[int]) -> list[ContenderRow]:
        """Return those of these tasks that need admission."""
        return _contenders(self._session.fetch("select_contenders_by_id", ids)) if ids else []

    def mutexes_of(self, ids: Collection[int]) -> dict[int, tuple[Mutex, ...]]:
        """Return the mutexes of tasks."""
        found: dict[int, tuple[Mutex, ...]] = {}
        known: dict[tuple[str, str | None], Mutex] = {}  # tasks share mutexes, so equal objects are shared, too
        for task, key, party in self._session.fetch("select_mutexes", ids) if ids else ():
            mutex = known.get((key, party)) or known.setdefault((key, party), Mutex(key, party))
            found[task] = (*found.get(task, ()), mutex)
        return found

    def limits_of(self, ids: Collection[int]) -> dict[int, tuple[tuple[str, int], ...]]:
        """Return the named limits that tasks use, and how much of each."""
        found: dict[int, tuple[tuple[str, int], ...]] = {}
        for task, name, amount in self._session.fetch("select_limits", ids) if ids else ():
            found[task] = (*found.get(task, ()), (name, amount))
        return found

    def pools(self) -> list[PoolRow]:
        """Return all configured pools."""
        found = self._session.fetch("select_pools")
        return [PoolRow(row[0], row[1], row[2] == 1, row[3], row[4], row[5] == 1) for row in found]

    def locked_pools(self) -> list[PoolRow]:
        """Return all configured pools; a lock keeps them as they are until this transaction ends."""
        if self._cache.pools is None:
            self._session.fetch("lock_pools_shared")
            self._cache.pools = self.pools()
        return self._cache.pools

    def prefetch_pools(self) -> None:
        """Hint that `locked_pools` follows."""
        if self._cache.pools is None:
            self._session.prefetch("lock_pools_shared")
            self._session.prefetch("select_pools")

    def set_pool(self, pool: PoolRow) -> None:
        """Configure a pool, once no other transaction relies on its old configuration."""
        self._session.fetch("lock_pools_exclusive")
        self._session.execute(
            "upsert_pool",
            pool.name,
            pool.capacity,
            int(pool.from_bots),
            pool.unit,
            float(pool.adjustment),
            int(pool.external),
        )
        self._cache.pools = None

    def tasks_without_admission(
        self, pool: str, states: Iterable[State], count: int, apart: Iterable[Reason] = ()
    ) -> list[int]:
        """Return tasks of a pool that have a weight and do not need admission yet; none for a reason in `apart`."""
        words = [str(one) for one in states], [str(one) for one in apart]
        return [row[0] for row in self._session.fetch("select_tasks_without_admission", pool, *words, count)]

    def named_limits(self) -> dict[str, int]:
        """Return all named limits."""
        return {row[0]: row[1] for row in self._session.fetch("select_named_limits")}

    def set_limit(self, name: str, total: int) -> None:
        """Configure a named limit."""
        self._session.execute("upsert_named_limit", name, total)

    def stake_after(self) -> dict[str, int | None]:
        """Return per mutex key how long mutexes hold a task before it reserves the key; None: it never does."""
        return {row[0]: row[1] for row in self._session.fetch("select_stake_after")}

    def set_stake_after(self, key: str, stake_after_ms: int | None) -> None:
        """Configure how long mutexes hold a task before it reserves a key; None: it never does."""
        self._session.execute("upsert_stake_after", key, stake_after_ms)

    def mutexes_in_state(self, state: State, count: int) -> list[MutexRow]:
        """Return the mutexes of tasks in a state, oldest tasks first."""
        return [MutexRow(*row) for row in self._session.fetch("select_mutexes_in_state", str(state), count)]

    def holds_of(self, ids: Collection[int]) -> dict[int, HoldRow]:
        """Return why the last admission pass held these tasks."""
        found = self._session.fetch("select_holds", ids) if ids else []
        return {row[0]: HoldRow(row[0], Reason(row[1]), *row[2:]) for row in found}

    def set_holds(self, rows: Sequence[Row]) -> None:
        """Store why tasks are held: task, reason, name, blocker, since, held by a mutex since."""
        self._session.execute_many("upsert_holds", rows)

    def delete_holds(self, ids: Collection[int]) -> None:
        """Delete why these tasks are held."""
        self._session.execute_many("delete_holds", [(id,) for id in ids])


def _contenders(rows: Sequence[Row]) -> list[ContenderRow]:
    return [
        ContenderRow(
            row[0], _STATES[row[1]], row[2], row[3], row[4], row[5], row[6], row[7], row[8] & CONSTRAINED != 0, row[9],
            row[8] & NAMES_SECRETS != 0,
        )
        for row in rows
    ]  # fmt: skip
