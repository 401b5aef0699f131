"""Rows that no transaction can process: they are set aside, and delay no timeouts of other rows."""

import pytest

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import GraphState, State
from taskyard.engine import background
from tests.engine.harness import EngineHarness, execute_raw, graph, noop, task
from tests.lifecycle.harness import Labels

#: Corrupt rows, and how to repair them. `{id}` stands for a task.
SPOILED = {
    "slice": ("UPDATE task SET slice_index = 9 WHERE id = {id}", "UPDATE task SET slice_index = 0 WHERE id = {id}"),
    "rules": (
        "UPDATE task SET rules = '{{' || rules WHERE id = {id}",
        "UPDATE task SET rules = substr(rules, 2) WHERE id = {id}",
    ),
}


@pytest.mark.parametrize("column", SPOILED)
def test_a_spoiled_row_keeps_no_other_from_its_end(
    harness: EngineHarness, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    break_it, mend_it = SPOILED[column]
    labels = harness.submit(graph(**{f"t{number}": task(expires=f"{60 + number}s") for number in range(5)}))
    harness.settle()
    execute_raw(harness.store.url, break_it, labels["t1"])
    harness.clock.advance(62_000)
    harness.settle()
    assert expired(harness, labels) == {"t0", "t2"}
    harness.clock.advance(SWEEP_MS)
    harness.settle()
    assert expired(harness, labels) == {"t0", "t2", "t3", "t4"}
    assert f"task {labels['t1']:016x} is set aside" in caplog.text
    execute_raw(harness.store.url, mend_it, labels["t1"])
    harness.clock.advance(SWEEP_MS)
    harness.settle()
    assert expired(harness, labels) == set(labels)


def expired(harness: EngineHarness, labels: Labels) -> set[str]:
    """The tasks that ended without a claim, read without the corrupt columns."""
    with harness.store.read() as repo:
        ended = set(repo.tasks.page(labels.graph, [State.ERROR], 0, 99))
    return {label for label, id in labels.items() if id in ended}


def test_more_spoiled_rows_than_a_page_holds_are_passed_over(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "ROWS_MAX", 3)
    monkeypatch.setattr(background, "RETRIED_MAX", 2)
    labels = harness.submit(graph(**{f"t{number}": task(expires=f"{60 + number}s") for number in range(12)}))
    harness.settle()
    break_it, mend_it = SPOILED["rules"]
    spoiled = {f"t{number}" for number in (0, 1, 2, 3, 5, 8)}
    for label in spoiled:
        execute_raw(harness.store.url, break_it, labels[label])
    harness.clock.advance(90_000)
    harness.settle()
    assert expired(harness, labels) == set(labels) - spoiled
    for label in spoiled:
        execute_raw(harness.store.url, mend_it, labels[label])
    for count in (8, 10, 12):
        harness.clock.advance(SWEEP_MS)
        harness.settle()
        assert len(expired(harness, labels)) == count


def test_a_task_that_is_due_begins_though_a_corrupt_row_is_due_for_ever(harness: EngineHarness) -> None:
    labels = harness.submit(graph(bad=task(expires="60s"), soon=task(not_before="70s")))
    harness.settle()
    break_it, mend_it = SPOILED["rules"]
    execute_raw(harness.store.url, break_it, labels["bad"])
    harness.clock.advance(69_000)
    harness.settle()
    harness.clock.advance(1_000)
    harness.settle()
    assert harness.states({"soon": labels["soon"]}) == {"soon": State.WAITING}
    execute_raw(harness.store.url, mend_it, labels["bad"])


def test_a_spoiled_row_keeps_no_other_from_being_served(harness: EngineHarness) -> None:
    labels = harness.submit(graph(**{f"t{number}": noop() for number in range(5)}))
    break_it, mend_it = SPOILED["rules"]
    execute_raw(harness.store.url, break_it, labels["t1"])
    harness.settle()
    good = {label: id for label, id in labels.items() if label != "t1"}
    assert set(harness.states(good).values()) == {State.SUCCESSFUL}
    execute_raw(harness.store.url, mend_it, labels["t1"])
    harness.clock.advance(SWEEP_MS)
    harness.settle()
    assert harness.graph(labels.graph).state is GraphState.FINISHED
