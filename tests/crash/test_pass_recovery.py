"""A server that dies or is frozen in the midst of a pass holds the others up for seconds, and it is said how many."""

from pathlib import Path
from typing import Final

import psycopg

from taskyard.engine.engine import Engine
from taskyard.lifecycle.admission.scheduler import LOCK_MS
from tests.crash.test_freezes import asleep, held, server
from tests.engine.rig import FakeClock, Labels, graph, soon
from tests.races.servers import Server

__all__ = ["server"]  # the fixture

#: What the docs promise.
KILLED_MAX_MS: Final = 2_000
FROZEN_MAX_MS: Final = 15_000
STEP_MS: Final = 100
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def test_a_server_that_is_killed_in_a_pass_holds_others_up_for_two_seconds_at_most(server: Server) -> None:
    labels = server.submit(graph(a=held("k")))
    with asleep(server.url, "extend_admission_lock") as sleeper:
        server.settle()
        assert server.states(labels) == {"a": "pending"}, "the lock is held"
        sleeper.kill()
        sleeper.wait()
        with psycopg.connect(server.url, autocommit=True) as connection:
            soon(lambda: connection.execute(LOCKS).fetchone() == (1,))  # the database sees at once who is gone
        assert _stands_still_for(server, labels) <= KILLED_MAX_MS


def test_a_server_that_is_frozen_in_a_pass_holds_others_up_for_fifteen_seconds_at_most(server: Server) -> None:
    labels = server.submit(graph(a=held("k")))
    with asleep(server.url, "extend_admission_lock"):
        server.settle()
        took = _stands_still_for(server, labels)
    assert KILLED_MAX_MS < took <= FROZEN_MAX_MS


def test_a_server_that_lost_only_its_connections_is_not_taken_for_dead_once_it_has_another(server: Server) -> None:
    server.submit(graph(a=held("k")))
    assert server.engine.schedule().ran
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        soon(lambda: connection.execute(LOCKS).fetchone() == (0,))
        assert server.engine.schedule().ran
        assert connection.execute(LOCKS).fetchone() == (1,)


def test_a_file_that_is_opened_again_has_nobody_at_a_pass(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'yard.db'}", FakeClock()
    with Engine.open(url, clock) as engine:
        engine.set_pool("default", 5)
    dead = Engine.open(url, clock)
    with dead.store.write() as repo:
        repo.admission.take_lock(7, "dead, 1", clock.later(LOCK_MS))
    dead.stop()
    engine = Engine.open(url, clock)
    engine.writer_thread.start()
    try:
        assert engine.schedule().epoch == 8
    finally:
        engine.stop()


def _stands_still_for(server: Server, labels: Labels) -> int:
    """Let time go by in small steps until the task is let in; say how much."""
    began = server.watch.now()
    for _ in range(10 * FROZEN_MAX_MS // STEP_MS):
        server.settle()
        if server.states(labels) == {"a": "waiting"}:
            return server.watch.now() - began
        server.watch.later(STEP_MS)
    raise AssertionError("it was never let in")
