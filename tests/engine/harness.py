"""Harness for tests of the engine: a real engine and store, a fake clock, and bots played by the test.

Background work has no thread here: `settle` runs it, so a test sees every step.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from threading import Event
from types import TracebackType
from typing import Any, Self

import msgspec
import psycopg

from taskyard.core.fleet import LEASE_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Signal, State
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import Done, Hello, Lease, Poll, Refusal, Report
from taskyard.lifecycle.doctor.check import doctor
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.connection import Repo, Store, open_store
from taskyard.store.rows import GraphRecord, TaskRecord
from taskyard.wire.bot_protocol import NOTHING
from tests.lifecycle.counting_store import CountingStore
from tests.lifecycle.harness import START, Labels

#: Background work that is still not done after so many turns never will be.
TURNS_MAX = 200
#: How long to wait for what another thread does at once.
WAIT_S = 60


class FakeClock:
    """A clock that moves only by `advance`; a pause advances it."""

    def __init__(self) -> None:
        self.ms = START
        self.chances: Iterator[int] = (number * 77 % 60_000 for number in count(1))
        self._words = count(1)

    def now(self) -> Millis:
        return self.ms

    def tick(self) -> Millis:
        return self.advance(1)

    def advance(self, ms: int) -> Millis:
        self.ms = Millis(self.ms + ms)
        return self.ms

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """A fake clock follows no other clock."""

    def pause(self, ms: int) -> None:
        self.advance(ms)

    def chance(self) -> int:
        return next(self.chances)

    def word(self) -> str:
        return f"word{next(self._words)}"


class FlakyStore:
    """A real store whose next transactions fail, before they begin or after they were committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.before: list[Exception] = []
        self.after: list[Exception | None] = []  # None: this one succeeds
        self.meanwhile: Callable[[], object] = lambda: None  # called while a transaction is open

    @contextmanager
    def write(self) -> Iterator[Repo]:
        if self.before:
            raise self.before.pop(0)
        with self._store.write() as repo:
            yield repo
            self.meanwhile()
        fault = self.after.pop(0) if self.after else None
        if fault is not None:
            raise fault

    @contextmanager
    def read(self) -> Iterator[Repo]:
        with self._store.read() as repo:
            yield repo

    def close(self) -> None:
        self._store.close()


class EngineHarness:
    """An engine with a fake clock: submits graphs, and plays bots that poll and report."""

    def __init__(
        self,
        url: str,
        events: bool = True,
        ticks: bool = True,
        lease_ms: int = LEASE_MS,
        clock: FakeClock | None = None,  # that other servers have, too
    ) -> None:
        self.clock = clock or FakeClock()
        self.store = FlakyStore(open_store(url))
        self.engine = Engine(self.store, self.clock, events=events, ticks=ticks, lease_ms=lease_ms)
        self.engine.writer_thread.start()
        self._polls = count(1)

    def close(self) -> None:
        """Check that the store is consistent, and stop."""
        try:
            with self.store.read() as repo:
                assert doctor(repo, self.clock.now()) == []
        finally:
            self.engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if fault is None:
            self.close()
        else:
            self.engine.stop()

    @contextmanager
    def writer_blocked(self) -> Iterator[None]:
        """Keep the writer busy meanwhile, so that commands gather in its queue."""
        entered, left = Event(), Event()

        def act(_: object) -> None:
            entered.set()
            assert left.wait(WAIT_S)

        holding = self.engine.writer_thread._put(_blocking_item(act))
        assert entered.wait(WAIT_S)
        try:
            yield
        finally:
            left.set()
        holding.result(WAIT_S)

    def settle(self) -> int:
        """Run background work until nothing is left to do; return the number of turns."""
        for turns in range(TURNS_MAX):
            if not self.engine.background.run_once():
                return turns
        raise AssertionError("background work is never done")

    def submit(self, document: object, **said: Any) -> Labels:
        answer = self.engine.submit(document, **said)
        assert isinstance(answer, Submitted), answer
        return self.labels(answer.graph)

    def hello(self, bot: str = "b1", slots: int = 8, **dimensions: str) -> None:
        self.engine.hello(Hello(bot, "s1", canonical({"id": bot, "pool": "default", **dimensions}), slots))

    def poll_command(self, want: int = 1, bot: str = "b1", reports: tuple[Report, ...] = ()) -> Poll:
        return Poll(bot, "s1", f"p{next(self._polls)}", reports, want=want)

    def claim(self, want: int = 1, bot: str = "b1") -> tuple[Lease, ...]:
        answer = self.engine.poll(self.poll_command(want, bot))
        assert isinstance(answer, PollOutcome), answer
        return answer.leases

    def end(self, lease: Lease, signal: Signal = Signal.SUCCEED, bot: str = "b1") -> Done | Refusal:
        answer = self.engine.poll(self.poll_command(0, bot, (report(lease, signal),)))
        assert isinstance(answer, PollOutcome), answer
        return answer.reports[0]

    # Reads.

    def labels(self, graph: int) -> Labels:
        with self.store.read() as repo:
            return Labels(graph, {label: id for id, label, _, _ in repo.tasks.definitions_of(graph)})

    def states(self, labels: Mapping[str, int]) -> dict[str, State]:
        return {label: task.state for label, task in self.tasks(labels).items()}

    def tasks(self, labels: Mapping[str, int]) -> dict[str, TaskRecord]:
        with self.store.read() as repo:
            found = {task.id: task for task in repo.tasks.read(list(labels.values()))}
        return {label: found[id] for label, id in labels.items()}

    def graph(self, id: int) -> GraphRecord:
        with self.store.read() as repo:
            return repo.graphs.peek([id])[0]


def report(lease: Lease, signal: Signal = Signal.SUCCEED, result: str | None = None) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal, result=raw(result))


def raw(result: str | None) -> msgspec.Raw:
    """JSON as bots send it; a lone surrogate is passed on as it is."""
    return NOTHING if result is None else msgspec.Raw(result.encode("utf-8", "surrogatepass"))


def task(*requires: str, **said: object) -> dict[str, object]:
    """One node of a document."""
    return {"requires": list(requires), "task": {"payload": {"command": ["true"]}} | said}


def noop(*requires: str) -> dict[str, object]:
    """A node that the server runs itself."""
    return {"requires": list(requires), "task": {"payload": {"noop": True}}}


def graph(**nodes: object) -> dict[str, object]:
    return {"tasks": nodes}


def wide(tasks: int) -> dict[str, object]:
    """A graph of independent tasks."""
    return graph(**{f"t{number}": task() for number in range(tasks)})


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until another thread has made a condition true."""
    for _ in range(WAIT_S * 1_000):
        if holds():
            return
        Event().wait(0.001)
    raise AssertionError(f"not true within {WAIT_S} s")


def execute_raw(url: str, text: str, id: int = 0) -> None:
    """Execute SQL directly, past the repository. `{id}` stands for an id."""
    text = text.format(id=id)
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(text)
        connection.close()
    else:
        with psycopg.connect(url) as postgres:
            postgres.execute(text)


def fetch_raw(url: str, text: str) -> list[tuple[Any, ...]]:
    """Fetch the rows of a query directly, past the repository."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()
    with psycopg.connect(url) as postgres:
        return postgres.execute(text).fetchall()


def _blocking_item(act: Callable[[Any], None]) -> Any:
    from taskyard.engine.writer import _QueueItem  # noqa: PLC0415 - only tests block the writer

    return _QueueItem(act=act, boundary=Boundary.OTHER)


def count_rows(harness: EngineHarness) -> CountingStore:
    """Count the rows of each statement of the writer from now on."""
    counting = CountingStore(harness.store)
    harness.engine._writer._store = counting
    return counting
