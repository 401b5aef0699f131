"""The index admits what the rule, folded over all facts, admits after every change; the fold is the oracle."""

from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from taskyard.core.admission.index import SLACK_ENTRIES, AdmissionIndex, GroupedQueue, LazyHeap
from taskyard.core.admission.rules import Contender, Decision, Facts, Held, Holder, Pool, decide
from taskyard.core.graph.model import Mutex
from taskyard.core.states import Millis, Reason, TaskId
from taskyard.core.structs import struct_replace as replace
from tests.core.test_admission import KEYS, LIMITS, LONG_AGO, NOW, PARTIES, POOLS, contenders, holder, mutexes, task
from tests.effort import tries

IN_LINE = (Reason.CAPACITY, Reason.RESERVED)


class Twin:
    """Facts and an index that get the same changes; each decision compares the two."""

    def __init__(self, facts: Facts, stride: int | None = None) -> None:
        self.stride = stride  # how many are judged at a time; None: all
        self.pending = {each.id: each for each in facts.pending}
        self.holding = {each.id: each for each in facts.holding}
        self.rest = facts
        self.index = AdmissionIndex(facts)
        self.now = Millis(0)
        self.seen: Counter[str] = Counter()

    @property
    def facts(self) -> Facts:
        return replace(self.rest, pending=tuple(self.pending.values()), holding=tuple(self.holding.values()))

    def arrive(self, task: Contender) -> None:
        self.holding.pop(task.id, None)
        self.pending[task.id] = task
        self.index.arrive(task)

    def leave(self, id: TaskId) -> None:
        del self.pending[id]
        self.index.leave(id)

    def hold(self, holder: Holder) -> None:
        self.pending.pop(holder.id, None)
        self.holding[holder.id] = holder
        self.index.take(holder)

    def release(self, id: TaskId) -> None:
        del self.holding[id]
        self.index.give_back(id)

    def serve(self, id: TaskId, served: bool) -> None:
        self.pending[id] = replace(self.pending[id], served=served)
        self.index.serve(id, served)

    def set_capacity(self, pool: Pool) -> None:
        self.rest = replace(self.rest, pools=(*(each for each in self.rest.pools if each.name != pool.name), pool))
        self.index.set_capacity(pool)

    def set_limit_total(self, limit: str, total: int) -> None:
        self.rest = replace(self.rest, limits={**self.rest.limits, limit: total})
        self.index.set_limit_total(limit, total)

    def settle(self, later_ms: int) -> None:
        self.now = Millis(self.now + later_ms)
        expected, found = decide(self.facts, self.now), self._decide()
        assert found.admitted == expected.admitted
        shown = {held.id: held.reason for held in expected.held}
        assert {id: self.index.reason(id) for id in shown} == shown
        assert {held.id: held.reason for held in found.held}.items() <= shown.items()
        self._carry_out(expected)

    def _decide(self) -> Decision:
        """Let the index decide, a few tasks at a time."""
        parts = [self.index.decide(self.now, self.stride)]
        while self.index.cut:
            parts.append(self.index.decide(self.now, self.stride))
        assert not any(part.held for part in parts[:-1])
        self.seen["cut"] += len(parts) - 1
        return Decision(tuple(id for part in parts for id in part.admitted), parts[-1].held)

    def _carry_out(self, decision: Decision) -> None:
        for id in decision.admitted:
            self.holding[id] = self.pending.pop(id).admitted(self.now)
        for held in decision.held:
            self.seen[held.reason] += 1
            if held.reason in IN_LINE and held.since is not None:
                self.pending[held.id] = self.pending[held.id].waiting_for_capacity(held.since)
            if held.mutex_since is not None:
                self.seen["aged"] += held.mutex_since < self.now
                self.pending[held.id] = self.pending[held.id].held_by_mutex(held.mutex_since)
        self.seen["admitted"] += len(decision.admitted)


class LinesMachine(RuleBasedStateMachine):
    """Any changes in any order, with decisions in between."""

    @initialize(
        capacities=st.tuples(*(st.none() | st.integers(0, 5) for _ in POOLS)),
        stake_after=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([None, 0, 2, 5])),
        reserve_after_ms=st.sampled_from([0, 2, 5, 100]),
        stride=st.none() | st.integers(1, 3),
    )
    def begin(
        self,
        capacities: tuple[int | None, ...],
        stake_after: dict[str, int | None],
        reserve_after_ms: int,
        stride: int | None,
    ) -> None:
        pools = tuple(map(Pool, POOLS, capacities))
        limits = dict.fromkeys(LIMITS, 3)
        self.twin = Twin(Facts((), (), pools, limits, stake_after, reserve_after_ms), stride)

    @rule(tasks=st.lists(contenders, min_size=1, max_size=6))
    def arrive(self, tasks: list[Contender]) -> None:
        for each in tasks:
            self.twin.arrive(each)

    @precondition(lambda self: self.twin.holding)
    @rule(choice=st.data())
    def release(self, choice: st.DataObject) -> None:
        self.twin.release(choice.draw(st.sampled_from(sorted(self.twin.holding))))

    @precondition(lambda self: self.twin.pending)
    @rule(choice=st.data())
    def leave(self, choice: st.DataObject) -> None:
        self.twin.leave(choice.draw(st.sampled_from(sorted(self.twin.pending))))

    @precondition(lambda self: self.twin.pending)
    @rule(choice=st.data(), served=st.booleans())
    def serve(self, choice: st.DataObject, served: bool) -> None:
        self.twin.serve(choice.draw(st.sampled_from(sorted(self.twin.pending))), served)

    @precondition(lambda self: self.twin.pending)
    @rule(choice=st.data())
    def hold(self, choice: st.DataObject) -> None:
        """Another server admitted it, whatever the rule decides."""
        id = choice.draw(st.sampled_from(sorted(self.twin.pending)))
        self.twin.hold(self.twin.pending[id].admitted(self.twin.now))

    @rule(name=st.sampled_from(POOLS), capacity=st.none() | st.integers(0, 5))
    def set_capacity(self, name: str, capacity: int | None) -> None:
        self.twin.set_capacity(Pool(name, capacity))

    @rule(limit=st.sampled_from(LIMITS), total=st.integers(0, 4))
    def set_limit_total(self, limit: str, total: int) -> None:
        self.twin.set_limit_total(limit, total)

    @rule(later_ms=st.integers(0, 4))
    def settle(self, later_ms: int) -> None:
        self.twin.settle(later_ms)

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            for what in self.twin.seen:
                event(what)


TestLinesAreTheFold = LinesMachine.TestCase
TestLinesAreTheFold.settings = settings(max_examples=tries(100), stateful_step_count=40)


def test_the_index_equals_the_fold_for_many_contending_tasks() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000):
        seen += crowded_yard(Random(seed)).seen
    # Every reason has to occur often, else the comparison would prove little.
    assert {what for what, times in seen.items() if times >= 500} >= {
        "admitted",
        "cut",
        "aged",
        Reason.NOT_BEFORE,
        Reason.MUTEX,
        Reason.NO_BOT,
        Reason.LIMIT,
        Reason.CAPACITY,
        Reason.RESERVED,
    }


def crowded_yard(chance: Random) -> Twin:
    """Many more tasks than mutexes and capacity, for a while."""
    pools = tuple(Pool(name, chance.choice([None, 0, 1, 2, 3, 4])) for name in POOLS)
    stake_after = {key: chance.choice([None, 0, 1, 3, 8]) for key in KEYS}
    facts = Facts((), (), pools, dict.fromkeys(LIMITS, 3), stake_after, chance.choice([0, 2, 5, 50]))
    twin = Twin(facts, chance.choice([None, 1, 2, 5]))
    for _ in range(chance.randrange(5, 30)):
        for _ in range(chance.choice([0, 1, 1, 2, 4, 8])):
            chance.choices(CHANGES, WEIGHTS)[0](twin, chance)
        twin.settle(chance.choice([0, 1, 1, 3]))
    return twin


def someone_arrives(twin: Twin, chance: Random) -> None:
    twin.arrive(
        Contender(
            id=TaskId(f"{chance.randrange(100):02}-{chance.randrange(10**6)}"),
            priority=chance.choice([0, 1, 1, 1, 2]),
            created=Millis(chance.choice([twin.now, twin.now, chance.randrange(twin.now + 1)])),
            pool=chance.choice(POOLS),
            weight=chance.choice([0, 1, 1, 2, 3]),
            mutexes=tuple(
                Mutex(key, chance.choice(PARTIES)) for key in chance.sample(KEYS, chance.choice([0, 0, 1, 1, 2, 3]))
            ),
            limits=tuple(
                (name, chance.choice([1, 1, 2])) for name in chance.sample(LIMITS, chance.choice([0, 0, 1, 2]))
            ),
            not_before=Millis(twin.now + chance.randrange(1, 5)) if chance.random() < 0.1 else None,
            served=chance.random() < 0.85,
            mutex_since=Millis(chance.randrange(twin.now + 1)) if chance.random() < 0.1 else None,
        )
    )


def someone_is_released(twin: Twin, chance: Random) -> None:
    if twin.holding:
        twin.release(chance.choice(sorted(twin.holding)))


def someone_leaves(twin: Twin, chance: Random) -> None:
    if twin.pending:
        twin.leave(chance.choice(sorted(twin.pending)))


def a_bot_comes_or_goes(twin: Twin, chance: Random) -> None:
    if twin.pending:
        twin.serve(chance.choice(sorted(twin.pending)), chance.random() < 0.6)


def a_pool_changes(twin: Twin, chance: Random) -> None:
    twin.set_capacity(Pool(chance.choice(POOLS), chance.choice([None, 0, 1, 2, 3, 4])))


def a_limit_changes(twin: Twin, chance: Random) -> None:
    twin.set_limit_total(chance.choice(LIMITS), chance.randrange(5))


def someone_is_unadmitted(twin: Twin, chance: Random) -> None:
    if twin.holding:
        was = twin.holding[chance.choice(sorted(twin.holding))]
        twin.arrive(Contender(was.id, 1, twin.now, was.pool, was.weight, was.mutexes, was.limits, served=False))


CHANGES: tuple[Callable[[Twin, Random], None], ...] = (
    someone_arrives,
    someone_is_released,
    someone_leaves,
    a_bot_comes_or_goes,
    a_pool_changes,
    a_limit_changes,
    someone_is_unadmitted,
)
WEIGHTS = (45, 30, 7, 8, 4, 3, 3)


# What a decision names, and what it does not judge.


def test_a_decision_names_only_changed_reasons() -> None:
    index = AdmissionIndex(Facts((task("t", mutexes=mutexes("a")),), (holder("h", mutexes=mutexes("a")),)))
    held = Held(TaskId("t"), Reason.MUTEX, "a", TaskId("h"), Millis(7))
    assert index.decide(NOW) == Decision((), (held,))
    assert index.decide(NOW) == Decision((), ())
    index.give_back(TaskId("h"))
    assert index.decide(NOW) == Decision((TaskId("t"),), ())


def test_repeated_changes_and_changes_of_unknown_tasks_change_nothing() -> None:
    index = AdmissionIndex(
        Facts((task("t", mutexes=mutexes("a")),), (holder("h", mutexes=mutexes("a")),), (Pool("p", 1),))
    )
    index.decide(NOW)
    index.take(holder("h", mutexes=mutexes("a")))
    index.arrive(task("t", mutexes=mutexes("a")))
    for stranger in (TaskId("x"), TaskId("y")):
        index.leave(stranger)
        index.give_back(stranger)
        index.serve(stranger, served=False)
    assert index.decide(NOW).admitted == ()
    index.give_back(TaskId("h"))
    index.give_back(TaskId("h"))
    assert index.decide(NOW).admitted == ("t",)


def test_an_older_task_that_loses_its_key_in_a_decision_is_named_by_the_next() -> None:
    big, small = task("big", 1, weight=2, mutexes=mutexes("a")), task("small", 2, "q", mutexes=mutexes("a"))
    index = AdmissionIndex(Facts((big, small), (holder("h"),), (Pool("p", 2),)))
    assert [held.reason for held in index.decide(NOW).held] == [Reason.CAPACITY]
    assert index.decide(NOW).held == (Held(big.id, Reason.MUTEX, "a", small.id, NOW),)


def test_explain_has_the_place_in_line() -> None:
    pending = tuple(task(id, created) for created, id in enumerate("xyz"))
    index = AdmissionIndex(Facts(pending, (holder("h"),), (Pool("p", 1),)))
    index.decide(NOW)
    assert index.explain(TaskId("z"), NOW) == Held(TaskId("z"), Reason.CAPACITY, "p", since=NOW, place=3)
    index.leave(TaskId("x"))
    assert index.explain(TaskId("z"), NOW) == Held(TaskId("z"), Reason.CAPACITY, "p", since=NOW, place=2)
    index.set_capacity(Pool("p", 2))
    assert index.explain(TaskId("y"), NOW) is None


def test_explain_names_a_holder_that_came_after_the_last_one_left() -> None:
    sharers = (holder("h-1", mutexes=mutexes("a/x")), holder("h-2", mutexes=mutexes("a/x")))
    index = AdmissionIndex(Facts((task("t", mutexes=mutexes("a")),), sharers))
    index.decide(NOW)
    index.give_back(TaskId("h-1"))
    assert index.decide(NOW) == Decision((), ())
    assert index.explain(TaskId("t"), NOW) == Held(TaskId("t"), Reason.MUTEX, "a", TaskId("h-2"), Millis(7))


def test_a_task_not_yet_settled_has_no_reason() -> None:
    index = AdmissionIndex(Facts((task("t"),)))
    assert index.reason(TaskId("t")) is None


def test_those_behind_a_new_reservation_are_reserved_against_without_being_judged_again() -> None:
    big = replace(task("big", 1, weight=2), capacity_since=LONG_AGO)
    index = AdmissionIndex(Facts((big, task("next", 2, weight=2)), (holder("h"),), (Pool("p", 2),)))
    index.decide(Millis(NOW - 1))
    assert index.reason(TaskId("next")) is Reason.CAPACITY
    assert index.decide(NOW) == Decision((), ())
    assert index.reason(TaskId("next")) is Reason.RESERVED


def test_a_release_marks_the_first_task_that_may_pass_and_no_other() -> None:
    full = Facts(tuple(task(id, created) for created, id in enumerate("xyz")), (holder("h"),), (Pool("p", 1),))
    index = AdmissionIndex(full)
    index.decide(NOW)
    index.give_back(TaskId("h"))
    assert list(index._to_judge) == [task("x", 0).turn]


def test_a_release_marks_no_task_behind_a_reservation() -> None:
    big = replace(task("big", 1, weight=3), capacity_since=LONG_AGO)
    index = AdmissionIndex(Facts((big, task("small", 2)), (holder("h-1"), holder("h-2")), (Pool("p", 3),)))
    index.decide(NOW)
    index.give_back(TaskId("h-1"))
    assert list(index._to_judge) == []


def test_unused_keys_are_dropped() -> None:
    index = AdmissionIndex(Facts())
    for number in range(3):
        wants = mutexes(f"key-{number} shared/x")
        index.take(holder("h", mutexes=wants))
        for who, served in (("held", True), ("unserved", False)):
            index.arrive(replace(task(who, mutexes=wants if served else mutexes(f"own-{number}")), served=served))
        index.decide(NOW)
        index.leave(TaskId("held"))
        index.leave(TaskId("unserved"))
        index.give_back(TaskId("h"))
    assert index._keys == {}


def test_a_release_into_full_pools_has_few_judged_however_many_are_pending() -> None:
    pending = tuple(task(f"t{number:04}", number, "pq"[number % 2]) for number in range(2_000))
    index = AdmissionIndex(Facts(pending, (holder("p-1"), holder("q-1", pool="q")), (Pool("p", 1), Pool("q", 1))))
    index.decide(NOW)
    assert index.judged == 2_000  # each once, when it came
    index.give_back(TaskId("p-1"))
    assert (index.decide(NOW).admitted, index.judged) == (("t0000",), 2_001)
    assert (index.decide(NOW).admitted, index.judged) == ((), 2_001)


def test_a_task_that_leaves_or_comes_during_a_decision_is_not_lost_and_not_named() -> None:
    index = AdmissionIndex(Facts(tuple(task(id, created) for created, id in enumerate("wxyz", 1)), (), (Pool("p", 1),)))
    assert (index.decide(NOW, 2), index.cut) == (Decision((TaskId("w"),), ()), True)
    for id in ("x", "y"):
        index.leave(TaskId(id))
    index.arrive(task("early", 0))
    index.give_back(TaskId("w"))
    found = index.decide(NOW, 9)
    assert (found.admitted, [held.id for held in found.held], index.cut) == (("z",), [], False)
    found = index.decide(NOW)
    assert (found.admitted, [held.id for held in found.held]) == ((), ["early"])


# Heaps and queues.


def test_a_heap_drops_removed_entries() -> None:
    lane: LazyHeap[tuple[int, TaskId]] = LazyHeap()
    for number in range(10 * SLACK_ENTRIES):
        lane.add((number, TaskId("t")))
        lane.discard((number - 1, TaskId("t")))
    lane.add((10**6, TaskId("last")))
    assert len(lane._heap) <= 2 * len(lane) + SLACK_ENTRIES + 1
    assert [lane.pop(), lane.pop(), lane.pop()] == [(10 * SLACK_ENTRIES - 1, "t"), (10**6, "last"), None]


def test_a_heap_takes_an_entry_once_and_again_after_its_removal() -> None:
    lane: LazyHeap[tuple[int, TaskId]] = LazyHeap()
    one, two = (1, TaskId("a")), (2, TaskId("b"))
    for entry in (two, one, one):
        lane.add(entry)
    assert len(lane._heap) == 2
    assert lane.discard(one)
    assert not lane.discard(one)
    lane.add(one)
    assert [lane.pop(), lane.pop(), lane.pop()] == [one, two, None]


def test_a_queue_has_a_front_for_each_group() -> None:
    line: GroupedQueue[int] = GroupedQueue()
    turns = [(0, created, TaskId("t")) for created in range(4)]
    for turn, group in zip(turns, (5, 6, 5, 6), strict=True):
        line.add(turn, group)
    assert line.discard(turns[0], 5)
    assert not line.discard(turns[0], 5)
    assert not line.discard(turns[0], 7)
    assert sorted(line.oldest_per_group()) == [(turns[1], 6), (turns[2], 5)]
    assert (line.first(), line.before(turns[3])) == (turns[1], 2)


def test_the_index_knows_how_much_is_in_use_as_the_fold_does() -> None:
    big = Contender(TaskId("big"), 100, Millis(1), "p", weight=4)
    licensed = Contender(TaskId("licensed"), 100, Millis(2), "p", limits=(("l", 3),))
    user = Holder(TaskId("user"), "p", 7, (), (("l", 4),), Millis(0))
    facts = Facts((big, licensed), (user,), (Pool("p", 10),), {"l": 5})
    index = AdmissionIndex(facts)
    index.decide(Millis(9))
    shown = {held.id: (held.used, held.total, held.need) for held in decide(facts, Millis(9)).held}
    assert shown == {"big": (7, 10, 4), "licensed": (4, 5, 3)}
    for id, use in shown.items():
        held = index.explain(id, Millis(9))
        assert held
        assert (held.used, held.total, held.need) == use
