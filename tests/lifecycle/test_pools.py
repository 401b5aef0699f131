"""What people say limits admission: it is written, audited, and the next pass keeps to it."""

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
from tests.lifecycle.admission_yard import AdmissionYard, gatehouse

Answer = TypeVar("Answer")


@pytest.fixture
def yard(database_url: str) -> Iterator[AdmissionYard]:
    """A yard with one bot for everything."""
    with gatehouse(database_url) as one:
        one.serve("p")
        yield one


def test_what_limits_admission_is_written_and_audited(yard: AdmissionYard) -> None:
    yard.pool("p", 4)
    yard.pool("q", from_bots=True)
    yard.pool("p")
    yard.limit("licences", 5)
    yard.stake_after("k", None)
    yard.stake_after("k", 5_000)
    with yard.store.read() as repo:
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


def test_what_is_said_again_is_no_news(yard: AdmissionYard) -> None:
    for _ in range(2):
        yard.pool("p", 4)
        yard.limit("licences", 5)
        yard.stake_after("k", None)
    with yard.store.read() as repo:
        notes = [row.note for row in repo.events.audits_of(NO_SUBJECT, 100)]
    assert notes == ["p: 4", "licences: 5", "k: never"]


def test_every_change_marks_admission_as_dirty(yard: AdmissionYard) -> None:
    yard.schedule()
    changes: list[Callable[[], None]] = [
        lambda: yard.pool("p", 1),
        lambda: yard.limit("l", 1),
        lambda: yard.stake_after("k", None),
    ]
    for change in changes:
        change()
        assert yard.dirty() == [None]
        yard.schedule()
        assert yard.dirty() == []


@pytest.mark.parametrize(
    ("capacity", "from_bots", "text"),
    [
        (-1, False, "pool p: -1 is no capacity"),
        (3, True, "pool p: a capacity from bots cannot be a number, too"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(yard: AdmissionYard, capacity: int, from_bots: bool, text: str) -> None:
    answer = yard.do(lambda transaction: set_pool(transaction, "p", capacity, from_bots, "ann"))
    assert answer == Refusal(Code.INVALID, text)
    with yard.store.read() as repo:
        assert (repo.admission.pools(), repo.events.audits_of(NO_SUBJECT, 9)) == ([], [])


def test_a_limit_that_makes_no_sense_is_refused(yard: AdmissionYard) -> None:
    answer = yard.do(lambda transaction: set_limit(transaction, "l", -1, "ann"))
    assert answer == Refusal(Code.INVALID, "limit l: -1 is no total")


def test_a_span_that_makes_no_sense_is_refused(yard: AdmissionYard) -> None:
    answer = yard.do(lambda transaction: set_stake_after(transaction, "k", -1, "ann"))
    assert answer == Refusal(Code.INVALID, "mutex k: -1 ms is no span: give 0 or more, or never")


def test_tasks_that_were_never_held_count_when_their_pool_gets_a_capacity(yard: AdmissionYard) -> None:
    before = [yard.put(pool="p") for _ in range(3)]
    assert yard.waiting(before) == before
    yard.pool("p", 3)
    after = [yard.put(pool="p"), yard.put(pool="p")]
    yard.schedule()
    assert (yard.waiting(after), [yard.reason(id) for id in after]) == ([], [Reason.CAPACITY] * 2)
    leases = yard.run()
    yard.finish(leases, before[0])
    yard.schedule()
    assert yard.waiting(after) == after[:1]


def test_a_start_in_the_future_counts_too_when_its_pool_gets_a_capacity(yard: AdmissionYard) -> None:
    early, full = yard.put(pool="p", not_before="1m"), yard.put(pool="p")
    yard.pool("p", 1)
    yard.later(60_000)
    yard.schedule()
    assert (yard.waiting([early, full]), yard.reason(early)) == ([full], Reason.CAPACITY)


def test_held_tasks_are_admitted_when_the_capacity_is_lifted(yard: AdmissionYard) -> None:
    yard.pool("p", 1)
    tasks = [yard.put(pool="p") for _ in range(3)]
    yard.schedule()
    assert yard.waiting(tasks) == tasks[:1]
    yard.pool("p")
    yard.schedule()
    assert (yard.waiting(tasks), [yard.hold(id) for id in tasks]) == (tasks, [None] * 3)


def test_a_pool_that_shrinks_takes_nothing_from_anybody(yard: AdmissionYard) -> None:
    yard.pool("p", 2)
    tasks = [yard.put(pool="p") for _ in range(3)]
    yard.schedule()
    yard.pool("p", 1)
    yard.schedule()
    leases = yard.run()
    assert set(leases) == set(tasks[:2])
    yard.finish(leases, tasks[0])
    yard.schedule()
    assert yard.waiting(tasks) == [tasks[1]]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("entered", range(4))
def test_the_next_pass_does_the_rest_of_a_call_that_died_before_it_lets_anybody_in(
    yard: AdmissionYard, monkeypatch: pytest.MonkeyPatch, entered: int, known: bool
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 2)
    monkeypatch.setattr(snapshot, "DIRTY_MAX", 3)
    if known:
        yard.schedule()
    before = [yard.put(pool="p") for _ in range(8)]
    assert yard.do(lambda transaction: set_pool(transaction, "p", 9, False, "ann")) is True
    for _ in range(entered):
        yard.do(lambda transaction: add_pool_contenders(transaction, "p"))
    after = [yard.put(pool="p") for _ in range(3)]
    passed = yard.schedule()
    assert (passed.admitted, yard.waiting([*before, *after])) == (1, [*before, after[0]])
    with yard.store.read() as repo:
        assert {task.needs_admission for task in repo.tasks.read([*before, *after])} == {True}
    assert yard.dirty() == []


@pytest.mark.parametrize("place", range(1, 5))
def test_a_pass_that_dies_while_it_does_the_rest_is_followed_by_one_that_ends_it(
    yard: AdmissionYard, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 2)
    before = [yard.put(pool="p") for _ in range(8)]
    assert yard.do(lambda transaction: set_pool(transaction, "p", 9, False, "ann")) is True
    after = [yard.put(pool="p") for _ in range(3)]
    count = iter(range(100))

    def transact(act: Callable[[Transaction], Answer], /) -> Answer:
        if next(count) >= place:
            raise OSError("no space")
        return yard.do(act)

    with pytest.raises(OSError, match="no space"):
        Admission(transact, yard.store.read, lambda: yard.now, "dead").schedule()
    yard.later(LOCK_MS)
    yard.schedule()
    assert (yard.waiting([*before, *after]), yard.dirty()) == ([*before, after[0]], [])


def test_many_tasks_become_contenders_page_by_page_and_a_repeat_goes_on(yard: AdmissionYard) -> None:
    node = {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "p"}}}
    labels = yard.submit({"tasks": {f"t{number}": node for number in range(PAGE_MAX + 10)}})
    assert yard.do(lambda transaction: set_pool(transaction, "p", 5, False, "ann")) is True
    assert yard.do(lambda transaction: set_pool(transaction, "p", 5, False, "ann")) is False
    assert yard.do(lambda transaction: add_pool_contenders(transaction, "p")) is False
    with yard.store.read() as repo:
        assert [row.note for row in repo.events.audits_of(NO_SUBJECT, 9)] == ["p: 5"]
    with yard.store.read() as repo:
        assert len(repo.admission.contenders(State.WAITING, 0, 10_000)) == len(labels)
    yard.schedule()
    late = yard.put(pool="p")
    yard.schedule()
    assert yard.reason(late) is Reason.CAPACITY
    yard.pool("p")
