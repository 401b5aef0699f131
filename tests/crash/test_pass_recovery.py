"""A server that dies or is frozen during a pass delays admission by a bounded number of seconds."""

from pathlib import Path
from typing import Final

import psycopg

from taskyard.engine.engine import Engine
from taskyard.lifecycle.admission.scheduler import LOCK_MS
from tests.crash.test_frozen_passes import frozen_server, held, server
from tests.engine.harness import FakeClock, graph, wait_until
from tests.lifecycle.harness import Labels
from tests.races.servers import Server

__all__ = ["server"]  # the fixture

#: The bounds that the docs promise.
KILLED_MAX_MS: Final = 2_000
FROZEN_MAX_MS: Final = 15_000
STEP_MS: Final = 100
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def test_a_server_that_is_killed_in_a_pass_delays_the_others_by_two_seconds_at_most(server: Server) -> None:
    labels = server.submit(graph(a=held("k")))
    with frozen_server(server.url, "extend_admission_lock") as frozen:
        server.settle()
        assert server.states(labels) == {"a": "pending"}, "the lock is held"
        frozen.kill()
        frozen.wait()
        with psycopg.connect(server.url, autocommit=True) as connection:
            wait_until(lambda: connection.execute(LOCKS).fetchone() == (1,))  # PostgreSQL releases the lock at once
        assert _time_until_admission(server, labels) <= KILLED_MAX_MS


def test_a_server_that_is_frozen_in_a_pass_delays_the_others_by_fifteen_seconds_at_most(server: Server) -> None:
    labels = server.submit(graph(a=held("k")))
    with frozen_server(server.url, "extend_admission_lock"):
        server.settle()
        took = _time_until_admission(server, labels)
    assert KILLED_MAX_MS < took <= FROZEN_MAX_MS


def test_a_server_that_lost_only_its_connections_is_not_taken_for_dead_once_it_has_another(server: Server) -> None:
    server.submit(graph(a=held("k")))
    assert server.engine.schedule().ran
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        wait_until(lambda: connection.execute(LOCKS).fetchone() == (0,))
        assert server.engine.schedule().ran
        assert connection.execute(LOCKS).fetchone() == (1,)


def test_a_file_that_is_opened_again_has_no_holder_of_the_lock(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'taskyard.db'}", FakeClock()
    with Engine.open(url, clock) as engine:
        engine.set_pool("default", 5)
    dead = Engine.open(url, clock)
    with dead.store.write() as repo:
        repo.admission.take_lock(7, "dead, 1", clock.advance(LOCK_MS))
    dead.stop()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()
    try:
        assert engine.schedule().epoch == 8
    finally:
        engine.stop()


def _time_until_admission(server: Server, labels: Labels) -> int:
    """Advance the clock in small steps until the task is admitted; return the time it took."""
    began = server.clock.now()
    for _ in range(10 * FROZEN_MAX_MS // STEP_MS):
        server.settle()
        if server.states(labels) == {"a": "waiting"}:
            return server.clock.now() - began
        server.clock.advance(STEP_MS)
    raise AssertionError("it was never admitted")
