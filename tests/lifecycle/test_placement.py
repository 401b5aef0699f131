"""Bots are given what they have room for: tasks that take more than one slot, and the bots kept free for them."""

import random
from collections import Counter
from typing import Any

from taskyard.core import resources
from taskyard.core.admission.rules import RESERVE_AFTER_MS
from taskyard.core.resources import NOTHING, Resources
from taskyard.core.states import Signal, State
from taskyard.lifecycle.commands import Lease, Poll, Report
from taskyard.lifecycle.poll import PollOutcome, poll
from tests.effort import tries
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import LifecycleHarness

LONG = RESERVE_AFTER_MS + 1


def machine(
    harness: LifecycleHarness, bot: str, slots: int = 4, cores: int = 8, memory_mb: int = 1_000, gpus: int = 2
) -> None:
    harness.hello(bot, slots=slots, cores=str(cores), memory_mb=str(memory_mb), gpus=str(gpus))


def kept_free(harness: LifecycleHarness, bot: str) -> int | None:
    with harness.store.read() as repo:
        return {row[0]: row[1] for row in repo.bots.reservations([bot], State)}.get(bot)


def held(harness: LifecycleHarness, bot: str) -> Resources:
    """Sum what a bot has in hand, from the definitions of its tasks."""
    with harness.store.read() as repo:
        queues = {queue for _, _, queue in repo.bots.held([bot])}
        takes = {id: resources.taken(dimensions) for id, (_, dimensions) in repo.read.queues(queues).items()}
        return sum((takes[queue] for _, _, queue in repo.bots.held([bot])), NOTHING)


def test_a_claim_sums_what_tasks_take(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(**{f"t{number}": node(cpus=3) for number in range(4)}))
    machine(harness, "rack1")
    leases = harness.start("rack1", labels)
    assert list(leases) == ["t0", "t1"]
    assert list(harness.start("rack1", labels)) == []
    harness.end("rack1", leases["t0"])
    assert list(harness.start("rack1", labels)) == ["t2"]


def test_an_end_makes_room_for_the_same_poll(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(slots=4), b=node(slots=4)))
    machine(harness, "rack1")
    lease = harness.start("rack1", labels)["a"]
    ended = Report(lease.task, lease.attempt, lease.fence, Signal.SUCCEED, exit_code=0)
    assert [one.task for one in harness.claim("rack1", 1, reports=(ended,))] == [labels["b"]]


def test_polls_of_one_bot_in_one_transaction_share_its_room(harness: LifecycleHarness) -> None:
    harness.submit(graph(**{f"t{number}": node(gpus=1) for number in range(5)}))
    machine(harness, "rack1")
    polls = [Poll("rack1", "s1", name, want=3) for name in ("p1", "p2")]
    answers = harness.do(lambda transaction: poll(transaction, polls))
    leases = [lease for one in answers if isinstance(one, PollOutcome) for lease in one.leases]
    assert len(leases) == 2


def test_small_tasks_are_handed_ahead_as_before_where_nothing_else_waits(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(large=node(slots=2), **{f"t{number}": node() for number in range(9)}))
    machine(harness, "rack1")
    first = harness.start("rack1", labels)
    assert list(first) == ["large", "t0", "t1"]
    harness.end("rack1", first["large"])
    assert len(harness.start("rack1", labels)) == 7


def test_what_takes_more_is_never_handed_ahead(harness: LifecycleHarness) -> None:
    small = harness.submit(graph(**{f"t{number}": node() for number in range(6)}))
    machine(harness, "rack1")
    leases = harness.start("rack1", small)
    assert len(leases) == 6
    large = harness.submit(graph(large=node(gpus=1, priority=1)))
    for count in range(3):
        assert list(harness.start("rack1", large)) == []
        harness.end("rack1", leases[f"t{count}"])
    assert list(harness.start("rack1", large)) == ["large"]


def test_a_task_that_takes_more_than_any_bot_has_matches_none(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(memory="2GiB"), b=node(slots=5), c=node(gpus=3)))
    machine(harness, "rack1")
    assert list(harness.start("rack1", labels)) == []
    for bot, has in {"rack2": {"memory_mb": 4_096}, "rack3": {"slots": 5}, "rack4": {"gpus": 3}}.items():
        machine(harness, bot, **has)
    assert [list(harness.start(bot, labels)) for bot in ("rack2", "rack3", "rack4")] == [["a"], ["b"], ["c"]]


def test_a_bot_without_the_numbers_gets_no_such_task(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node(cpus=1), b=node(slots=2)))
    harness.hello("plain", slots=4)
    assert list(harness.start("plain", labels)) == ["b"]


def test_a_task_that_waits_for_long_has_a_bot_kept_free(harness: LifecycleHarness) -> None:
    machine(harness, "rack1")
    busy = harness.submit(graph(**{f"t{number}": node() for number in range(3)}))
    leases = harness.start("rack1", busy)
    whole = harness.submit(graph(whole=node(slots=4)))
    late = harness.submit(graph(**{f"late{number}": node() for number in range(5)}))
    assert list(harness.start("rack1", late, 1)) == ["late0"]  # there is a slot for it
    assert kept_free(harness, "rack1") is None
    harness.advance(LONG)
    assert list(harness.start("rack1", late)) == []
    assert kept_free(harness, "rack1") == whole["whole"]
    for lease in (leases["t0"], leases["t1"]):
        harness.end("rack1", lease)
    assert list(harness.start("rack1", late)) == []  # two slots are free, and stay so
    with harness.store.read() as repo:
        left = repo.bots.held(["rack1"])
    for _, task, _ in left:
        attempt = harness.task(task)
        harness.end("rack1", Lease(task, attempt.life.attempt, attempt.fence, harness.now))
    assert list(harness.start("rack1", {**whole, **late})) == ["whole"]
    assert kept_free(harness, "rack1") is None


def test_one_bot_is_kept_free_for_a_task_and_the_others_go_on(harness: LifecycleHarness) -> None:
    for bot in ("rack1", "rack2"):
        machine(harness, bot)
    busy = harness.submit(graph(**{f"t{number}": node() for number in range(6)}))
    for bot in ("rack1", "rack2"):
        harness.start(bot, busy, 3)
    whole = harness.submit(graph(whole=node(slots=4)))
    late = harness.submit(graph(**{f"late{number}": node() for number in range(5)}))
    harness.advance(LONG)
    assert list(harness.start("rack1", late, 1)) == []
    assert list(harness.start("rack2", late, 1)) == ["late0"]
    assert (kept_free(harness, "rack1"), kept_free(harness, "rack2")) == (whole["whole"], None)


def test_another_bot_is_kept_free_once_the_first_one_takes_no_work(harness: LifecycleHarness) -> None:
    for bot in ("rack1", "rack2"):
        machine(harness, bot)
        harness.start(bot, harness.submit(graph(t=node())), 1)
    whole = harness.submit(graph(whole=node(slots=4)))
    harness.advance(LONG)
    harness.start("rack1", whole, 1)
    assert kept_free(harness, "rack1") == whole["whole"]
    harness.goodbye("rack1")
    harness.claim("rack2", 2)
    assert kept_free(harness, "rack2") == whole["whole"]


def test_a_bot_is_free_again_once_the_task_is_gone(harness: LifecycleHarness) -> None:
    for cause in ("canceled", "taken"):
        bot = f"rack-{cause}"
        machine(harness, bot)
        harness.start(bot, harness.submit(graph(t=node())), 1)
        whole = harness.submit(graph(whole=node(slots=4)))
        late = harness.submit(graph(**{f"late{number}": node(dimensions={"id": bot}) for number in range(3)}))
        harness.advance(LONG)
        assert list(harness.start(bot, late, 1)) == []
        if cause == "canceled":
            harness.cancel(graph=whole.graph)
        else:
            machine(harness, "other")
            assert list(harness.start("other", whole)) == ["whole"]
        assert list(harness.start(bot, late, 1)) == ["late0"]
        assert kept_free(harness, bot) is None


def test_a_bot_that_can_no_longer_run_the_task_keeps_no_other_from_being_kept_free(harness: LifecycleHarness) -> None:
    for bot in ("rack1", "rack2"):
        machine(harness, bot)
        harness.start(bot, harness.submit(graph(t=node(dimensions={"id": bot}))), 1)
    whole = harness.submit(graph(whole=node(slots=4)))
    late = harness.submit(graph(late=node(dimensions={"id": "rack1"})))
    harness.advance(LONG)
    harness.claim("rack1", 1)
    assert kept_free(harness, "rack1") == whole["whole"]
    machine(harness, "rack1", slots=3)
    assert list(harness.start("rack1", late)) == ["late"]
    harness.claim("rack2", 1)
    assert (kept_free(harness, "rack1"), kept_free(harness, "rack2")) == (None, whole["whole"])


def test_the_parked_poll_of_a_kept_bot_is_answered_once_another_takes_the_task(harness: LifecycleHarness) -> None:
    machine(harness, "rack1")
    harness.start("rack1", harness.submit(graph(t=node())), 1)
    whole = harness.submit(graph(whole=node(slots=4)))
    harness.advance(LONG)
    harness.claim("rack1", 1)
    machine(harness, "rack2")
    with harness.transaction() as transaction:
        poll(transaction, [Poll("rack2", "s1", "p", want=1)])
        assert set(transaction.changed_bots) == {"rack1"}
    assert harness.states(whole) == {"whole": State.RUNNING}


def test_no_bot_is_ever_given_more_than_it_has(harness: LifecycleHarness) -> None:
    chance = random.Random(7)
    totals = {"a": Resources(4, 8_000, 1_000, 2), "b": Resources(2, 2_000, 4_000, 0), "c": Resources(8, 16_000, 500, 4)}
    for bot, has in totals.items():
        machine(harness, bot, has.slots, has.cpus // 1000, has.memory, has.gpus)
    running: dict[str, list[Lease]] = {bot: [] for bot in totals}
    given: Counter[str] = Counter()
    for _ in range(tries(40)):
        if chance.random() < 0.5:
            takes = [_takes(chance) for _ in range(chance.randint(1, 4))]
            harness.submit(graph(**{f"t{number}": node(**one) for number, one in enumerate(takes)}))
        if chance.random() < 0.1:
            harness.advance(LONG)
        bot = chance.choice(list(totals))
        if running[bot] and chance.random() < 0.5:
            harness.end(bot, running[bot].pop(chance.randrange(len(running[bot]))))
        leases = harness.claim(bot, chance.randint(0, 4))
        running[bot] += leases
        given[bot] += len(leases)
        if any(_is_large(harness, one) for one in running[bot]):
            assert held(harness, bot).fits(totals[bot]), bot
    assert min(given.values()) > 0


def _takes(chance: random.Random) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [
        {},
        {"slots": chance.randint(1, 4)},
        {"cpus": chance.choice([0.5, 2, 4])},
        {"memory": chance.choice(["100MiB", "800MiB"])},
        {"gpus": chance.randint(1, 2)},
    ]
    return chance.choice(choices)


def _is_large(harness: LifecycleHarness, lease: Lease) -> bool:
    with harness.store.read() as repo:
        ((_, dimensions),) = repo.read.queues([harness.task(lease.task).queue]).values()
    return resources.taken(dimensions) != resources.ONE_SLOT
