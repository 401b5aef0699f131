"""An engine to try things with: a real store, a clock that only moves when told, and a fleet played by the test.

The ticker has no thread here: `settle` gives it its turns, so a test sees every step.
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

from taskyard.core import ids
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

#: 2026-01-01, a moment that has a place in keys.
START = Millis(1_767_225_600_000)
#: A ticker that is still busy after so many turns will never be done.
TURNS_MAX = 200
#: For what another thread does at once.
SOON_S = 60


class FakeClock:
    """A clock that only moves when told. Whoever pauses moves it."""

    def __init__(self) -> None:
        self.ms = START
        self.chances: Iterator[int] = (number * 77 % 60_000 for number in count(1))
        self._words = count(1)

    def now(self) -> Millis:
        return self.ms

    def tick(self) -> Millis:
        return self.later(1)

    def later(self, ms: int) -> Millis:
        self.ms = Millis(self.ms + ms)
        return self.ms

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """It follows nobody."""

    def pause(self, ms: int) -> None:
        self.later(ms)

    def chance(self) -> int:
        return next(self.chances)

    def word(self) -> str:
        return f"word{next(self._words)}"


class Troubled:
    """A real store on a bad line: the next transactions fail, before they begin or after they were committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.before: list[Exception] = []
        self.after: list[Exception | None] = []  # None: this one goes well
        self.meanwhile: Callable[[], object] = lambda: None  # what happens while a transaction is open

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


class Rig:
    """An engine with people and bots around it."""

    def __init__(self, url: str, events: bool = True, ticks: bool = True, lease_ms: int = LEASE_MS) -> None:
        self.clock = FakeClock()
        self.store = Troubled(open_store(url))
        self.engine = Engine(self.store, self.clock, events=events, ticks=ticks, lease_ms=lease_ms)
        self.engine.writer_thread.start()
        self._polls = count(1)

    def close(self) -> None:
        """End, once the store was found to agree with itself."""
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
    def held_up(self) -> Iterator[None]:
        """Keep the writer busy meanwhile, so that whatever is asked for gathers."""
        entered, left = Event(), Event()

        def act(_: object) -> None:
            entered.set()
            assert left.wait(SOON_S)

        holding = self.engine.writer_thread._put(_held(act))
        assert entered.wait(SOON_S)
        try:
            yield
        finally:
            left.set()
        holding.result(SOON_S)

    def settle(self) -> int:
        """Give the ticker turns until it has nothing to do; say how many it took."""
        for turns in range(TURNS_MAX):
            if not self.engine.background.run_once():
                return turns
        raise AssertionError("the ticker is never done")

    def submit(self, document: object, **said: Any) -> "Labels":
        answer = self.engine.submit(document, **said)
        assert isinstance(answer, Submitted), answer
        return self.labels(answer.graph)

    def hello(self, bot: str = "b1", slots: int = 8) -> None:
        self.engine.hello(Hello(bot, "s1", canonical({"id": bot, "pool": "default"}), slots))

    def wish(self, want: int = 1, bot: str = "b1", reports: tuple[Report, ...] = ()) -> Poll:
        return Poll(bot, "s1", f"p{next(self._polls)}", reports, want=want)

    def claim(self, want: int = 1, bot: str = "b1") -> tuple[Lease, ...]:
        answer = self.engine.poll(self.wish(want, bot))
        assert isinstance(answer, PollOutcome), answer
        return answer.leases

    def end(self, lease: Lease, signal: Signal = Signal.SUCCEED, bot: str = "b1") -> Done | Refusal:
        answer = self.engine.poll(self.wish(0, bot, (report(lease, signal),)))
        assert isinstance(answer, PollOutcome), answer
        return answer.reports[0]

    # Looking.

    def labels(self, graph: int) -> "Labels":
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


class Labels(dict[str, int]):
    """The ids of a graph's tasks by label, and the graph's own."""

    def __init__(self, graph: int, found: Mapping[str, int]) -> None:
        super().__init__(found)
        self.graph = graph

    @property
    def text(self) -> str:
        return ids.text_of(ids.Key(self.graph))


def report(lease: Lease, signal: Signal = Signal.SUCCEED, result: str | None = None) -> Report:
    return Report(lease.task, lease.attempt, lease.fence, signal, result=raw(result))


def raw(result: str | None) -> msgspec.Raw:
    """Give JSON as bots send it; a lone surrogate is passed on as it is."""
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
    """A graph of tasks that wait for nobody."""
    return graph(**{f"t{number}": task() for number in range(tasks)})


def soon(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does at once."""
    for _ in range(SOON_S * 1_000):
        if holds():
            return
        Event().wait(0.001)
    raise AssertionError("it never came")


def spoil(url: str, text: str, id: int = 0) -> None:
    """Do what nobody ever should: write past the verbs. `{id}` stands for an id."""
    text = text.format(id=id)
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(text)
        connection.close()
    else:
        with psycopg.connect(url) as postgres:
            postgres.execute(text)


def _held(act: Callable[[Any], None]) -> Any:
    from taskyard.engine.writer import _QueueItem  # noqa: PLC0415 - only a test holds the writer up

    return _QueueItem(act=act, boundary=Boundary.OTHER)
