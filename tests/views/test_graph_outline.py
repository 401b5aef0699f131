"""The outline of a graph: its state, its counts, and whether it is settled."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import GraphState, Signal
from taskyard.lifecycle.commands import Cancel, Code, Refusal
from taskyard.views.graphs import GraphOutline
from tests.engine.rig import Labels, Rig, graph, task


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as made:
        yield made


def told(rig: Rig, labels: Labels) -> GraphOutline:
    found = rig.engine.graph(labels.text)
    assert isinstance(found, GraphOutline)
    assert found.graph == labels.graph
    return found


def counts(one: GraphOutline) -> tuple[GraphState, int, int, int, bool]:
    return (one.state, one.active, one.behind, one.unhandled, one.settled)


def test_the_outline_follows_a_graph_from_creation_to_end(rig: Rig) -> None:
    labels = rig.submit({"name": "nightly", "tasks": {"a": task(), "b": task("a")}})
    born = told(rig, labels)
    assert (born.name, born.created_ms, born.canceled_ms) == ("nightly", rig.graph(labels.graph).created_ms, None)
    assert counts(born) == (GraphState.RUNNING, 1, 1, 0, False)
    rig.hello()
    rig.end(rig.claim()[0])
    assert counts(told(rig, labels)) == (GraphState.RUNNING, 1, 0, 0, False)
    rig.end(rig.claim()[0])
    assert counts(told(rig, labels)) == (GraphState.FINISHED, 0, 0, 0, True)


def test_a_blocked_graph_is_settled_when_its_other_branches_are_done(rig: Rig) -> None:
    labels = rig.submit(graph(bad=task(), other=task(), after=task("bad")))
    rig.hello()
    bad, other = rig.claim(want=2)
    rig.end(bad, Signal.FAIL)
    assert counts(told(rig, labels)) == (GraphState.BLOCKED, 1, 1, 1, False)
    rig.end(other)
    assert counts(told(rig, labels)) == (GraphState.BLOCKED, 0, 1, 1, True)


def test_a_canceled_graph_is_settled_when_what_ran_has_stopped(rig: Rig) -> None:
    labels = rig.submit(graph(a=task(), b=task("a")))
    rig.hello()
    (lease,) = rig.claim()
    rig.engine.cancel(Cancel(graph=labels.graph))
    canceled = told(rig, labels)
    assert (canceled.state, canceled.settled, canceled.canceled_ms) == (GraphState.CANCELING, False, rig.clock.now())
    rig.end(lease)
    ended = told(rig, labels)
    assert (ended.state, ended.settled) == (GraphState.CANCELED, True)


def test_an_unknown_graph_has_no_outline(rig: Rig) -> None:
    for text, code in (("7000000000000008", Code.NOT_FOUND), ("graph one", Code.INVALID)):
        refused = rig.engine.graph(text)
        assert isinstance(refused, Refusal)
        assert refused.code is code
