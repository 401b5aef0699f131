"""Several servers on one database, whose transactions can be interleaved at will.

A test can halt a transaction before a named statement or before its commit, and let it go on later. Nothing sleeps: the
test asks PostgreSQL whether a transaction waits for a row lock.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Barrier, Event, Lock
from typing import Any, Final, TypeVar, cast

import psycopg

from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Signal
from taskyard.engine.clock import SystemClock
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle import timeouts
from taskyard.lifecycle.commands import Done, Hello, Lease, Poll, Refusal, Renewal, Renewed, Report
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.queries import POSTGRES, SQLITE, Session, TransactionConflict, statements
from taskyard.views.history import read_history, replay
from tests.engine.harness import TURNS_MAX, WAIT_S, wait_until
from tests.lifecycle.harness import START, Labels
from tests.lifecycle.recount import recount
from tests.races import invariants

Answer = TypeVar("Answer")
#: The place before a commit, as if it were a statement.
COMMIT: Final = "commit"
#: Who has the same key at this moment though they exclude each other, and which pool carries too much; one alone may.
CLASHES = """
SELECT m.key FROM task_mutex m JOIN task t ON t.id = m.task_id WHERE t.state IN ('waiting', 'running', 'stopping')
 GROUP BY m.key HAVING count(*) > 1 AND (count(DISTINCT m.party) > 1 OR count(m.party) < count(*))
"""
OVERUSE = """
SELECT p.name, sum(t.weight) FROM task t JOIN queue q ON q.id = t.queue_id JOIN pool p ON p.name = q.pool
 WHERE t.state IN ('waiting', 'running', 'stopping') GROUP BY p.name, p.capacity HAVING sum(t.weight) > p.capacity
   AND count(*) > 1
"""
#: How many histories an audit replays; the checker of invariants walks through every one anyway.
HISTORIES_MAX: Final = 100


class SharedClock(SystemClock):
    """A fake clock that all servers share; each `tick` gives a different time."""

    def __init__(self, start: Millis = START) -> None:
        super().__init__()
        self._ms = start
        self._tick_lock = Lock()

    def now(self) -> Millis:
        return self._ms

    def tick(self) -> Millis:
        with self._tick_lock:
            return self.advance(1)

    def advance(self, ms: int) -> Millis:
        self._ms = Millis(self._ms + ms)
        return self._ms


class Halt:
    """A point at which one transaction halts until the test releases it."""

    def __init__(self) -> None:
        self._reached = Event()
        self._released = Event()
        self.timed_out = False  # the test did not release it in time

    def block(self) -> None:
        self._reached.set()
        self.timed_out = not self._released.wait(WAIT_S)

    def reached(self) -> None:
        """Wait until a transaction has halted here."""
        assert self._reached.wait(WAIT_S), "no transaction came to this point"

    def release(self) -> None:
        """Let the transaction go on."""
        self._released.set()


#: Where a transaction can be halted: before each statement, and before the commit.
PLACES = {COMMIT, *statements(POSTGRES), *statements(SQLITE)}


class HaltingStore:
    """A store whose transactions can be halted; it counts the conflicts they lose."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.halts: dict[str, list[Halt | None]] = {}
        self.passed: Counter[str] = Counter()  # how often each place was reached
        self.lost = 0
        self.after_commit: Callable[[], None] = lambda: None

    @contextmanager
    def write(self) -> Iterator[Repo]:
        try:
            with self._store.write() as repo:
                session: Any = repo.tasks._session
                yield Repo(cast("Session", _Halting(session, self.count_pass)))
                # A transaction that halts here has written everything, also what could be sent with the commit.
                getattr(session, "settle", bool)()
                self.count_pass(COMMIT)
        except TransactionConflict:
            self.lost += 1
            raise
        self.after_commit()

    @contextmanager
    def read(self) -> Iterator[Repo]:
        with self._store.read() as repo:
            yield repo

    def close(self) -> None:
        self._store.close()

    def count_pass(self, name: str, arrive: Callable[[], object] = bool) -> None:
        self.passed[name] += 1
        waiting = self.halts.get(name)
        halt = waiting.pop(0) if waiting else None
        if halt is not None:
            arrive()
            halt.block()


class _Halting:
    """A session that may halt before each statement, however it is executed."""

    def __init__(self, session: Session, count_pass: Callable[[str, Callable[[], object]], None]) -> None:
        self._session = session
        self._pass_by = count_pass
        # Statements that were only prefetched have to be executed before the halt.
        self._arrive: Callable[[], object] = getattr(session, "collect", bool)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        execute: Callable[..., Any] = getattr(self._session, method)

        def halting(name: str, *arguments: object) -> Any:
            self._pass_by(name, self._arrive)
            return execute(name, *arguments)

        return halting


class Server:
    """One server: an engine whose ticker has no thread, and a bot that speaks to it."""

    def __init__(self, url: str, clock: SharedClock, name: str) -> None:
        self.url = url
        self.name = name
        self.clock = clock
        self.store = HaltingStore(open_store(url))
        self.engine = Engine(self.store, clock)
        self.engine.writer_thread.start()
        self._threads = ThreadPoolExecutor(4, f"asking-{name}")
        self._polls = count(1)

    def close(self) -> None:
        self._threads.shutdown()
        self.engine.stop()

    # Interleaving.

    @contextmanager
    def halted(self, place: str, transaction: int = 1) -> Iterator[Halt]:
        """Halt the next transaction that comes to a place, or the n-th one."""
        assert place in PLACES, f"no statement is called {place}"
        halt = Halt()
        self.store.halts[place] = [*[None] * (transaction - 1), halt]
        try:
            yield halt
        finally:
            halt.release()
            self.store.halts.pop(place, None)
            assert not halt.timed_out

    def in_thread(self, act: Callable[..., Answer], *said: Any) -> "Future[Answer]":
        """Do something in a thread of its own."""
        return self._threads.submit(act, *said)

    # People.

    def submit(self, document: object, **said: Any) -> Labels:
        answer = self.engine.submit(document, **said)
        assert isinstance(answer, Submitted), answer
        return self.labels(answer.graph)

    def labels(self, graph: int) -> Labels:
        with self.store.read() as repo:
            return Labels(graph, {label: id for id, label, _, _ in repo.tasks.definitions_of(graph)})

    # Bots.

    def hello(self, session: str = "s1", bot: str = "", pool: str = "default", slots: int = 2_000) -> None:
        self.engine.hello(self.greeting(session, bot, pool, slots))

    def greeting(self, session: str = "s1", bot: str = "", pool: str = "default", slots: int = 2_000) -> Hello:
        name = bot or self.name
        return Hello(name, session, canonical({"id": name, "pool": pool}), slots)

    def poll_command(self, want: int = 0, **said: Any) -> Poll:
        said.setdefault("bot", self.name)
        said.setdefault("session", "s1")
        said.setdefault("poll", f"{self.name}-{next(self._polls)}")
        return Poll(want=want, **said)

    def poll(self, want: int = 0, **said: Any) -> PollOutcome | Refusal:
        return self.engine.poll(self.poll_command(want, **said))

    def claim(self, want: int = 1, **said: Any) -> tuple[Lease, ...]:
        answer = self.poll(want, **said)
        assert isinstance(answer, PollOutcome), answer
        return answer.leases

    def claim_all(self) -> dict[int, Lease]:
        """Take everything there is."""
        taken: dict[int, Lease] = {}
        while leases := self.claim(256):
            taken |= {lease.task: lease for lease in leases}
        return taken

    def end(self, lease: Lease, signal: Signal = Signal.SUCCEED, **said: Any) -> Done | Refusal:
        answer = self.poll(reports=(ended(lease, signal),), **said)
        assert isinstance(answer, PollOutcome), answer
        return answer.reports[0]

    def renew(self, lease: Lease) -> Renewed | Refusal:
        answer = self.poll(renewals=(Renewal(lease.task, lease.attempt, lease.fence),))
        assert isinstance(answer, PollOutcome), answer
        return answer.renewals[0]

    # Background work.

    def settle(self) -> None:
        """Run background work until nothing is left to do."""
        for _ in range(TURNS_MAX):
            if not self.engine.background.run_once():
                return
        raise AssertionError("background work is never done")

    def run_for(self, ms: int) -> None:
        """Let time pass with heartbeats, so that no server takes it for an outage."""
        until = self.clock.now() + ms
        self.engine.transact(timeouts.heartbeat, Boundary.BEAT)
        while self.clock.now() < until:
            self.clock.advance(min(timeouts.OUTAGE_MS, until - self.clock.now()))
            self.engine.transact(timeouts.heartbeat, Boundary.BEAT)

    def run_timeouts(self) -> int:
        """Apply timeouts once."""
        return self.engine.transact(lambda transaction: timeouts.apply_timeouts(transaction, 500), Boundary.LAPSE)

    # Reads.

    def states(self, labels: Labels) -> dict[str, str]:
        with self.store.read() as repo:
            found = {task.id: str(task.state) for task in repo.tasks.read(list(labels.values()))}
        return {label: found[id] for label, id in labels.items()}

    def graph_state(self, graph: int) -> str:
        with self.store.read() as repo:
            return str(repo.graphs.peek([graph])[0].state)

    def audit(self) -> invariants.Snapshot:
        """Check the store with the doctor, with the recount of the core, and with the checker of invariants."""
        with self.store.read() as repo:
            assert doctor(repo, self.clock.now()) == []
            recount(repo)
        found = invariants.read(self.url)
        assert invariants.violations(found) == []
        with self.store.read() as repo:
            for id in list(found.tasks)[:HISTORIES_MAX]:
                assert str(replay(read_history(repo, id))) == found.tasks[id]["state"]
        return found


@contextmanager
def watched(servers: list[Server], found: list[object], every: int = 1) -> Iterator[None]:
    """After every commit of every server, or after some of them, check exclusion and capacity."""
    connections = [psycopg.connect(server.url, autocommit=True) for server in servers]
    commits = count(1)

    def looking(connection: "psycopg.Connection[tuple[object, ...]]") -> Callable[[], None]:
        def look() -> None:
            if next(commits) % every == 0:
                found.extend([*connection.execute(CLASHES), *connection.execute(OVERUSE)])

        return look

    for server, connection in zip(servers, connections, strict=True):
        server.store.after_commit = looking(connection)
    try:
        yield
    finally:
        for server, connection in zip(servers, connections, strict=True):
            server.store.after_commit = lambda: None
            connection.close()


def ended(lease: Lease, signal: Signal = Signal.SUCCEED) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal)


def run_concurrently(*acts: Callable[[], Answer], within_s: float = WAIT_S) -> list[Answer]:
    """Call functions at the same moment, each in its own thread; return their answers in order."""
    start = Barrier(len(acts))

    def act(one: Callable[[], Answer]) -> Answer:
        start.wait(WAIT_S)
        return one()

    with ThreadPoolExecutor(len(acts)) as threads:
        return [each.result(within_s) for each in [threads.submit(act, one) for one in acts]]


def run_in_lockstep(*rows: Sequence[Callable[[], Answer]]) -> list[tuple[Answer, ...]]:
    """Go through rows of calls in parallel: the n-th call of each row begins at the same moment."""
    start = Barrier(len(rows))

    def walk(row: Sequence[Callable[[], Answer]]) -> list[Answer]:
        answers = []
        for act in row:
            start.wait(WAIT_S)
            answers.append(act())
        return answers

    with ThreadPoolExecutor(len(rows)) as threads:
        walking = [threads.submit(walk, row) for row in rows]
        return list(zip(*(each.result(10 * WAIT_S) for each in walking), strict=True))


def wait_for_lock_wait(url: str, or_else: Callable[[], bool] = bool) -> None:
    """Wait until a transaction waits for a lock that another one has, or until `or_else` is true."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as connection:
        wait_until(lambda: or_else() or connection.execute(text).fetchone() != (0,))
