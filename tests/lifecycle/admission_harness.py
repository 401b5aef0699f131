"""Harness for tests of admission: `schedule()`, and an independent check of what it decided.

The check reads the whole store afresh and calls the rules in core, so it depends on nothing that a pass remembers.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from taskyard.core import fleet, ids
from taskyard.core.admission.rules import FOR_CAPACITY, Contender, Decision, Facts, Pool, decide, excludes
from taskyard.core.graph.model import Mutex
from taskyard.core.matching import canonical
from taskyard.core.states import HOLDING, Millis, Reason, Signal, State, TaskId
from taskyard.core.structs import struct_replace as replace
from taskyard.lifecycle import bot_sessions
from taskyard.lifecycle.admission.pools import add_pool_contenders, set_limit, set_pool, set_stake_after
from taskyard.lifecycle.admission.scheduler import Admission, Bounds, PassOutcome
from taskyard.lifecycle.commands import Hello, Lease
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import transition_by
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import ContenderRow, HoldRow, PoolRow
from tests.lifecycle.harness import BaseHarness
from tests.lifecycle.recount import recount


class AdmissionHarness(BaseHarness):
    """A harness with pools, limits and passes of admission."""

    def __init__(self, url: str, bounds: Bounds = Bounds()) -> None:  # noqa: B008 - it is frozen
        super().__init__(url)
        self.admission = self.other_server("one", bounds)

    def other_server(self, holder: str, bounds: Bounds = Bounds()) -> Admission:  # noqa: B008 - it is frozen
        """Admission as another server on the same store runs it."""
        return Admission(self.do, self.store.read, lambda: self.now, holder, bounds)

    def schedule(self) -> PassOutcome:
        return self.admission.schedule()

    # People.

    def submit_task(
        self, mutexes: str = "", pool: str = "", limits: Mapping[str, int] | None = None, **more: object
    ) -> int:
        """Submit a graph of one task; mutexes are given as "a b/x": key a alone, key b with party x."""
        node: dict[str, object] = {"payload": {"command": ["true"]}, "mutexes": documents(parsed(mutexes))} | more
        if pool:
            node["dimensions"] = {"pool": pool}
        if limits:
            node["limits"] = dict(limits)
        return self.submit({"tasks": {"t": {"task": node}}})["t"]

    def submit_each(self, *mutexes: str, pool: str = "") -> list[int]:
        return [self.submit_task(one, pool) for one in mutexes]

    def pool(self, name: str, capacity: int | None = None, from_bots: bool = False) -> None:
        left = self.do(lambda transaction: set_pool(transaction, PoolRow(name, capacity, from_bots), "ann"))
        assert isinstance(left, bool), left
        while left:
            left = self.do(lambda transaction: add_pool_contenders(transaction, name))

    def limit(self, name: str, total: int) -> None:
        assert self.do(lambda transaction: set_limit(transaction, name, total, "ann")) is None

    def stake_after(self, key: str, ms: int | None) -> None:
        assert self.do(lambda transaction: set_stake_after(transaction, key, ms, "ann")) is None

    def cancel(self, id: int) -> None:
        def act(transaction: Transaction) -> None:
            transaction.apply([transition_by(transaction.lock_tasks([id])[id], Signal.CANCEL)])

        self.do(act)

    def cancel_graph(self, id: int) -> None:
        """Mark only the graph as canceled; its tasks are canceled later."""

        def act(transaction: Transaction) -> None:
            graph = transaction.lock_tasks([id])[id].graph
            transaction.repo.graphs.mark_canceled(graph, self.now)
            transaction.adjust_counts(graph)

        self.do(act)

    # Bots.

    def connect_bot(self, *pools: str, bot: str = "b1", slots: int = 100) -> None:
        """Let a bot say hello that serves these pools and the default pool."""
        dimensions = canonical({"id": bot, "pool": [*pools, "default"]})
        self.do(lambda transaction: bot_sessions.hello(transaction, [Hello(bot, "s1", dimensions, slots)]))

    def lose_bot(self, bot: str) -> None:
        """Let a bot be silent for too long, and mark it as missing."""

        def act(transaction: Transaction) -> None:
            bot_sessions.end_lost_attempts(transaction, [(bot, "")])
            transaction.repo.bots.mark_missing([bot])
            transaction.mark_dirty(None)

        self.advance(fleet.MISSING_WITHIN_MS + 1)
        self.do(act)

    def run(self, bot: str = "b1", want: int = 100) -> dict[int, Lease]:
        """Let a bot claim what it can."""
        return {lease.task: lease for lease in self.claim(bot, want)}

    def finish(self, leases: Mapping[int, Lease], *tasks: int, bot: str = "b1") -> None:
        """Report success for these tasks, or for all leases."""
        for id in tasks or leases:
            self.end(bot, leases[id])

    # Reads.

    def waiting(self, tasks: Sequence[int]) -> list[int]:
        """Those of `tasks` that are admitted and hold what they need."""
        with self.store.read() as repo:
            holding = {task.id for task in repo.tasks.read(list(tasks)) if task.state in HOLDING}
        return [id for id in tasks if id in holding]

    def hold(self, id: int) -> HoldRow | None:
        with self.store.read() as repo:
            return repo.admission.holds_of([id]).get(id)

    def moved_ms(self, id: int) -> Millis:
        return Millis(self.task(id).moved_ms)

    def reason(self, id: int) -> Reason | None:
        found = self.hold(id)
        return None if found is None else found.reason

    def lock(self) -> str | None:
        """The holder of the lock of the pass."""
        with self.store.read() as repo:
            lock = repo.admission.read_lock()
        return None if lock is None else lock.holder

    def dirty(self) -> list[int | None]:
        with self.store.read() as repo:
            return [task for _, task in repo.admission.dirty(0, 100_000)]

    def decide_afresh(self) -> Decision:
        """The decision of the core rules on facts that are read afresh."""
        with self.store.read() as repo:
            return decide(facts(repo, self), self.now)

    def check_holds(self) -> None:
        """Check that each pending task has a stored hold with the right reason, and that no other task has one."""
        with self.store.read() as repo:
            found = facts(repo, self)
            rows = repo.admission.holds_of(
                [row.id for state in State for row in repo.admission.contenders(state, 0, 1_000)]
            )
        stored = {text(id): (_plain(row.reason), row.name) for id, row in rows.items()}
        # A task may be excluded at more than one of its keys, and the stored hold may name any of them.
        pending = tuple(_at_key(task, *stored[task.id]) if task.id in stored else task for task in found.pending)
        expected = {}
        for task in pending:
            others = tuple(other for other in found.pending if other.id != task.id)
            held = {one.id: one for one in decide(replace(found, pending=(*others, task)), self.now).held}
            expected[task.id] = (_plain(held[task.id].reason), held[task.id].name)
        assert stored == expected

    def audit(self) -> None:
        """Check exclusion, limits and capacity with a query over state."""
        with self.store.read() as repo:
            found = facts(repo, self)
        parties: defaultdict[str, list[str | None]] = defaultdict(list)
        used: Counter[str] = Counter()
        weights: defaultdict[str, list[int]] = defaultdict(list)
        for holder in found.holding:
            for mutex in holder.mutexes:
                assert not any(excludes(mutex.party, other) for other in parties[mutex.key]), mutex
                parties[mutex.key].append(mutex.party)
            used.update(dict(holder.limits))
            weights[holder.pool] += [holder.weight] if holder.weight else []
        assert all(amount <= found.limits[name] for name, amount in used.items())
        for pool in found.pools:
            assert pool.capacity is None or sum(weights[pool.name]) <= pool.capacity or len(weights[pool.name]) == 1


@contextmanager
def admission_harness(url: str, bounds: Bounds = Bounds()) -> Iterator[AdmissionHarness]:  # noqa: B008 - it is frozen
    harness = AdmissionHarness(url, bounds)
    try:
        yield harness
        harness.audit()
        with harness.store.read() as repo:
            recount(repo)
    finally:
        harness.close()


def parsed(mutexes: str) -> tuple[Mutex, ...]:
    """Read mutexes as "a b/x"."""
    return tuple(Mutex(key, party or None) for key, _, party in (word.partition("/") for word in mutexes.split()))


def documents(mutexes: Sequence[Mutex]) -> list[dict[str, str]]:
    return [{"key": one.key} | ({"party": one.party} if one.party else {}) for one in mutexes]


def _plain(reason: Reason) -> Reason:
    # A task behind the one that reserves a pool keeps its reason: it waits for capacity of the pool either way.
    return Reason.CAPACITY if reason in FOR_CAPACITY else reason


def _at_key(task: Contender, reason: Reason, key: str | None) -> Contender:
    if reason is not Reason.MUTEX:
        return task
    return replace(task, mutexes=tuple(one for one in task.mutexes if one.key == key))


def text(id: int) -> TaskId:
    return TaskId(ids.text_of(ids.Key(id)))


def facts(repo: Repo, harness: BaseHarness, also: Collection[int] = ()) -> Facts:
    """Read all facts for admission; tasks in `also` count as pending."""
    bots = [bot.facts for bot in repo.bots.read_all()]
    rows = [row for state in State for row in repo.admission.contenders(state, 0, 1_000_000)]
    tasks = [(row, _contender(repo, row, bots)) for row in rows]
    pools = (
        Pool(one.name, fleet.capacity(one.name, bots, one.unit, one.adjustment) if one.from_bots else one.capacity)
        for one in repo.admission.pools()
    )
    return Facts(
        tuple(task for row, task in tasks if row.state is State.PENDING or row.id in also),
        tuple(task.admitted(row.moved_ms) for row, task in tasks if row.state in HOLDING),
        tuple(pools),
        repo.admission.named_limits(),
        repo.admission.stake_after(),
    )


def _contender(repo: Repo, row: ContenderRow, bots: Sequence[fleet.BotFacts]) -> Contender:
    queue = {one.id: one for one in repo.queues.after(-1)}[row.queue]
    hold = repo.admission.holds_of([row.id]).get(row.id)
    since = hold.since_ms if hold is not None and hold.reason in FOR_CAPACITY else None
    served = row.queue == 0 or fleet.served(queue.dimensions, bots)
    wanted = (repo.admission.mutexes_of([row.id]).get(row.id, ()), repo.admission.limits_of([row.id]).get(row.id, ()))
    what = (queue.pool, row.weight, *wanted)
    by_mutex = None if hold is None else hold.mutex_since_ms
    return Contender(text(row.id), row.priority, row.created_ms, *what, row.not_before_ms, served, since, by_mutex)
