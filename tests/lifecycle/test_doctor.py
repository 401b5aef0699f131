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
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.random_history import random_history
from tests.lifecycle.scene import DEFAULT, Scene, extension, found, set_scene
from tests.lifecycle.yard import Yard, chain


@pytest.fixture
def yard(database_url: str) -> Iterator[Grounds]:
    yard = Grounds(database_url)
    yield yard
    yard.close()


@pytest.fixture
def scene(yard: Grounds, database_url: str) -> Scene:
    return set_scene(yard, database_url)


def test_a_finding_is_a_sentence() -> None:
    assert str(Finding("task", 0x7F3A8, "awaited", 3, 2)) == (
        "task 000000000007f3a8: awaited is 3 and should be 2; repair can mend it"
    )
    assert str(Finding("mutex", "door", "holders", "a and b", None, mendable=False)) == (
        "mutex door: holders is a and b and should be empty; a person has to look at it"
    )


def test_pages_are_read_to_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        scene.yard.submit(chain("a", "b", "c"))
    monkeypatch.setattr(check, "TASKS_MAX", 2)
    monkeypatch.setattr(check, "GRAPHS_MAX", 2)
    monkeypatch.setattr(replay, "EVENTS_MAX", 3)
    monkeypatch.setattr(invariants, "ATTEMPTS_MAX", 1)
    assert found(scene.yard) == []
    scene.sql("UPDATE task SET due_ms = 5; UPDATE graph SET behind = behind + 1")
    findings = found(scene.yard)
    assert len(findings) == 9 + 7 + 1 + 3 * 3 + 6
    repair(scene.yard.do, findings)
    assert found(scene.yard) == []


def test_a_mutex_held_by_two_parties_is_reported(scene: Scene) -> None:
    scene.yard.submit(graph(rival=node(mutexes=[{"key": "door"}], **DEFAULT)))
    scene.sql("DELETE FROM task_mutex")
    assert schedule(scene.yard) == 3  # one too many
    scene.sql("INSERT INTO task_mutex (task_id, key) SELECT id, 'door' FROM task WHERE is_constrained = 1")
    clashes = [one for one in found(scene.yard) if one.kind == "mutex"]
    assert clashes
    assert {(one.subject, one.column, one.mendable) for one in clashes} == {("door", "holders", False)}


def schedule(yard: Yard) -> int:
    """Run an admission pass; return how many tasks it admitted."""
    return Admission(yard.do, yard.store.read, lambda: yard.now, "me").schedule().admitted


def test_overuse_of_a_limit_and_of_a_pool_is_reported(scene: Scene) -> None:
    yard = scene.yard
    schedule(yard)
    yard.do(lambda transaction: set_limit(transaction, "licence", 1, "ann"))
    yard.do(lambda transaction: set_pool(transaction, "default", 1, False, "ann"))
    left = found(yard)
    assert [(one.kind, one.subject, one.stored, one.mendable) for one in left] == [
        ("limit", "licence", 2, False),
        ("pool", "default", 4, False),
    ]
    assert repair(yard.do, left) == 0


def test_overlapping_attempts_and_falling_fences_are_reported(scene: Scene) -> None:
    assert scene.ids["twice"] in [lease.task for lease in scene.yard.claim("b2", 9)]
    scene.sql("UPDATE attempt SET fence = fence * 2 WHERE task_id = {twice} AND number = 1")
    assert [(one.column, one.mendable) for one in found(scene.yard)] == [("fence of 2", False)]
    scene.sql("UPDATE attempt SET fence = 1, ended_ms = ended_ms * 2 WHERE task_id = {twice} AND number = 1")
    assert [(one.column, one.mendable) for one in found(scene.yard)] == [("ended_ms of 1", False)]


def test_a_handler_that_ended_together_with_a_failure_has_not_handled_it(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {"a": node(), "b": node(), "deal": node(always=["a", "b"], join="any")}})
    yard.hello("rack1")
    both = yard.start("rack1", labels, 2)
    yard.end("rack1", both["a"])
    deal = yard.start("rack1", labels, 1)["deal"]
    words = [(both["b"], Signal.FAIL), (deal, Signal.SUCCEED)]
    reports = [("rack1", Report(one.task, one.attempt, one.fence, signal)) for one, signal in words]
    yard.do(lambda transaction: end_attempts(transaction, reports))
    assert yard.graph(labels.graph).state is GraphState.BLOCKED
    assert found(yard) == []


def test_failures_that_have_yet_to_learn_of_their_handler_are_healthy_and_a_wrong_count_of_one_is_found(
    yard: Grounds, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PROPAGATED_MAX", 10)
    monkeypatch.setattr(failure_handlers, "PAGE_MAX", 10)
    names = [f"t{place}" for place in range(25)]
    labels = yard.submit({"tasks": {**{name: node() for name in names}, "clean": node(always=names)}})
    first, *_, last = sorted(names, key=lambda name: labels[name])
    scene = Scene(yard, database_url, labels, dict(labels))
    yard.hello("rack1")
    yard.run("rack1", labels, first, last)
    yard.run_continuations()
    yard.run("rack1", labels)
    while notes := yard.notes():
        assert found(yard) == []
        for count in ("handlers_ran", "handlers_open"):
            scene.sql(f"UPDATE task SET {count} = {count} + 1 WHERE id = {{{last}}}")  # noqa: S608 - all ours
            assert [(one.subject, one.column) for one in found(yard)] == [(labels[last], count)]
            repair(yard.do, found(yard))
            assert found(yard) == []
        yard.take_up(notes[0])


# What is under way.


def test_a_graph_that_is_being_loaded_is_healthy(yard: Yard) -> None:
    one = begun(yard, chain("a", "b"))
    assert found(yard) == []
    yard.do(lambda transaction: submit.open_graph(transaction, one))
    assert found(yard) == []


def test_a_graph_that_is_dropped_page_by_page_is_healthy_between_two_pages(yard: Grounds) -> None:
    begun(yard, graph(d=node("c"), c=node("b"), b=node("a"), a=node()))  # what is required is dropped first
    yard.later(1)
    pages = 0
    while yard.do(lambda transaction: drop_stale_loads(transaction, yard.now, 1)):
        assert [str(one) for one in found(yard)] == []
        pages += 1
    assert pages > 3


def test_an_extension_that_is_dropped_page_by_page_is_healthy_between_two_pages(
    yard: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = yard.submit(graph(boom=node(**DEFAULT), long=node(**DEFAULT)))
    yard.hello("b1")
    yard.fail("b1", yard.start("b1", labels)["boom"])
    one = extension(yard, labels.graph, graph(a=node("boom"), b=node("a", failure=["boom"]), c=node(always=["b"])))
    loading = yard.do(lambda transaction: submit.begin_extension(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, yard.now, hidden=True)
    assert yard.do(lambda transaction: submit.add_hidden_page(transaction, one, rows))
    assert found(yard) == []
    yard.later(1)
    yard.do(lambda transaction: drop_stale_loads(transaction, yard.now, 9))
    monkeypatch.setattr(submit, "PAGE_MAX", 1)
    while notes := yard.notes():
        assert [str(one) for one in found(yard)] == []
        yard.take_up(notes[0])
    assert (found(yard), yard.graph(labels.graph).extensions) == ([], 1)


def begun(yard: Yard, document: object) -> submit.NewGraph:
    """Load a graph without opening it."""
    one = yard.prepared(document)
    loading = yard.do(lambda transaction: submit.begin(transaction, one))
    assert isinstance(loading, submit.LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, yard.now)
    assert yard.do(lambda transaction: submit.add_page(transaction, loading.graph, one.loader, rows))
    return one


def test_leases_of_a_departed_bot_that_are_yet_to_end_are_healthy(
    yard: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot_sessions, "LOST_MAX", 1)
    yard.submit(graph(**{f"t{number}": node(**DEFAULT) for number in range(4)}))
    yard.hello("b1")
    assert len(yard.claim("b1", 4)) == 4
    yard.later(1_000)
    yard.goodbye("b1")
    assert [str(one) for one in found(yard)] == []
    yard.do(apply_timeouts)
    assert [str(one) for one in found(yard)] == []


def test_tasks_that_the_next_pass_marks_for_a_new_capacity_are_healthy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "ENTRIES_MAX", 1)
    assert scene.yard.do(lambda transaction: set_pool(transaction, "default", 9, False, "ann")) is True
    assert [str(one) for one in found(scene.yard)] == []
    schedule(scene.yard)
    assert [str(one) for one in found(scene.yard)] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_leaves_a_healthy_store(yard: Yard, seed: int) -> None:
    random_history(yard, Random(seed))
    assert [str(one) for one in found(yard)] == []
