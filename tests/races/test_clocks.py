"""Servers whose clocks are apart: they go by the clock of the database that they share."""

from collections.abc import Iterator

import psycopg
import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS, SWEEP_MS
from taskyard.core.states import Millis
from taskyard.engine.clock import SystemClock
from tests.engine.harness import wide
from tests.lifecycle.harness import START
from tests.races.servers import Server, SharedClock

#: A lease is over, and its task may be leased again.
OVER_MS = LEASE_MS + GUARD_MS
#: How far the clocks of two servers are apart.
APART_MS = 20_000

#: A database with a fake clock: its own function is found before that of PostgreSQL.
TOLD = """
CREATE TABLE told (ms bigint);
INSERT INTO told VALUES ({ms});
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT to_timestamp(ms / 1000.0) FROM told $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$;
"""


class Time:
    """The true time: every machine counts it alike, and the database shows it."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(TOLD.format(ms=START).encode())
        self.ms = START

    def advance(self, ms: int) -> None:
        self.ms = Millis(self.ms + ms)
        self._connection.execute("UPDATE told SET ms = %s", [self.ms])

    def close(self) -> None:
        self._connection.close()


class Skewed(SharedClock):
    """A clock on a wall that is ahead of the true time."""

    now = SystemClock.now
    tick = SystemClock.tick

    def __init__(self, true: Time, ahead_ms: int) -> None:
        super().__init__()
        SystemClock.__init__(self, lambda: (true.ms + ahead_ms) * 1_000_000, lambda: true.ms * 1_000_000)


@pytest.fixture
def true(postgres_url: str) -> Iterator[Time]:
    time = Time(postgres_url)
    yield time
    time.close()


@pytest.fixture
def apart(postgres_url: str, true: Time) -> Iterator[tuple[Server, Server]]:
    """Two servers, each with a bot and a clock of its own."""
    slow = Server(postgres_url, Skewed(true, 0), "b1")
    fast = Server(postgres_url, Skewed(true, APART_MS), "b2")
    try:
        slow.hello()
        fast.hello()
        yield slow, fast
        slow.audit()
    finally:
        slow.close()
        fast.close()


def test_a_lease_of_a_dead_bot_is_lost_though_the_clocks_of_servers_are_apart(
    true: Time, apart: tuple[Server, Server]
) -> None:
    slow, _ = apart
    labels = slow.submit(wide(1))
    for server in apart:
        server.settle()
    assert len(slow.claim()) == 1
    for _ in range(0, OVER_MS + SWEEP_MS, SWEEP_MS):
        assert true.ms > START + OVER_MS or slow.states(labels) == {"t0": "running"}
        for server in apart:
            true.advance(SWEEP_MS // 2)
            server.settle()
    assert slow.states(labels) == {"t0": "waiting"}
    with slow.store.read() as repo:
        assert [(one.bot, one.signal) for one in repo.attempts.of(labels["t0"])] == [("b1", "lose")]


def test_all_servers_have_the_time_of_the_database_and_follow_it(true: Time, apart: tuple[Server, Server]) -> None:
    slow, fast = apart
    assert (slow.clock.now(), fast.clock.now()) == (true.ms, true.ms)
    true.advance(SWEEP_MS)
    true._connection.execute("UPDATE told SET ms = ms + 3600000")
    for server in apart:
        server.settle()
    assert slow.clock.now() == fast.clock.now() == true.ms + 3_600_000
