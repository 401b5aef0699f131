"""Rows that no transaction bears: they are set aside, and keep nobody else from what time has brought."""

import pytest

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import GraphState, State
from taskyard.engine import background
from tests.engine.rig import Labels, Rig, graph, noop, spoil, task

#: What nobody ever writes, and how it is mended. `{id}` stands for a task.
SPOILED = {
    "slice": ("UPDATE task SET slice_index = 9 WHERE id = {id}", "UPDATE task SET slice_index = 0 WHERE id = {id}"),
    "rules": (
        "UPDATE task SET rules = '{{' || rules WHERE id = {id}",
        "UPDATE task SET rules = substr(rules, 2) WHERE id = {id}",
    ),
}


@pytest.mark.parametrize("column", SPOILED)
def test_a_spoiled_row_keeps_no_other_from_its_end(rig: Rig, column: str, caplog: pytest.LogCaptureFixture) -> None:
    break_it, mend_it = SPOILED[column]
    labels = rig.submit(graph(**{f"t{number}": task(expires=f"{60 + number}s") for number in range(5)}))
    rig.settle()
    spoil(rig.store.url, break_it, labels["t1"])
    rig.clock.later(62_000)
    rig.settle()
    assert expired(rig, labels) == {"t0", "t2"}
    rig.clock.later(SWEEP_MS)
    rig.settle()
    assert expired(rig, labels) == {"t0", "t2", "t3", "t4"}
    assert f"task {labels['t1']:016x} is set aside" in caplog.text
    spoil(rig.store.url, mend_it, labels["t1"])
    rig.clock.later(SWEEP_MS)
    rig.settle()
    assert expired(rig, labels) == set(labels)


def expired(rig: Rig, labels: Labels) -> set[str]:
    """Name the tasks that ended though nobody took them, without reading what cannot be read."""
    with rig.store.read() as repo:
        ended = set(repo.tasks.page(labels.graph, [State.ERROR], 0, 99))
    return {label for label, id in labels.items() if id in ended}


def test_more_spoiled_rows_than_a_page_holds_are_passed_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "ROWS_MAX", 3)
    monkeypatch.setattr(background, "RETRIED_MAX", 2)
    labels = rig.submit(graph(**{f"t{number}": task(expires=f"{60 + number}s") for number in range(12)}))
    rig.settle()
    break_it, mend_it = SPOILED["rules"]
    spoiled = {f"t{number}" for number in (0, 1, 2, 3, 5, 8)}
    for label in spoiled:
        spoil(rig.store.url, break_it, labels[label])
    rig.clock.later(90_000)
    rig.settle()
    assert expired(rig, labels) == set(labels) - spoiled
    for label in spoiled:
        spoil(rig.store.url, mend_it, labels[label])
    for count in (8, 10, 12):
        rig.clock.later(SWEEP_MS)
        rig.settle()
        assert len(expired(rig, labels)) == count


def test_whoever_begins_soon_does_so_though_a_spoiled_row_is_due_for_ever(rig: Rig) -> None:
    labels = rig.submit(graph(bad=task(expires="60s"), soon=task(not_before="70s")))
    rig.settle()
    break_it, mend_it = SPOILED["rules"]
    spoil(rig.store.url, break_it, labels["bad"])
    rig.clock.later(69_000)
    rig.settle()
    rig.clock.later(1_000)
    rig.settle()
    assert rig.states({"soon": labels["soon"]}) == {"soon": State.WAITING}
    spoil(rig.store.url, mend_it, labels["bad"])


def test_a_spoiled_row_keeps_no_other_from_being_served(rig: Rig) -> None:
    labels = rig.submit(graph(**{f"t{number}": noop() for number in range(5)}))
    break_it, mend_it = SPOILED["rules"]
    spoil(rig.store.url, break_it, labels["t1"])
    rig.settle()
    good = {label: id for label, id in labels.items() if label != "t1"}
    assert set(rig.states(good).values()) == {State.SUCCESSFUL}
    spoil(rig.store.url, mend_it, labels["t1"])
    rig.clock.later(SWEEP_MS)
    rig.settle()
    assert rig.graph(labels.graph).state is GraphState.FINISHED
