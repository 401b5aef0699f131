"""The doctor finds nothing wrong in a healthy store, whatever is under way in it; its findings are sentences."""

from collections.abc import Iterator
from random import Random

import pytest

from taskyard.core.states import GraphState, Signal
from taskyard.lifecycle import bot_sessions, failure_handlers, submit, transaction
from taskyard.lifecycle.admission import writes
from taskyard.lifecycle.admission.pools import set_limit, set_pool
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.commands import Report
from taskyard.lifecycle.continuations import drop_stale_loads
from taskyard.lifecycle.doctor import check, invariants, replay
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.repair import repair
from taskyard.lifecycle.report import end_attempts
from taskyard.lifecycle.timeouts import apply_timeouts
from taskyard.store.repo.admission import PoolRow
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import BaseHarness, LifecycleHarness
from tests.lifecycle.populated_store import DEFAULT, PopulatedStore, extension, populate, run_doctor
from tests.lifecycle.random_history import random_history


@pytest.fixture
def harness(database_url: str) -> Iterator[LifecycleHarness]:
    harness = LifecycleHarness(database_url)
    yield harness
    harness.close()


@pytest.fixture
def populated(harness: LifecycleHarness, database_url: str) -> PopulatedStore:
    return populate(harness, database_url)


def test_a_finding_is_a_sentence() -> None:
    assert str(Finding("task", 0x7F3A8, "awaited", 3, 2)) == (
        "task 000000000007f3a8: awaited is 3 and should be 2; repair can mend it"
    )
    assert str(Finding("mutex", "door", "holders", "a and b", None, mendable=False)) == (
        "mutex door: holders is a and b and should be empty; a person has to look at it"
    )


def test_pages_are_read_to_the_end(populated: PopulatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        populated.harness.submit(chain("a", "b", "c"))
    monkeypatch.setattr(check, "TASKS_MAX", 2)
    monkeypatch.setattr(check, "GRAPHS_MAX", 2)
    monkeypatch.setattr(replay, "EVENTS_MAX", 3)
    monkeypatch.setattr(invariants, "ATTEMPTS_MAX", 1)
    assert run_doctor(populated.harness) == []
    populated.sql("UPDATE task SET due_ms = 5; UPDATE graph SET behind = behind + 1")
    findings = run_doctor(populated.harness)
    assert len(findings) == 9 + 7 + 1 + 3 * 3 + 6
    repair(populated.harness.do, findings)
    assert run_doctor(populated.harness) == []


def test_a_mutex_held_by_two_parties_is_reported(populated: PopulatedStore) -> None:
    populated.harness.submit(graph(rival=node(mutexes=[{"key": "door"}], **DEFAULT)))
    populated.sql("DELETE FROM task_mutex")
    assert schedule(populated.harness) == 3  # one too many
    populated.sql("INSERT INTO task_mutex (task_id, key) SELECT id, 'door' FROM task WHERE is_constrained = 1")
    clashes = [one for one in run_doctor(populated.harness) if one.kind == "mutex"]
    assert clashes
    assert {(one.subject, one.column, one.mendable) for one in clashes} == {("door", "holders", False)}


def schedule(harness: BaseHarness) -> int:
    """Run an admission pass; return how many tasks it admitted."""
    return Admission(harness.do, harness.store.read, lambda: harness.now, "me").schedule().admitted


def test_overuse_of_a_limit_and_of_a_pool_is_reported(populated: PopulatedStore) -> None:
    harness = populated.harness
    schedule(harness)
    harness.do(lambda transaction: set_limit(transaction, "licence", 1, "ann"))
    harness.do(lambda transaction: set_pool(transaction, PoolRow("default", 1, False), "ann"))
    left = run_doctor(harness)
    assert [(one.kind, one.subject, one.stored, one.mendable) for one in left] == [
        ("limit", "licence", 2, False),
        ("pool", "default", 4, False),
    ]
    assert repair(harness.do, left) == 0


def test_overlapping_attempts_and_falling_fences_are_reported(populated: PopulatedStore) -> None:
    assert populated.ids["twice"] in [lease.task for lease in populated.harness.claim("b2", 9)]
    populated.sql("UPDATE attempt SET fence = fence * 2 WHERE task_id = {twice} AND number = 1")
    assert [(one.column, one.mendable) for one in run_doctor(populated.harness)] == [("fence of 2", False)]
    populated.sql("UPDATE attempt SET fence = 1, ended_ms = ended_ms * 2 WHERE task_id = {twice} AND number = 1")
    assert [(one.column, one.mendable) for one in run_doctor(populated.harness)] == [("ended_ms of 1", False)]


def test_a_handler_that_ended_together_with_a_failure_has_not_handled_it(harness: LifecycleHarness) -> None:
    labels = harness.submit({"tasks": {"a": node(), "b": node(), "deal": node(always=["a", "b"], join="any")}})
    harness.hello("rack1")
    both = harness.start("rack1", labels, 2)
    harness.end("rack1", both["a"])
    deal = harness.start("rack1", labels, 1)["deal"]
    words = [(both["b"], Signal.FAIL), (deal, Signal.SUCCEED)]
    reports = [("rack1", Report(one.task, one.attempt, one.fence, signal)) for one, signal in words]
    harness.do(lambda transaction: end_attempts(transaction, reports))
    assert harness.graph(labels.graph).state is GraphState.BLOCKED
    assert run_doctor(harness) == []


def test_failures_that_have_yet_to_learn_of_their_handler_are_healthy_and_a_wrong_count_of_one_is_found(
    harness: LifecycleHarness, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", 10)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", 10)
    names = [f"t{place}" for place in range(25)]
    labels = harness.submit({"tasks": {**{name: node() for name in names}, "clean": node(always=names)}})
    first, *_, last = sorted(names, key=lambda name: labels[name])
    populated = PopulatedStore(harness, database_url, labels, dict(labels))
    harness.hello("rack1")
    harness.run("rack1", labels, first, last)
    harness.run_continuations()
    harness.run("rack1", labels)
    while notes := harness.continuations():
        assert run_doctor(harness) == []
        for count in ("handlers_ran", "handlers_open"):
            populated.sql(f"UPDATE task SET {count} = {count} + 1 WHERE id = {{{last}}}")  # noqa: S608 - all ours
            assert [(one.subject, one.column) for one in run_doctor(harness)] == [(labels[last], count)]
            repair(harness.do, run_doctor(harness))
            assert run_doctor(harness) == []
        harness.run_continuation(notes[0])


# What is under way.


def test_a_graph_that_is_being_loaded_is_healthy(harness: BaseHarness) -> None:
    one = begun(harness, chain("a", "b"))
    assert run_doctor(harness) == []
    harness.do(lambda transaction: submit.open_graph(transaction, one))
    assert run_doctor(harness) == []


def test_a_graph_that_is_dropped_page_by_page_is_healthy_between_two_pages(harness: LifecycleHarness) -> None:
    begun(harness, graph(d=node("c"), c=node("b"), b=node("a"), a=node()))  # what is required is dropped first
    harness.advance(1)
    pages = 0
    while harness.do(lambda transaction: drop_stale_loads(transaction, harness.now, 1)):
        assert [str(one) for one in run_doctor(harness)] == []
        pages += 1
    assert pages > 3


def test_an_extension_that_is_dropped_page_by_page_is_healthy_between_two_pages(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = harness.submit(graph(boom=node(**DEFAULT), long=node(**DEFAULT)))
    harness.hello("b1")
    harness.fail("b1", harness.start("b1", labels)["boom"])
    one = extension(harness, labels.graph, graph(a=node("boom"), b=node("a", failure=["boom"]), c=node(always=["b"])))
    loading = harness.do(lambda transaction: submit.begin_extension(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, harness.now, hidden=True)
    assert harness.do(lambda transaction: submit.add_hidden_page(transaction, one, rows))
    assert run_doctor(harness) == []
    harness.advance(1)
    harness.do(lambda transaction: drop_stale_loads(transaction, harness.now, 9))
    monkeypatch.setattr(submit, "PAGE_MAX", 1)
    while notes := harness.continuations():
        assert [str(one) for one in run_doctor(harness)] == []
        harness.run_continuation(notes[0])
    assert (run_doctor(harness), harness.graph(labels.graph).extensions) == ([], 1)


def begun(harness: BaseHarness, document: object) -> submit.NewGraph:
    """Load a graph without opening it."""
    one = harness.new_graph(document)
    loading = harness.do(lambda transaction: submit.begin(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, harness.now)
    assert harness.do(lambda transaction: submit.add_page(transaction, loading.graph, one.loader, rows))
    return one


def test_leases_of_a_departed_bot_that_are_yet_to_end_are_healthy(
    harness: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 1)
    harness.submit(graph(**{f"t{number}": node(**DEFAULT) for number in range(4)}))
    harness.hello("b1")
    assert len(harness.claim("b1", 4)) == 4
    harness.advance(1_000)
    harness.goodbye("b1")
    assert [str(one) for one in run_doctor(harness)] == []
    harness.do(apply_timeouts)
    assert [str(one) for one in run_doctor(harness)] == []


def test_tasks_that_the_next_pass_marks_for_a_new_capacity_are_healthy(
    populated: PopulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 1)
    assert populated.harness.do(lambda transaction: set_pool(transaction, PoolRow("default", 9, False), "ann")) is True
    assert [str(one) for one in run_doctor(populated.harness)] == []
    schedule(populated.harness)
    assert [str(one) for one in run_doctor(populated.harness)] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_leaves_a_healthy_store(harness: BaseHarness, seed: int) -> None:
    random_history(harness, Random(seed))
    assert [str(one) for one in run_doctor(harness)] == []
