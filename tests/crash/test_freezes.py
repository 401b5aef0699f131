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
from tests.engine.rig import Labels, graph, soon, task
from tests.project.tree import ROOT
from tests.races.servers import COMMIT, Server, Watch

#: Ends whoever does nothing in the midst of a transaction, and counts them.
IDLE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
CUT = IDLE.replace("count(*)", "pg_terminate_backend(pid)")


@contextmanager
def asleep(url: str, place: str) -> Iterator["subprocess.Popen[str]"]:
    """One that was stopped in the midst of its pass."""
    run = [sys.executable, "-m", "tests.crash.sleeper", url, place]
    sleeper = subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield sleeper
    finally:
        sleeper.kill()
        sleeper.communicate()


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    """Another server, with a bot; it lives in the same time as the sleeper."""
    one = Server(postgres_url, Watch(SystemClock().now()), "b1")
    try:
        one.hello()
        yield one
        one.audit()
    finally:
        one.close()


def take_over(server: Server, labels: Labels) -> None:
    """Let others in, and in again when they are done."""
    passed = server.engine.schedule()
    assert (passed.ran, passed.admitted, passed.epoch) == (True, 2, 2)
    leases = {lease.task: lease for lease in server.claim(3)}
    assert server.end(leases[labels["a"]]) == Done(labels["a"], State.SUCCESSFUL)
    assert server.engine.schedule().admitted == 1


def wake(sleeper: "subprocess.Popen[str]") -> str:
    """Let it go on, and hear what came of its pass."""
    os.kill(sleeper.pid, signal.SIGCONT)
    assert sleeper.stdout
    return sleeper.stdout.readline()


def settled(server: Server, labels: Labels) -> None:
    assert server.states(labels) == {"a": "successful", "b": "waiting", "c": "running"}
    found = server.audit()
    assert [found.signals(labels[label])["admit"] for label in "abc"] == [1, 1, 1]


def test_a_pass_that_was_frozen_for_too_long_is_replaced_and_writes_nothing(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with asleep(server.url, "extend_admission_lock") as sleeper:
        assert not server.engine.schedule().ran, "the lock is held"
        server.watch.later(2 * LOCK_MS)
        take_over(server, labels)
        assert wake(sleeper) == "False 0 1\n"
    settled(server, labels)


def test_a_pass_that_is_frozen_in_its_transaction_is_not_waited_for(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with asleep(server.url, COMMIT) as sleeper:
        server.watch.later(2 * LOCK_MS)
        assert not server.engine.schedule().ran, "it has the row"
        other = server.submit(graph(d=task()))
        assert server.end(server.claim()[0]) == Done(other["d"], State.SUCCESSFUL)
        assert wake(sleeper) == "True 2 1\n"
    assert server.states(labels) == {"a": "waiting", "b": "pending", "c": "waiting"}


def test_a_pass_that_is_cut_off_in_its_transaction_is_replaced_and_writes_nothing(server: Server) -> None:
    labels = server.submit(graph(a=held("k"), b=held("k"), c=held("other")))
    with asleep(server.url, COMMIT) as sleeper:
        server.watch.later(2 * LOCK_MS)
        with psycopg.connect(server.url, autocommit=True) as connection:  # as it does by itself after a while
            connection.execute(CUT)
            soon(lambda: connection.execute(IDLE).fetchone() == (0,))
        take_over(server, labels)
        assert wake(sleeper) == "False 0 1\n"
    settled(server, labels)


def held(key: str) -> dict[str, object]:
    return task(mutexes=[{"key": key}])
