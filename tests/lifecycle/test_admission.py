"""Admission in a real store, rule by rule: which tasks are admitted, in which order, and the holds of the others."""

from collections.abc import Iterator

import pytest

from taskyard.core.admission.rules import RESERVE_AFTER_MS, STAKE_AFTER_MS
from taskyard.core.states import Millis, Reason, State
from taskyard.lifecycle.admission.scheduler import AGING_MS
from taskyard.store.repo.admission import HoldRow
from tests.core.test_admission_rules import RULES, WORK
from tests.lifecycle.admission_harness import AdmissionHarness, admission_harness, documents

MINUTE = 60_000


@pytest.fixture
def harness(database_url: str) -> Iterator[AdmissionHarness]:
    """A harness with one bot for all pools."""
    with admission_harness(database_url) as one:
        one.connect_bot("p", "q")
        yield one


# Order.


def test_tasks_go_by_priority_and_then_in_the_order_of_their_creation(harness: AdmissionHarness) -> None:
    harness.pool("p", 1)
    first, second, urgent = (
        harness.submit_task(pool="p"),
        harness.submit_task(pool="p"),
        harness.submit_task(pool="p", priority=1),
    )
    went: list[int] = []
    for _ in range(3):
        harness.schedule()
        leases = harness.run()
        went += leases
        harness.finish(leases)
    assert went == [urgent, first, second]


def test_an_admitted_task_waits_for_a_bot_from_then_on(harness: AdmissionHarness) -> None:
    task = harness.submit_task("a")
    harness.advance(MINUTE)
    harness.schedule()
    admitted = harness.task(task)
    assert (admitted.state, admitted.reason, admitted.moved_ms) == (State.WAITING, Reason.IN_LINE, harness.now)
    assert admitted.life.waits_since_ms == harness.now
    assert admitted.due_ms == harness.now + admitted.rules.slices[0].expires_ms


def test_a_pass_does_not_mark_its_own_tasks_as_dirty(harness: AdmissionHarness) -> None:
    harness.submit_each("a", "b")
    passed = harness.schedule()
    assert (passed.ran, passed.admitted, passed.epoch, passed.more) == (True, 2, 1, False)
    assert harness.dirty() == []
    assert harness.schedule().admitted == 0


# Mutexes.


def test_holders_of_one_party_share_a_key_and_an_exclusive_task_gets_its_turn(harness: AdmissionHarness) -> None:
    harness.stake_after("k", 0)
    one, two, alone, three = tasks = harness.submit_each("k/x", "k/x", "k", "k/x")
    harness.schedule()
    assert harness.waiting(tasks) == [one, two]
    assert [harness.reason(id) for id in tasks] == [None, None, Reason.MUTEX, Reason.MUTEX]
    leases = harness.run()
    harness.finish(leases, one)
    harness.schedule()
    assert harness.waiting(tasks) == [two]
    harness.finish(leases, two)
    harness.schedule()
    assert harness.waiting(tasks) == [alone]
    harness.finish(harness.run())
    harness.schedule()
    assert harness.waiting(tasks) == [three]


def test_a_key_that_no_held_task_ever_stakes_is_given_to_any_task_that_can_have_it(harness: AdmissionHarness) -> None:
    harness.stake_after("k", 0)
    one, alone, two = tasks = harness.submit_each("k/x", "k", "k/x")
    harness.schedule()
    assert harness.waiting(tasks) == [one]
    harness.stake_after("k", None)
    harness.schedule()
    assert harness.waiting(tasks) == [one, two]
    assert harness.hold(alone) == HoldRow(alone, Reason.MUTEX, "k", one, harness.moved_ms(one), harness.moved_ms(one))


def test_a_task_that_a_mutex_has_held_for_a_minute_is_passed_no_more(harness: AdmissionHarness) -> None:
    first, alone = harness.submit_each("k/x", "k")
    harness.schedule()
    leases = harness.run()
    harness.advance(STAKE_AFTER_MS - 1_000)
    early = harness.submit_task("k/x")
    harness.schedule()
    assert harness.waiting([early]) == [early]
    harness.advance(1_000)
    late = harness.submit_task("k/x")
    harness.schedule()
    hold = harness.hold(late)
    assert hold is not None
    assert (hold.reason, hold.by) == (Reason.MUTEX, alone)
    harness.finish(leases | harness.run())
    harness.schedule()
    assert harness.waiting([first, alone, early, late]) == [alone]


def test_since_when_a_mutex_holds_a_task_outlives_the_server(harness: AdmissionHarness) -> None:
    harness.submit_task("k/x")
    harness.schedule()
    harness.advance(1_000)
    alone = harness.submit_task("k")
    harness.schedule()
    since = _since(harness, alone)
    harness.advance(STAKE_AFTER_MS - 1_000)
    successor = harness.other_server("two")
    successor.schedule()
    early = harness.submit_task("k/x")
    successor.schedule()
    assert harness.waiting([early]) == [early]
    harness.advance(1_000)
    late = harness.submit_task("k/x")
    harness.other_server("three").schedule()
    assert (harness.waiting([late]), _since(harness, alone)) == ([], since)


def _since(harness: AdmissionHarness, id: int) -> Millis:
    hold = harness.hold(id)
    assert hold is not None
    assert hold.mutex_since_ms is not None
    return hold.mutex_since_ms


def test_since_when_a_mutex_holds_a_task_is_kept_while_something_else_holds_it(harness: AdmissionHarness) -> None:
    holder, alone = harness.submit_task("k"), harness.submit_task("k", "lab")
    harness.connect_bot("lab", bot="lab1")
    harness.schedule()
    since = _since(harness, alone)
    harness.advance(1_000)
    harness.lose_bot("lab1")
    harness.finish(harness.run(), holder)
    harness.schedule()
    assert (harness.reason(alone), _since(harness, alone)) == (Reason.NO_BOT, since)
    harness.submit_task("k")
    harness.schedule()
    assert (harness.reason(alone), _since(harness, alone)) == (Reason.MUTEX, since)


def test_aging_writes_nothing(harness: AdmissionHarness) -> None:
    tasks = harness.submit_each("k/x", "k", "k/x", "k")
    harness.schedule()
    before = [harness.hold(id) for id in tasks]
    harness.advance(2 * STAKE_AFTER_MS)
    assert (harness.schedule().held, harness.dirty()) == (0, [])
    assert [harness.hold(id) for id in tasks] == before


def test_a_pass_says_when_a_task_next_stakes_a_key_that_another_might_lose(harness: AdmissionHarness) -> None:
    harness.submit_each("k/x", "k")
    harness.schedule()
    moments = [harness.admission.next_moment]  # none: only tasks at this mutex could lose anything
    harness.submit_task("k/x", "lab")
    aged = harness.now + STAKE_AFTER_MS
    harness.schedule()
    moment = harness.admission.next_moment
    assert moment is not None
    assert aged <= moment < aged + AGING_MS
    harness.advance(moment - harness.now)
    harness.schedule()
    assert [*moments, harness.admission.next_moment] == [None, None]


def test_mutexes_span_pools(harness: AdmissionHarness) -> None:
    here, there = harness.submit_task("k", "p"), harness.submit_task("k", "q")
    harness.schedule()
    assert harness.waiting([here, there]) == [here]


def test_a_lost_task_releases_its_mutexes_while_it_is_pending(harness: AdmissionHarness) -> None:
    first, urgent = harness.submit_task("k"), None
    harness.schedule()
    assert harness.run()
    urgent = harness.submit_task("k", priority=1)
    harness.connect_bot("p", "q", bot="b2")
    harness.lose_bot("b1")
    harness.schedule()
    assert harness.waiting([first, urgent]) == [urgent]


def test_the_rules_of_awx_hold_in_a_store(harness: AdmissionHarness) -> None:
    for number, rule in enumerate(RULES):
        pool = f"pool{number}"
        harness.connect_bot(pool, bot=f"bot{number}")
        put = {name: _put_work(harness, number, name, pool) for name in rule.running.split()}
        harness.schedule()
        harness.pool(pool, rule.capacity)
        assert harness.waiting(list(put.values())) == list(put.values())
        pending = {name: _put_work(harness, number, name, pool) for name in rule.pending.split()}
        harness.schedule()
        assert [name for name, id in pending.items() if harness.waiting([id])] == rule.admitted.split(), rule.sentence


def _put_work(harness: AdmissionHarness, number: int, name: str, pool: str) -> int:
    mutexes = [one | {"key": f"{number}:{one['key']}"} for one in documents(WORK[name])]
    node = {"payload": {"command": ["true"]}, "mutexes": mutexes, "dimensions": {"pool": pool}}
    return harness.submit({"tasks": {"t": {"task": node}}})["t"]


# Capacity.


def test_a_pool_carries_the_weight_it_has_capacity_for(harness: AdmissionHarness) -> None:
    harness.pool("p", 5)
    heavy, medium, light = tasks = [harness.submit_task(pool="p", weight=weight) for weight in (3, 3, 2)]
    harness.schedule()
    assert harness.waiting(tasks) == [heavy, light]
    assert harness.hold(medium) == HoldRow(medium, Reason.CAPACITY, "p", None, harness.now)


def test_a_task_that_is_too_heavy_for_its_pool_runs_alone(harness: AdmissionHarness) -> None:
    harness.pool("p", 2)
    light, huge, after = tasks = [harness.submit_task(pool="p", weight=weight) for weight in (2, 9, 1)]
    harness.schedule()
    assert harness.waiting(tasks) == [light]
    harness.finish(harness.run())
    harness.schedule()
    assert harness.waiting(tasks) == [huge]
    harness.finish(harness.run())
    harness.schedule()
    assert harness.waiting(tasks) == [after]


def test_a_task_that_waited_ten_minutes_for_capacity_reserves_its_pool(harness: AdmissionHarness) -> None:
    harness.pool("p", 3)
    small, big = harness.submit_task(pool="p", weight=2), harness.submit_task(pool="p", weight=3)
    harness.schedule()
    leases = harness.run()
    harness.advance(RESERVE_AFTER_MS)
    harness.schedule()
    young = harness.submit_task(pool="p")
    harness.schedule()
    assert harness.waiting([small, big, young]) == [small]
    assert harness.hold(young) == HoldRow(young, Reason.RESERVED, "p", big, harness.now)
    harness.finish(leases)
    harness.schedule()
    assert harness.waiting([big, young]) == [big]


def test_the_next_holder_of_the_lock_knows_a_wait_for_capacity(harness: AdmissionHarness) -> None:
    harness.pool("p", 3)
    big = [harness.submit_task(pool="p", weight=weight) for weight in (2, 3)][1]
    harness.schedule()
    harness.advance(RESERVE_AFTER_MS)
    young = harness.submit_task(pool="p")
    harness.other_server("two").schedule()
    hold = harness.hold(young)
    assert hold is not None
    assert (hold.reason, hold.by) == (Reason.RESERVED, big)


def test_a_task_without_weight_does_not_mind_a_full_pool(harness: AdmissionHarness) -> None:
    harness.pool("p", 1)
    full, free, excluding = (
        harness.submit_task(pool="p"),
        harness.submit_task(pool="p", weight=0),
        harness.submit_task("k", "p", weight=0),
    )
    harness.schedule()
    assert harness.waiting([full, free, excluding]) == [full, free, excluding]


def test_a_pool_can_have_the_capacity_of_its_live_bots(harness: AdmissionHarness) -> None:
    harness.pool("r", from_bots=True)
    tasks = [harness.submit_task(pool="r") for _ in range(4)]
    harness.schedule()
    assert harness.waiting(tasks) == tasks[:1]  # one task always runs
    harness.connect_bot("r", bot="r1", slots=2)
    harness.schedule()
    assert harness.waiting(tasks) == tasks[:2]
    harness.connect_bot("r", bot="r2", slots=1)
    harness.schedule()
    assert harness.waiting(tasks) == tasks[:3]
    assert harness.reason(tasks[3]) is Reason.CAPACITY
    harness.lose_bot("r1")
    harness.pool("r", 3)


# Limits.


def test_a_named_limit_is_shared_by_all_pools(harness: AdmissionHarness) -> None:
    harness.limit("licences", 5)
    three, four, two = tasks = [
        harness.submit_task(pool=pool, limits={"licences": amount}) for pool, amount in (("p", 3), ("q", 4), ("q", 2))
    ]
    harness.schedule()
    assert harness.waiting(tasks) == [three, two]
    assert harness.hold(four) == HoldRow(four, Reason.LIMIT, "licences", None, None)
    harness.limit("licences", 9)
    harness.schedule()
    assert harness.waiting(tasks) == tasks


# Bots.


def test_a_task_with_mutexes_is_held_until_a_bot_could_run_it(harness: AdmissionHarness) -> None:
    alone, other = harness.submit_task("k", "lab"), harness.submit_task("k")
    harness.schedule()
    assert harness.waiting([alone, other]) == [other]
    assert harness.reason(alone) is Reason.MUTEX  # what it has to wait for first
    harness.finish(harness.run())
    harness.schedule()
    assert harness.reason(alone) is Reason.NO_BOT
    harness.connect_bot("lab", bot="lab1")
    harness.schedule()
    assert harness.waiting([alone]) == [alone]


def test_the_wait_for_a_bot_begins_when_a_task_is_held_for_want_of_one(harness: AdmissionHarness) -> None:
    task = harness.submit_task("k", "lab")
    harness.schedule()
    began = harness.now
    held = harness.task(task)
    assert harness.hold(task) == HoldRow(task, Reason.NO_BOT, None, None, None)
    assert (held.life.waits_since_ms, held.due_ms) == (began, began + held.rules.slices[0].expires_ms)
    harness.advance(MINUTE)
    harness.connect_bot("lab", bot="lab1")
    harness.schedule()
    assert harness.task(task).life.waits_since_ms == began


def test_the_wait_for_a_bot_ends_when_a_task_is_held_for_anything_else(harness: AdmissionHarness) -> None:
    task = harness.submit_task("k", "lab")
    harness.schedule()
    urgent = harness.submit_task("k", priority=1)
    harness.schedule()
    held = harness.task(task)
    assert harness.waiting([urgent, task]) == [urgent]
    assert (harness.reason(task), held.life.waits_since_ms, held.due_ms) == (Reason.MUTEX, None, None)


def test_a_waiting_task_whose_last_bot_is_gone_gives_its_mutexes_back(harness: AdmissionHarness) -> None:
    harness.connect_bot("lab", bot="lab1")
    task = harness.submit_task("k", "lab")
    harness.schedule()
    other = harness.submit_task("k")
    harness.lose_bot("lab1")
    passed = harness.schedule()
    assert (passed.admitted, harness.waiting([task, other])) == (1, [other])
    sent_back = harness.task(task)
    assert (sent_back.state, sent_back.reason, harness.reason(task)) == (State.PENDING, Reason.NO_BOT, Reason.MUTEX)
    assert sent_back.life.waits_since_ms is None  # it waits for its mutex first, and for a bot later


def test_a_task_that_is_sent_back_goes_on_with_its_wait_for_a_bot(harness: AdmissionHarness) -> None:
    harness.connect_bot("lab", bot="lab1")
    task = harness.submit_task("k", "lab")
    harness.schedule()
    began = harness.now
    harness.lose_bot("lab1")
    harness.schedule()
    assert (harness.task(task).life.waits_since_ms, harness.reason(task)) == (began, Reason.NO_BOT)
    harness.connect_bot("lab", bot="lab1")
    harness.schedule()
    assert (harness.waiting([task]), harness.task(task).life.waits_since_ms) == ([task], began)


def test_a_waiting_task_without_mutexes_stays_in_its_queue_when_its_bots_are_gone(harness: AdmissionHarness) -> None:
    harness.pool("lab", 1)
    harness.connect_bot("lab", bot="lab1")
    task = harness.submit_task(pool="lab")
    harness.schedule()
    harness.lose_bot("lab1")
    harness.schedule()
    assert harness.waiting([task]) == [task]


def test_what_the_server_runs_itself_needs_no_bot(harness: AdmissionHarness) -> None:
    harness.lose_bot("b1")
    node = {"payload": {"noop": True}, "mutexes": [{"key": "k"}]}
    task = harness.submit({"tasks": {"t": {"task": node}}})["t"]
    harness.schedule()
    assert harness.waiting([task]) == [task]


# Time, and people.


def test_a_task_with_a_later_start_is_admitted_at_that_time(harness: AdmissionHarness) -> None:
    task = harness.submit_task("k", not_before="10m")
    begins = harness.task(task).life.not_before_ms
    assert begins is not None
    harness.schedule()
    assert harness.hold(task) == HoldRow(task, Reason.NOT_BEFORE, None, None, None)
    harness.advance(begins - harness.now - 1)
    assert harness.schedule().admitted == 0
    harness.advance(1)
    assert harness.schedule().admitted == 1
    assert (harness.waiting([task]), harness.hold(task)) == ([task], None)


def test_no_task_of_a_canceled_graph_is_admitted_and_those_behind_it_are(harness: AdmissionHarness) -> None:
    canceled, behind = harness.submit_task("k"), harness.submit_task("k")
    harness.cancel_graph(canceled)
    passed = harness.schedule()
    assert (passed.admitted, passed.more) == (1, False)
    assert harness.waiting([canceled, behind]) == [behind]
    assert harness.task(canceled).state is State.PENDING


def test_a_canceled_task_frees_what_it_had_and_is_held_by_nothing(harness: AdmissionHarness) -> None:
    first, second, third = tasks = harness.submit_each("k", "k", "k")
    harness.schedule()
    harness.cancel(second)
    harness.cancel(first)
    harness.schedule()
    assert harness.waiting(tasks) == [third]
    assert [harness.hold(id) for id in tasks] == [None, None, None]


# What is noted.


def test_the_stored_reason_of_every_held_task_is_the_current_one(harness: AdmissionHarness) -> None:
    harness.pool("p", 1)
    harness.limit("licences", 1)
    harness.submit_each("k", "k", "k/x")
    harness.submit_task("m", "lab")
    harness.submit_task("n", not_before="1h")
    for _ in range(2):
        harness.submit_task(limits={"licences": 1})
        harness.submit_task(pool="p")
    harness.schedule()
    for _ in range(4):
        harness.check_holds()
        harness.finish(harness.run(want=1))
        harness.schedule()


def test_the_task_in_the_way_is_stored_when_a_task_is_judged(harness: AdmissionHarness) -> None:
    holder, first = harness.submit_each("k", "k/x")
    harness.schedule()
    second = harness.submit_task("k/y")
    harness.schedule()
    since = harness.moved_ms(holder)
    assert harness.hold(first) == HoldRow(first, Reason.MUTEX, "k", holder, since, _since(harness, first))
    assert harness.hold(second) == HoldRow(second, Reason.MUTEX, "k", holder, since, _since(harness, second))
