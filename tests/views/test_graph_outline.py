"""The outline of a graph: its state, its counts, and whether it is settled."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import GraphState, Signal
from taskyard.lifecycle.commands import Cancel, Code, Refusal
from taskyard.views.graphs import GraphOutline
from tests.engine.harness import EngineHarness, graph, task
from tests.lifecycle.harness import Labels


@pytest.fixture
def harness(database_url: str) -> Iterator[EngineHarness]:
    with EngineHarness(database_url) as made:
        yield made


def shown(harness: EngineHarness, labels: Labels) -> GraphOutline:
    found = harness.engine.graph(labels.text)
    assert isinstance(found, GraphOutline)
    assert found.graph == labels.graph
    return found


def counts(one: GraphOutline) -> tuple[GraphState, int, int, int, bool]:
    return (one.state, one.active, one.behind, one.unhandled, one.settled)


def test_the_outline_follows_a_graph_from_creation_to_end(harness: EngineHarness) -> None:
    labels = harness.submit({"name": "nightly", "tasks": {"a": task(), "b": task("a")}})
    born = shown(harness, labels)
    assert (born.name, born.created_ms, born.canceled_ms) == ("nightly", harness.graph(labels.graph).created_ms, None)
    assert counts(born) == (GraphState.RUNNING, 1, 1, 0, False)
    harness.hello()
    harness.end(harness.claim()[0])
    assert counts(shown(harness, labels)) == (GraphState.RUNNING, 1, 0, 0, False)
    harness.end(harness.claim()[0])
    assert counts(shown(harness, labels)) == (GraphState.FINISHED, 0, 0, 0, True)


def test_a_blocked_graph_is_settled_when_its_other_branches_are_done(harness: EngineHarness) -> None:
    labels = harness.submit(graph(bad=task(), other=task(), after=task("bad")))
    harness.hello()
    bad, other = harness.claim(want=2)
    harness.end(bad, Signal.FAIL)
    assert counts(shown(harness, labels)) == (GraphState.BLOCKED, 1, 1, 1, False)
    harness.end(other)
    assert counts(shown(harness, labels)) == (GraphState.BLOCKED, 0, 1, 1, True)


def test_a_canceled_graph_is_settled_when_what_ran_has_stopped(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task(), b=task("a")))
    harness.hello()
    (lease,) = harness.claim()
    harness.engine.cancel(Cancel(graph=labels.graph))
    canceled = shown(harness, labels)
    assert (canceled.state, canceled.settled, canceled.canceled_ms) == (
        GraphState.CANCELING,
        False,
        harness.clock.now(),
    )
    harness.end(lease)
    ended = shown(harness, labels)
    assert (ended.state, ended.settled) == (GraphState.CANCELED, True)


def test_an_unknown_graph_has_no_outline(harness: EngineHarness) -> None:
    for text, code in (("7000000000000008", Code.NOT_FOUND), ("graph one", Code.INVALID)):
        refused = harness.engine.graph(text)
        assert isinstance(refused, Refusal)
        assert refused.code is code
