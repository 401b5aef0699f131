"""Polls that wait: they get what the next transaction makes ready, and nothing else ever happens to them."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import Cancel, Hello, Poll, Renewal, Renewed
from taskyard.lifecycle.poll import EMPTY, PollOutcome
from taskyard.store.queries import TransactionConflict
from tests.engine.rig import SOON_S, Rig, graph, noop, report, soon, task, wide


def wait(rig: Rig, bot: str = "b1", want: int = 1, poll: str = "w1") -> Future[Any]:
    """Send a poll that waits, and see it parked or answered."""
    asked = rig.engine.ask(Poll, Poll(bot, "s1", poll, want=want, wait_ms=20_000))
    soon(lambda: asked.done() or rig.engine._writer.parked_polls.holds(Poll(bot, "s1", poll)))
    return asked


def got(asked: Future[Any]) -> PollOutcome:
    answer = asked.result(SOON_S)
    assert isinstance(answer, PollOutcome), answer
    return answer


def test_a_parked_poll_gets_a_task_in_the_transaction_that_makes_it_ready(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    before = rig.engine.commits
    labels = rig.submit(graph(a=task()))
    (lease,) = got(asked).leases
    assert (lease.task, lease.attempt) == (labels["a"], 1)
    assert rig.engine.commits == before + 1
    assert rig.states(labels) == {"a": State.RUNNING}


def test_a_report_serves_parked_polls_with_the_tasks_that_it_releases(rig: Rig) -> None:
    rig.hello()
    rig.hello("b2")
    labels = rig.submit(graph(a=task(), b=task("a"), c=task("a")))
    (first,) = rig.claim()
    asked = wait(rig, "b2", want=4)
    answer = rig.engine.poll(Poll("b1", "s1", "p", (report(first),), want=1))
    assert isinstance(answer, PollOutcome)
    (own,), (other,) = answer.leases, got(asked).leases
    assert {own.task, other.task} == {labels["b"], labels["c"]}


def test_few_tasks_are_shared_among_parked_polls(rig: Rig) -> None:
    for bot in ("b1", "b2", "b3"):
        rig.hello(bot)
    asked = [wait(rig, bot, want=64) for bot in ("b1", "b2", "b3")]
    rig.submit(wide(6))
    assert [len(got(one).leases) for one in asked] == [2, 2, 2]


def test_a_poll_with_something_to_answer_is_not_parked(rig: Rig) -> None:
    rig.hello()
    rig.submit(graph(a=task()))
    (lease,) = rig.claim()
    renewed = Poll("b1", "s1", "p9", renewals=(Renewal(lease.task, 1, lease.fence),), want=1, wait_ms=20_000)
    assert got(rig.engine.ask(Poll, renewed)).leases == ()
    ended = Poll("b1", "s1", "p10", reports=(report(lease),), want=1, wait_ms=20_000)
    assert got(rig.engine.ask(Poll, ended)).leases == ()


def test_server_tasks_serve_no_parked_poll(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    rig.submit(graph(a=noop()))
    rig.settle()
    assert not asked.done()
    rig.engine.leave(asked)
    assert got(asked) == EMPTY


def test_a_bot_gets_only_what_it_serves(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    rig.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100"})))
    assert not asked.done()
    labels = rig.submit(graph(b=task()))
    assert [lease.task for lease in got(asked).leases] == [labels["b"]]


def test_another_poll_of_a_bot_takes_the_place_of_the_first(rig: Rig) -> None:
    rig.hello()
    first, second = wait(rig, poll="w1"), wait(rig, poll="w2")
    assert got(first) == EMPTY
    rig.submit(graph(a=task()))
    assert len(got(second).leases) == 1


def test_a_poll_sent_again_while_it_waits_goes_on_waiting(rig: Rig) -> None:
    rig.hello()
    first = wait(rig)
    again = rig.engine.ask(Poll, Poll("b1", "s1", "w1", want=1, wait_ms=20_000))
    assert got(first) == EMPTY
    rig.submit(graph(a=task()))
    assert len(got(again).leases) == 1


def test_a_poll_sent_again_after_it_was_served_gets_the_same_lease(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    labels = rig.submit(graph(a=task(), b=task()))
    lost = got(asked).leases
    assert len(lost) == 1
    assert got(wait(rig)).leases == lost
    assert [one.life.attempt for one in rig.tasks(labels).values()] in ([1, 0], [0, 1])


def test_a_late_copy_of_a_poll_that_was_answered_waits_for_nothing(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    rig.submit(graph(a=task()))
    (lease,) = got(asked).leases
    rig.end(lease)
    assert got(wait(rig)).leases == ()
    labels = rig.submit(graph(b=task()))
    assert rig.states(labels) == {"b": State.WAITING}


def test_a_transaction_that_is_rolled_back_serves_no_poll(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    rig.store.before = [TransactionConflict("a race was lost")]
    labels = rig.submit(graph(a=task()))
    assert [lease.task for lease in got(asked).leases] == [labels["a"]]


def test_a_session_that_was_replaced_is_answered_at_once_and_gets_nothing(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    rig.engine.hello(Hello("b1", "s2", canonical({"id": "b1", "pool": "default"})))
    assert got(asked) == EMPTY
    labels = rig.submit(graph(a=task()))
    assert rig.states(labels) == {"a": State.WAITING}


def test_a_bot_whose_dimensions_change_polls_again_and_gets_what_fits_them(rig: Rig) -> None:
    rig.hello()
    asked = wait(rig)
    labels = rig.submit(graph(a=task(dimensions={"pool": "default", "gpu": "h100"})))
    assert not asked.done()
    rig.engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default", "gpu": "h100"})))
    assert got(asked) == EMPTY
    assert [lease.task for lease in got(wait(rig, poll="w2")).leases] == [labels["a"]]


def test_a_sweep_serves_parked_polls_with_tasks_that_another_server_made_ready(rig: Rig) -> None:
    rig.hello()
    labels = rig.submit(graph(a=task()))
    (lease,) = rig.claim()
    rig.settle()
    asked = wait(rig)
    # As another server would: the task is lost and waits again, and no transaction of ours has put it there.
    parking = rig.engine._writer.parked_polls
    parked, parking._parked = parking._parked, {}
    rig.end(lease, Signal.LOSE)
    parking._parked = parked
    assert not asked.done()
    rig.clock.later(10_000)
    rig.settle()
    assert [one.task for one in got(asked).leases] == [labels["a"]]


@pytest.mark.parametrize("waiting", [1, 3])
def test_parked_polls_are_answered_when_the_engine_stops(rig: Rig, waiting: int) -> None:
    bots = [f"b{number}" for number in range(waiting)]
    for bot in bots:
        rig.hello(bot)
    asked = [wait(rig, bot) for bot in bots]
    rig.engine.writer_thread.stop()
    assert [got(one) for one in asked] == [EMPTY] * waiting


def test_a_parked_poll_is_answered_at_once_when_an_attempt_is_canceled(rig: Rig) -> None:
    rig.hello()
    labels = rig.submit(graph(a=task(), b=task()))
    rig.claim(2)
    for want in (0, 1):
        asked = wait(rig, want=want, poll=f"w{want}")
        assert not asked.done()
        label = "ab"[want]
        rig.engine.cancel(Cancel(task=labels[label]))
        assert got(asked).stops == (Renewed(labels[label], 1, None, stop=True),)


def test_a_parked_poll_that_wants_no_tasks_makes_way_for_one_that_does(rig: Rig) -> None:
    rig.hello()
    listening = wait(rig, want=0)
    labels = rig.submit(graph(a=task()))
    assert not listening.done()
    assert [one.task for one in rig.claim()] == [labels["a"]]
    assert got(listening) == EMPTY


def test_a_poll_that_hears_of_a_cancel_gets_no_task_in_the_same_transaction(rig: Rig) -> None:
    """A poll is answered once: a lease beside the news of an end would be heard by nobody."""
    rig.hello()
    labels = rig.submit(graph(a=task()))
    rig.claim()
    asked = wait(rig, want=1)
    with rig.held_up():
        ending = rig.engine.ask(Cancel, Cancel(task=labels["a"]))
        submitting = ThreadPoolExecutor(1).submit(rig.submit, graph(b=task()))
        soon(lambda: rig.engine.writer_thread.waiting == 2)
    assert ending.result(SOON_S) is not None
    fresh = submitting.result(SOON_S)
    assert [one.task for one in got(asked).stops] == [labels["a"]]
    assert rig.states(fresh) == {"b": State.WAITING}
