"""The passes of admission: their lock, their bounds, and that no event is lost whoever calls `schedule()` when."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core.admission.rules import RESERVE_AFTER_MS, unadmitted
from taskyard.core.states import Millis, Reason, Signal, State
from taskyard.lifecycle.admission import snapshot
from taskyard.lifecycle.admission.scheduler import LOCK_MS, MEMORY_MS, Admission, Bounds, PassOutcome
from taskyard.lifecycle.transaction import Transaction
from tests.effort import tries
from tests.lifecycle.admission_yard import AdmissionYard, facts, gatehouse

if TYPE_CHECKING:
    from taskyard.lifecycle.commands import Lease
    from taskyard.store.repo.events import EventRow

Answer = TypeVar("Answer")
SMALL = Bounds(page_max=1)


@pytest.fixture
def yard(database_url: str) -> Iterator[AdmissionYard]:
    """A yard with one bot for everything."""
    with gatehouse(database_url) as one:
        one.serve("p", "q")
        yield one


class Hooked:
    """Transactions of one holder, with something that happens before or after one of them."""

    def __init__(self, yard: AdmissionYard, place: int, meanwhile: Callable[[], object], after: bool = False) -> None:
        self.count = 0
        self._yard = yard
        self._place = place
        self._meanwhile = meanwhile
        self._after = after

    def __call__(self, act: Callable[[Transaction], Answer], /) -> Answer:
        here = self.count == self._place
        self.count += 1
        if here and not self._after:
            self._meanwhile()
        answer = self._yard.do(act)
        if here and self._after:
            self._meanwhile()
        return answer

    def admission(self) -> Admission:
        return Admission(self, self._yard.store.read, lambda: self._yard.now, "hooked", SMALL)


# The lock.


def test_who_does_not_get_the_lock_returns_at_once_and_writes_nothing(yard: AdmissionYard) -> None:
    transactions = Hooked(yard, -1, lambda: None)
    loser, answers = transactions.admission(), []
    yard.put_each("a", "b")
    holder = Hooked(yard, 1, lambda: answers.append(loser.schedule())).admission()
    assert holder.schedule().admitted == 2
    assert (answers, transactions.count) == ([PassOutcome(ran=False)], 0)


def test_every_taking_of_the_lock_has_a_number_of_its_own(yard: AdmissionYard) -> None:
    other = yard.another("two")
    assert [one.schedule().epoch for one in (yard.admission, other, other, yard.admission)] == [1, 2, 3, 4]


def test_a_call_that_learns_of_no_commit_repeats_everything_and_admits_all(yard: AdmissionYard) -> None:
    def twice(act: Callable[[Transaction], Answer], /) -> Answer:
        yard.do(act)
        return yard.do(act)

    tasks = yard.put_each("a", "b", "c")
    deaf = Admission(twice, yard.store.read, lambda: yard.now, "deaf", SMALL)
    deaf.schedule()
    assert yard.waiting(tasks) == tasks
    assert yard.admission.schedule().ran


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(6))
def test_no_event_is_lost_whenever_the_loser_of_the_lock_comes(yard: AdmissionYard, place: int, after: bool) -> None:
    tasks = yard.put_each("a", "b", "c")

    def come() -> None:
        tasks.append(yard.put("d"))
        yard.another("loser").schedule()

    hooked = Hooked(yard, place, come, after)
    hooked.admission().schedule()
    assert yard.waiting(tasks) == tasks
    assert yard.dirty() == []


@pytest.mark.parametrize("place", range(1, 4))
def test_a_frozen_holder_is_replaced_and_what_it_writes_later_is_refused(yard: AdmissionYard, place: int) -> None:
    yard.pool("p", 2)
    tasks = [yard.put(pool="p") for _ in range(4)]

    def freeze() -> None:
        yard.later(LOCK_MS)
        yard.put("a", priority=0)
        assert yard.another("next").schedule().ran

    holder = Hooked(yard, place, freeze).admission()
    answer = holder.schedule()
    assert (answer.ran, answer.epoch, answer.more) == (False, 1, False)
    assert yard.waiting(tasks) == tasks[:2]
    moves = [event for id in tasks for event in _events(yard, id) if event.signal == Signal.ADMIT]
    assert len(moves) == 2
    assert holder.schedule().ran


def test_a_holder_that_was_replaced_changes_nothing_even_if_the_next_one_died(yard: AdmissionYard) -> None:
    task = yard.put("a")
    take = lambda transaction: transaction.repo.admission.take_lock(2, "dead", transaction.now + LOCK_MS)  # noqa: E731
    frozen = Hooked(yard, 1, lambda: yard.do(take)).admission()
    assert not frozen.schedule().ran
    assert yard.task(task).state is State.PENDING
    assert not frozen.schedule().ran  # the dead one has the lock until it lapses
    yard.later(LOCK_MS)
    passed = frozen.schedule()
    assert (passed.admitted, passed.epoch, yard.waiting([task])) == (1, 3, [task])


@pytest.mark.parametrize("place", range(1, 4))
def test_a_pass_that_fails_gives_the_lock_back_and_the_next_one_ends_its_work(yard: AdmissionYard, place: int) -> None:
    tasks = yard.put_each("a", "b", "c")
    failing = Hooked(yard, place, _fail).admission()
    with pytest.raises(OSError, match="no space"):
        failing.schedule()
    assert failing.schedule().admitted == 4 - place
    assert (yard.waiting(tasks), yard.dirty()) == (tasks, [])


@pytest.mark.parametrize("place", range(1, 4))
def test_what_was_written_before_an_answer_was_lost_is_not_done_twice(yard: AdmissionYard, place: int) -> None:
    tasks = yard.put_each("a", "b", "c")
    failing = Hooked(yard, place, _fail, after=True).admission()
    with pytest.raises(OSError, match="no space"):
        failing.schedule()
    assert failing.schedule().admitted == 3 - place
    assert (yard.waiting(tasks), yard.dirty()) == (tasks, [])


# Bounds.


def test_a_call_stops_after_so_many_starts_and_the_next_goes_on(database_url: str) -> None:
    with gatehouse(database_url, Bounds(starts_max=4, page_max=2)) as yard:
        yard.serve()
        tasks = yard.put_each(*(f"k{number}" for number in range(10)))
        answers = [yard.schedule() for _ in range(4)]
        assert [(one.admitted, one.more) for one in answers] == [(4, True), (4, True), (2, False), (0, False)]
        assert yard.waiting(tasks) == tasks


def test_a_call_that_lasts_too_long_commits_what_it_has_and_stops(yard: AdmissionYard) -> None:
    tasks = yard.put_each("a", "b", "c")
    slow = Hooked(yard, 2, lambda: yard.later(2_000)).admission()
    assert (slow.schedule(), yard.waiting(tasks)) == (PassOutcome(True, 2, 0, 1, more=True), tasks[:2])
    assert (slow.schedule(), yard.waiting(tasks)) == (PassOutcome(True, 1, 0, 2), tasks)


def test_the_next_call_does_what_one_call_left_over(database_url: str) -> None:
    with gatehouse(database_url, Bounds(starts_max=1, page_max=1)) as yard:
        yard.serve()
        tasks = yard.put_each("a", "b", "c", "a")
        assert yard.schedule().more
        assert yard.another("next").schedule().admitted == 2
        assert yard.waiting(tasks) == tasks[:3]
        assert yard.schedule() == PassOutcome(True, 0, 0, 3)


def test_what_ended_since_it_was_judged_is_left_alone(database_url: str) -> None:
    with gatehouse(database_url, Bounds(starts_max=1, page_max=1)) as yard:
        yard.serve()
        first, canceled, behind = yard.put_each("a", "b", "b")
        assert yard.schedule().more
        yard.cancel(canceled)
        while yard.schedule().more:
            pass
        assert yard.waiting([first, canceled, behind]) == [first, behind]


def test_more_dirty_rows_than_one_look_reads_are_all_read(sqlite_url: str) -> None:
    with gatehouse(sqlite_url) as yard:
        yard.serve()
        yard.schedule()
        tasks = {
            f"t{number}": {"task": {"payload": {"command": ["true"]}, "mutexes": _key(number)}}
            for number in range(1_500)
        }
        labels = yard.submit({"tasks": tasks})
        assert yard.schedule().admitted == 1_500
        assert yard.waiting(list(labels.values())) == list(labels.values())


# Strides: reading and thinking are bounded, too.

STEP = Bounds(pass_max_ms=0, page_max=2, judged_max=1)  # a call is over after one stride


def calls(admission: Admission) -> list[PassOutcome]:
    """Call until nothing is left."""
    answers = [admission.schedule()]
    while answers[-1].more:
        answers.append(admission.schedule())
        assert len(answers) < 100
    return answers


def test_a_call_that_is_over_amid_reading_or_thinking_is_taken_up_by_the_next(
    yard: AdmissionYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 2)
    tasks = yard.put_each("a", "b", "c", "a", "d")
    answers = calls(yard.another("steps", STEP))
    assert sum(one.admitted for one in answers) == 4
    assert max(one.judged for one in answers) == 1
    assert sum(one.judged for one in answers) == 5
    assert (yard.waiting(tasks), yard.dirty(), yard.reason(tasks[3])) == ([*tasks[:3], tasks[4]], [], Reason.MUTEX)


def test_what_the_first_steps_admit_is_written_before_the_last_step(yard: AdmissionYard) -> None:
    tasks = yard.put_each(*"abcdef")
    steps = yard.another("steps", STEP)
    while not yard.waiting(tasks):
        assert steps.schedule().more
    assert yard.waiting(tasks) == tasks[:2]
    assert len(yard.dirty()) >= len(tasks)  # they are dropped when all is done
    calls(steps)
    assert (yard.waiting(tasks), yard.dirty()) == (tasks, [])


def test_a_server_between_two_calls_of_one_pass_keeps_the_lock_until_it_expires(yard: AdmissionYard) -> None:
    tasks = yard.put_each("a", "b", "c")
    steps, other = yard.another("steps", STEP), yard.another("other")
    assert steps.schedule().more
    assert other.schedule() == PassOutcome(ran=False)
    yard.later(LOCK_MS - 1)
    assert other.schedule() == PassOutcome(ran=False)
    yard.later(1)
    assert other.schedule().admitted == 3
    assert sum(one.admitted for one in calls(steps)) == 0
    assert (yard.waiting(tasks), yard.dirty()) == (tasks, [])


def test_what_changes_between_two_calls_of_one_pass_is_seen(
    yard: AdmissionYard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 1)
    first, second, third, fourth = tasks = yard.put_each("a", "a", "b", "b")
    yard.schedule()
    leases = yard.run()
    steps = yard.another("steps", STEP)
    assert steps.schedule().more
    yard.finish(leases, first)
    yard.cancel(fourth)
    late = yard.put("c")
    calls(steps)
    assert yard.waiting([*tasks, late]) == [second, third, late]
    yard.compare_notes()


@pytest.mark.parametrize("bounds", [Bounds(pass_max_ms=10**9, judged_max=1), Bounds(pass_max_ms=10**9, page_max=1)])
def test_the_lock_is_kept_through_long_thoughts(
    yard: AdmissionYard, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 2)
    tasks = yard.put_each(*(f"k{number}" for number in range(40)))
    answers: list[PassOutcome] = []

    def slowly() -> Millis:
        yard.later(LOCK_MS // 10)  # every look at the clock comes late, and then somebody else comes by
        if yard.task(tasks[-1]).state is State.PENDING and yard.lock() is not None:
            answers.append(yard.another("other").schedule())
        return yard.now

    slow = Admission(yard.do, yard.store.read, slowly, "slow", bounds)
    assert (slow.schedule(), yard.waiting(tasks)) == (PassOutcome(True, 40, 0, 1), tasks)
    assert len(answers) > 20
    assert {one.ran for one in answers} == {False}


def test_a_pass_after_one_release_thinks_about_few_however_many_are_pending(sqlite_url: str) -> None:
    with gatehouse(sqlite_url) as yard:
        yard.serve("p", "q")
        yard.pool("p", 3)
        yard.pool("q", 3)
        for pool in "pq":
            node = {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": pool}}}
            yard.submit({"tasks": {f"t{number}": node for number in range(1_000)}})
        first = yard.schedule()
        assert (first.admitted, first.judged) == (6, 2_000)
        leases = yard.run()
        yard.finish(leases, next(iter(leases)))
        after = yard.schedule()
        assert (after.admitted, after.held, after.judged) == (1, 0, 1)


# Memory.


def test_what_another_server_did_meanwhile_is_seen(yard: AdmissionYard) -> None:
    first, second, third = yard.put_each("k", "k", "k")
    yard.schedule()
    other = yard.another("two")
    for free in (second, third):
        yard.finish(yard.run())
        assert other.schedule().admitted == 1
        assert yard.waiting([free]) == [free]
        other = yard.admission
    assert yard.task(first).state is State.SUCCESSFUL


def test_a_change_that_was_not_marked_as_dirty_is_seen_in_the_end(yard: AdmissionYard) -> None:
    first, second = yard.put_each("k", "k")
    yard.schedule()
    yard.finish(yard.run())
    yard.do(
        lambda transaction: transaction.repo.admission.delete_dirty(
            [number for number, _ in transaction.repo.admission.dirty(0, 9)]
        )
    )
    yard.later(MEMORY_MS)
    yard.schedule()
    assert yard.waiting([first, second]) == [second]


# Events or ticks: the same in the end.


def test_passes_after_every_event_and_passes_at_ticks_come_to_the_same_end(yard: AdmissionYard) -> None:
    ends = [_day(yard, "events", yard.schedule), _day(yard, "ticks", lambda: None)]
    assert ends[0] == ends[1]
    assert set(ends[0].values()) == {State.SUCCESSFUL, State.CANCELED}


def _day(yard: AdmissionYard, name: str, event: Callable[[], object]) -> dict[str, State]:
    """A few tasks contend for everything; `event` is called after each thing that happens, and ticks come too."""
    yard.serve(name)
    yard.pool(name, 3)
    yard.limit(name, 2)
    tasks: dict[str, int] = {}
    for number in range(12):
        mutexes = ("", "{0}", "{0}/x", "{0}/x {0}b")[number % 4].format(name)
        limits = {name: 1 + number % 2} if number % 3 == 0 else None
        tasks[f"t{number}"] = yard.put(mutexes, name, limits, weight=number % 3, priority=number % 2)
        event()
    yard.cancel(tasks["t5"])
    event()
    for _ in range(12):
        yard.schedule()  # a tick
        leases = yard.run()
        for lease in leases.values():
            yard.end("b1", lease)
            event()
        yard.later(5_000)
    return {label: yard.task(id).state for label, id in tasks.items()}


# Whatever happens, a pass finds what a fresh look would find.

KEYS = ("", "a", "a/x", "a/y", "b", "b/x", "a/x b", "a b/x")
commands = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from(KEYS), st.sampled_from(("", "p", "lab")), st.integers(0, 3), st.integers(0, 2)
    ),
    st.tuples(st.just("limit"), st.sampled_from(KEYS), st.integers(1, 3)),
    st.tuples(st.just("early"), st.sampled_from(KEYS), st.integers(1, 3)),
    st.tuples(st.sampled_from(["finish", "fail", "cancel", "cancel_graph"]), st.integers(0, 30)),
    st.tuples(st.just("run"), st.integers(1, 4)),
    st.tuples(st.just("grow"), st.integers(1, 3)),
    st.tuples(st.just("bot"), st.booleans()),
    st.tuples(st.just("stake_after"), st.sampled_from([None, 0, 1_000, 60_000])),
    st.tuples(st.just("later"), st.sampled_from([1_000, 60_000, RESERVE_AFTER_MS])),
    st.tuples(st.just("schedule"), st.integers(0, 2)),
)


class Story:
    """A yard in which commands are carried out as they come."""

    def __init__(self, yard: AdmissionYard) -> None:
        self.yard = yard
        self.tasks: list[int] = []
        self.leases: dict[int, Lease] = {}
        self.capacity, self.total = 2, 3
        self.servers = [yard.admission, yard.another("two", Bounds(page_max=2)), yard.another("steps", STEP)]
        yard.serve("p")
        yard.pool("p", self.capacity)
        yard.limit("l", self.total)

    def put(self, mutexes: str, pool: str, weight: int, priority: int) -> None:
        self.tasks.append(self.yard.put(mutexes, pool, weight=weight, priority=priority))

    def limit(self, mutexes: str, amount: int) -> None:
        self.tasks.append(self.yard.put(mutexes, "p", {"l": amount}))

    def early(self, mutexes: str, minutes: int) -> None:
        self.tasks.append(self.yard.put(mutexes, "p", not_before=f"{minutes}m"))

    def run(self, want: int) -> None:
        self.leases |= self.yard.run(want=want)

    def finish(self, place: int) -> None:
        self._end(place, Signal.SUCCEED)

    def fail(self, place: int) -> None:
        self._end(place, Signal.FAIL)

    def _end(self, place: int, signal: Signal) -> None:
        if self.leases:
            id = list(self.leases)[place % len(self.leases)]
            self.yard.end("b1", self.leases.pop(id), signal, 1)

    def cancel(self, place: int) -> None:
        pending = [id for id in self.tasks if self.yard.task(id).state in {State.PENDING, State.WAITING}]
        if pending:
            self.yard.cancel(pending[place % len(pending)])

    def cancel_graph(self, place: int) -> None:
        """The graph is canceled, and its task is ended a moment later."""
        pending = [id for id in self.tasks if self.yard.task(id).state is State.PENDING]
        if pending:
            self.yard.cancel_graph(pending[place % len(pending)])
            self.servers[0].schedule()
            self.yard.cancel(pending[place % len(pending)])

    def grow(self, by: int) -> None:
        self.capacity, self.total = self.capacity + by, self.total + 1
        self.yard.pool("p", self.capacity)
        self.yard.limit("l", self.total)

    def bot(self, comes: bool) -> None:
        if comes:
            self.yard.serve("lab", bot="lab1")
        else:
            self.yard.miss("lab1")
            self.yard.serve("p")

    def stake_after(self, ms: int | None) -> None:
        self.yard.stake_after("a", ms)

    def later(self, ms: int) -> None:
        self.yard.later(ms)

    def schedule(self, server: int) -> None:
        while self.servers[server].schedule().more:
            pass
        self.check()

    def check(self) -> None:
        assert self.yard.second_opinion().admitted == ()
        assert self.yard.dirty() == []
        self.yard.compare_notes()
        self.yard.audit()
        with self.yard.store.read() as repo:
            waiting = {row.id for row in repo.admission.contenders(State.WAITING, 0, 1_000)}
            found = facts(repo, self.yard, also=waiting)
        assert unadmitted(task for task in found.pending if int(task.id, 16) in waiting) == ()


@settings(max_examples=tries(30))
@given(st.lists(commands, max_size=30))
def test_a_pass_finds_what_a_fresh_look_would_find(sqlite_template: Path, told: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{shutil.copy(sqlite_template, Path(folder) / 'taskyard.db')}"
        with gatehouse(url) as yard:
            story = Story(yard)
            for command, *arguments in told:
                getattr(story, str(command))(*arguments)
            story.schedule(0)


def _events(yard: AdmissionYard, id: int) -> "list[EventRow]":
    with yard.store.read() as repo:
        return repo.events.of(id, 0, 100)


def _key(number: int) -> list[dict[str, str]]:
    return [{"key": f"k{number}"}]


def _fail() -> None:
    raise OSError("no space")
