"""How long attempts waited in a queue, as their events tell."""

from collections.abc import Iterator

import pytest

from taskyard.views import tasks as views
from tests.lifecycle.grounds import Grounds, graph, node


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    yard = Grounds(database_url)
    yield yard
    yard.close()


def queued(yard: Grounds, task: int) -> list[int | None]:
    with yard.store.read() as repo:
        return [one.stats.queued_ms if one.stats else None for one in views.attempts(repo, task)]


@pytest.mark.parametrize("page", [1, 500])
def test_an_attempt_waits_from_entering_a_queue_until_a_bot_claims_it(
    yard: Grounds, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EVENTS_PAGE", page)
    labels = yard.submit(graph(a=node(reruns=1), b=node("a")))
    yard.hello("rack1")
    yard.later(70)
    (lease,) = yard.claim("rack1")
    yard.later(1_000)
    yard.fail("rack1", lease)
    yard.later(30)
    (lease,) = yard.claim("rack1")
    yard.later(1_000)
    yard.end("rack1", lease)
    assert queued(yard, labels["a"]) == [70, 30]
    yard.claim("rack1")
    assert queued(yard, labels["b"]) == [0]
