"""The passes of admission: their lock and bounds, and that no event is lost whenever `schedule()` is called."""

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
from tests.lifecycle.admission_harness import AdmissionHarness, admission_harness, facts

if TYPE_CHECKING:
    from taskyard.lifecycle.commands import Lease
    from taskyard.store.repo.events import EventRow

Answer = TypeVar("Answer")
SMALL = Bounds(page_max=1)


@pytest.fixture
def harness(database_url: str) -> Iterator[AdmissionHarness]:
    """A harness with one bot for all pools."""
    with admission_harness(database_url) as one:
        one.connect_bot("p", "q")
        yield one


class Hooked:
    """Transactions of one holder, with something that happens before or after one of them."""

    def __init__(
        self, harness: AdmissionHarness, place: int, meanwhile: Callable[[], object], after: bool = False
    ) -> None:
        self.count = 0
        self._yard = harness
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


def test_a_server_that_does_not_get_the_lock_returns_at_once_and_writes_nothing(harness: AdmissionHarness) -> None:
    transactions = Hooked(harness, -1, lambda: None)
    loser, answers = transactions.admission(), []
    harness.submit_each("a", "b")
    holder = Hooked(harness, 1, lambda: answers.append(loser.schedule())).admission()
    assert holder.schedule().admitted == 2
    assert (answers, transactions.count) == ([PassOutcome(ran=False)], 0)


def test_every_taking_of_the_lock_has_a_number_of_its_own(harness: AdmissionHarness) -> None:
    other = harness.other_server("two")
    assert [one.schedule().epoch for one in (harness.admission, other, other, harness.admission)] == [1, 2, 3, 4]


def test_a_call_that_learns_of_no_commit_repeats_everything_and_admits_all(harness: AdmissionHarness) -> None:
    def twice(act: Callable[[Transaction], Answer], /) -> Answer:
        harness.do(act)
        return harness.do(act)

    tasks = harness.submit_each("a", "b", "c")
    deaf = Admission(twice, harness.store.read, lambda: harness.now, "deaf", SMALL)
    deaf.schedule()
    assert harness.waiting(tasks) == tasks
    assert harness.admission.schedule().ran


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(6))
def test_no_event_is_lost_whenever_the_loser_of_the_lock_comes(
    harness: AdmissionHarness, place: int, after: bool
) -> None:
    tasks = harness.submit_each("a", "b", "c")

    def come() -> None:
        tasks.append(harness.submit_task("d"))
        harness.other_server("loser").schedule()

    hooked = Hooked(harness, place, come, after)
    hooked.admission().schedule()
    assert harness.waiting(tasks) == tasks
    assert harness.dirty() == []


@pytest.mark.parametrize("place", range(1, 4))
def test_a_frozen_holder_is_replaced_and_what_it_writes_later_is_refused(harness: AdmissionHarness, place: int) -> None:
    harness.pool("p", 2)
    tasks = [harness.submit_task(pool="p") for _ in range(4)]

    def freeze() -> None:
        harness.advance(LOCK_MS)
        harness.submit_task("a", priority=0)
        assert harness.other_server("next").schedule().ran

    holder = Hooked(harness, place, freeze).admission()
    answer = holder.schedule()
    assert (answer.ran, answer.epoch, answer.more) == (False, 1, False)
    assert harness.waiting(tasks) == tasks[:2]
    moves = [event for id in tasks for event in _events(harness, id) if event.signal == Signal.ADMIT]
    assert len(moves) == 2
    assert holder.schedule().ran


def test_a_holder_that_was_replaced_changes_nothing_even_if_the_next_one_died(harness: AdmissionHarness) -> None:
    task = harness.submit_task("a")
    take = lambda transaction: transaction.repo.admission.take_lock(2, "dead", transaction.now + LOCK_MS)  # noqa: E731
    frozen = Hooked(harness, 1, lambda: harness.do(take)).admission()
    assert not frozen.schedule().ran
    assert harness.task(task).state is State.PENDING
    assert not frozen.schedule().ran  # the dead one has the lock until it lapses
    harness.advance(LOCK_MS)
    passed = frozen.schedule()
    assert (passed.admitted, passed.epoch, harness.waiting([task])) == (1, 3, [task])


@pytest.mark.parametrize("place", range(1, 4))
def test_a_pass_that_fails_gives_the_lock_back_and_the_next_one_ends_its_work(
    harness: AdmissionHarness, place: int
) -> None:
    tasks = harness.submit_each("a", "b", "c")
    failing = Hooked(harness, place, _fail).admission()
    with pytest.raises(OSError, match="no space"):
        failing.schedule()
    assert failing.schedule().admitted == 4 - place
    assert (harness.waiting(tasks), harness.dirty()) == (tasks, [])


@pytest.mark.parametrize("place", range(1, 4))
def test_what_was_written_before_an_answer_was_lost_is_not_done_twice(harness: AdmissionHarness, place: int) -> None:
    tasks = harness.submit_each("a", "b", "c")
    failing = Hooked(harness, place, _fail, after=True).admission()
    with pytest.raises(OSError, match="no space"):
        failing.schedule()
    assert failing.schedule().admitted == 3 - place
    assert (harness.waiting(tasks), harness.dirty()) == (tasks, [])


# Bounds.


def test_a_call_stops_after_so_many_starts_and_the_next_goes_on(database_url: str) -> None:
    with admission_harness(database_url, Bounds(starts_max=4, page_max=2)) as harness:
        harness.connect_bot()
        tasks = harness.submit_each(*(f"k{number}" for number in range(10)))
        answers = [harness.schedule() for _ in range(4)]
        assert [(one.admitted, one.more) for one in answers] == [(4, True), (4, True), (2, False), (0, False)]
        assert harness.waiting(tasks) == tasks


def test_a_call_that_lasts_too_long_commits_what_it_has_and_stops(harness: AdmissionHarness) -> None:
    tasks = harness.submit_each("a", "b", "c")
    slow = Hooked(harness, 2, lambda: harness.advance(2_000)).admission()
    assert (slow.schedule(), harness.waiting(tasks)) == (PassOutcome(True, 2, 0, 1, more=True), tasks[:2])
    assert (slow.schedule(), harness.waiting(tasks)) == (PassOutcome(True, 1, 0, 2), tasks)


def test_the_next_call_does_what_one_call_left_over(database_url: str) -> None:
    with admission_harness(database_url, Bounds(starts_max=1, page_max=1)) as harness:
        harness.connect_bot()
        tasks = harness.submit_each("a", "b", "c", "a")
        assert harness.schedule().more
        assert harness.other_server("next").schedule().admitted == 2
        assert harness.waiting(tasks) == tasks[:3]
        assert harness.schedule() == PassOutcome(True, 0, 0, 3)


def test_what_ended_since_it_was_judged_is_left_alone(database_url: str) -> None:
    with admission_harness(database_url, Bounds(starts_max=1, page_max=1)) as harness:
        harness.connect_bot()
        first, canceled, behind = harness.submit_each("a", "b", "b")
        assert harness.schedule().more
        harness.cancel(canceled)
        while harness.schedule().more:
            pass
        assert harness.waiting([first, canceled, behind]) == [first, behind]


def test_more_dirty_rows_than_one_read_returns_are_all_read(sqlite_url: str) -> None:
    with admission_harness(sqlite_url) as harness:
        harness.connect_bot()
        harness.schedule()
        tasks = {
            f"t{number}": {"task": {"payload": {"command": ["true"]}, "mutexes": _key(number)}}
            for number in range(1_500)
        }
        labels = harness.submit({"tasks": tasks})
        assert harness.schedule().admitted == 1_500
        assert harness.waiting(list(labels.values())) == list(labels.values())


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
    harness: AdmissionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 2)
    tasks = harness.submit_each("a", "b", "c", "a", "d")
    answers = calls(harness.other_server("steps", STEP))
    assert sum(one.admitted for one in answers) == 4
    assert max(one.judged for one in answers) == 1
    assert sum(one.judged for one in answers) == 5
    assert (harness.waiting(tasks), harness.dirty(), harness.reason(tasks[3])) == (
        [*tasks[:3], tasks[4]],
        [],
        Reason.MUTEX,
    )


def test_what_the_first_steps_admit_is_written_before_the_last_step(harness: AdmissionHarness) -> None:
    tasks = harness.submit_each(*"abcdef")
    steps = harness.other_server("steps", STEP)
    while not harness.waiting(tasks):
        assert steps.schedule().more
    assert harness.waiting(tasks) == tasks[:2]
    assert len(harness.dirty()) >= len(tasks)  # they are dropped when all is done
    calls(steps)
    assert (harness.waiting(tasks), harness.dirty()) == (tasks, [])


def test_a_server_between_two_calls_of_one_pass_keeps_the_lock_until_it_expires(harness: AdmissionHarness) -> None:
    tasks = harness.submit_each("a", "b", "c")
    steps, other = harness.other_server("steps", STEP), harness.other_server("other")
    assert steps.schedule().more
    assert other.schedule() == PassOutcome(ran=False)
    harness.advance(LOCK_MS - 1)
    assert other.schedule() == PassOutcome(ran=False)
    harness.advance(1)
    assert other.schedule().admitted == 3
    assert sum(one.admitted for one in calls(steps)) == 0
    assert (harness.waiting(tasks), harness.dirty()) == (tasks, [])


def test_what_changes_between_two_calls_of_one_pass_is_seen(
    harness: AdmissionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 1)
    first, second, third, fourth = tasks = harness.submit_each("a", "a", "b", "b")
    harness.schedule()
    leases = harness.run()
    steps = harness.other_server("steps", STEP)
    assert steps.schedule().more
    harness.finish(leases, first)
    harness.cancel(fourth)
    late = harness.submit_task("c")
    calls(steps)
    assert harness.waiting([*tasks, late]) == [second, third, late]
    harness.check_holds()


@pytest.mark.parametrize("bounds", [Bounds(pass_max_ms=10**9, judged_max=1), Bounds(pass_max_ms=10**9, page_max=1)])
def test_the_lock_is_kept_through_a_long_decision(
    harness: AdmissionHarness, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "READ_MAX", 2)
    tasks = harness.submit_each(*(f"k{number}" for number in range(40)))
    answers: list[PassOutcome] = []

    def slowly() -> Millis:
        harness.advance(LOCK_MS // 10)  # every reading of the clock is late, and then another server runs a pass
        if harness.task(tasks[-1]).state is State.PENDING and harness.lock() is not None:
            answers.append(harness.other_server("other").schedule())
        return harness.now

    slow = Admission(harness.do, harness.store.read, slowly, "slow", bounds)
    assert (slow.schedule(), harness.waiting(tasks)) == (PassOutcome(True, 40, 0, 1), tasks)
    assert len(answers) > 20
    assert {one.ran for one in answers} == {False}


def test_a_pass_after_one_release_thinks_about_few_however_many_are_pending(sqlite_url: str) -> None:
    with admission_harness(sqlite_url) as harness:
        harness.connect_bot("p", "q")
        harness.pool("p", 3)
        harness.pool("q", 3)
        for pool in "pq":
            node = {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": pool}}}
            harness.submit({"tasks": {f"t{number}": node for number in range(1_000)}})
        first = harness.schedule()
        assert (first.admitted, first.judged) == (6, 2_000)
        leases = harness.run()
        harness.finish(leases, next(iter(leases)))
        after = harness.schedule()
        assert (after.admitted, after.held, after.judged) == (1, 0, 1)


# Memory.


def test_what_another_server_did_meanwhile_is_seen(harness: AdmissionHarness) -> None:
    first, second, third = harness.submit_each("k", "k", "k")
    harness.schedule()
    other = harness.other_server("two")
    for free in (second, third):
        harness.finish(harness.run())
        assert other.schedule().admitted == 1
        assert harness.waiting([free]) == [free]
        other = harness.admission
    assert harness.task(first).state is State.SUCCESSFUL


def test_a_change_that_was_not_marked_as_dirty_is_seen_in_the_end(harness: AdmissionHarness) -> None:
    first, second = harness.submit_each("k", "k")
    harness.schedule()
    harness.finish(harness.run())
    harness.do(
        lambda transaction: transaction.repo.admission.delete_dirty(
            [number for number, _ in transaction.repo.admission.dirty(0, 9)]
        )
    )
    harness.advance(MEMORY_MS)
    harness.schedule()
    assert harness.waiting([first, second]) == [second]


# Events or ticks: the same in the end.


def test_passes_after_every_event_and_passes_at_ticks_come_to_the_same_end(harness: AdmissionHarness) -> None:
    ends = [_day(harness, "events", harness.schedule), _day(harness, "ticks", lambda: None)]
    assert ends[0] == ends[1]
    assert set(ends[0].values()) == {State.SUCCESSFUL, State.CANCELED}


def _day(harness: AdmissionHarness, name: str, event: Callable[[], object]) -> dict[str, State]:
    """A few tasks contend for everything; `event` is called after each event, and ticks come too."""
    harness.connect_bot(name)
    harness.pool(name, 3)
    harness.limit(name, 2)
    tasks: dict[str, int] = {}
    for number in range(12):
        mutexes = ("", "{0}", "{0}/x", "{0}/x {0}b")[number % 4].format(name)
        limits = {name: 1 + number % 2} if number % 3 == 0 else None
        tasks[f"t{number}"] = harness.submit_task(mutexes, name, limits, weight=number % 3, priority=number % 2)
        event()
    harness.cancel(tasks["t5"])
    event()
    for _ in range(12):
        harness.schedule()  # a tick
        leases = harness.run()
        for lease in leases.values():
            harness.end("b1", lease)
            event()
        harness.advance(5_000)
    return {label: harness.task(id).state for label, id in tasks.items()}


# After any events, a pass decides like the rules on a fresh snapshot.

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
    st.tuples(st.just("advance"), st.sampled_from([1_000, 60_000, RESERVE_AFTER_MS])),
    st.tuples(st.just("schedule"), st.integers(0, 2)),
)


class CommandRunner:
    """Carries out random commands on a harness."""

    def __init__(self, harness: AdmissionHarness) -> None:
        self.harness = harness
        self.tasks: list[int] = []
        self.leases: dict[int, Lease] = {}
        self.capacity, self.total = 2, 3
        self.servers = [
            harness.admission,
            harness.other_server("two", Bounds(page_max=2)),
            harness.other_server("steps", STEP),
        ]
        harness.connect_bot("p")
        harness.pool("p", self.capacity)
        harness.limit("l", self.total)

    def put(self, mutexes: str, pool: str, weight: int, priority: int) -> None:
        self.tasks.append(self.harness.submit_task(mutexes, pool, weight=weight, priority=priority))

    def limit(self, mutexes: str, amount: int) -> None:
        self.tasks.append(self.harness.submit_task(mutexes, "p", {"l": amount}))

    def early(self, mutexes: str, minutes: int) -> None:
        self.tasks.append(self.harness.submit_task(mutexes, "p", not_before=f"{minutes}m"))

    def run(self, want: int) -> None:
        self.leases |= self.harness.run(want=want)

    def finish(self, place: int) -> None:
        self._end(place, Signal.SUCCEED)

    def fail(self, place: int) -> None:
        self._end(place, Signal.FAIL)

    def _end(self, place: int, signal: Signal) -> None:
        if self.leases:
            id = list(self.leases)[place % len(self.leases)]
            self.harness.end("b1", self.leases.pop(id), signal, 1)

    def cancel(self, place: int) -> None:
        pending = [id for id in self.tasks if self.harness.task(id).state in {State.PENDING, State.WAITING}]
        if pending:
            self.harness.cancel(pending[place % len(pending)])

    def cancel_graph(self, place: int) -> None:
        """The graph is canceled, and its task is ended a moment later."""
        pending = [id for id in self.tasks if self.harness.task(id).state is State.PENDING]
        if pending:
            self.harness.cancel_graph(pending[place % len(pending)])
            self.servers[0].schedule()
            self.harness.cancel(pending[place % len(pending)])

    def grow(self, by: int) -> None:
        self.capacity, self.total = self.capacity + by, self.total + 1
        self.harness.pool("p", self.capacity)
        self.harness.limit("l", self.total)

    def bot(self, comes: bool) -> None:
        if comes:
            self.harness.connect_bot("lab", bot="lab1")
        else:
            self.harness.lose_bot("lab1")
            self.harness.connect_bot("p")

    def stake_after(self, ms: int | None) -> None:
        self.harness.stake_after("a", ms)

    def advance(self, ms: int) -> None:
        self.harness.advance(ms)

    def schedule(self, server: int) -> None:
        while self.servers[server].schedule().more:
            pass
        self.check()

    def check(self) -> None:
        assert self.harness.decide_afresh().admitted == ()
        assert self.harness.dirty() == []
        self.harness.check_holds()
        self.harness.audit()
        with self.harness.store.read() as repo:
            waiting = {row.id for row in repo.admission.contenders(State.WAITING, 0, 1_000)}
            found = facts(repo, self.harness, also=waiting)
        assert unadmitted(task for task in found.pending if int(task.id, 16) in waiting) == ()


@settings(max_examples=tries(30))
@given(st.lists(commands, max_size=30))
def test_a_pass_decides_like_the_rules_on_a_fresh_snapshot(
    sqlite_template: Path, steps: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{shutil.copy(sqlite_template, Path(folder) / 'taskyard.db')}"
        with admission_harness(url) as harness:
            runner = CommandRunner(harness)
            for command, *arguments in steps:
                getattr(runner, str(command))(*arguments)
            runner.schedule(0)


def _events(harness: AdmissionHarness, id: int) -> "list[EventRow]":
    with harness.store.read() as repo:
        return repo.events.of(id, 0, 100)


def _key(number: int) -> list[dict[str, str]]:
    return [{"key": f"k{number}"}]


def _fail() -> None:
    raise OSError("no space")
