"""Admission in a real store, rule by rule: who is let in, in which order, and what is noted of the others."""

from collections.abc import Iterator

import pytest

from taskyard.core.admission.rules import RESERVE_AFTER_MS, STAKE_AFTER_MS
from taskyard.core.states import Millis, Reason, State
from taskyard.lifecycle.admission.scheduler import AGING_MS
from taskyard.store.repo.admission import HoldRow
from tests.core.test_admission_rules import RULES, WORK
from tests.lifecycle.admission_yard import AdmissionYard, documents, gatehouse

MINUTE = 60_000


@pytest.fixture
def yard(database_url: str) -> Iterator[AdmissionYard]:
    """A yard with one bot for everything."""
    with gatehouse(database_url) as one:
        one.serve("p", "q")
        yield one


# Order.


def test_tasks_go_by_priority_and_then_in_the_order_of_their_creation(yard: AdmissionYard) -> None:
    yard.pool("p", 1)
    first, second, urgent = yard.put(pool="p"), yard.put(pool="p"), yard.put(pool="p", priority=1)
    went: list[int] = []
    for _ in range(3):
        yard.schedule()
        leases = yard.run()
        went += leases
        yard.finish(leases)
    assert went == [urgent, first, second]


def test_an_admitted_task_waits_for_a_bot_from_then_on(yard: AdmissionYard) -> None:
    task = yard.put("a")
    yard.later(MINUTE)
    yard.schedule()
    admitted = yard.task(task)
    assert (admitted.state, admitted.reason, admitted.moved_ms) == (State.WAITING, Reason.IN_LINE, yard.now)
    assert admitted.life.waits_since_ms == yard.now
    assert admitted.due_ms == yard.now + admitted.rules.slices[0].expires_ms


def test_a_pass_does_not_mark_its_own_tasks_as_dirty(yard: AdmissionYard) -> None:
    yard.put_each("a", "b")
    passed = yard.schedule()
    assert (passed.ran, passed.admitted, passed.epoch, passed.more) == (True, 2, 1, False)
    assert yard.dirty() == []
    assert yard.schedule().admitted == 0


# Mutexes.


def test_holders_of_one_party_share_a_key_and_an_exclusive_task_gets_its_turn(yard: AdmissionYard) -> None:
    yard.stake_after("k", 0)
    one, two, alone, three = tasks = yard.put_each("k/x", "k/x", "k", "k/x")
    yard.schedule()
    assert yard.waiting(tasks) == [one, two]
    assert [yard.reason(id) for id in tasks] == [None, None, Reason.MUTEX, Reason.MUTEX]
    leases = yard.run()
    yard.finish(leases, one)
    yard.schedule()
    assert yard.waiting(tasks) == [two]
    yard.finish(leases, two)
    yard.schedule()
    assert yard.waiting(tasks) == [alone]
    yard.finish(yard.run())
    yard.schedule()
    assert yard.waiting(tasks) == [three]


def test_a_key_that_no_held_task_ever_stakes_is_given_to_any_task_that_can_have_it(yard: AdmissionYard) -> None:
    yard.stake_after("k", 0)
    one, alone, two = tasks = yard.put_each("k/x", "k", "k/x")
    yard.schedule()
    assert yard.waiting(tasks) == [one]
    yard.stake_after("k", None)
    yard.schedule()
    assert yard.waiting(tasks) == [one, two]
    assert yard.hold(alone) == HoldRow(alone, Reason.MUTEX, "k", one, yard.moved(one), yard.moved(one))


def test_a_task_that_a_mutex_has_held_for_a_minute_is_passed_no_more(yard: AdmissionYard) -> None:
    first, alone = yard.put_each("k/x", "k")
    yard.schedule()
    leases = yard.run()
    yard.later(STAKE_AFTER_MS - 1_000)
    early = yard.put("k/x")
    yard.schedule()
    assert yard.waiting([early]) == [early]
    yard.later(1_000)
    late = yard.put("k/x")
    yard.schedule()
    hold = yard.hold(late)
    assert hold is not None
    assert (hold.reason, hold.by) == (Reason.MUTEX, alone)
    yard.finish(leases | yard.run())
    yard.schedule()
    assert yard.waiting([first, alone, early, late]) == [alone]


def test_since_when_a_mutex_holds_a_task_outlives_the_server(yard: AdmissionYard) -> None:
    yard.put("k/x")
    yard.schedule()
    yard.later(1_000)
    alone = yard.put("k")
    yard.schedule()
    since = _since(yard, alone)
    yard.later(STAKE_AFTER_MS - 1_000)
    successor = yard.another("two")
    successor.schedule()
    early = yard.put("k/x")
    successor.schedule()
    assert yard.waiting([early]) == [early]
    yard.later(1_000)
    late = yard.put("k/x")
    yard.another("three").schedule()
    assert (yard.waiting([late]), _since(yard, alone)) == ([], since)


def _since(yard: AdmissionYard, id: int) -> Millis:
    hold = yard.hold(id)
    assert hold is not None
    assert hold.mutex_since_ms is not None
    return hold.mutex_since_ms


def test_since_when_a_mutex_holds_a_task_is_kept_while_something_else_holds_it(yard: AdmissionYard) -> None:
    holder, alone = yard.put("k"), yard.put("k", "lab")
    yard.serve("lab", bot="lab1")
    yard.schedule()
    since = _since(yard, alone)
    yard.later(1_000)
    yard.miss("lab1")
    yard.finish(yard.run(), holder)
    yard.schedule()
    assert (yard.reason(alone), _since(yard, alone)) == (Reason.NO_BOT, since)
    yard.put("k")
    yard.schedule()
    assert (yard.reason(alone), _since(yard, alone)) == (Reason.MUTEX, since)


def test_aging_writes_nothing(yard: AdmissionYard) -> None:
    tasks = yard.put_each("k/x", "k", "k/x", "k")
    yard.schedule()
    before = [yard.hold(id) for id in tasks]
    yard.later(2 * STAKE_AFTER_MS)
    assert (yard.schedule().held, yard.dirty()) == (0, [])
    assert [yard.hold(id) for id in tasks] == before


def test_a_pass_says_when_a_task_next_stakes_a_key_that_another_might_lose(yard: AdmissionYard) -> None:
    yard.put_each("k/x", "k")
    yard.schedule()
    moments = [yard.admission.next_moment]  # none: nobody but those at the mutex could lose anything
    yard.put("k/x", "lab")
    aged = yard.now + STAKE_AFTER_MS
    yard.schedule()
    moment = yard.admission.next_moment
    assert moment is not None
    assert aged <= moment < aged + AGING_MS
    yard.later(moment - yard.now)
    yard.schedule()
    assert [*moments, yard.admission.next_moment] == [None, None]


def test_mutexes_span_pools(yard: AdmissionYard) -> None:
    here, there = yard.put("k", "p"), yard.put("k", "q")
    yard.schedule()
    assert yard.waiting([here, there]) == [here]


def test_a_task_that_is_lost_gives_its_mutexes_back_while_it_is_pending(yard: AdmissionYard) -> None:
    first, urgent = yard.put("k"), None
    yard.schedule()
    assert yard.run()
    urgent = yard.put("k", priority=1)
    yard.serve("p", "q", bot="b2")
    yard.miss("b1")
    yard.schedule()
    assert yard.waiting([first, urgent]) == [urgent]


def test_the_rules_of_awx_hold_in_a_store(yard: AdmissionYard) -> None:
    for number, rule in enumerate(RULES):
        pool = f"pool{number}"
        yard.serve(pool, bot=f"bot{number}")
        put = {name: _put_work(yard, number, name, pool) for name in rule.running.split()}
        yard.schedule()
        yard.pool(pool, rule.capacity)
        assert yard.waiting(list(put.values())) == list(put.values())
        pending = {name: _put_work(yard, number, name, pool) for name in rule.pending.split()}
        yard.schedule()
        assert [name for name, id in pending.items() if yard.waiting([id])] == rule.admitted.split(), rule.sentence


def _put_work(yard: AdmissionYard, number: int, name: str, pool: str) -> int:
    mutexes = [one | {"key": f"{number}:{one['key']}"} for one in documents(WORK[name])]
    node = {"payload": {"command": ["true"]}, "mutexes": mutexes, "dimensions": {"pool": pool}}
    return yard.submit({"tasks": {"t": {"task": node}}})["t"]


# Capacity.


def test_a_pool_carries_the_weight_it_has_capacity_for(yard: AdmissionYard) -> None:
    yard.pool("p", 5)
    heavy, medium, light = tasks = [yard.put(pool="p", weight=weight) for weight in (3, 3, 2)]
    yard.schedule()
    assert yard.waiting(tasks) == [heavy, light]
    assert yard.hold(medium) == HoldRow(medium, Reason.CAPACITY, "p", None, yard.now)


def test_a_task_that_is_too_heavy_for_its_pool_runs_alone(yard: AdmissionYard) -> None:
    yard.pool("p", 2)
    light, huge, after = tasks = [yard.put(pool="p", weight=weight) for weight in (2, 9, 1)]
    yard.schedule()
    assert yard.waiting(tasks) == [light]
    yard.finish(yard.run())
    yard.schedule()
    assert yard.waiting(tasks) == [huge]
    yard.finish(yard.run())
    yard.schedule()
    assert yard.waiting(tasks) == [after]


def test_a_task_that_waited_ten_minutes_for_capacity_reserves_its_pool(yard: AdmissionYard) -> None:
    yard.pool("p", 3)
    small, big = yard.put(pool="p", weight=2), yard.put(pool="p", weight=3)
    yard.schedule()
    leases = yard.run()
    yard.later(RESERVE_AFTER_MS)
    yard.schedule()
    young = yard.put(pool="p")
    yard.schedule()
    assert yard.waiting([small, big, young]) == [small]
    assert yard.hold(young) == HoldRow(young, Reason.RESERVED, "p", big, yard.now)
    yard.finish(leases)
    yard.schedule()
    assert yard.waiting([big, young]) == [big]


def test_the_next_holder_of_the_lock_knows_a_wait_for_capacity(yard: AdmissionYard) -> None:
    yard.pool("p", 3)
    big = [yard.put(pool="p", weight=weight) for weight in (2, 3)][1]
    yard.schedule()
    yard.later(RESERVE_AFTER_MS)
    young = yard.put(pool="p")
    yard.another("two").schedule()
    hold = yard.hold(young)
    assert hold is not None
    assert (hold.reason, hold.by) == (Reason.RESERVED, big)


def test_a_task_without_weight_does_not_mind_a_full_pool(yard: AdmissionYard) -> None:
    yard.pool("p", 1)
    full, free, excluding = yard.put(pool="p"), yard.put(pool="p", weight=0), yard.put("k", "p", weight=0)
    yard.schedule()
    assert yard.waiting([full, free, excluding]) == [full, free, excluding]


def test_a_pool_can_have_the_capacity_of_its_live_bots(yard: AdmissionYard) -> None:
    yard.pool("r", from_bots=True)
    tasks = [yard.put(pool="r") for _ in range(4)]
    yard.schedule()
    assert yard.waiting(tasks) == tasks[:1]  # one task always runs
    yard.serve("r", bot="r1", slots=2)
    yard.schedule()
    assert yard.waiting(tasks) == tasks[:2]
    yard.serve("r", bot="r2", slots=1)
    yard.schedule()
    assert yard.waiting(tasks) == tasks[:3]
    assert yard.reason(tasks[3]) is Reason.CAPACITY
    yard.miss("r1")
    yard.pool("r", 3)


# Limits.


def test_a_named_limit_is_shared_by_all_pools(yard: AdmissionYard) -> None:
    yard.limit("licences", 5)
    three, four, two = tasks = [
        yard.put(pool=pool, limits={"licences": amount}) for pool, amount in (("p", 3), ("q", 4), ("q", 2))
    ]
    yard.schedule()
    assert yard.waiting(tasks) == [three, two]
    assert yard.hold(four) == HoldRow(four, Reason.LIMIT, "licences", None, None)
    yard.limit("licences", 9)
    yard.schedule()
    assert yard.waiting(tasks) == tasks


# Bots.


def test_a_task_with_mutexes_is_held_until_a_bot_could_run_it(yard: AdmissionYard) -> None:
    alone, other = yard.put("k", "lab"), yard.put("k")
    yard.schedule()
    assert yard.waiting([alone, other]) == [other]
    assert yard.reason(alone) is Reason.MUTEX  # what it has to wait for first
    yard.finish(yard.run())
    yard.schedule()
    assert yard.reason(alone) is Reason.NO_BOT
    yard.serve("lab", bot="lab1")
    yard.schedule()
    assert yard.waiting([alone]) == [alone]


def test_the_wait_for_a_bot_begins_when_a_task_is_held_for_want_of_one(yard: AdmissionYard) -> None:
    task = yard.put("k", "lab")
    yard.schedule()
    began = yard.now
    held = yard.task(task)
    assert yard.hold(task) == HoldRow(task, Reason.NO_BOT, None, None, None)
    assert (held.life.waits_since_ms, held.due_ms) == (began, began + held.rules.slices[0].expires_ms)
    yard.later(MINUTE)
    yard.serve("lab", bot="lab1")
    yard.schedule()
    assert yard.task(task).life.waits_since_ms == began


def test_the_wait_for_a_bot_ends_when_a_task_is_held_for_anything_else(yard: AdmissionYard) -> None:
    task = yard.put("k", "lab")
    yard.schedule()
    urgent = yard.put("k", priority=1)
    yard.schedule()
    held = yard.task(task)
    assert yard.waiting([urgent, task]) == [urgent]
    assert (yard.reason(task), held.life.waits_since_ms, held.due_ms) == (Reason.MUTEX, None, None)


def test_a_waiting_task_whose_last_bot_is_gone_gives_its_mutexes_back(yard: AdmissionYard) -> None:
    yard.serve("lab", bot="lab1")
    task = yard.put("k", "lab")
    yard.schedule()
    other = yard.put("k")
    yard.miss("lab1")
    passed = yard.schedule()
    assert (passed.admitted, yard.waiting([task, other])) == (1, [other])
    sent_back = yard.task(task)
    assert (sent_back.state, sent_back.reason, yard.reason(task)) == (State.PENDING, Reason.NO_BOT, Reason.MUTEX)
    assert sent_back.life.waits_since_ms is None  # it waits for its mutex first, and for a bot later


def test_a_task_that_is_sent_back_goes_on_with_its_wait_for_a_bot(yard: AdmissionYard) -> None:
    yard.serve("lab", bot="lab1")
    task = yard.put("k", "lab")
    yard.schedule()
    began = yard.now
    yard.miss("lab1")
    yard.schedule()
    assert (yard.task(task).life.waits_since_ms, yard.reason(task)) == (began, Reason.NO_BOT)
    yard.serve("lab", bot="lab1")
    yard.schedule()
    assert (yard.waiting([task]), yard.task(task).life.waits_since_ms) == ([task], began)


def test_a_waiting_task_without_mutexes_stays_in_its_queue_when_its_bots_are_gone(yard: AdmissionYard) -> None:
    yard.pool("lab", 1)
    yard.serve("lab", bot="lab1")
    task = yard.put(pool="lab")
    yard.schedule()
    yard.miss("lab1")
    yard.schedule()
    assert yard.waiting([task]) == [task]


def test_what_the_server_runs_itself_needs_no_bot(yard: AdmissionYard) -> None:
    yard.miss("b1")
    node = {"payload": {"noop": True}, "mutexes": [{"key": "k"}]}
    task = yard.submit({"tasks": {"t": {"task": node}}})["t"]
    yard.schedule()
    assert yard.waiting([task]) == [task]


# Time, and people.


def test_a_task_with_a_later_start_is_admitted_at_that_time(yard: AdmissionYard) -> None:
    task = yard.put("k", not_before="10m")
    begins = yard.task(task).life.not_before_ms
    assert begins is not None
    yard.schedule()
    assert yard.hold(task) == HoldRow(task, Reason.NOT_BEFORE, None, None, None)
    yard.later(begins - yard.now - 1)
    assert yard.schedule().admitted == 0
    yard.later(1)
    assert yard.schedule().admitted == 1
    assert (yard.waiting([task]), yard.hold(task)) == ([task], None)


def test_no_task_of_a_canceled_graph_is_admitted_and_those_behind_it_are(yard: AdmissionYard) -> None:
    canceled, behind = yard.put("k"), yard.put("k")
    yard.cancel_graph(canceled)
    passed = yard.schedule()
    assert (passed.admitted, passed.more) == (1, False)
    assert yard.waiting([canceled, behind]) == [behind]
    assert yard.task(canceled).state is State.PENDING


def test_a_canceled_task_frees_what_it_had_and_is_held_by_nothing(yard: AdmissionYard) -> None:
    first, second, third = tasks = yard.put_each("k", "k", "k")
    yard.schedule()
    yard.cancel(second)
    yard.cancel(first)
    yard.schedule()
    assert yard.waiting(tasks) == [third]
    assert [yard.hold(id) for id in tasks] == [None, None, None]


# What is noted.


def test_the_stored_reason_of_every_held_task_is_the_current_one(yard: AdmissionYard) -> None:
    yard.pool("p", 1)
    yard.limit("licences", 1)
    yard.put_each("k", "k", "k/x")
    yard.put("m", "lab")
    yard.put("n", not_before="1h")
    for _ in range(2):
        yard.put(limits={"licences": 1})
        yard.put(pool="p")
    yard.schedule()
    for _ in range(4):
        yard.compare_notes()
        yard.finish(yard.run(want=1))
        yard.schedule()


def test_the_task_in_the_way_is_stored_when_a_task_is_judged(yard: AdmissionYard) -> None:
    holder, first = yard.put_each("k", "k/x")
    yard.schedule()
    second = yard.put("k/y")
    yard.schedule()
    since = yard.moved(holder)
    assert yard.hold(first) == HoldRow(first, Reason.MUTEX, "k", holder, since, _since(yard, first))
    assert yard.hold(second) == HoldRow(second, Reason.MUTEX, "k", holder, since, _since(yard, second))
