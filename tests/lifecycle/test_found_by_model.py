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
from tests.engine import rig
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.yard import chain


def arrive(yard: Grounds, session: str, bot: str, *pools: str) -> None:
    hello = Hello(bot, session, canonical({"id": bot, "pool": pools}))
    yard.do(lambda transaction: bot_sessions.hello(transaction, [hello]))


def test_a_missing_bot_gets_work_by_its_first_poll(yard: Grounds) -> None:
    yard.hello("rack1")
    labels = yard.submit(chain("a"))
    yard.wait(MISSING_WITHIN_MS + 1)
    assert [lease.task for lease in yard.claim("rack1")] == [labels["a"]]


def test_a_hello_within_a_session_keeps_the_answer_of_the_last_poll(yard: Grounds) -> None:
    yard.hello("rack1")
    yard.submit(chain("a", "b"))
    first = yard.poll("rack1", 1, poll="p")
    yard.hello("rack1")
    assert isinstance(first, PollOutcome)
    assert yard.poll("rack1", 1, poll="p") == first


def test_a_task_that_avoids_a_bot_does_not_hide_an_older_task_behind_it(yard: Grounds) -> None:
    arrive(yard, "s1", "rack1", "default", "lab")
    arrive(yard, "s1", "rack2", "default")
    yard.submit(graph(lost=node(dimensions={"pool": "default"})))
    yard.claim("rack1")
    arrive(yard, "s2", "rack1", "default", "lab")
    older = yard.submit(graph(older=node(dimensions={"pool": "default"})))
    yard.submit(graph(younger=node(dimensions={"pool": "lab"})))
    answer = yard.poll("rack1", 1, "s2")
    assert isinstance(answer, PollOutcome)
    assert [lease.task for lease in answer.leases] == [older["older"]]


def test_an_extension_that_is_being_dropped_is_neither_repeated_nor_extended(database_url: str) -> None:
    large = rig.graph(**{f"x{number}": rig.task() for number in range(PAGE_MAX + 1)})
    with rig.Rig(database_url) as one:
        labels = one.submit(rig.graph(a=rig.task()))
        failpoints.arm("load.open.before:raise@1")
        try:
            with pytest.raises(Failed):
                one.engine.extend(labels.text, large)
        finally:
            failpoints.arm(None)
        one.engine.transact(lambda transaction: drop_stale_loads(transaction, one.clock.later(LOAD_MAX_MS), 1))
        for document in (large, rig.graph(y=rig.task("x0"))):
            refused = one.engine.extend(labels.text, document)
            assert isinstance(refused, Refusal)
            assert refused.code is Code.LOADING
        one.settle()
        assert one.engine.extend(labels.text, large) == Submitted(labels.graph)
