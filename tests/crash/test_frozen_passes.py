"""A server that is frozen for longer than it may hold the lock of the pass: what it writes late is refused."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from taskyard.core.states import State
from taskyard.engine.clock import SystemClock
from taskyard.lifecycle.admission.scheduler import LOCK_MS
from taskyard.lifecycle.commands import Done
from tests.engine.harness import graph, task, wait_until
from tests.lifecycle.harness import Labels
from tests.project.tree import ROOT
from tests.races.servers import COMMIT, Server, SharedClock

#: Counts the connections that are idle in a transaction; the other terminates them.
IDLE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
TERMINATE_IDLE = IDLE.replace("count(*)", "pg_terminate_backend(pid)")


@contextmanager
def frozen_server(url: str, place: str) -> Iterator["subprocess.Popen[str]"]:
    """A server process that was stopped during its pass."""
    run = [sys.executable, "-m", "tests.crash.frozen_process", url, place]
    frozen = subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield frozen
    finally:
        frozen.kill()
        frozen.communicate()


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    """Another server, with a bot, at the same time as the frozen one."""
    one = Server(postgres_url, SharedClock(SystemClock().now()), "b1")
    try:
        one.hello()
        yield one
        one.audit()
    finally:
        one.close()


def take_over(server: Server, labels: Labels) -> None:
    """Admit tasks as the other server, and again when one has ended."""
    passed = server.engine.schedule()
    assert (passed.ran, passed.admitted, passed.epoch) == (True, 2, 2)
    leases = {lease.task: lease for lease in server.claim(3)}
    assert server.end(leases[labels["a"]]) == Done(labels["a"], State.SUCCESSFUL)
    assert server.engine.schedule().admitted == 1


def wake(frozen: "subprocess.Popen[str]") -> str:
    """Let the frozen process go on; return the outcome of its pass."""
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.stdout
    return frozen.stdout.readline()


def check_result(server: Server, labels: Labels) -> None:
    assert server.states(labels) == {"a": "successful", "b": "waiting", "c": "running"}
    found = server.audit()
    assert [found.signals(labels[label])["admit"] for label in "abc"] == [1, 1, 1]


def test_a_pass_that_was_frozen_for_too_long_is_replaced_and_writes_nothing(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with frozen_server(server.url, "extend_admission_lock") as frozen:
        assert not server.engine.schedule().ran, "the lock is held"
        server.clock.advance(2 * LOCK_MS)
        take_over(server, labels)
        assert wake(frozen) == "False 0 1\n"
    check_result(server, labels)


def test_a_pass_that_is_frozen_in_its_transaction_is_not_waited_for(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with frozen_server(server.url, COMMIT) as frozen:
        server.clock.advance(2 * LOCK_MS)
        assert not server.engine.schedule().ran, "the frozen transaction has locked the row"
        other = server.submit(graph(d=task()))
        assert server.end(server.claim()[0]) == Done(other["d"], State.SUCCESSFUL)
        assert wake(frozen) == "True 2 1\n"
    assert server.states(labels) == {"a": "waiting", "b": "pending", "c": "waiting"}


def test_a_pass_that_is_cut_off_in_its_transaction_is_replaced_and_writes_nothing(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with frozen_server(server.url, COMMIT) as frozen:
        server.clock.advance(2 * LOCK_MS)
        with psycopg.connect(
            server.url, autocommit=True
        ) as connection:  # as PostgreSQL does by itself after a time-out
            connection.execute(TERMINATE_IDLE)
            wait_until(lambda: connection.execute(IDLE).fetchone() == (0,))
        take_over(server, labels)
        assert wake(frozen) == "False 0 1\n"
    check_result(server, labels)


def held(key: str) -> dict[str, object]:
    return task(mutexes=[{"key": key}])
