"""Commands that concern more tasks than one transaction reads: searched outside, then carried out like any other."""

import asyncio

import pytest

from taskyard.core.states import GraphState, State
from taskyard.engine.engine import AsyncEngine
from taskyard.engine.errors import Unavailable
from taskyard.engine.wide_commands import TRIES_MAX
from taskyard.engine.writer import weight
from taskyard.lifecycle import selection
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Rerun
from taskyard.lifecycle.selection import SelectedPages
from taskyard.lifecycle.submit import PAGE_MAX
from tests.engine.harness import WAIT_S, EngineHarness, graph, task
from tests.lifecycle.harness import Labels, without_counts

#: How many tasks or edges one transaction reads here, and more than that.
LOOKED, MANY = 20, 30


@pytest.fixture(autouse=True)
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED)
    monkeypatch.setattr(selection, "PAGE_MAX", 10)


def star(harness: EngineHarness) -> Labels:
    """A task with many dependents, and one beside it."""
    return harness.submit(graph(hub=task(), beside=task(), **{f"t{place}": task("hub") for place in range(MANY)}))


def among(states: dict[str, State]) -> set[str]:
    return {str(state) for label, state in states.items() if label != "beside"}


def test_a_wide_command_is_answered_and_carried_out(harness: EngineHarness) -> None:
    labels = star(harness)
    first = harness.engine.cancel(Cancel(labels["hub"], subtree=True, key="k1"))
    assert without_counts(first) == BulkOutcome(labels["hub"], 0, promised=True)
    harness.settle()
    assert among(harness.states(labels)) == {"canceled"}
    again = harness.engine.rerun(Rerun(graph=labels.graph, key="k2"))
    assert without_counts(again) == BulkOutcome(labels.graph, 0, promised=True)
    harness.settle()
    assert among(harness.states(labels)) == {"unscheduled", "waiting"}
    assert harness.engine.cancel(Cancel(labels["hub"], subtree=True, key="k1")) == first
    assert harness.engine.rerun(Rerun(graph=labels.graph, key="k2")) == again
    assert harness.graph(labels.graph).state is GraphState.RUNNING


def test_a_wide_command_can_be_awaited(harness: EngineHarness) -> None:
    labels, face = star(harness), AsyncEngine(harness.engine)
    asked = asyncio.run(face.cancel(Cancel(labels["hub"], subtree=True)))
    assert without_counts(asked) == BulkOutcome(labels["hub"], 0, promised=True)
    harness.settle()
    assert without_counts(asyncio.run(face.rerun(Rerun(graph=labels.graph)))) == BulkOutcome(
        labels.graph, 0, promised=True
    )
    harness.settle()
    assert among(harness.states(labels)) == {"unscheduled", "waiting"}


def test_a_graph_that_is_extended_meanwhile_is_looked_at_again(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, find = star(harness), harness.engine.wide_commands._find
    times = iter([1])

    def find_before_an_extension(command: Cancel | Rerun) -> SelectedPages:
        found = find(command)
        for _ in times:
            harness.engine.extend(labels.text, graph(new=task("t0")))
        return found

    monkeypatch.setattr(harness.engine.wide_commands, "_find", find_before_an_extension)
    harness.engine.cancel(Cancel(labels["hub"], subtree=True))
    harness.settle()
    assert harness.states(harness.labels(labels.graph))["new"] is State.CANCELED


def test_a_graph_that_is_extended_all_the_time_is_given_up(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, find = star(harness), harness.engine.wide_commands._find
    numbers = iter(range(TRIES_MAX))

    def find_before_an_extension(command: Cancel | Rerun) -> SelectedPages:
        found = find(command)
        harness.engine.extend(labels.text, graph(**{f"new{next(numbers)}": task("t0")}))
        return found

    monkeypatch.setattr(harness.engine.wide_commands, "_find", find_before_an_extension)
    with pytest.raises(Unavailable, match="extended"):
        harness.engine.cancel(Cancel(labels["hub"], subtree=True))
    assert among(harness.states(labels)) == {"unscheduled", "waiting"}


def test_commands_about_many_tasks_do_not_share_a_transaction_with_too_many_others(harness: EngineHarness) -> None:
    graphs = [harness.submit(graph(a=task(), b=task("a"))) for _ in range(6)]
    with harness.writer_blocked():
        before = harness.engine.commits
        asked = [harness.engine.writer_thread.put(Cancel(labels["a"], subtree=True)) for labels in graphs]
    assert [one.result(WAIT_S).moved for one in asked] == [2] * 6
    assert (
        harness.engine.commits - before == 1 + 3
    )  # of the one that held the writer up; then two thousand tasks at most
    assert weight(Cancel(task=7)) == weight(Rerun(task=7)) == 1
    assert weight(Cancel(task=7, subtree=True)) == weight(Cancel(graph=7)) == weight(Rerun(graph=7)) == PAGE_MAX
