"""How long attempts waited in a queue, from their events."""

from collections.abc import Iterator

import pytest

from taskyard.views import tasks as views
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness


@pytest.fixture
def harness(database_url: str) -> Iterator[LifecycleHarness]:
    harness = LifecycleHarness(database_url)
    yield harness
    harness.close()


def queued(harness: LifecycleHarness, task: int) -> list[int | None]:
    with harness.store.read() as repo:
        return [one.stats.queued_ms if one.stats else None for one in views.attempts(repo, task)]


@pytest.mark.parametrize("page", [1, 500])
def test_an_attempt_waits_from_entering_a_queue_until_a_bot_claims_it(
    harness: LifecycleHarness, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EVENTS_PAGE", page)
    labels = harness.submit(graph(a=node(reruns=1), b=node("a")))
    harness.hello("rack1")
    harness.advance(70)
    (lease,) = harness.claim("rack1")
    harness.advance(1_000)
    harness.fail("rack1", lease)
    harness.advance(30)
    (lease,) = harness.claim("rack1")
    harness.advance(1_000)
    harness.end("rack1", lease)
    assert queued(harness, labels["a"]) == [70, 30]
    harness.claim("rack1")
    assert queued(harness, labels["b"]) == [0]
