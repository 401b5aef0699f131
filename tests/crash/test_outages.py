"""PostgreSQL fails during transactions: callers get an answer or may repeat the request, and nothing is lost."""

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
from tests.engine.harness import WAIT_S, graph, noop, report, task, wait_until
from tests.postgres import Postgres
from tests.races.invariants import read, violations
from tests.races.servers import COMMIT, Server, SharedClock

#: Terminates every connection but its own.
TERMINATE_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
#: The processes that have an open transaction.
BUSY = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'
"""
#: The number of tasks, and how often all connections are terminated meanwhile.
MANY = 60
TERMINATIONS = 8


def fetch(url: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(text).fetchall()


def terminate_connections(url: str) -> None:
    fetch(url, TERMINATE_OTHERS)


def kill_backend(url: str) -> None:
    """Kill the process of a transaction: all of PostgreSQL restarts and recovers."""
    for (pid,) in fetch(url, BUSY):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A PostgreSQL server for this module only, because it is killed."""
    with Postgres() as server:
        yield server


@contextmanager
def at(url: str) -> Iterator[Server]:
    server = Server(url, SharedClock(), "b1")
    try:
        server.hello()
        yield server
        server.audit()
    finally:
        server.close()


@pytest.mark.parametrize("fail", [terminate_connections, kill_backend])
@pytest.mark.parametrize("place", ["record_polls", "move_started_tasks", "insert_events", COMMIT])
def test_a_batch_that_loses_its_database_is_carried_out_when_the_database_is_back(
    own: Postgres, fail: Callable[[str], None], place: str
) -> None:
    with at(own.fresh()) as server:
        labels = server.submit(graph(a=task(), b=task("a")))
        with server.halted(place) as halt:
            taking = server.in_thread(server.claim, 2)
            halt.reached()
            fail(server.url)
        (lease,) = taking.result(WAIT_S)
        assert (lease.task, lease.attempt) == (labels["a"], 1)
        assert server.end(lease) == Done(lease.task, State.SUCCESSFUL)
        assert server.states(labels) == {"a": "successful", "b": "waiting"}


def test_a_graph_whose_load_loses_its_database_between_pages_is_stored_once(own: Postgres) -> None:
    with at(own.fresh()) as server:
        document = graph(**{f"t{number}": task() for number in range(1_001)})
        for place in ("insert_definitions", COMMIT):
            with server.halted(place, 2) as halt:
                storing = server.in_thread(lambda place=place: server.engine.submit(document, key=place))
                halt.reached()
                terminate_connections(server.url)
            stored = storing.result(WAIT_S)
            assert isinstance(stored, Submitted)
            assert server.engine.submit(document, key=place) == Submitted(stored.graph, echo=True)
            assert len(server.labels(stored.graph)) == 1_001
        server.settle()


class Worker:
    """A bot that repeats each request until it gets an answer."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.done = 0
        self.troubles = 0
        self._engine = engine
        self._name = name
        self._polls = 0
        self._leases: tuple[Lease, ...] = ()

    def hello(self) -> None:
        dimensions = canonical({"id": self._name, "pool": "default"})
        self._retry(lambda: self._engine.hello(Hello(self._name, "s1", dimensions, 9)))

    def work(self) -> None:
        """Report and claim more."""
        self._polls += 1
        reports = tuple(map(report, self._leases))
        poll = Poll(self._name, "s1", f"{self._name}-{self._polls}", reports, want=2)
        answer = self._retry(lambda: self._engine.poll(poll))
        assert isinstance(answer, PollOutcome), answer
        assert not [one for one in answer.reports if isinstance(one, Refusal)], answer
        self.done += len(reports)
        self._leases = answer.leases

    def _retry(self, act: Callable[[], object]) -> object:
        while True:
            try:
                return act()
            except Unavailable:
                self.troubles += 1
                assert self.troubles < 100


def test_bots_that_repeat_requests_lose_nothing_when_connections_are_terminated_again_and_again(
    postgres_url: str,
) -> None:
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
            for number in range(TERMINATIONS):
                share = number * MANY // TERMINATIONS
                wait_until(lambda share=share: done() >= share or any(each.done() for each in running))  # type: ignore[misc]
                terminate_connections(postgres_url)
            for each in running:
                each.result(2 * WAIT_S)
        wait_until(lambda: set(fetch(postgres_url, "SELECT state FROM graph")) == {(GraphState.FINISHED.value,)})
    assert sum(worker.done for worker in workers) == MANY
    found = read(postgres_url)
    assert violations(found) == []
    assert {len(attempts) for attempts in found.attempts.values()} == {1}
