"""What `schedule()` costs: the first pass over everything that is pending, and a pass after one release.

A third of the pending tasks contend for mutexes, at most one per key is admitted; the others wait in a pool that soon
is full. So a pass looks at all of them once, and a release admits exactly one task, however many are pending.
The floor of a release is the bare commits that it needs, measured in the same run.

Another case has many tasks held by mutexes, first a moment ago and then for longer than `stake_after`, so that every
one of them has staked its keys: that may cost half as much again, and no more.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter, time_ns
from typing import TypeVar

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, ConcurrentBot, Open, running
from taskyard.core import ids
from taskyard.core.admission.rules import STAKE_AFTER_MS
from taskyard.core.graph.model import GraphDefinition
from taskyard.core.graph.parse import validate
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Signal
from taskyard.lifecycle.admission.pools import set_pool, set_stake_after
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Hello, Lease, Poll, Report
from taskyard.lifecycle.poll import PollOutcome, poll
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import NewGraph, Submitted, submit
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Store
from taskyard.store.repo.admission import PoolRow

Answer = TypeVar("Answer")

#: Mutexes that are contended for; each is held by one task at a time.
KEYS = 100
#: What the other pool carries at once.
CAPACITY = 900
RELEASES = 50
#: How many tasks mutexes hold in the case about age.
HELD = 39_000
TAKEOVERS = 3
#: One graph is one transaction of the set-up.
GRAPH = 1_000
BOT = "b1"


def measure(quick: bool) -> Sequence[Case]:
    """Measure both databases."""
    pending, must = (6_000, None) if quick else (100_000, 5.0)
    return [
        case
        for name, database in DATABASES.items()
        for case in (
            *_passes(name, database, pending, must),
            *_aged(name, database, HELD // 10 if quick else HELD),
            _beside(name, database, pending),
        )
    ]


def _passes(name: str, database: Open, pending: int, must: float | None) -> Iterator[Case]:
    """Measure the first pass, then single releases."""
    with database() as store:
        harness = _Harness(store, pending, _task)
        first = _seconds(harness.schedule_all)
        leases = harness.claim(KEYS)
        releases = [_seconds(partial(harness.release, lease)) for lease in leases[:RELEASES]]
        floor = 3 * median(_seconds(harness.commit) for _ in range(RELEASES))
    yield Case(f"{name}, first pass over {pending:,} pending", first, "s", "lower", must=must)
    yield Case(
        f"{name}, release one and schedule, {pending:,} pending, p50",
        median(releases) * 1e3,
        "ms",
        "lower",
        must=50.0,
        goal=5.0,
        floor=floor * 1e3,
    )
    yield Case(f"{name}, release one and schedule, the slowest", max(releases) * 1e3, "ms", "lower")


def _aged(name: str, database: Open, held: int) -> Iterator[Case]:
    """Measure the same with tasks that have not aged, and with tasks that all have."""
    with database() as one, database() as other:
        fresh, old = _Harness(one, held, _lone), _Harness(other, held, _lone)
        leases = [_first_leases(harness) for harness in (fresh, old)]
        old.advance(STAKE_AFTER_MS + 1_000)
        aging = _seconds(old.schedule_all)
        # In turn, so that whatever else the machine does hits both alike.
        taken = [(fresh.taken_over(), old.taken_over()) for _ in range(TAKEOVERS)]
        released = [
            (_seconds(partial(fresh.release, young)), _seconds(partial(old.release, aged)))
            for young, aged in zip(*leases, strict=True)
        ]
    yield Case(f"{name}, the pass in which {held:,} stake their keys", aging, "s", "lower")
    suffix = f"{held:,} aged / not aged"
    yield Case(f"{name}, take over from another server, {suffix}", _ratio(taken), "ratio", "lower", must=1.5)
    yield Case(f"{name}, release one and schedule, {suffix}", _ratio(released), "ratio", "lower", must=1.5)


def _first_leases(harness: "_Harness") -> tuple[Lease, ...]:
    harness.schedule_all()
    return harness.claim(KEYS)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return median(pair[1] for pair in pairs) / median(pair[0] for pair in pairs)


def _beside(name: str, database: Open, pending: int) -> Case:
    """Measure how long a bot waits while another server's pass reads everything."""
    with database() as store:
        _Harness(store, pending, _task)
        bot = ConcurrentBot()
        with running(store, events=False) as engine:
            bot.start(engine)
            while engine.schedule().more:
                pass
            p99 = bot.stop()
    return Case(f"{name}, renew and claim beside a pass over {pending:,}, p99", p99, "ms", "lower", must=150.0)


class _Harness:
    """A store with everything pending, one bot, and `schedule()`."""

    def __init__(self, store: Store, pending: int, task: Callable[[int], dict[str, object]]) -> None:
        self.store = store
        self._registry = Registry()
        self._polls = 0
        self._ahead_ms = 0
        self._servers = 0
        self._admission = self._another()
        self._do(lambda transaction: set_pool(transaction, PoolRow("full", CAPACITY, False), "benchmark"))
        if task is _task:
            self._do(_set_strict_order)
        dimensions = canonical({"id": BOT, "pool": ["roomy", "full"]})
        self._do(lambda transaction: hello(transaction, [Hello(BOT, "s1", dimensions, 1_000)]))
        for start in range(0, pending, GRAPH):
            self._submit(_graph(start, min(pending, start + GRAPH), task))

    def schedule_all(self) -> None:
        """Call it until there is nothing left to do."""
        while self._admission.schedule().more:
            pass

    def taken_over(self) -> float:
        """Let another server take over, without any memory; return the seconds of its first pass."""
        self._admission = self._another()
        return _seconds(self.schedule_all)

    def advance(self, ms: int) -> None:
        """Advance the clock."""
        self._ahead_ms += ms

    def claim(self, want: int) -> tuple[Lease, ...]:
        """Let the bot claim as many tasks that hold mutexes."""
        found = self._poll(Poll(BOT, "s1", self._next_poll(), want=KEYS + CAPACITY)).leases
        with self.store.read() as repo:
            holding = repo.admission.mutexes_of([lease.task for lease in found])
        return tuple(lease for lease in found if lease.task in holding)[:want]

    def release(self, lease: Lease) -> None:
        """One holder of a mutex succeeds, and the next one for its key is admitted."""
        report = Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED)
        self._poll(Poll(BOT, "s1", reports=(report,)))
        assert self._admission.schedule().admitted == 1

    def commit(self) -> None:
        """A transaction that changes next to nothing."""
        with self.store.write() as repo:
            repo.admission.set_stake_after("none", None)
            repo.admission.set_stake_after("none", 0)

    def _poll(self, one: Poll) -> PollOutcome:
        answer = self._do(lambda transaction: poll(transaction, [one]))[0]
        assert isinstance(answer, PollOutcome), answer
        return answer

    def _next_poll(self) -> str:
        self._polls += 1
        return f"p{self._polls}"

    def _another(self) -> Admission:
        self._servers += 1
        return Admission(self._do, self.store.read, self._now, f"benchmark-{self._servers}")

    def _now(self) -> Millis:
        return Millis(_now() + self._ahead_ms)

    def _submit(self, graph: GraphDefinition) -> None:
        now = _now()
        keys = [int(key) for key in ids.mint(now, len(graph.tasks) + 1, 0)]
        labels = dict(zip(graph.tasks, keys[1:], strict=True))
        new_tasks = NewTasks(keys[0], list(graph.tasks.values()), labels, now, substitutes=False)
        submission = NewGraph(
            graph, new_tasks, ("taskyard", graph.name, graph.routing, "", "[]", str(now)), "benchmark"
        )
        answer = self._do(lambda transaction: submit(transaction, [submission]))[0]
        assert isinstance(answer, Submitted), answer

    def _do(self, act: Callable[[Transaction], Answer], /) -> Answer:
        with self.store.write() as repo:
            transaction = Transaction(repo, self._now(), self._registry)
            answer = act(transaction)
            transaction.finish()
            return answer


def _set_strict_order(transaction: Transaction) -> None:
    """What is held stakes its keys at once, so that a release frees one task and no more."""
    for key in range(KEYS):
        set_stake_after(transaction, f"project:{key}", 0, "benchmark")


def _graph(start: int, end: int, task: Callable[[int], dict[str, object]]) -> GraphDefinition:
    validation = validate({"tasks": {f"t{number}": {"task": task(number)} for number in range(start, end)}}, now=_now())
    assert validation.graph is not None, validation.faults
    return validation.graph


def _task(number: int) -> dict[str, object]:
    payload = {"command": ["true"]}
    if number % 3:
        return {"payload": payload, "dimensions": {"pool": "full"}}
    key, rank = number // 3 % KEYS, number // 3 // KEYS
    # At each key, one that shares and one that wants to be alone take turns: a release frees one and no more.
    project = {"key": f"project:{key}"} | ({"party": "job"} if rank % 2 else {})
    return {
        "payload": payload,
        "dimensions": {"pool": "roomy"},
        "mutexes": [project, {"key": f"inventory:{key}", "party": "job"}],
    }


def _lone(number: int) -> dict[str, object]:
    """One of many that want a key alone, and share another."""
    key = number % KEYS
    mutexes = [{"key": f"project:{key}"}, {"key": f"inventory:{key}", "party": "job"}]
    return {"payload": {"command": ["true"]}, "dimensions": {"pool": "roomy"}, "mutexes": mutexes}


def _now() -> Millis:
    return Millis(time_ns() // 1_000_000)


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


if __name__ == "__main__":
    sys.exit(main("schedule", measure))
