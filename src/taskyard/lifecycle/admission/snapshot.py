"""All tasks that need admission, as of the last look at the store: the memory of admission between two passes.

It is built from the store once and then updated: dirty rows name the tasks that came, went or gave something back, and
a dirty row without a task says that bots or pools changed. The rules are those of the core. The snapshot can be dropped
and built again at any time. It writes nothing; what it decides becomes pending pages.

It reads and decides in steps, so that the caller can do something else in between, and continues where it stopped.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from taskyard.core import fleet, ids
from taskyard.core.admission.index import AdmissionIndex
from taskyard.core.admission.rules import FOR_CAPACITY, Contender, Demand, Facts, Held, Lack, Pool, unadmitted
from taskyard.core.fleet import BotFacts
from taskyard.core.graph.model import Mutex
from taskyard.core.states import HOLDING, Millis, Reason, State, TaskId
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.admission.writes import (
    ADMISSIBLE,
    SECRETS_CHANGED,
    UNENTERED,
    Page,
    PageOutcome,
    PendingPages,
)
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import SERVER_QUEUE
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import ContenderRow, HoldRow, PoolRow
from taskyard.store.repo.secrets import LackedSecret

#: How many rows one query reads when everything is read, and how many dirty rows: some 40 ms.
READ_MAX: Final = 2_000
#: How many tasks are judged in one step: some 20 ms.
JUDGED_MAX: Final = 1_000
#: How many dirty rows one look reads. Their tasks are read one by one, so this is some 20 ms.
DIRTY_MAX: Final = 1_000

#: Returns the ids of the keys with which this server can open secrets.
SecretKeys = Callable[[], Collection[str]]
#: Why a task is held: the reason, the name of the limit, mutex or pool, and the task that is in the way.
Hold = tuple[Reason, str | None, TaskId | None]


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The limits of admission: capacities of pools, totals of named limits, and when tasks stake mutexes."""

    capacities: Mapping[str, int | None]
    totals: Mapping[str, int]
    stake_after: Mapping[str, int | None]


class AdmissionSnapshot:
    """The pending and the holding tasks, whether a bot serves them, and why each was last held."""

    def __init__(
        self, limits: AdmissionLimits, registry: Registry, since: Millis, secret_keys: SecretKeys = frozenset
    ) -> None:
        self.since = since  # when everything was last read
        self.now = since
        self.pending = PendingPages()
        self.read_all = True  # whether the last look read every dirty row
        self.first_pass = True  # whether not all has been decided yet
        self.reading = True  # whether more has to be read before it can look
        self.pools_to_enter: set[str] = set()  # pools whose tasks have to be made contenders before it can look
        self.must_look = True  # whether to look at every dirty row first: all is new, or pools changed
        self.deciding = False  # whether more has to be decided before all pending pages can be written
        self.stale = True  # whether something may have changed since the last look
        self.must_rebuild = False  # whether everything has to be read again
        self._limits = limits
        self._registry = registry
        pools = tuple(Pool(name, capacity) for name, capacity in limits.capacities.items())
        self._index = AdmissionIndex(Facts(pools=pools, limits=limits.totals, stake_after=limits.stake_after))
        self._pending: set[TaskId] = set()
        self._holding: set[TaskId] = set()
        self._queue_of: dict[TaskId, int] = {}  # of tasks with mutexes
        self._by_queue: defaultdict[int, dict[TaskId, Contender]] = defaultdict(dict)  # the same, by queue
        self._served: dict[int, bool] = {}
        self._waiting_for_bot: set[TaskId] = set()  # pending, and their slice waits for a bot
        self._secret_keys = secret_keys
        self._lacking: set[TaskId] = set()  # pending, and a secret cannot be given to them
        self._secrets_changed = False
        self._written_holds: dict[TaskId, Hold] = {}
        self._new_holds: dict[TaskId, Held] = {}  # what was decided of the tasks that were not admitted
        self._admitted_some = False  # whether something was admitted since the current walk began
        self._unread: list[State] = sorted(ADMISSIBLE)
        self._read_up_to = 0
        self._dirty_at_start: set[int | None] = set()  # what was dirty when the reading began
        self._to_reread: set[int] = set()  # to be read again though they are not dirty
        self._gone: set[int] = set()  # dirty, and no longer pending
        self._skipped_some = False  # a task was not admitted after all, so others may be

    def __len__(self) -> int:
        return len(self._pending) + len(self._holding)

    @property
    def prepared(self) -> bool:
        """Whether all that was read is decided."""
        return not (self.reading or self.pools_to_enter or self.must_look or self.deciding)

    @property
    def next_moment(self) -> Millis | None:
        """When time alone next changes a decision."""
        return self._index.next_moment()

    @property
    def unsettled(self) -> bool:
        """Whether another pass has something to do though nothing is dirty."""
        return bool(self.pending) or self._skipped_some

    # Reading.

    @classmethod
    def begin(
        cls,
        repo: Repo,
        registry: Registry,
        now: Millis,
        beat: Callable[[], None],
        secret_keys: SecretKeys = frozenset,
    ) -> "AdmissionSnapshot":
        """Begin to read everything, with all tasks that hold something; `beat` is called repeatedly meanwhile.

        Holding tasks are all read in one read transaction: one that changes its state between two reads would be
        missed, and what it holds would be given away. Pending tasks may be read later: they are dirty whenever they
        move. What is dirty now needs no second look, because all that is read later is newer.
        """
        snapshot = cls(_limits(repo, _bots(repo)), registry, now, secret_keys)
        snapshot._dirty_at_start = snapshot._read_dirty(repo, READ_MAX)
        while not snapshot.read_all:
            snapshot._dirty_at_start |= snapshot._read_dirty(repo, READ_MAX)
        snapshot._note_changed_pools(snapshot._dirty_at_start)
        for state in sorted(HOLDING):
            after = 0
            while page := repo.admission.contenders(state, after, READ_MAX):
                snapshot._place_all(repo, page)
                after = page[-1].id
                beat()
        return snapshot

    def read_on(self, repo: Repo) -> None:
        """Read some more of the pending tasks."""
        page = repo.admission.contenders(self._unread[0], self._read_up_to, READ_MAX)
        self._place_all(repo, page)
        self._read_up_to = page[-1].id if page else 0
        if len(page) < READ_MAX:
            self._unread.pop(0)
            self._read_up_to = 0
        if not self._unread:
            self.reading = False
            self._collect_gone(self._dirty_at_start)
            self._dirty_at_start = set()

    def look(self, repo: Repo, now: Millis) -> None:
        """Read what changed."""
        self.now, self.stale, self._skipped_some = max(self.now, now), False, False
        dirty = self._read_dirty(repo, DIRTY_MAX)
        if None in dirty and not self._update_limits(repo):
            self.must_rebuild = True
            return
        self._note_changed_pools(dirty)
        named = {id for id in dirty if id} | self._to_reread
        self._to_reread.clear()
        if self._secrets_changed:
            named |= {ids.key_of(id) for id in self._lacking}
            self._secrets_changed = False
        for id in named:
            self._forget(_text(id))
        self._place_all(repo, repo.admission.contenders_among(named))
        self._collect_gone(named)
        if self.read_all or not self.must_look:
            if self.must_look:
                self._unadmit_unserved()
            self.must_look, self.deciding = False, True

    def pool_entered(self, pool: str) -> None:
        """Note that all tasks of a pool have been made contenders; each of them is dirty."""
        self.pools_to_enter.discard(pool)

    # Deciding.

    def decide(self, now: Millis, judged_max: int) -> int:
        """Decide which tasks are admitted now, and which are held for another reason than before; return how many
        were judged.

        Admitted tasks become pending at once, and the reasons of the held ones when the decision is complete.
        """
        self.now = max(self.now, now)
        before = self._index.judged
        while self.deciding and self._index.judged - before < judged_max:
            self._decide(before + judged_max - self._index.judged)
        return self._index.judged - before

    def _decide(self, judged_max: int) -> None:
        decision = self._index.decide(self.now, judged_max)
        for id in decision.admitted:
            self._pending.discard(id)
            self._holding.add(id)
            self._new_holds.pop(id, None)
        self.pending.admit.extend(decision.admitted)
        self._new_holds |= {held.id: held for held in decision.held}
        self._admitted_some |= bool(decision.admitted)
        if self._index.cut:
            return
        # A second walk admits nothing else, but corrects the reasons: tasks that the first walk met before an
        # admitted one were judged without it.
        self.deciding, self._admitted_some = self._admitted_some, False
        if not self.deciding:
            news, self._new_holds, self.first_pass = self._new_holds, {}, False
            self._collect_holds(news)
            self.pending.gone.extend(sorted(self._gone))
            self._gone.clear()

    def _collect_holds(self, news: Mapping[TaskId, Held]) -> None:
        for id, held in news.items():
            felt = (held.reason is Reason.NO_BOT) is not (id in self._waiting_for_bot)
            if felt:
                self.pending.bot_waits.append(held)
            elif self._written_holds.get(id) != _hold_of(held):
                self.pending.held.append(held)

    def page(self, page_max: int) -> Page | None:
        """Take the next page that can be written; None if more has to be decided first, or there is none."""
        if self.deciding and len(self.pending.admit) >= page_max:
            return self.pending.transitions_page(page_max)
        return self.pending.page(page_max) if self.pending and self.prepared else None

    # Learning what was written.

    def learn(self, page: Page, outcome: PageOutcome) -> None:
        """Update the snapshot by what a page has changed."""
        self.stale = True
        for id in outcome.admitted:
            self._written_holds.pop(id, None)
            self._waiting_for_bot.discard(id)
        for id in page.admit:
            if id not in outcome.admitted:
                self._skip(id, id in outcome.canceled)
        for held in outcome.written:
            self._written_holds[held.id] = _hold_of(held)
        for held in page.bot_waits:
            (self._waiting_for_bot.add if held.reason is Reason.NO_BOT else self._waiting_for_bot.discard)(held.id)

    def _skip(self, id: TaskId, canceled: bool) -> None:
        self._forget(id)
        self._skipped_some = True
        # If the graph is being canceled, the task becomes dirty by that. Any other task is read again.
        if not canceled:
            self._to_reread.add(ids.key_of(id))

    # How contenders are kept.

    def _read_dirty(self, repo: Repo, count: int) -> set[int | None]:
        """Read dirty rows; they are deleted when what they lead to is written."""
        rows = repo.admission.dirty(self.pending.dirty_rows[-1] if self.pending.dirty_rows else 0, count)
        self.read_all = len(rows) < count
        self.pending.dirty_rows.extend(number for number, _ in rows)
        found = {task for _, task in rows}
        self._secrets_changed |= SECRETS_CHANGED in found
        return found - {SECRETS_CHANGED}

    def _collect_gone(self, dirty: Iterable[int | None]) -> None:
        """Collect tasks that are no longer pending, so that their holds are deleted."""
        self._gone |= {id for id in dirty if id and _text(id) not in self._pending}

    def _note_changed_pools(self, dirty: Collection[int | None]) -> None:
        """If limits changed, decide nothing before all tasks are counted that hold something by the old ones."""
        self.must_look |= None in dirty or UNENTERED in dirty
        if UNENTERED in dirty:
            self.pools_to_enter |= {pool for pool, capacity in self._limits.capacities.items() if capacity is not None}

    def _unadmit_unserved(self) -> None:
        """Queued tasks that hold mutexes and wait for a bot that is gone have to give the mutexes back."""
        for queue, served in self._served.items():
            holding = (task for id, task in self._by_queue[queue].items() if id in self._holding)
            self.pending.unadmit.extend(unadmitted(struct_replace(task, served=served) for task in holding))

    def _place_all(self, repo: Repo, rows: Sequence[ContenderRow]) -> None:
        """Put tasks into the index as they are."""
        rows = [row for row in rows if row.state in HOLDING or row.state in ADMISSIBLE]
        excluding = [row.id for row in rows if row.is_constrained]
        mutexes, limits = repo.admission.mutexes_of(excluding), repo.admission.limits_of(excluding)
        holds = repo.admission.holds_of([row.id for row in rows if row.state in ADMISSIBLE])
        lacks = self._read_lacks(repo, [row.id for row in rows if row.names_secrets and row.state in ADMISSIBLE])
        self._read_served(repo, {row.queue for row in rows if row.id in mutexes})
        pools = {queue: self._registry.queue(repo, queue).pool for queue in {row.queue for row in rows}}
        for row in rows:
            hold, what = holds.get(row.id), (mutexes.get(row.id, ()), limits.get(row.id, ()))
            task = self._contender(row, pools[row.queue], what, hold)
            if row.id in lacks:
                task = struct_replace(task, lacks=lacks[row.id])
                self._lacking.add(task.id)
            self._place(row, task, hold)

    def _read_lacks(self, repo: Repo, tasks: Sequence[int]) -> Mapping[int, Lack]:
        """Return which secrets cannot be given to tasks."""
        found = repo.secrets.lacking(tasks, self._secret_keys()) if tasks else {}
        return {id: lack_of(one) for id, one in found.items()}

    def _contender(
        self,
        row: ContenderRow,
        pool: str,
        what: tuple[tuple[Mutex, ...], tuple[Demand, ...]],
        hold: HoldRow | None,
    ) -> Contender:
        mutexes, limits = what
        since = hold.since_ms if hold is not None and hold.reason in FOR_CAPACITY and hold.name == pool else None
        served = not mutexes or self._served[row.queue]
        return Contender(
            _text(row.id),
            row.priority,
            row.created_ms,
            pool,
            row.weight,
            mutexes,
            limits,
            row.not_before_ms,
            served,
            since,
            None if hold is None else hold.mutex_since_ms,
        )

    def _place(self, row: ContenderRow, task: Contender, hold: HoldRow | None) -> None:
        if task.mutexes:
            self._queue_of[task.id] = row.queue
            self._by_queue[row.queue][task.id] = task
        if row.state in HOLDING:
            self._holding.add(task.id)
            self._pending.discard(task.id)
            self._index.take(task.admitted(row.moved_ms))
            return
        self._pending.add(task.id)
        self._holding.discard(task.id)
        self._gone.discard(row.id)
        self._index.arrive(task)
        if row.waits_since_ms is not None:
            self._waiting_for_bot.add(task.id)
        if hold is not None:
            self._written_holds[task.id] = (hold.reason, hold.name, None if hold.by is None else _text(hold.by))

    def _forget(self, id: TaskId) -> None:
        """Remove a task from the index."""
        self._index.leave(id)
        self._index.give_back(id)
        self._pending.discard(id)
        self._holding.discard(id)
        self._waiting_for_bot.discard(id)
        self._lacking.discard(id)
        self._written_holds.pop(id, None)
        self._new_holds.pop(id, None)
        queue = self._queue_of.pop(id, None)
        if queue is not None:
            self._by_queue[queue].pop(id, None)

    # Bots and pools.

    def _update_limits(self, repo: Repo) -> bool:
        """Read bots and pools again; return False if the whole snapshot has to be built again."""
        bots = _bots(repo)
        before, self._limits = self._limits, _limits(repo, bots)
        if self._limits.stake_after != before.stake_after:
            return False
        for name, capacity in self._limits.capacities.items():
            if name not in before.capacities or before.capacities[name] != capacity:
                self._index.set_capacity(Pool(name, capacity))
        for name, total in self._limits.totals.items():
            if before.totals.get(name) != total:
                self._index.set_limit_total(name, total)
        self._update_served(repo, bots)
        return True

    def _update_served(self, repo: Repo, bots: Collection[BotFacts]) -> None:
        before, self._served = self._served, {}
        for queue in [queue for queue, tasks in self._by_queue.items() if not tasks]:
            del self._by_queue[queue]
        for queue, tasks in self._by_queue.items():
            served = self._served[queue] = self._is_served(repo, queue, bots)
            if before[queue] is not served:
                for id in tasks:
                    self._index.serve(id, served)

    def _read_served(self, repo: Repo, queues: Collection[int]) -> None:
        unknown = [queue for queue in queues if queue not in self._served]
        bots = _bots(repo) if unknown else ()
        for queue in unknown:
            self._served[queue] = self._is_served(repo, queue, bots)

    def _is_served(self, repo: Repo, queue: int, bots: Collection[BotFacts]) -> bool:
        dimensions = self._registry.queue(repo, queue).dimensions
        return queue == SERVER_QUEUE or fleet.served(dimensions, bots)


def lack_of(one: LackedSecret) -> Lack:
    """Say why a secret cannot be given to a task."""
    name = f"{one.pool}/{one.name}" if one.name else ""
    return (Reason.NO_SECRET if one.key_id is None else Reason.NO_SECRET_KEY, name)


def _bots(repo: Repo) -> tuple[BotFacts, ...]:
    return tuple(bot.facts for bot in repo.bots.read_all())


def _limits(repo: Repo, bots: Collection[BotFacts]) -> AdmissionLimits:
    capacities = {pool.name: _capacity(pool, bots) for pool in repo.admission.pools()}
    return AdmissionLimits(capacities, repo.admission.named_limits(), repo.admission.stake_after())


def _capacity(pool: PoolRow, bots: Iterable[BotFacts]) -> int | None:
    return fleet.capacity(pool.name, bots, pool.unit, pool.adjustment) if pool.from_bots else pool.capacity


def _hold_of(held: Held) -> Hold:
    return (held.reason, held.name, held.by)


def _text(key: int) -> TaskId:
    return TaskId(ids.text_of(ids.Key(key)))
