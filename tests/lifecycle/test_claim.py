"""Claims: by match, priority and age; a repeated poll gets the same leases."""

import random
from typing import Any

from taskyard.core.fleet import LEASE_MS
from taskyard.core.states import Signal
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.claim import QUEUES_READ_MAX
from taskyard.lifecycle.commands import Code, Poll, Refusal
from taskyard.lifecycle.poll import PollOutcome, poll
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness


def test_priority_goes_first_and_then_age(harness: LifecycleHarness) -> None:
    old = harness.submit(graph(a=node(), b=node(priority=50)))
    young = harness.submit(graph(c=node(), d=node(priority=50)))
    harness.hello("rack1")
    labels = {**old, **young}
    assert [list(harness.start("rack1", labels, 1)) for _ in range(5)] == [["b"], ["d"], ["a"], ["c"], []]


def test_a_bot_is_given_what_it_matches_and_no_more_than_it_wants(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(any=node(), lab=node(dimensions={"pool": "default", "gpu": "h100"})))
    harness.hello("plain")
    harness.hello("fast", gpu="h100")
    assert list(harness.start("plain", labels)) == ["any"]
    assert harness.claim("fast", 0) == ()
    assert list(harness.start("fast", labels)) == ["lab"]


def test_a_bot_is_given_what_its_numbers_meet(harness: LifecycleHarness) -> None:
    labels = harness.submit(
        graph(
            large=node(dimensions={"pool": "default", "memory_gb": ">=64"}),
            small=node(dimensions={"pool": "default", "memory_gb": "<64"}),
            other=node(dimensions={"pool": "default", "memory_gb": "!=16"}),
        )
    )
    harness.hello("rack1", memory_gb="16")
    harness.hello("rack2", memory_gb="128")
    assert list(harness.start("rack1", labels)) == ["small"]
    assert list(harness.start("rack2", labels)) == ["large", "other"]


def test_a_repeated_poll_gives_the_same_lease_with_the_time_that_is_left_and_spends_no_attempt(
    harness: LifecycleHarness,
) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1")
    first = harness.poll("rack1", poll="p-1")
    harness.advance(20_000)
    again = harness.poll("rack1", poll="p-1")
    assert isinstance(first, PollOutcome)
    assert again == first
    assert first.leases[0].until_ms - harness.now == LEASE_MS - 20_000
    assert harness.task(labels["a"]).life.attempt == 1
    assert harness.state_names(labels) == {"a": "running", "b": "waiting"}


def test_a_repeated_poll_gives_only_what_the_bot_still_has(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1")
    first = harness.poll("rack1", 2, poll="p-1")
    assert isinstance(first, PollOutcome)
    harness.end("rack1", first.leases[0])
    again = harness.poll("rack1", 2, poll="p-1")
    assert isinstance(again, PollOutcome)
    assert again.leases == first.leases[1:]
    assert harness.state_names(labels) == {"a": "successful", "b": "running"}


def test_one_poll_twice_in_one_batch_is_one_poll(harness: LifecycleHarness) -> None:
    harness.submit(graph(a=node(), b=node()))
    harness.hello("rack1")
    one = Poll("rack1", "s1", "p-1", want=1)
    both = harness.do(lambda transaction: poll(transaction, [one, one]))
    assert both[0] == both[1]


def test_a_late_copy_of_an_older_poll_gets_nothing_new(harness: LifecycleHarness) -> None:
    harness.submit(graph(**{f"t{place}": node() for place in range(4)}))
    harness.hello("rack1")
    first, second = harness.claim("rack1", poll="p1"), harness.claim("rack1", poll="p2")
    harness.end("rack1", first[0])
    assert harness.claim("rack1", poll="p1") == ()  # what it gave has ended
    assert harness.claim("rack1", poll="p2") == second


def test_two_polls_of_one_bot_in_one_batch_are_both_remembered(harness: LifecycleHarness) -> None:
    harness.submit(graph(**{f"t{place}": node() for place in range(4)}))
    harness.hello("rack1")
    both = [Poll("rack1", "s1", name, want=1) for name in ("p1", "p2")]
    once = harness.do(lambda transaction: poll(transaction, both))
    assert harness.do(lambda transaction: poll(transaction, both)) == once


def test_the_id_of_a_poll_is_one_line(harness: LifecycleHarness) -> None:
    harness.hello("rack1")
    answer = harness.do(lambda transaction: poll(transaction, [Poll("rack1", "s1", "p1\np2", want=1)]))[0]
    assert isinstance(answer, Refusal)
    assert answer.code is Code.INVALID


def test_bots_that_poll_together_never_get_the_same_task(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(**{f"t{place}": node() for place in range(5)}))
    polls = []
    for bot in ("rack1", "rack2", "rack3"):
        harness.hello(bot)
        polls.append(Poll(bot, "s1", "p", want=2))
    answers = harness.do(lambda transaction: poll(transaction, polls))
    given = [lease.task for one in answers if isinstance(one, PollOutcome) for lease in one.leases]
    assert sorted(given) == sorted(labels.values())


def test_an_unfit_bot_gets_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.hello("rack1")
    with harness.store.write() as repo:
        repo.bots.set_settings([("rack1", "smells of smoke", None, 0, 0)])
    assert harness.claim("rack1") == ()
    assert harness.state_names(labels) == {"a": "waiting"}


def test_a_lease_is_a_full_one_whatever_the_deadline_and_none_is_given_past_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(deadline="30s"), b=node(deadline="20s", priority=120)))
    harness.hello("rack1")
    lease = harness.claim("rack1")[0]
    assert lease.until_ms == harness.now + LEASE_MS
    harness.advance(20_000)
    assert harness.claim("rack1") == ()
    assert harness.state_names(labels) == {"a": "running", "b": "waiting"}


def test_a_lost_task_is_left_to_another_bot_if_there_is_one(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    harness.hello("rack1")
    harness.hello("rack2")
    harness.end("rack1", harness.claim("rack1")[0], Signal.LOSE)
    assert harness.claim("rack1") == ()
    lease = harness.claim("rack2")[0]
    assert (lease.task, lease.attempt) == (labels["a"], 2)


def test_a_lost_task_goes_back_to_the_only_bot_there_is(harness: LifecycleHarness) -> None:
    harness.submit(graph(a=node()))
    harness.hello("rack1")
    first = harness.claim("rack1")[0]
    harness.end("rack1", first, Signal.LOSE)
    second = harness.claim("rack1")[0]
    assert struct_replace(second, fence=0) == struct_replace(first, attempt=2, fence=0)
    assert second.fence > first.fence


def test_a_task_passed_over_does_not_hide_the_ones_behind_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(priority=1), b=node()))
    harness.hello("rack1")
    harness.hello("rack2")
    harness.end("rack1", harness.start("rack1", labels, 1)["a"], Signal.LOSE)
    assert list(harness.start("rack1", labels, 1)) == ["b"]


def test_very_many_queues_are_served_in_one_order(harness: LifecycleHarness) -> None:
    chance, count = random.Random(3), 3 * QUEUES_READ_MAX
    order: dict[int, tuple[int, int, int]] = {}
    for part in range(2):
        nodes = {f"t{part}-{number}": node(priority=chance.randint(0, 9), **_kind(number)) for number in range(count)}
        labels = harness.submit(graph(**nodes))
        ids = {id: label for label, id in labels.items()}
        order |= {id: (harness.task(id).priority, harness.task(id).created_ms, id) for id in ids}
    harness.hello("rack1", kind=[str(number) for number in range(count)])
    harness.hello("other", kind=[str(number) for number in range(count)])
    # What another bot could run is left to it by the bot that has lost it, also at the head of many queues.
    lost = [lease.task for lease in harness.claim("rack1", 20)]
    assert lost == sorted(order, key=order.__getitem__)[:20]
    harness.hello("rack1", "s2", kind=[str(number) for number in range(count)])
    left = sorted(order.keys() - set(lost), key=order.__getitem__)
    for wanted in (1, 7, 60):
        assert [lease.task for lease in harness.claim("rack1", wanted, session="s2")] == left[:wanted]
        left = left[wanted:]
    assert [lease.task for lease in harness.claim("other", 20)] == lost


def _kind(number: int) -> dict[str, Any]:
    return {"dimensions": {"pool": "default", "kind": str(number)}}
