"""How bots take tasks: by match, priority and age; a repeated poll gets the same leases."""

from taskyard.core.fleet import LEASE_MS
from taskyard.core.states import Signal
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.commands import Code, Poll, Refusal
from taskyard.lifecycle.poll import PollOutcome, poll
from tests.lifecycle.grounds import Grounds, graph, node


def test_priority_goes_first_and_then_age(yard: Grounds) -> None:
    old = yard.submit(graph(a=node(), b=node(priority=50)))
    young = yard.submit(graph(c=node(), d=node(priority=50)))
    yard.hello("rack1")
    labels = {**old, **young}
    assert [list(yard.start("rack1", labels, 1)) for _ in range(5)] == [["b"], ["d"], ["a"], ["c"], []]


def test_a_bot_is_given_what_it_matches_and_no_more_than_it_wants(yard: Grounds) -> None:
    labels = yard.submit(graph(any=node(), lab=node(dimensions={"pool": "default", "gpu": "h100"})))
    yard.hello("plain")
    yard.hello("fast", gpu="h100")
    assert list(yard.start("plain", labels)) == ["any"]
    assert yard.claim("fast", 0) == ()
    assert list(yard.start("fast", labels)) == ["lab"]


def test_a_repeated_poll_gives_the_same_lease_with_the_time_that_is_left_and_spends_no_attempt(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1")
    first = yard.poll("rack1", poll="p-1")
    yard.later(20_000)
    again = yard.poll("rack1", poll="p-1")
    assert isinstance(first, PollOutcome)
    assert again == first
    assert first.leases[0].until_ms - yard.now == LEASE_MS - 20_000
    assert yard.task(labels["a"]).life.attempt == 1
    assert yard.words(labels) == {"a": "running", "b": "waiting"}


def test_a_repeated_poll_gives_only_what_the_bot_still_has(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1")
    first = yard.poll("rack1", 2, poll="p-1")
    assert isinstance(first, PollOutcome)
    yard.end("rack1", first.leases[0])
    again = yard.poll("rack1", 2, poll="p-1")
    assert isinstance(again, PollOutcome)
    assert again.leases == first.leases[1:]
    assert yard.words(labels) == {"a": "successful", "b": "running"}


def test_one_poll_twice_in_one_batch_is_one_poll(yard: Grounds) -> None:
    yard.submit(graph(a=node(), b=node()))
    yard.hello("rack1")
    one = Poll("rack1", "s1", "p-1", want=1)
    both = yard.do(lambda transaction: poll(transaction, [one, one]))
    assert both[0] == both[1]


def test_a_late_copy_of_an_older_poll_gets_nothing_new(yard: Grounds) -> None:
    yard.submit(graph(**{f"t{place}": node() for place in range(4)}))
    yard.hello("rack1")
    first, second = yard.claim("rack1", poll="p1"), yard.claim("rack1", poll="p2")
    yard.end("rack1", first[0])
    assert yard.claim("rack1", poll="p1") == ()  # what it gave has ended
    assert yard.claim("rack1", poll="p2") == second


def test_two_polls_of_one_bot_in_one_batch_are_both_remembered(yard: Grounds) -> None:
    yard.submit(graph(**{f"t{place}": node() for place in range(4)}))
    yard.hello("rack1")
    both = [Poll("rack1", "s1", name, want=1) for name in ("p1", "p2")]
    once = yard.do(lambda transaction: poll(transaction, both))
    assert yard.do(lambda transaction: poll(transaction, both)) == once


def test_the_id_of_a_poll_is_one_line(yard: Grounds) -> None:
    yard.hello("rack1")
    answer = yard.do(lambda transaction: poll(transaction, [Poll("rack1", "s1", "p1\np2", want=1)]))[0]
    assert isinstance(answer, Refusal)
    assert answer.code is Code.INVALID


def test_bots_that_poll_together_never_get_the_same_task(yard: Grounds) -> None:
    labels = yard.submit(graph(**{f"t{place}": node() for place in range(5)}))
    polls = []
    for bot in ("rack1", "rack2", "rack3"):
        yard.hello(bot)
        polls.append(Poll(bot, "s1", "p", want=2))
    answers = yard.do(lambda transaction: poll(transaction, polls))
    given = [lease.task for one in answers if isinstance(one, PollOutcome) for lease in one.leases]
    assert sorted(given) == sorted(labels.values())


def test_an_unfit_bot_gets_nothing(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    yard.hello("rack1")
    with yard.store.write() as repo:
        repo.bots.set_settings([("rack1", "smells of smoke", None, 0, 0)])
    assert yard.claim("rack1") == ()
    assert yard.words(labels) == {"a": "waiting"}


def test_a_lease_is_a_full_one_whatever_the_deadline_and_none_is_given_past_it(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(deadline="30s"), b=node(deadline="20s", priority=120)))
    yard.hello("rack1")
    lease = yard.claim("rack1")[0]
    assert lease.until_ms == yard.now + LEASE_MS
    yard.later(20_000)
    assert yard.claim("rack1") == ()
    assert yard.words(labels) == {"a": "running", "b": "waiting"}


def test_a_lost_task_is_left_to_another_bot_if_there_is_one(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    yard.hello("rack1")
    yard.hello("rack2")
    yard.end("rack1", yard.claim("rack1")[0], Signal.LOSE)
    assert yard.claim("rack1") == ()
    lease = yard.claim("rack2")[0]
    assert (lease.task, lease.attempt) == (labels["a"], 2)


def test_a_lost_task_goes_back_to_the_only_bot_there_is(yard: Grounds) -> None:
    yard.submit(graph(a=node()))
    yard.hello("rack1")
    first = yard.claim("rack1")[0]
    yard.end("rack1", first, Signal.LOSE)
    second = yard.claim("rack1")[0]
    assert struct_replace(second, fence=0) == struct_replace(first, attempt=2, fence=0)
    assert second.fence > first.fence


def test_a_task_passed_over_does_not_hide_the_ones_behind_it(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node(priority=1), b=node()))
    yard.hello("rack1")
    yard.hello("rack2")
    yard.end("rack1", yard.start("rack1", labels, 1)["a"], Signal.LOSE)
    assert list(yard.start("rack1", labels, 1)) == ["b"]
