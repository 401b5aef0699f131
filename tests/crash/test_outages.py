"""PostgreSQL goes away in the midst of things: callers are answered or told to ask again, and nothing is lost."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import GraphState, State
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Unavailable
from taskyard.lifecycle.commands import Done, Hello, Lease, Poll, Refusal
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from tests.engine.rig import SOON_S, graph, noop, report, soon, task
from tests.postgres import Postgres
from tests.races.ledger import faults, read
from tests.races.servers import COMMIT, Server, Watch

#: Ends every connection but the one that asks.
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
#: Which processes are in the midst of a transaction.
BUSY = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'
"""
#: How many tasks there are, and how often the line is cut meanwhile.
MANY = 60
CUTS = 8


def told(url: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(text).fetchall()


def cut(url: str) -> None:
    told(url, CUT)


def kill(url: str) -> None:
    """Kill the process behind a transaction: the whole server restarts, and mends what was half-written."""
    for (pid,) in told(url, BUSY):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A server of its own, since it is killed."""
    with Postgres() as server:
        yield server


@contextmanager
def at(url: str) -> Iterator[Server]:
    server = Server(url, Watch(), "b1")
    try:
        server.hello()
        yield server
        server.audit()
    finally:
        server.close()


@pytest.mark.parametrize("fall", [cut, kill])
@pytest.mark.parametrize("place", ["record_polls", "move_started_tasks", "insert_events", COMMIT])
def test_a_batch_that_loses_its_database_is_carried_out_when_that_is_back(
    own: Postgres, fall: Callable[[str], None], place: str
) -> None:
    with at(own.fresh()) as server:
        labels = server.submit(graph(a=task(), b=task("a")))
        with server.halted(place) as halt:
            taking = server.go(server.claim, 2)
            halt.reached()
            fall(server.url)
        (lease,) = taking.result(SOON_S)
        assert (lease.task, lease.attempt) == (labels["a"], 1)
        assert server.end(lease) == Done(lease.task, State.SUCCESSFUL)
        assert server.states(labels) == {"a": "successful", "b": "waiting"}


def test_a_graph_that_loses_its_database_between_pages_is_there_once(own: Postgres) -> None:
    with at(own.fresh()) as server:
        document = graph(**{f"t{number}": task() for number in range(1_001)})
        for place in ("insert_definitions", COMMIT):
            with server.halted(place, 2) as halt:
                storing = server.go(lambda place=place: server.engine.submit(document, key=place))
                halt.reached()
                cut(server.url)
            stored = storing.result(SOON_S)
            assert isinstance(stored, Submitted)
            assert server.engine.submit(document, key=place) == Submitted(stored.graph, echo=True)
            assert len(server.labels(stored.graph)) == 1_001
        server.settle()


class Worker:
    """A bot that asks again, with the same words, until it is answered."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.done = 0
        self.troubles = 0
        self._engine = engine
        self._name = name
        self._polls = 0
        self._leases: tuple[Lease, ...] = ()

    def hello(self) -> None:
        asked = canonical({"id": self._name, "pool": "default"})
        self._insist(lambda: self._engine.hello(Hello(self._name, "s1", asked, 9)))

    def work(self) -> None:
        """Report, and take more."""
        self._polls += 1
        reports = tuple(map(report, self._leases))
        poll = Poll(self._name, "s1", f"{self._name}-{self._polls}", reports, want=2)
        answer = self._insist(lambda: self._engine.poll(poll))
        assert isinstance(answer, PollOutcome), answer
        assert not [one for one in answer.reports if isinstance(one, Refusal)], answer
        self.done += len(reports)
        self._leases = answer.leases

    def _insist(self, act: Callable[[], object]) -> object:
        while True:
            try:
                return act()
            except Unavailable:
                self.troubles += 1
                assert self.troubles < 100


def test_bots_that_ask_again_lose_nothing_though_the_line_is_cut_all_the_time(postgres_url: str) -> None:
    nodes = {f"t{number}": task(mutexes=[{"key": f"k{number % 7}"}]) for number in range(MANY)}
    ends = {f"n{number}": noop(f"t{number}") for number in range(MANY)}
    with Engine.open(postgres_url) as one, Engine.open(postgres_url) as two:
        workers = [Worker(one, "b1"), Worker(two, "b2")]
        for worker in workers:
            worker.hello()
        made = one.submit(graph(**nodes, **ends), key="mine")
        assert isinstance(made, Submitted)

        def done() -> int:
            return sum(worker.done for worker in workers)

        def run(worker: Worker) -> None:
            while done() < MANY:
                worker.work()

        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(run, worker) for worker in workers]
            for number in range(CUTS):
                share = number * MANY // CUTS
                soon(lambda share=share: done() >= share or any(each.done() for each in running))  # type: ignore[misc]
                cut(postgres_url)
            for each in running:
                each.result(2 * SOON_S)
        soon(lambda: set(told(postgres_url, "SELECT state FROM graph")) == {(GraphState.FINISHED.value,)})
    assert sum(worker.done for worker in workers) == MANY
    found = read(postgres_url)
    assert faults(found) == []
    assert {len(attempts) for attempts in found.attempts.values()} == {1}
