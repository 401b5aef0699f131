"""Bots prefer tasks whose caches they hold; who holds none is not kept waiting."""

from taskyard.core.caches import WAITED_MS, cache_key
from taskyard.lifecycle.poll import PollOutcome
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness

#: Graphs of tests have no submitter.
NPM, PIP = cache_key("npm", ""), cache_key("pip", "")


def using(*caches: str, **task: object) -> dict[str, object]:
    payload = {"command": ["true"], "caches": {name: f".{name}" for name in caches}}
    return node(**task, payload=payload)  # type: ignore[arg-type]


def test_a_bot_gets_a_task_whose_cache_it_holds_before_older_ones(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=using("pip"), c=using("npm")))
    harness.hello("warm")
    harness.hello("cold")
    harness.poll("warm", 0, caches=(NPM,))
    assert list(harness.start("warm", labels, 1)) == ["c"]
    assert list(harness.start("cold", labels, 1)) == ["a"]
    assert list(harness.start("warm", labels, 1)) == ["b"]


def test_what_a_bot_reports_counts_for_the_same_poll(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=using("npm")))
    harness.hello("warm")
    answer = harness.poll("warm", 1, caches=(NPM,))
    assert isinstance(answer, PollOutcome)
    assert [lease.task for lease in answer.leases] == [labels["b"]]


def test_no_task_that_waits_for_a_minute_is_passed(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.advance(WAITED_MS)
    labels |= harness.submit(graph(b=using("npm")))
    harness.hello("warm")
    harness.poll("warm", 0, caches=(NPM,))
    assert list(harness.start("warm", labels, 1)) == ["a"]


def test_a_session_begins_without_caches(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=using("npm")))
    harness.hello("warm")
    harness.poll("warm", 0, caches=(NPM,))
    harness.hello("warm", "s2")
    answer = harness.poll("warm", 1, "s2")
    assert isinstance(answer, PollOutcome)
    assert [lease.task for lease in answer.leases] == [labels["a"]]


def test_all_queues_of_a_bot_are_one_order(harness: LifecycleHarness) -> None:
    labels = harness.submit(
        graph(
            a=using("npm", dimensions={"pool": "default", "os": "linux"}),
            b=node(priority=50),
            c=using("npm", priority=50),
        )
    )
    harness.hello("warm", os="linux")
    harness.poll("warm", 0, caches=(NPM, PIP))
    assert [list(harness.start("warm", labels, 1)) for _ in range(3)] == [["c"], ["b"], ["a"]]
