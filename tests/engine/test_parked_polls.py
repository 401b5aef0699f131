"""Polls that wait: they get what the next transaction makes ready, and nothing else ever happens to them."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from taskyard.core.caches import cache_key
from taskyard.core.matching import canonical
from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import Cancel, Hello, Poll, Renewal, Renewed
from taskyard.lifecycle.poll import EMPTY, PollOutcome
from taskyard.store.queries import TransactionConflict
from tests.engine.harness import WAIT_S, EngineHarness, graph, noop, report, task, wait_until, wide


def wait(harness: EngineHarness, bot: str = "b1", want: int = 1, poll: str = "w1") -> Future[Any]:
    """Send a poll that waits, and see it parked or answered."""
    asked = harness.engine.ask(Poll, Poll(bot, "s1", poll, want=want, wait_ms=20_000))
    wait_until(lambda: asked.done() or harness.engine._writer.parked_polls.holds(Poll(bot, "s1", poll)))
    return asked


def got(asked: Future[Any]) -> PollOutcome:
    answer = asked.result(WAIT_S)
    assert isinstance(answer, PollOutcome), answer
    return answer


def test_a_parked_poll_gets_a_task_in_the_transaction_that_makes_it_ready(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    before = harness.engine.commits
    labels = harness.submit(graph(a=task()))
    (lease,) = got(asked).leases
    assert (lease.task, lease.attempt) == (labels["a"], 1)
    assert harness.engine.commits == before + 1
    assert harness.states(labels) == {"a": State.RUNNING}


def test_a_report_serves_parked_polls_with_the_tasks_that_it_releases(harness: EngineHarness) -> None:
    harness.hello()
    harness.hello("b2")
    labels = harness.submit(graph(a=task(), b=task("a"), c=task("a")))
    (first,) = harness.claim()
    asked = wait(harness, "b2", want=4)
    answer = harness.engine.poll(Poll("b1", "s1", "p", (report(first),), want=1))
    assert isinstance(answer, PollOutcome)
    (own,), (other,) = answer.leases, got(asked).leases
    assert {own.task, other.task} == {labels["b"], labels["c"]}


def test_few_tasks_are_shared_among_parked_polls(harness: EngineHarness) -> None:
    for bot in ("b1", "b2", "b3"):
        harness.hello(bot)
    asked = [wait(harness, bot, want=64) for bot in ("b1", "b2", "b3")]
    harness.submit(wide(6))
    assert [len(got(one).leases) for one in asked] == [2, 2, 2]


def test_a_poll_with_something_to_answer_is_not_parked(harness: EngineHarness) -> None:
    harness.hello()
    harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    renewed = Poll("b1", "s1", "p9", renewals=(Renewal(lease.task, 1, lease.fence),), want=1, wait_ms=20_000)
    assert got(harness.engine.ask(Poll, renewed)).leases == ()
    ended = Poll("b1", "s1", "p10", reports=(report(lease),), want=1, wait_ms=20_000)
    assert got(harness.engine.ask(Poll, ended)).leases == ()


def test_server_tasks_serve_no_parked_poll(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    harness.submit(graph(a=noop()))
    harness.settle()
    assert not asked.done()
    harness.engine.leave(asked)
    assert got(asked) == EMPTY


def test_a_bot_gets_only_what_it_serves(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    harness.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100"})))
    assert not asked.done()
    labels = harness.submit(graph(b=task()))
    assert [lease.task for lease in got(asked).leases] == [labels["b"]]


def test_another_poll_of_a_bot_takes_the_place_of_the_first(harness: EngineHarness) -> None:
    harness.hello()
    first, second = wait(harness, poll="w1"), wait(harness, poll="w2")
    assert got(first) == EMPTY
    harness.submit(graph(a=task()))
    assert len(got(second).leases) == 1


def test_a_poll_sent_again_while_it_waits_goes_on_waiting(harness: EngineHarness) -> None:
    harness.hello()
    first = wait(harness)
    again = harness.engine.ask(Poll, Poll("b1", "s1", "w1", want=1, wait_ms=20_000))
    assert got(first) == EMPTY
    harness.submit(graph(a=task()))
    assert len(got(again).leases) == 1


def test_a_poll_sent_again_after_it_was_served_gets_the_same_lease(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    labels = harness.submit(graph(a=task(), b=task()))
    lost = got(asked).leases
    assert len(lost) == 1
    assert got(wait(harness)).leases == lost
    assert [one.life.attempt for one in harness.tasks(labels).values()] in ([1, 0], [0, 1])


def test_a_late_copy_of_a_poll_that_was_answered_waits_for_nothing(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    harness.submit(graph(a=task()))
    (lease,) = got(asked).leases
    harness.end(lease)
    assert got(wait(harness)).leases == ()
    labels = harness.submit(graph(b=task()))
    assert harness.states(labels) == {"b": State.WAITING}


def test_a_transaction_that_is_rolled_back_serves_no_poll(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    harness.store.before = [TransactionConflict("a race was lost")]
    labels = harness.submit(graph(a=task()))
    assert [lease.task for lease in got(asked).leases] == [labels["a"]]


def test_a_session_that_was_replaced_is_answered_at_once_and_gets_nothing(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    harness.engine.hello(Hello("b1", "s2", canonical({"id": "b1", "pool": "default"})))
    assert got(asked) == EMPTY
    labels = harness.submit(graph(a=task()))
    assert harness.states(labels) == {"a": State.WAITING}


def test_a_bot_whose_dimensions_change_polls_again_and_gets_what_fits_them(harness: EngineHarness) -> None:
    harness.hello()
    asked = wait(harness)
    labels = harness.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100"})))
    assert not asked.done()
    harness.engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default", "gpu": "h100"})))
    assert got(asked) == EMPTY
    assert [lease.task for lease in got(wait(harness, poll="w2")).leases] == [labels["a"]]


def test_a_sweep_serves_parked_polls_with_tasks_that_another_server_made_ready(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(graph(a=task()))
    (lease,) = harness.claim()
    harness.settle()
    asked = wait(harness)
    # As by another server: the task is lost and waits again, without a transaction of this one.
    parking = harness.engine._writer.parked_polls
    parked, parking._parked = parking._parked, {}
    harness.end(lease, Signal.LOSE)
    parking._parked = parked
    assert not asked.done()
    harness.clock.advance(10_000)
    harness.settle()
    assert [one.task for one in got(asked).leases] == [labels["a"]]


@pytest.mark.parametrize("waiting", [1, 3])
def test_parked_polls_are_answered_when_the_engine_stops(harness: EngineHarness, waiting: int) -> None:
    bots = [f"b{number}" for number in range(waiting)]
    for bot in bots:
        harness.hello(bot)
    asked = [wait(harness, bot) for bot in bots]
    harness.engine.writer_thread.stop()
    assert [got(one) for one in asked] == [EMPTY] * waiting


def test_a_parked_poll_is_answered_at_once_when_an_attempt_is_canceled(harness: EngineHarness) -> None:
    harness.hello()
    labels = harness.submit(graph(a=task(), b=task()))
    harness.claim(2)
    for want in (0, 1):
        asked = wait(harness, want=want, poll=f"w{want}")
        assert not asked.done()
        label = "ab"[want]
        harness.engine.cancel(Cancel(task=labels[label]))
        assert got(asked).stops == (Renewed(labels[label], 1, None, stop=True),)


def test_a_parked_poll_that_wants_no_tasks_makes_way_for_one_that_does(harness: EngineHarness) -> None:
    harness.hello()
    listening = wait(harness, want=0)
    labels = harness.submit(graph(a=task()))
    assert not listening.done()
    assert [one.task for one in harness.claim()] == [labels["a"]]
    assert got(listening) == EMPTY


def test_a_poll_that_is_answered_with_a_cancel_gets_no_task_in_the_same_transaction(harness: EngineHarness) -> None:
    """A poll is answered once, so a lease beside the news of a cancel would be lost."""
    harness.hello()
    labels = harness.submit(graph(a=task()))
    harness.claim()
    asked = wait(harness, want=1)
    with harness.writer_blocked():
        ending = harness.engine.ask(Cancel, Cancel(task=labels["a"]))
        submitting = ThreadPoolExecutor(1).submit(harness.submit, graph(b=task()))
        wait_until(lambda: harness.engine.writer_thread.waiting == 2)
    assert ending.result(WAIT_S) is not None
    fresh = submitting.result(WAIT_S)
    assert [one.task for one in got(asked).stops] == [labels["a"]]
    assert harness.states(fresh) == {"b": State.WAITING}


def test_a_holder_of_a_cache_is_served_first_whatever_else_it_serves(harness: EngineHarness) -> None:
    harness.hello("cold")
    harness.hello("warm", os="linux")
    harness.submit(graph(a=task(dimensions={"pool": "default", "os": "linux"})))
    assert harness.claim(bot="warm") != (), "there is a queue that only this bot serves"
    harness.engine.poll(Poll("warm", "s1", "held", caches=(cache_key("npm", "ann"),)))
    asked = {bot: wait(harness, bot) for bot in ("cold", "warm")}
    using = task(payload={"command": ["true"], "caches": {"npm": ".npm"}})
    labels = harness.submit(graph(using=using), submitter="ann")
    assert [lease.task for lease in got(asked["warm"]).leases] == [labels["using"]]
    assert not asked["cold"].done()


def test_among_parked_polls_those_that_hold_a_cache_get_its_task(harness: EngineHarness) -> None:
    for bot in ("b1", "b2", "b3"):
        harness.hello(bot)
    npm = cache_key("npm", "ann")
    harness.engine.poll(Poll("b3", "s1", "held", caches=(npm,)))
    asked = {bot: wait(harness, bot) for bot in ("b1", "b2", "b3")}
    using = task(payload={"command": ["true"], "caches": {"npm": ".npm"}})
    labels = harness.submit(graph(plain=task(), using=using), submitter="ann")
    assert [lease.task for lease in got(asked["b3"]).leases] == [labels["using"]]
    assert [lease.task for lease in got(asked["b1"]).leases] == [labels["plain"]]
    assert not asked["b2"].done()
    labels = harness.submit(graph(using=using), submitter="ann")
    assert [lease.task for lease in got(asked["b2"]).leases] == [labels["using"]], "it does not wait for the holder"
