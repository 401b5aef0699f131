"""Settings of pools and limits are written and audited, and the next pass uses them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from taskyard.core.states import Reason, State
from taskyard.lifecycle.admission import snapshot, writes
from taskyard.lifecycle.admission.pools import PAGE_MAX, add_pool_contenders, set_limit, set_pool, set_stake_after
from taskyard.lifecycle.admission.scheduler import LOCK_MS, Admission
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.admission import PoolRow
from tests.lifecycle.admission_harness import AdmissionHarness, admission_harness

Answer = TypeVar("Answer")


@pytest.fixture
def harness(database_url: str) -> Iterator[AdmissionHarness]:
    """A harness with one bot for all pools."""
    with admission_harness(database_url) as one:
        one.connect_bot("p")
        yield one


def test_what_limits_admission_is_written_and_audited(harness: AdmissionHarness) -> None:
    harness.pool("p", 4)
    harness.pool("q", from_bots=True)
    harness.pool("p")
    harness.limit("licences", 5)
    harness.stake_after("k", None)
    harness.stake_after("k", 5_000)
    with harness.store.read() as repo:
        assert repo.admission.pools() == [PoolRow("p", None, False), PoolRow("q", None, True)]
        assert (repo.admission.named_limits(), repo.admission.stake_after()) == ({"licences": 5}, {"k": 5_000})
        audits = {(row.actor, row.action, row.note) for row in repo.events.audits_of(NO_SUBJECT, 100)}
    assert audits == {
        ("ann", "set_pool", "p: 4"),
        ("ann", "set_pool", "q: from its bots"),
        ("ann", "set_pool", "p: without limit"),
        ("ann", "set_limit", "licences: 5"),
        ("ann", "set_stake_after", "k: never"),
        ("ann", "set_stake_after", "k: after 5000 ms"),
    }


def test_setting_the_same_value_again_changes_nothing(harness: AdmissionHarness) -> None:
    for _ in range(2):
        harness.pool("p", 4)
        harness.limit("licences", 5)
        harness.stake_after("k", None)
    with harness.store.read() as repo:
        notes = [row.note for row in repo.events.audits_of(NO_SUBJECT, 100)]
    assert notes == ["p: 4", "licences: 5", "k: never"]


def test_every_change_marks_admission_as_dirty(harness: AdmissionHarness) -> None:
    harness.schedule()
    changes: list[Callable[[], None]] = [
        lambda: harness.pool("p", 1),
        lambda: harness.limit("l", 1),
        lambda: harness.stake_after("k", None),
    ]
    for change in changes:
        change()
        assert harness.dirty() == [None]
        harness.schedule()
        assert harness.dirty() == []


@pytest.mark.parametrize(
    ("capacity", "from_bots", "text"),
    [
        (-1, False, "pool p: -1 is no capacity"),
        (3, True, "pool p: a capacity from bots cannot be a number, too"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(
    harness: AdmissionHarness, capacity: int, from_bots: bool, text: str
) -> None:
    answer = harness.do(lambda transaction: set_pool(transaction, PoolRow("p", capacity, from_bots), "ann"))
    assert answer == Refusal(Code.INVALID, text)
    with harness.store.read() as repo:
        assert (repo.admission.pools(), repo.events.audits_of(NO_SUBJECT, 9)) == ([], [])


def test_a_limit_that_makes_no_sense_is_refused(harness: AdmissionHarness) -> None:
    answer = harness.do(lambda transaction: set_limit(transaction, "l", -1, "ann"))
    assert answer == Refusal(Code.INVALID, "limit l: -1 is no total")


def test_a_span_that_makes_no_sense_is_refused(harness: AdmissionHarness) -> None:
    answer = harness.do(lambda transaction: set_stake_after(transaction, "k", -1, "ann"))
    assert answer == Refusal(Code.INVALID, "mutex k: -1 ms is no span: give 0 or more, or never")


def test_tasks_that_were_never_held_count_when_their_pool_gets_a_capacity(harness: AdmissionHarness) -> None:
    before = [harness.submit_task(pool="p") for _ in range(3)]
    assert harness.waiting(before) == before
    harness.pool("p", 3)
    after = [harness.submit_task(pool="p"), harness.submit_task(pool="p")]
    harness.schedule()
    assert (harness.waiting(after), [harness.reason(id) for id in after]) == ([], [Reason.CAPACITY] * 2)
    leases = harness.run()
    harness.finish(leases, before[0])
    harness.schedule()
    assert harness.waiting(after) == after[:1]


def test_a_start_in_the_future_counts_too_when_its_pool_gets_a_capacity(harness: AdmissionHarness) -> None:
    early, full = harness.submit_task(pool="p", not_before="1m"), harness.submit_task(pool="p")
    harness.pool("p", 1)
    harness.advance(60_000)
    harness.schedule()
    assert (harness.waiting([early, full]), harness.reason(early)) == ([full], Reason.CAPACITY)


def test_held_tasks_are_admitted_when_the_capacity_is_lifted(harness: AdmissionHarness) -> None:
    harness.pool("p", 1)
    tasks = [harness.submit_task(pool="p") for _ in range(3)]
    harness.schedule()
    assert harness.waiting(tasks) == tasks[:1]
    harness.pool("p")
    harness.schedule()
    assert (harness.waiting(tasks), [harness.hold(id) for id in tasks]) == (tasks, [None] * 3)


def test_a_pool_that_shrinks_takes_nothing_from_running_tasks(harness: AdmissionHarness) -> None:
    harness.pool("p", 2)
    tasks = [harness.submit_task(pool="p") for _ in range(3)]
    harness.schedule()
    harness.pool("p", 1)
    harness.schedule()
    leases = harness.run()
    assert set(leases) == set(tasks[:2])
    harness.finish(leases, tasks[0])
    harness.schedule()
    assert harness.waiting(tasks) == [tasks[1]]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("entered", range(4))
def test_the_next_pass_finishes_a_call_that_died_before_it_admits_any_task(
    harness: AdmissionHarness, monkeypatch: pytest.MonkeyPatch, entered: int, known: bool
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 2)
    monkeypatch.setattr(snapshot, "DIRTY_MAX", 3)
    if known:
        harness.schedule()
    before = [harness.submit_task(pool="p") for _ in range(8)]
    assert harness.do(lambda transaction: set_pool(transaction, PoolRow("p", 9, False), "ann")) is True
    for _ in range(entered):
        harness.do(lambda transaction: add_pool_contenders(transaction, "p"))
    after = [harness.submit_task(pool="p") for _ in range(3)]
    passed = harness.schedule()
    assert (passed.admitted, harness.waiting([*before, *after])) == (1, [*before, after[0]])
    with harness.store.read() as repo:
        assert {task.needs_admission for task in repo.tasks.read([*before, *after])} == {True}
    assert harness.dirty() == []


@pytest.mark.parametrize("place", range(1, 5))
def test_a_pass_that_dies_while_it_does_the_rest_is_followed_by_one_that_ends_it(
    harness: AdmissionHarness, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 2)
    before = [harness.submit_task(pool="p") for _ in range(8)]
    assert harness.do(lambda transaction: set_pool(transaction, PoolRow("p", 9, False), "ann")) is True
    after = [harness.submit_task(pool="p") for _ in range(3)]
    count = iter(range(100))

    def transact(act: Callable[[Transaction], Answer], /) -> Answer:
        if next(count) >= place:
            raise OSError("no space")
        return harness.do(act)

    with pytest.raises(OSError, match="no space"):
        Admission(transact, harness.store.read, lambda: harness.now, "dead").schedule()
    harness.advance(LOCK_MS)
    harness.schedule()
    assert (harness.waiting([*before, *after]), harness.dirty()) == ([*before, after[0]], [])


def test_many_tasks_become_contenders_page_by_page_and_a_repeat_goes_on(harness: AdmissionHarness) -> None:
    node = {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "p"}}}
    labels = harness.submit({"tasks": {f"t{number}": node for number in range(PAGE_MAX + 10)}})
    assert harness.do(lambda transaction: set_pool(transaction, PoolRow("p", 5, False), "ann")) is True
    assert harness.do(lambda transaction: set_pool(transaction, PoolRow("p", 5, False), "ann")) is False
    assert harness.do(lambda transaction: add_pool_contenders(transaction, "p")) is False
    with harness.store.read() as repo:
        assert [row.note for row in repo.events.audits_of(NO_SUBJECT, 9)] == ["p: 5"]
    with harness.store.read() as repo:
        assert len(repo.admission.contenders(State.WAITING, 0, 10_000)) == len(labels)
    harness.schedule()
    late = harness.submit_task(pool="p")
    harness.schedule()
    assert harness.reason(late) is Reason.CAPACITY
    harness.pool("p")
