"""Regressions that the model tests found, each as a short script."""

import pytest

from taskyard.core.fleet import MISSING_WITHIN_MS
from taskyard.core.matching import canonical
from taskyard.engine import failpoints
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed
from taskyard.lifecycle import bot_sessions
from taskyard.lifecycle.commands import Code, Hello, Refusal
from taskyard.lifecycle.continuations import drop_stale_loads
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from tests.engine.harness import EngineHarness, task
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import LifecycleHarness


def arrive(harness: LifecycleHarness, session: str, bot: str, *pools: str) -> None:
    hello = Hello(bot, session, canonical({"id": bot, "pool": pools}))
    harness.do(lambda transaction: bot_sessions.hello(transaction, [hello]))


def test_a_missing_bot_gets_work_by_its_first_poll(harness: LifecycleHarness) -> None:
    harness.hello("rack1")
    labels = harness.submit(chain("a"))
    harness.wait(MISSING_WITHIN_MS + 1)
    assert [lease.task for lease in harness.claim("rack1")] == [labels["a"]]


def test_a_hello_within_a_session_keeps_the_answer_of_the_last_poll(harness: LifecycleHarness) -> None:
    harness.hello("rack1")
    harness.submit(chain("a", "b"))
    first = harness.poll("rack1", 1, poll="p")
    harness.hello("rack1")
    assert isinstance(first, PollOutcome)
    assert harness.poll("rack1", 1, poll="p") == first


def test_a_task_that_avoids_a_bot_does_not_hide_an_older_task_behind_it(harness: LifecycleHarness) -> None:
    arrive(harness, "s1", "rack1", "default", "lab")
    arrive(harness, "s1", "rack2", "default")
    harness.submit(graph(lost=node(dimensions={"pool": "default"})))
    harness.claim("rack1")
    arrive(harness, "s2", "rack1", "default", "lab")
    older = harness.submit(graph(older=node(dimensions={"pool": "default"})))
    harness.submit(graph(younger=node(dimensions={"pool": "lab"})))
    answer = harness.poll("rack1", 1, "s2")
    assert isinstance(answer, PollOutcome)
    assert [lease.task for lease in answer.leases] == [older["older"]]


def test_an_extension_that_is_being_dropped_is_neither_repeated_nor_extended(database_url: str) -> None:
    large = graph(**{f"x{number}": task() for number in range(PAGE_MAX + 1)})
    with EngineHarness(database_url) as engine_harness:
        labels = engine_harness.submit(graph(a=task()))
        failpoints.arm("load.open.before:raise@1")
        try:
            with pytest.raises(Failed):
                engine_harness.engine.extend(labels.text, large)
        finally:
            failpoints.arm(None)
        engine_harness.engine.transact(
            lambda transaction: drop_stale_loads(transaction, engine_harness.clock.advance(LOAD_MAX_MS), 1)
        )
        for document in (large, graph(y=task("x0"))):
            refused = engine_harness.engine.extend(labels.text, document)
            assert isinstance(refused, Refusal)
            assert refused.code is Code.LOADING
        engine_harness.settle()
        assert engine_harness.engine.extend(labels.text, large) == Submitted(labels.graph)
