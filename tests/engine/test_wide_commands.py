"""Wishes that reach further than one transaction looks: found outside, and done as any other."""

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
from tests.engine.rig import SOON_S, Labels, Rig, graph, task
from tests.lifecycle.in_short import in_short

#: How many tasks or edges one transaction looks at here, and more than that.
LOOKED, MANY = 20, 30


@pytest.fixture(autouse=True)
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED)
    monkeypatch.setattr(selection, "PAGE_MAX", 10)


def star(rig: Rig) -> Labels:
    """A task with many behind it, and one beside it."""
    return rig.submit(graph(hub=task(), beside=task(), **{f"t{place}": task("hub") for place in range(MANY)}))


def among(states: dict[str, State]) -> set[str]:
    return {str(state) for label, state in states.items() if label != "beside"}


def test_a_far_wish_is_answered_and_carried_out(rig: Rig) -> None:
    labels = star(rig)
    first = rig.engine.cancel(Cancel(labels["hub"], subtree=True, key="k1"))
    assert in_short(first) == BulkOutcome(labels["hub"], 0, promised=True)
    rig.settle()
    assert among(rig.states(labels)) == {"canceled"}
    again = rig.engine.rerun(Rerun(graph=labels.graph, key="k2"))
    assert in_short(again) == BulkOutcome(labels.graph, 0, promised=True)
    rig.settle()
    assert among(rig.states(labels)) == {"unscheduled", "waiting"}
    assert rig.engine.cancel(Cancel(labels["hub"], subtree=True, key="k1")) == first
    assert rig.engine.rerun(Rerun(graph=labels.graph, key="k2")) == again
    assert rig.graph(labels.graph).state is GraphState.RUNNING


def test_a_far_wish_can_be_awaited(rig: Rig) -> None:
    labels, face = star(rig), AsyncEngine(rig.engine)
    asked = asyncio.run(face.cancel(Cancel(labels["hub"], subtree=True)))
    assert in_short(asked) == BulkOutcome(labels["hub"], 0, promised=True)
    rig.settle()
    assert in_short(asyncio.run(face.rerun(Rerun(graph=labels.graph)))) == BulkOutcome(labels.graph, 0, promised=True)
    rig.settle()
    assert among(rig.states(labels)) == {"unscheduled", "waiting"}


def test_a_graph_that_is_extended_meanwhile_is_looked_at_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, find = star(rig), rig.engine.wide_commands._find
    times = iter([1])

    def find_before_an_extension(command: Cancel | Rerun) -> SelectedPages:
        found = find(command)
        for _ in times:
            rig.engine.extend(labels.text, graph(new=task("t0")))
        return found

    monkeypatch.setattr(rig.engine.wide_commands, "_find", find_before_an_extension)
    rig.engine.cancel(Cancel(labels["hub"], subtree=True))
    rig.settle()
    assert rig.states(rig.labels(labels.graph))["new"] is State.CANCELED


def test_a_graph_that_is_extended_all_the_time_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, find = star(rig), rig.engine.wide_commands._find
    numbers = iter(range(TRIES_MAX))

    def find_before_an_extension(command: Cancel | Rerun) -> SelectedPages:
        found = find(command)
        rig.engine.extend(labels.text, graph(**{f"new{next(numbers)}": task("t0")}))
        return found

    monkeypatch.setattr(rig.engine.wide_commands, "_find", find_before_an_extension)
    with pytest.raises(Unavailable, match="extended"):
        rig.engine.cancel(Cancel(labels["hub"], subtree=True))
    assert among(rig.states(labels)) == {"unscheduled", "waiting"}


def test_wishes_about_many_tasks_do_not_share_a_transaction_with_too_many_others(rig: Rig) -> None:
    graphs = [rig.submit(graph(a=task(), b=task("a"))) for _ in range(6)]
    with rig.held_up():
        before = rig.engine.commits
        asked = [rig.engine.writer_thread.put(Cancel(labels["a"], subtree=True)) for labels in graphs]
    assert [one.result(SOON_S).moved for one in asked] == [2] * 6
    assert rig.engine.commits - before == 1 + 3  # of the one that held the writer up; then two thousand tasks at most
    assert weight(Cancel(task=7)) == weight(Rerun(task=7)) == 1
    assert weight(Cancel(task=7, subtree=True)) == weight(Cancel(graph=7)) == weight(Rerun(graph=7)) == PAGE_MAX
