"""Random graphs with random failures and reruns: the right tasks run again, and reused ones never do."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskyard.core.states import GraphState, State
from taskyard.engine import bulk_load, rerun_graph
from taskyard.engine import submit as engine_submit
from taskyard.lifecycle import selection, submit
from taskyard.lifecycle.submit import Submitted
from tests.effort import tries
from tests.engine.harness import EngineHarness, graph, task
from tests.engine.test_rerun_graph import run
from tests.lifecycle.harness import Labels

#: What a task says of each prerequisite.
Requires = dict[str, dict[str, str]]
KEPT = {State.SUCCESSFUL, State.SKIPPED}


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Mapping[str, Requires], dict[str, object]]:
    """Edges by label, and the document, in any order."""
    labels = [f"t{number}" for number in range(draw(st.integers(1, 9)))]
    kinds = st.sampled_from(["success", "success", "success", "always", "failure"])
    edges: dict[str, Requires] = {}
    for place, label in enumerate(labels):
        before = draw(st.lists(st.sampled_from(labels[:place]), unique=True, max_size=3)) if place else []
        edges[label] = {one: {"task": one, "on": draw(kinds)} for one in before}
    nodes = {}
    for label in draw(st.permutations(labels)):
        join, policy = (
            draw(st.sampled_from(["all", "all", "any"])),
            draw(st.sampled_from(["hold", "hold", "skip", "fail"])),
        )
        nodes[label] = {**task(), "requires": [*edges[label].values()], "join": join, "on_impossible": policy}
    return edges, graph(**nodes)


def wanted(label: str, edges: Mapping[str, Requires], states: Mapping[str, State], start: set[str]) -> bool:
    """Whether a task has to run again: the rule in one slow line."""
    bad = label in start or states[label] not in KEPT
    return bad or any(wanted(one, edges, states, start) for one in edges[label])


@pytest.mark.parametrize("page", [None, 2])
@settings(max_examples=tries(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_what_must_run_again_does_and_nothing_else(
    sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, page: int | None, drawn: st.DataObject
) -> None:
    if page is not None:
        for module in (submit, bulk_load, rerun_graph, engine_submit, selection):
            monkeypatch.setattr(module, "PAGE_MAX", page)
    edges, document = drawn.draw(shapes())
    some = st.sets(st.sampled_from(sorted(edges)))
    old = sqlite_harness.submit(document)
    run(sqlite_harness, old, frozenset(drawn.draw(some)))
    states, start = sqlite_harness.states(old), drawn.draw(st.sets(st.sampled_from(sorted(edges)), min_size=1))
    made = sqlite_harness.engine.renew(old.text, tuple(start))
    assert isinstance(made, Submitted), made
    new = sqlite_harness.labels(made.graph)
    again = {label for label in edges if wanted(label, edges, states, start)}
    with sqlite_harness.store.read() as repo:
        taken = repo.reuse.sources(new.values())
    done = {label for label, state in states.items() if state is State.SUCCESSFUL}
    assert {label for label, id in new.items() if id in taken} == done - again
    run(sqlite_harness, new)
    assert_as_if_run_anew(sqlite_harness, new, document, done - again)


def assert_as_if_run_anew(harness: EngineHarness, new: Labels, document: object, taken: set[str]) -> None:
    """If every task succeeds, a graph that reused results ends like one that reused none."""
    fresh = harness.submit(document)
    run(harness, fresh)
    assert harness.states(new) == harness.states(fresh)
    assert harness.graph(new.graph).state is harness.graph(fresh.graph).state is GraphState.FINISHED
    assert all(not harness.tasks(new)[label].life.attempt for label in taken)
