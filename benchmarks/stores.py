"""Real stores for benchmarks: a fresh database with durable settings, graphs in it, and bots that run nothing.

The engine's own writer carries everything out, in this thread, so that the work is measured and not the waiting.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final

from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.clock import Clock, SystemClock
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import Boundary
from taskyard.engine.writer import Command, Writer, execute_commands
from taskyard.lifecycle.commands import Hello, Lease, Poll, Renewal, Report
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store import migrate
from taskyard.store.connection import Store, open_store
from tests.postgres import Postgres

SESSION = "s"
_SUCCEED = Signal.SUCCEED
#: The pause between two polls of a busy bot.
PAUSE_S = 0.005


@contextmanager
def sqlite() -> Iterator[Store]:
    """A store in a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'taskyard.db'}"
        migrate.upgrade(url)
        with closing(open_store(url)) as store:
            yield store


@contextmanager
def postgres() -> Iterator[Store]:
    """A store in a server of its own."""
    with Postgres(durable=True) as server, closing(open_store(server.fresh())) as store:
        yield store


Open = Callable[[], AbstractContextManager[Store]]
#: The databases to measure, in this order, because PostgreSQL takes longer.
DATABASES: Final[Mapping[str, Open]] = {"sqlite": sqlite, "postgres": postgres}


@contextmanager
def running(store: Store, clock: Clock | None = None, *, events: bool = True, ticks: bool = False) -> Iterator[Engine]:
    """A running engine, which leaves the store open when it stops."""
    engine = Engine(store, clock, events=events, ticks=ticks)
    engine.start()
    try:
        yield engine
    finally:
        for thread in (engine.hints, engine.retention, engine.relay, engine.stats, engine.background):
            if thread is not None:
                thread.stop()
        engine.writer_thread.stop()


class WriterHarness:
    """A store, its writer, and bots that report success at once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = SystemClock()
        self.writer = Writer(store, self.clock, lambda _: None)
        self._polls = 0

    def submit(self, document: object) -> int:
        """Submit a graph and wait until it is open; return its id."""
        with running(self.store, self.clock) as engine:
            answer = engine.submit(document)
            assert isinstance(answer, Submitted), answer
            while self._has_continuations():
                time.sleep(0.01)
        return answer.graph

    def _has_continuations(self) -> bool:
        with self.store.read() as repo:
            return bool(repo.continuations.after(0, 1))

    def do(self, commands: Sequence[Command]) -> list[object]:
        """Carry out commands in one transaction."""
        return self.writer.run(lambda transaction: execute_commands(transaction, commands), Boundary.BATCH)

    def hello(self, count: int, **dimensions: str | tuple[str, ...]) -> list[str]:
        """Let bots say hello; return their names."""
        names = [f"bot{number}" for number in range(count)]
        dimension_sets = [canonical({"id": name, "pool": "default", **dimensions}) for name in names]
        self.do([Hello(name, SESSION, has) for name, has in zip(names, dimension_sets, strict=True)])
        return names

    def poll(self, bot: str, leases: Sequence[Lease] = (), want: int = 0) -> Poll:
        """The poll of a bot that has ended some tasks and wants others."""
        self._polls += 1
        ended = tuple([Report(one.task, one.attempt, one.fence, _SUCCEED) for one in leases])
        return Poll(bot, SESSION, str(self._polls), ended, want=want)


def leases_of(answer: object) -> tuple[Lease, ...]:
    """Take the leases out of an answer."""
    assert isinstance(answer, PollOutcome), answer
    return answer.leases


def layered(count: int, width: int) -> dict[str, object]:
    """A graph in layers, in which every task beyond the first layer requires two of the layer before."""
    tasks: dict[str, object] = {}
    for number in range(count):
        place, above = number % width, number - number % width - width
        requires = [f"t{above + place}", f"t{above + (place + 1) % width}"] if above >= 0 else []
        tasks[f"t{number}"] = {"requires": requires, "task": {"payload": {"command": ["true"]}}}
    return {"tasks": tasks}


class ConcurrentBot:
    """A bot that claims and renews in a thread, and measures how long each poll takes."""

    def __init__(self) -> None:
        self._spans: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, engine: Engine) -> None:
        """Submit something to claim, and begin to poll."""
        self._engine = engine
        task = {"task": {"payload": {"command": ["true"]}}}
        engine.submit({"tasks": {f"t{number}": task for number in range(1_000)}})
        engine.hello(Hello("bot0", SESSION, canonical({"id": "bot0", "pool": "default"})))
        self._thread.start()

    def stop(self) -> float:
        """Stop, and return the p99 in milliseconds."""
        self._ended.set()
        self._thread.join(60)
        return quantiles(self._spans, n=100)[98]

    def _run(self) -> None:
        number, renewals = 0, tuple[Renewal, ...]()
        while not self._ended.wait(PAUSE_S):
            number += 1
            began = time.perf_counter()
            answer = self._engine.poll(Poll("bot0", SESSION, str(number), (), renewals, want=1))
            self._spans.append((time.perf_counter() - began) * 1_000)
            assert isinstance(answer, PollOutcome), answer
            renewals = tuple(Renewal(one.task, one.attempt, one.fence) for one in leases_of(answer)) or renewals
