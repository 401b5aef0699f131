"""Several servers on one database, and a way to make their transactions meet where they would meet once in a year.

A transaction can be made to halt before a named statement, or before its commit, until the test lets it go on. Nothing
sleeps: whoever waits for a row is seen to wait by asking PostgreSQL.
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
from tests.engine.rig import SOON_S, START, TURNS_MAX, Labels, soon
from tests.lifecycle.recount import recount
from tests.races import ledger

Answer = TypeVar("Answer")
#: The place before a commit, as if it were a statement.
COMMIT: Final = "commit"
#: How many stories an audit has told; the checker walks through every one anyway.
STORIES_MAX: Final = 100


class Watch(SystemClock):
    """A clock that all servers share: it shows what it is told, and gives every birth a moment of its own."""

    def __init__(self, start: Millis = START) -> None:
        super().__init__()
        self._ms = start
        self._births = Lock()

    def now(self) -> Millis:
        return self._ms

    def tick(self) -> Millis:
        with self._births:
            return self.later(1)

    def later(self, ms: int) -> Millis:
        self._ms = Millis(self._ms + ms)
        return self._ms


class Halt:
    """A place where one transaction stands until it may go on."""

    def __init__(self) -> None:
        self._reached = Event()
        self._free = Event()
        self.forgotten = False  # nobody let it go on in time: what it should have met has waited for it instead

    def stand(self) -> None:
        self._reached.set()
        self.forgotten = not self._free.wait(SOON_S)

    def reached(self) -> None:
        """Wait until somebody stands here."""
        assert self._reached.wait(SOON_S), "nobody came by"

    def free(self) -> None:
        """Let it go on."""
        self._free.set()


#: Where a transaction can be halted: before each statement, and before the commit.
PLACES = {COMMIT, *statements(POSTGRES), *statements(SQLITE)}


class Crossing:
    """A store whose transactions can be halted, and which counts the races they lose."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.halts: dict[str, list[Halt | None]] = {}
        self.passed: Counter[str] = Counter()  # how often each place was come to
        self.lost = 0
        self.after_commit: Callable[[], None] = lambda: None

    @contextmanager
    def write(self) -> Iterator[Repo]:
        try:
            with self._store.write() as repo:
                session: Any = repo.tasks._session
                yield Repo(cast("Session", _Halting(session, self.count_pass)))
                # Whoever halts here has written everything, also what could have travelled with the commit.
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
            halt.stand()


class _Halting:
    """A session that says where it is before each statement, whichever way that is carried out."""

    def __init__(self, session: Session, count_pass: Callable[[str, Callable[[], object]], None]) -> None:
        self._session = session
        self._pass_by = count_pass
        # Whoever halts has written everything before, also what was only sent ahead.
        self._arrive: Callable[[], object] = getattr(session, "collect", bool)

    def __getattr__(self, way: str) -> Callable[..., Any]:
        execute_commands: Callable[..., Any] = getattr(self._session, way)

        def halting(name: str, *said: object) -> Any:
            self._pass_by(name, self._arrive)
            return execute_commands(name, *said)

        return halting


class Server:
    """One server: an engine whose ticker has no thread, and a bot that speaks to it."""

    def __init__(self, url: str, watch: Watch, name: str) -> None:
        self.url = url
        self.name = name
        self.watch = watch
        self.store = Crossing(open_store(url))
        self.engine = Engine(self.store, watch)
        self.engine.writer_thread.start()
        self._threads = ThreadPoolExecutor(4, f"asking-{name}")
        self._polls = count(1)

    def close(self) -> None:
        self._threads.shutdown()
        self.engine.stop()

    # Crossing.

    @contextmanager
    def halted(self, place: str, transaction: int = 1) -> Iterator[Halt]:
        """Have the next transaction that comes to a place for the n-th time halt there."""
        assert place in PLACES, f"no statement is called {place}"
        halt = Halt()
        self.store.halts[place] = [*[None] * (transaction - 1), halt]
        try:
            yield halt
        finally:
            halt.free()
            self.store.halts.pop(place, None)
            assert not halt.forgotten

    def go(self, act: Callable[..., Answer], *said: Any) -> "Future[Answer]":
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

    def wish(self, want: int = 0, **said: Any) -> Poll:
        said.setdefault("bot", self.name)
        said.setdefault("session", "s1")
        said.setdefault("poll", f"{self.name}-{next(self._polls)}")
        return Poll(want=want, **said)

    def poll(self, want: int = 0, **said: Any) -> PollOutcome | Refusal:
        return self.engine.poll(self.wish(want, **said))

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

    # What happens by itself.

    def settle(self) -> None:
        """Give the ticker turns until it has nothing to do."""
        for _ in range(TURNS_MAX):
            if not self.engine.background.run_once():
                return
        raise AssertionError("the ticker is never done")

    def age(self, ms: int) -> None:
        """Let time pass while the service is up, so that nobody takes it for an outage."""
        until = self.watch.now() + ms
        self.engine.transact(timeouts.heartbeat, Boundary.BEAT)
        while self.watch.now() < until:
            self.watch.later(min(timeouts.OUTAGE_MS, until - self.watch.now()))
            self.engine.transact(timeouts.heartbeat, Boundary.BEAT)

    def lapse(self) -> int:
        """Hear the clock once."""
        return self.engine.transact(lambda transaction: timeouts.apply_timeouts(transaction, 500), Boundary.LAPSE)

    # Looking.

    def states(self, labels: Labels) -> dict[str, str]:
        with self.store.read() as repo:
            found = {task.id: str(task.state) for task in repo.tasks.read(list(labels.values()))}
        return {label: found[id] for label, id in labels.items()}

    def verdict(self, graph: int) -> str:
        with self.store.read() as repo:
            return str(repo.graphs.peek([graph])[0].state)

    def audit(self) -> ledger.Ledger:
        """The store agrees with itself, by the doctor, by the core's oracles, and by a checker that knows neither."""
        with self.store.read() as repo:
            assert doctor(repo, self.watch.now()) == []
            recount(repo)
        found = ledger.read(self.url)
        assert ledger.faults(found) == []
        with self.store.read() as repo:
            for id in list(found.tasks)[:STORIES_MAX]:
                assert str(replay(read_history(repo, id))) == found.tasks[id]["state"]
        return found


def ended(lease: Lease, signal: Signal = Signal.SUCCEED) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal)


def at_once(*acts: Callable[[], Answer]) -> list[Answer]:
    """Do things at the same moment, as far as there is one; give their answers in order."""
    start = Barrier(len(acts))

    def act(one: Callable[[], Answer]) -> Answer:
        start.wait(SOON_S)
        return one()

    with ThreadPoolExecutor(len(acts)) as threads:
        return [each.result(SOON_S) for each in [threads.submit(act, one) for one in acts]]


def side_by_side(*rows: Sequence[Callable[[], Answer]]) -> list[tuple[Answer, ...]]:
    """Go through rows of acts together: the n-th act of each row begins at the same moment."""
    start = Barrier(len(rows))

    def walk(row: Sequence[Callable[[], Answer]]) -> list[Answer]:
        answers = []
        for act in row:
            start.wait(SOON_S)
            answers.append(act())
        return answers

    with ThreadPoolExecutor(len(rows)) as threads:
        walking = [threads.submit(walk, row) for row in rows]
        return list(zip(*(each.result(10 * SOON_S) for each in walking), strict=True))


def wait_for_a_wait(url: str, or_else: Callable[[], bool] = bool) -> None:
    """Wait until some transaction waits for a lock that another one has, or until something else came true."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as connection:
        soon(lambda: or_else() or connection.execute(text).fetchone() != (0,))
