"""How long leases last is a setting of the engine: claims, renewals, outages and the doctor go by it."""

from collections.abc import Iterator

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MAX_MS, LEASE_MIN_MS
from taskyard.core.states import State
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Poll, Renewal, Renewed
from taskyard.lifecycle.poll import PollOutcome
from taskyard.store.connection import open_store
from tests.engine.harness import EngineHarness, graph, task


@pytest.fixture(params=[LEASE_MIN_MS, LEASE_MAX_MS])
def harness(database_url: str, request: pytest.FixtureRequest) -> Iterator[EngineHarness]:
    with EngineHarness(database_url, lease_ms=request.param) as one:
        yield one


def test_a_lease_lasts_as_the_engine_is_configured(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task()))
    harness.hello()
    (lease,) = harness.claim()
    assert lease.until_ms - harness.clock.now() == harness.engine.lease_ms
    harness.clock.advance(1_000)
    renewal = Renewal(lease.task, lease.attempt, lease.fence)
    answer = harness.engine.poll(Poll("b1", "s1", renewals=(renewal,)))
    assert isinstance(answer, PollOutcome)
    (renewed,) = answer.renewals
    assert isinstance(renewed, Renewed)
    assert (renewed.until_ms or 0) - harness.clock.now() == harness.engine.lease_ms
    assert harness.engine.doctor() == []
    harness.clock.advance(harness.engine.lease_ms + GUARD_MS - 1)
    harness.settle()
    assert harness.states(labels) == {"a": State.RUNNING}
    # It was an outage, too, so that it lasts one more lease from now on.
    harness.clock.advance(harness.engine.lease_ms)
    harness.settle()
    harness.clock.advance(harness.engine.lease_ms + GUARD_MS)
    harness.settle()
    assert harness.engine.doctor() == []


@pytest.mark.parametrize("lease_ms", [LEASE_MIN_MS - 1, LEASE_MAX_MS + 1])
def test_a_lease_that_is_too_short_or_too_long_is_refused(sqlite_url: str, lease_ms: int) -> None:
    with pytest.raises(ValueError, match="a lease lasts from 2000 to 3600000 ms"):
        Engine(open_store(sqlite_url), lease_ms=lease_ms)
