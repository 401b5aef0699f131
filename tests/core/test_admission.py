"""Admission, rule by rule: what holds a task, with which reason, and what no decision may do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.admission.rules import (
    RESERVE_AFTER_MS,
    STAKE_AFTER_MS,
    Contender,
    Decision,
    Facts,
    Held,
    Holder,
    Pool,
    decide,
    impossible_demands,
    unadmitted,
)
from taskyard.core.graph.model import Mutex
from taskyard.core.launch import inventory_update_mutexes, job_mutexes, project_update_mutexes
from taskyard.core.states import Millis, Reason, TaskId
from taskyard.core.structs import struct_replace as replace

NOW = Millis(1_000_000)
LONG_AGO = Millis(NOW - RESERVE_AFTER_MS)
KEYS, PARTIES, POOLS, LIMITS = ("a", "b", "c", "d"), (None, "x", "y"), ("p", "q"), ("l", "m")
#: Whatever is held by a mutex stakes all its keys at once.
STRICT = dict.fromkeys(KEYS, 0)


def task(id: str, created: int = 0, pool: str = "p", weight: int = 1, mutexes: Sequence[Mutex] = ()) -> Contender:
    return Contender(TaskId(id), 100, Millis(created), pool, weight, tuple(mutexes))


def holder(id: str, weight: int = 1, mutexes: Sequence[Mutex] = (), pool: str = "p", since: int = 7) -> Holder:
    return Holder(TaskId(id), pool, weight, tuple(mutexes), (), Millis(since))


def mutexes(keys: str) -> tuple[Mutex, ...]:
    """Read mutexes as "a b/x": key a alone, key b with party x."""
    return tuple(Mutex(key, party or None) for key, _, party in (word.partition("/") for word in keys.split()))


def reasons(decision: Decision) -> dict[str, Reason]:
    return {held.id: held.reason for held in decision.held}


# Order.


def test_order_is_priority_then_creation_then_id() -> None:
    urgent = replace(task("z", 3), priority=1)
    facts = Facts((task("b", 2), task("c", 1), task("a", 2), urgent))
    assert decide(facts, NOW).admitted == ("z", "c", "a", "b")


# The content of a reason.


def test_the_reason_of_a_future_start_has_its_time() -> None:
    early = replace(task("t"), not_before=Millis(NOW + 1))
    assert decide(Facts((early,)), NOW).held == (Held(early.id, Reason.NOT_BEFORE, until=Millis(NOW + 1)),)
    assert decide(Facts((early,)), Millis(NOW + 1)).admitted == (early.id,)


def test_the_reason_of_a_mutex_has_its_key_and_its_holder() -> None:
    facts = Facts((task("t", mutexes=mutexes("b a/x")),), (holder("h", mutexes=mutexes("a")),))
    assert decide(facts, NOW).held == (Held(TaskId("t"), Reason.MUTEX, "a", TaskId("h"), Millis(7)),)


def test_the_reason_of_a_mutex_has_the_older_task_that_staked_it() -> None:
    facts = Facts(
        (task("alone", 1, mutexes=mutexes("a")), task("late", 2, mutexes=mutexes("a/x"))),
        (holder("h", mutexes=mutexes("a/x")),),
        stake_after=STRICT,
    )
    assert decide(facts, NOW).held[1] == Held(TaskId("late"), Reason.MUTEX, "a", TaskId("alone"), Millis(1))


def test_the_reason_of_a_mutex_has_its_first_holder() -> None:
    sharers = (holder("first", mutexes=mutexes("a/x")), holder("second", mutexes=mutexes("a/x"), since=8))
    facts = Facts((task("t", mutexes=mutexes("a")),), sharers)
    assert decide(facts, NOW).held == (Held(TaskId("t"), Reason.MUTEX, "a", TaskId("first"), Millis(7)),)


def test_a_missing_bot_holds_only_tasks_with_mutexes() -> None:
    facts = Facts((replace(task("m", mutexes=mutexes("a")), served=False), replace(task("n"), served=False)))
    assert decide(facts, NOW) == Decision((TaskId("n"),), (Held(TaskId("m"), Reason.NO_BOT),))


def test_the_reason_of_a_limit_has_its_name() -> None:
    greedy = replace(task("t"), limits=(("plenty", 1), ("licences", 3)))
    facts = Facts((greedy,), (replace(holder("h"), limits=(("licences", 3),)),), limits={"plenty": 9, "licences": 5})
    assert decide(facts, NOW).held == (Held(greedy.id, Reason.LIMIT, "licences"),)


def test_the_reason_of_capacity_has_the_pool_the_wait_and_the_place_in_line() -> None:
    waiting = replace(task("one", 1), capacity_since=Millis(NOW - 5))
    facts = Facts((task("two", 2), waiting, task("elsewhere", 3, "q")), (holder("h"),), (Pool("p", 1), Pool("q", 1)))
    assert decide(facts, NOW).held == (
        Held(TaskId("one"), Reason.CAPACITY, "p", since=Millis(NOW - 5), place=1),
        Held(TaskId("two"), Reason.CAPACITY, "p", since=NOW, place=2),
    )


def test_the_reason_of_a_reservation_has_the_task_it_is_for() -> None:
    big = replace(task("big", 1, weight=2), capacity_since=LONG_AGO)
    facts = Facts((big, task("small", 2)), (holder("h"),), (Pool("p", 2),))
    assert decide(facts, NOW).held == (
        Held(big.id, Reason.CAPACITY, "p", since=LONG_AGO, place=1),
        Held(TaskId("small"), Reason.RESERVED, "p", big.id, NOW, place=2),
    )


def test_the_first_guard_that_holds_a_task_is_the_reason() -> None:
    hopeless = Contender(
        TaskId("t"), 100, Millis(0), "p", 1, mutexes("a"), (("l", 1),), not_before=Millis(NOW + 1), served=False
    )
    full = Facts((hopeless,), (holder("h", mutexes=mutexes("a")),), (Pool("p", 1),))
    later = [
        full,
        replace(full, pending=(hopeless := replace(hopeless, not_before=None),)),
        replace(full, holding=(holder("h"),), pending=(hopeless,)),
        replace(full, holding=(holder("h"),), pending=(hopeless := replace(hopeless, served=True),)),
        replace(full, holding=(holder("h"),), pending=(hopeless,), limits={"l": 1}),
        replace(full, holding=(), pending=(hopeless,), limits={"l": 1}),
    ]
    assert [reasons(decide(facts, NOW)).get("t") for facts in later] == [
        Reason.NOT_BEFORE,
        Reason.MUTEX,
        Reason.NO_BOT,
        Reason.LIMIT,
        Reason.CAPACITY,
        None,
    ]


# Mutexes.


@pytest.mark.parametrize(
    ("held", "wanted", "clash"),
    [("a", "a", True), ("a", "a/x", True), ("a/x", "a", True), ("a/x", "a/y", True), ("a/x", "a/x", False)],
)
def test_two_share_a_key_only_when_both_name_the_same_party(held: str, wanted: str, clash: bool) -> None:
    facts = Facts((task("t", mutexes=mutexes(wanted)),), (holder("h", mutexes=mutexes(held)),))
    assert (not decide(facts, NOW).admitted) is clash


def test_one_admitted_in_a_pass_holds_from_then_on() -> None:
    facts = Facts((task("1", 1, mutexes=mutexes("a")), task("2", 2, mutexes=mutexes("a"))))
    assert decide(facts, NOW).admitted == ("1",)


def test_a_mutex_spans_pools() -> None:
    facts = Facts((task("1", 1, "p", mutexes=mutexes("a")), task("2", 2, "q", mutexes=mutexes("a"))))
    assert decide(facts, NOW).admitted == ("1",)


def test_a_task_held_by_one_mutex_stakes_all_of_them() -> None:
    facts = Facts(
        (task("both", 1, mutexes=mutexes("a b")), task("b", 2, mutexes=mutexes("b"))),
        (holder("h", mutexes=mutexes("a")),),
        stake_after=STRICT,
    )
    assert decide(facts, NOW).admitted == ()


@pytest.mark.parametrize(
    "older",
    [
        replace(task("older", 1, mutexes=mutexes("a")), not_before=Millis(NOW + 1)),
        replace(task("older", 1, mutexes=mutexes("a")), served=False),
        replace(task("older", 1, mutexes=mutexes("a")), limits=(("unknown", 1),)),
        task("older", 1, weight=9, mutexes=mutexes("a")),
    ],
    ids=["too early", "no bot", "limit", "capacity"],
)
def test_a_task_held_for_anything_but_its_mutexes_stakes_nothing(older: Contender) -> None:
    facts = Facts((older, task("t", 2, "q", mutexes=mutexes("a"))), (holder("h"),), (Pool("p", 1),))
    assert decide(facts, NOW).admitted == ("t",)


@pytest.mark.parametrize(
    ("stake_after", "held_for", "admitted"),
    [
        ({}, 0, ("sharer",)),
        ({}, STAKE_AFTER_MS - 1, ("sharer",)),
        ({}, STAKE_AFTER_MS, ()),
        ({"a": 5}, 4, ("sharer",)),
        ({"a": 5}, 5, ()),
        ({"a": 0}, None, ()),
        ({"a": None}, 10 * STAKE_AFTER_MS, ("sharer",)),
    ],
)
def test_a_task_that_mutexes_have_held_for_stake_after_is_passed_no_more(
    stake_after: dict[str, int | None], held_for: int | None, admitted: tuple[str, ...]
) -> None:
    since = None if held_for is None else Millis(NOW - held_for)
    alone = replace(task("alone", 1, mutexes=mutexes("a")), mutex_since=since)
    facts = Facts((alone, task("sharer", 2, mutexes=mutexes("a/x"))), (holder("h", mutexes=mutexes("a/x")),))
    assert decide(replace(facts, stake_after=stake_after), NOW).admitted == admitted


def test_a_task_held_at_one_key_stakes_the_others_by_their_own_number() -> None:
    facts = Facts(
        (task("both", 1, mutexes=mutexes("a b")), task("b", 2, mutexes=mutexes("b"))),
        (holder("h", mutexes=mutexes("a")),),
        stake_after={"a": None, "b": 0},
    )
    assert decide(facts, NOW).admitted == ()
    assert decide(replace(facts, stake_after={"a": 0, "b": None}), NOW).admitted == ("b",)


def test_since_when_a_mutex_holds_a_task_is_the_first_such_moment() -> None:
    facts = Facts((task("t", mutexes=mutexes("a")),), (holder("h", mutexes=mutexes("a")),))
    assert [held.mutex_since for held in decide(facts, NOW).held] == [NOW]
    known = replace(facts, pending=tuple(each.held_by_mutex(LONG_AGO).held_by_mutex(NOW) for each in facts.pending))
    assert [held.mutex_since for held in decide(known, NOW).held] == [LONG_AGO]


def test_a_key_is_named_once() -> None:
    with pytest.raises(ValueError, match="task t names a mutex key twice"):
        task("t", mutexes=mutexes("a a/x"))
    with pytest.raises(ValueError, match="task t names a limit twice"):
        replace(task("t"), limits=(("l", 1), ("l", 2)))


# Limits, capacity, reservations.


def test_a_demand_that_can_never_fit_is_named() -> None:
    assert impossible_demands([("l", 5), ("m", 6), ("none", 1), ("none", 0)], {"l": 5, "m": 5}) == (
        ("m", 6),
        ("none", 1),
    )


def test_limits_are_hard_even_when_nothing_is_used() -> None:
    assert decide(Facts((replace(task("t"), limits=(("l", 2),)),), limits={"l": 1}), NOW).admitted == ()


def test_a_limit_is_used_up_in_order() -> None:
    pending = tuple(
        replace(task(id, created), limits=(("l", n),))
        for created, (id, n) in enumerate(zip("123", (2, 2, 1), strict=True))
    )
    assert decide(Facts(pending, limits={"l": 3}), NOW).admitted == ("1", "3")


@pytest.mark.parametrize(
    ("capacity", "used", "weight", "admitted"),
    [
        (2, 1, 1, True),
        (2, 1, 2, False),
        (2, 0, 3, True),  # one task always runs
        (0, 0, 1, True),
        (2, 2, 0, True),  # nothing always fits
        (2, 3, 1, False),
        (None, 99, 99, True),
    ],
)
def test_a_pool_carries_what_fits(capacity: int | None, used: int, weight: int, admitted: bool) -> None:
    facts = Facts((task("t", weight=weight),), (holder("h", used),), (Pool("p", capacity),))
    assert bool(decide(facts, NOW).admitted) is admitted


def test_one_task_always_runs_per_pool() -> None:
    facts = Facts(tuple(task(pool, pool=pool, weight=9) for pool in "pq"), pools=(Pool("p", 1), Pool("q", 1)))
    assert decide(facts, NOW).admitted == ("p", "q")


def test_a_pool_is_reserved_only_after_the_wait() -> None:
    big = replace(task("big", 1, weight=2), capacity_since=Millis(LONG_AGO + 1))
    facts = Facts((big, task("small", 2)), (holder("h"),), (Pool("p", 2),))
    assert decide(facts, NOW).admitted == ("small",)
    assert decide(facts, Millis(NOW + 1)).admitted == ()


def test_a_reservation_holds_neither_the_weightless_nor_the_older_nor_other_pools() -> None:
    big = replace(task("big", 1, weight=2), capacity_since=LONG_AGO)
    others = (task("older", 0), task("weightless", 2, weight=0), task("elsewhere", 3, "q"), task("small", 4))
    facts = Facts((big, *others), (holder("h"),), (Pool("p", 2), Pool("q", 1)))
    assert decide(facts, NOW).admitted == ("older", "weightless", "elsewhere")


def test_the_wait_for_capacity_counts_from_its_first_moment() -> None:
    once = task("t").waiting_for_capacity(Millis(5))
    assert (once.capacity_since, once.waiting_for_capacity(Millis(6))) == (5, once)


def test_only_the_first_in_line_reserves() -> None:
    second = replace(task("second", 2, weight=3), capacity_since=LONG_AGO)
    facts = Facts((task("first", 1, weight=3), second, task("small", 3)), (holder("h"),), (Pool("p", 3),))
    assert decide(facts, NOW).admitted == ("small",)


def test_a_reservation_falls_when_its_task_loses_a_mutex_in_the_same_decision() -> None:
    big = replace(task("big", 1, weight=2, mutexes=mutexes("a")), capacity_since=LONG_AGO)
    thief, small = task("thief", 2, "q", mutexes=mutexes("a")), task("small", 3)
    decision = decide(Facts((big, thief, small), (holder("h"),), (Pool("p", 2),)), NOW)
    assert decision.admitted == ("thief", "small")
    assert decision.held == (Held(big.id, Reason.MUTEX, "a", thief.id, NOW),)


# No starvation.


def test_a_stream_of_sharing_tasks_cannot_starve_an_exclusive_one() -> None:
    alone = task("alone", 0, mutexes=mutexes("a"))
    facts = Facts((alone,), (holder("sharer-0", mutexes=mutexes("a/x")),), stake_after=STRICT)
    for number in range(1, 5):
        sharer = task(f"sharer-{number}", number, mutexes=mutexes("a/x"))
        facts = replace(facts, pending=(*facts.pending, sharer))
        assert decide(facts, NOW).admitted == ()
    assert decide(replace(facts, holding=()), NOW).admitted == ("alone",)


def test_a_stream_of_small_tasks_cannot_starve_a_big_one() -> None:
    facts = Facts((task("big", 0, weight=3),), (holder("h-1"), holder("h-2")), (Pool("p", 3),))
    now = NOW
    while "big" in {each.id for each in facts.pending}:
        now = Millis(now + RESERVE_AFTER_MS // 4)
        assert now < NOW + 4 * RESERVE_AFTER_MS, "the big one starved"
        facts = replace(facts, pending=(*facts.pending, task(f"small-{now}", now)), holding=facts.holding[1:])
        facts = settled(facts, now)


def settled(facts: Facts, now: Millis) -> Facts:
    """The facts after a decision: admitted tasks are holders, and tasks that wait for capacity know since when."""
    decision = decide(facts, now)
    since = {held.id: held.since for held in decision.held if held.reason in (Reason.CAPACITY, Reason.RESERVED)}
    after = facts.after(decision.admitted, now)
    return replace(
        after,
        pending=tuple(
            each.waiting_for_capacity(since.get(each.id) or now) if each.id in since else each for each in after.pending
        ),
    )


# What holds for every decision.


def moments(top: int) -> st.SearchStrategy[Millis]:
    return st.integers(0, top).map(Millis)


some_mutexes = st.lists(
    st.builds(Mutex, st.sampled_from(KEYS), st.sampled_from(PARTIES)), max_size=3, unique_by=lambda mutex: mutex.key
).map(tuple)
some_limits = st.lists(
    st.tuples(st.sampled_from(LIMITS), st.integers(0, 3)), max_size=2, unique_by=lambda demand: demand[0]
).map(tuple)
ids = st.integers(0, 999).map(lambda number: TaskId(f"t{number:03}"))
contenders = st.builds(
    Contender,
    id=ids,
    priority=st.integers(0, 2),
    created=moments(9),
    pool=st.sampled_from(POOLS),
    weight=st.integers(0, 3),
    mutexes=some_mutexes,
    limits=some_limits,
    not_before=st.none() | moments(12),
    served=st.sampled_from([True, True, True, False]),
    capacity_since=st.none() | moments(10),
    mutex_since=st.none() | moments(10),
)
holders = st.builds(
    Holder,
    id=ids.map(lambda id: TaskId("h" + id)),
    pool=st.sampled_from(POOLS),
    weight=st.integers(0, 3),
    mutexes=some_mutexes,
    limits=some_limits,
    since=moments(10),
)
everything = st.builds(
    Facts,
    pending=st.lists(contenders, max_size=12, unique_by=lambda each: each.id).map(tuple),
    holding=st.lists(holders, max_size=3, unique_by=lambda each: each.id).map(tuple),
    pools=st.tuples(*(st.builds(Pool, st.just(name), st.none() | st.integers(0, 5)) for name in POOLS)),
    limits=st.fixed_dictionaries({name: st.integers(0, 4) for name in LIMITS}),
    stake_after=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([None, 0, 0, 3, 8])),
    reserve_after_ms=st.sampled_from([0, 3, 100]),
)
AT = Millis(10)


@given(everything)
def test_facts_go_to_json_and_come_back_equal(facts: Facts) -> None:
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Facts) == facts


@pytest.mark.parametrize("broken", [None, [], {}, {"key": 1, "party": None}, {"party": "a"}, {"key": "a", "party": 2}])
def test_json_of_another_shape_is_refused(broken: object) -> None:
    whole = {"id": "h", "pool": "p", "weight": 1, "limits": [], "since": 7, "mutexes": [{"key": "a"}]}
    msgspec.convert(whole, Holder)
    with pytest.raises(msgspec.ValidationError, match=r"mutexes\[0\]"):
        msgspec.convert({**whole, "mutexes": [broken]}, Holder)
    for kind in (Contender, Holder, Pool):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(broken, kind)


@given(everything)
def test_every_pending_task_is_admitted_or_held_once(facts: Facts) -> None:
    decision = decide(facts, AT)
    shown = [*decision.admitted, *(held.id for held in decision.held)]
    assert Counter(shown) == Counter(each.id for each in facts.pending)


@given(everything)
def test_deciding_again_admits_nothing_more(facts: Facts) -> None:
    decision = decide(facts, AT)
    assert decide(facts.after(decision.admitted, AT), AT).admitted == ()


@given(everything, st.randoms(use_true_random=False))
def test_the_order_of_facts_does_not_matter(facts: Facts, chance: Random) -> None:
    shuffled = list(facts.pending)
    chance.shuffle(shuffled)
    assert decide(replace(facts, pending=tuple(shuffled)), AT) == decide(facts, AT)


@given(everything)
def test_two_holders_of_a_key_always_name_the_same_party(facts: Facts) -> None:
    admitted = admitted_of(replace(facts, holding=()))
    for one, other in combinations(admitted, 2):
        assert not clash(one, other, KEYS)


@given(everything)
def test_no_task_passes_an_older_one_that_mutexes_have_held_for_long(facts: Facts) -> None:
    facts = replace(facts, reserve_after_ms=RESERVE_AFTER_MS)  # else an older one may lose its key in a second walk
    held = reasons(decide(facts, AT))
    waiting = [each for each in facts.pending if held.get(each.id) is Reason.MUTEX]
    for late in admitted_of(facts):
        assert not any(clash(early, late, staked(facts, early)) for early in waiting if early.turn < late.turn)


def staked(facts: Facts, task: Contender) -> set[str]:
    since = AT if task.mutex_since is None else task.mutex_since
    return {
        key for key in KEYS if (after := facts.stake_after.get(key, STAKE_AFTER_MS)) is not None and since + after <= AT
    }


@given(everything)
def test_while_no_task_has_staked_a_key_the_admitted_tasks_are_those_of_the_loop_of_awx(facts: Facts) -> None:
    never = dict.fromkeys(KEYS, 11)  # longer than any task has waited at `AT`
    facts = replace(facts, stake_after=never, reserve_after_ms=RESERVE_AFTER_MS)
    assert decide(facts, AT).admitted == the_text_s_loop(facts, AT)


def the_text_s_loop(facts: Facts, now: Millis) -> tuple[TaskId, ...]:
    """Text 002: oldest first, a task that nothing running blocks is started if there is capacity."""
    running: list[Contender | Holder] = list(facts.holding)
    capacities = {pool.name: pool.capacity for pool in facts.pools}
    started = []
    for one in sorted(facts.pending, key=lambda each: (each.priority, each.created, each.id)):
        blocked = any(clash(one, other, {mutex.key for mutex in one.mutexes}) for other in running)
        early = one.not_before is not None and one.not_before > now
        no_bot = bool(one.mutexes) and not one.served
        if blocked or early or no_bot:
            continue
        used_of = {name: sum(dict(other.limits).get(name, 0) for other in running) for name, _ in one.limits}
        if any(used_of[name] + amount > facts.limits.get(name, 0) for name, amount in one.limits):
            continue
        used, capacity = sum(other.weight for other in running if other.pool == one.pool), capacities.get(one.pool)
        if one.weight and capacity is not None and used and used + one.weight > capacity:
            continue
        running.append(one)
        started.append(one.id)
    return tuple(started)


def test_the_loop_of_awx_starts_every_task_that_no_running_one_excludes() -> None:
    pending = (
        task("job-p1-i1", 1, mutexes=[*job_mutexes(project="1", inventory="1", template="1")]),
        task("update-p1", 2, mutexes=[*project_update_mutexes("1")]),
        task("job-p1-i2", 3, mutexes=[*job_mutexes(project="1", inventory="2", template="2")]),
        task("update-i2", 4, mutexes=[*inventory_update_mutexes("2", source="2")]),
    )
    facts = Facts(pending, (holder("update-i1", mutexes=inventory_update_mutexes("1", source="1")),))
    assert decide(facts, NOW).admitted == ("update-p1", "update-i2")
    assert the_text_s_loop(facts, NOW) == ("update-p1", "update-i2")
    aged = tuple(replace(each, mutex_since=Millis(NOW - STAKE_AFTER_MS)) for each in pending)
    assert decide(replace(facts, pending=aged), NOW).admitted == ()


@pytest.mark.parametrize("stake_after", [0, 3, 20])
def test_among_equal_priority_no_task_is_starved_by_younger_ones(stake_after: int) -> None:
    chance = Random(7)
    for _ in range(50):
        waits = how_long_a_lone_task_waits(chance, stake_after)
        # It ages, the holders of its keys end, and older tasks that clash with it run first.
        assert waits <= stake_after + RUNS_MAX * (OLDER + 1)


OLDER, RUNS_MAX = 3, 5


def how_long_a_lone_task_waits(chance: Random, stake_after: int) -> int:
    """Younger tasks that share its keys keep coming, faster than they end."""
    lone = task("lone", OLDER, mutexes=mutexes("a b"))
    older = [task(f"older-{number}", number, mutexes=some_keys(chance)) for number in range(OLDER)]
    facts = Facts(
        (*older, lone), (holder("h", mutexes=mutexes("a/x b/x")),), stake_after=dict.fromkeys(KEYS, stake_after)
    )
    ends = {TaskId("h"): 1}
    for now in range(1_000):
        young = tuple(task(f"y-{now}-{n}", OLDER + 1 + now, mutexes=some_keys(chance)) for n in range(3))
        left = tuple(one for one in facts.holding if ends[one.id] > now)
        facts = replace(facts, pending=(*facts.pending, *young), holding=left)
        decision = decide(facts, Millis(now))
        if lone.id in decision.admitted:
            return now
        ends |= {id: now + chance.randint(1, RUNS_MAX) for id in decision.admitted}
        held = {one.id: one for one in decision.held}
        facts = facts.after(decision.admitted, Millis(now))
        facts = replace(facts, pending=tuple(aged(one, held[one.id]) for one in facts.pending))
    raise AssertionError("it was never admitted")


def aged(task: Contender, held: Held) -> Contender:
    return task if held.mutex_since is None else task.held_by_mutex(held.mutex_since)


def some_keys(chance: Random) -> tuple[Mutex, ...]:
    return tuple(Mutex(key, chance.choice(["x", "x", "y"])) for key in chance.choice(["a", "b", "ab"]))


@given(everything)
def test_a_task_held_for_anything_but_mutexes_holds_no_other_task(facts: Facts) -> None:
    facts = replace(facts, reserve_after_ms=RESERVE_AFTER_MS)
    decision = decide(facts, AT)
    unfit = {held.id for held in decision.held if held.reason is not Reason.MUTEX}
    without = replace(facts, pending=tuple(each for each in facts.pending if each.id not in unfit))
    assert decide(without, AT).admitted == decision.admitted


@given(everything, everything)
def test_what_is_unrelated_is_decided_together_as_alone(facts: Facts, unrelated: Facts) -> None:
    other = elsewhere(replace(unrelated, reserve_after_ms=facts.reserve_after_ms))
    both = Facts(
        facts.pending + other.pending,
        facts.holding + other.holding,
        facts.pools + other.pools,
        {**facts.limits, **other.limits},
        {**facts.stake_after, **other.stake_after},
        facts.reserve_after_ms,
    )
    apart = {*decide(facts, AT).admitted, *decide(other, AT).admitted}
    assert set(decide(both, AT).admitted) == apart


@given(everything)
def test_a_pool_is_never_filled_beyond_its_capacity_but_by_its_only_task(facts: Facts) -> None:
    admitted = admitted_of(facts)
    for pool in facts.pools:
        before = [each.weight for each in facts.holding if each.pool == pool.name and each.weight]
        new = [each.weight for each in admitted if each.pool == pool.name and each.weight]
        fits = pool.capacity is None or sum(before) + sum(new) <= pool.capacity
        assert fits or not new or (not before and len(new) == 1)


@given(everything)
def test_an_idle_pool_holds_no_task_for_capacity(facts: Facts) -> None:
    decision = decide(facts, AT)
    after = facts.after(decision.admitted, AT)
    used = Counter({pool: sum(each.weight for each in after.holding if each.pool == pool) for pool in POOLS})
    for held in decision.held:
        assert held.reason not in (Reason.CAPACITY, Reason.RESERVED) or used[held.name or ""] > 0


@given(everything)
def test_a_limit_is_never_exceeded(facts: Facts) -> None:
    admitted = admitted_of(replace(facts, holding=()))
    for name, total in facts.limits.items():
        assert sum(dict(each.limits).get(name, 0) for each in admitted) <= total


@given(everything)
def test_every_reason_names_what_it_is_about(facts: Facts) -> None:
    tasks = {each.id: each for each in facts.pending}
    for held in decide(facts, AT).held:
        named = {
            Reason.MUTEX: {mutex.key for mutex in tasks[held.id].mutexes},
            Reason.LIMIT: {name for name, _ in tasks[held.id].limits},
            Reason.CAPACITY: {tasks[held.id].pool},
            Reason.RESERVED: {tasks[held.id].pool},
        }
        assert held.name in named.get(held.reason, {None})
        assert (held.by is not None) is (held.reason in (Reason.MUTEX, Reason.RESERVED))


def admitted_of(facts: Facts) -> list[Contender]:
    admitted = set(decide(facts, AT).admitted)
    return [each for each in facts.pending if each.id in admitted]


def clash(one: Contender | Holder, other: Contender | Holder, keys: Iterable[str]) -> bool:
    mine, theirs = ({m.key: m.party for m in each.mutexes} for each in (one, other))
    shared = set(keys) & mine.keys() & theirs.keys()
    return any(mine[key] is None or mine[key] != theirs[key] for key in shared)


def elsewhere(facts: Facts) -> Facts:
    """The same facts about other tasks, pools, keys and limits."""
    text = msgspec.json.encode(facts).decode()
    for name in (*KEYS, *POOLS, *LIMITS):
        text = text.replace(f'"{name}"', f'"other {name}"')
    return msgspec.json.decode(text.replace('"id":"', '"id":"other '), type=Facts)


def test_a_reason_has_what_is_in_use() -> None:
    one = replace(task("t", weight=4), limits=())
    full = Facts((one,), (holder("h", weight=7),), (Pool("p", 10),))
    (held,) = decide(full, NOW).held
    assert (held.reason, held.used, held.total, held.need) == (Reason.CAPACITY, 7, 10, 4)
    licensed = replace(one, limits=(("l", 3),))
    short = Facts((licensed,), (replace(holder("h"), limits=(("l", 3),)),), limits={"l": 5})
    (held,) = decide(short, NOW).held
    assert (held.reason, held.name, held.used, held.total, held.need) == (Reason.LIMIT, "l", 3, 5, 3)


def test_a_waiting_task_releases_its_mutexes_when_its_last_bot_is_gone() -> None:
    held, plain = task("held", mutexes=[Mutex("a")]), task("plain")
    gone = [replace(held, served=False), replace(plain, served=False)]
    assert unadmitted(gone) == ("held",)  # without mutexes it may as well wait in its queue
    assert unadmitted([held, plain]) == ()
