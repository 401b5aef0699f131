"""Workflows: nodes that launch templates, what flows between them, and what is launched again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.launch import LaunchType
from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Approve, Refusal
from taskyard.lifecycle.launch import LaunchStored
from tests.engine.launches import TOOLS, LaunchHarness, job, project, workflow
from tests.lifecycle.harness import Labels

ON_LAUNCH: dict[str, Any] = {"update_on_launch": True}


@pytest.fixture
def harness(database_url: str) -> Iterator[LaunchHarness]:
    with LaunchHarness(database_url) as made:
        made.hello("b1", **TOOLS)
        yield made


def begun(harness: LaunchHarness, name: str = "release", **variables: Any) -> tuple[Labels, Labels]:
    """Launch a workflow; get its own graph and the one with its nodes."""
    labels = harness.launch(name, **variables)
    harness.settle()
    return labels, harness.inside(labels["workflow"])


def variables_of(harness: LaunchHarness, node: int) -> object:
    """The variables with which a node launched its template."""
    with harness.store.read() as repo:
        (graph,) = repo.graphs.subgraphs([node]).values()
        row = repo.launches.of([graph])[graph]
    return json.loads(row.variables)


def test_the_nodes_of_a_workflow_are_launched_when_they_are_released(harness: LaunchHarness) -> None:
    harness.apply(
        project(**ON_LAUNCH),
        job("build", project="web"),
        job("test", project="web"),
        workflow(nodes={"b": {"template": "build"}, "t": {"template": "test", "requires": ["b"]}}),
    )
    labels, nodes = begun(harness)
    assert harness.states_of(nodes) == {"b": "running", "t": "unscheduled"}
    build = harness.inside(nodes["b"])
    first = harness.linked(build)["project:web"]
    harness.run(first)
    harness.run(build["job"])
    test = harness.inside(nodes["t"])
    assert harness.linked(test)["project:web"] != first  # planned when the node was released, not before
    harness.run_all()
    assert harness.states_of(nodes) == {"b": "successful", "t": "successful"}
    assert harness.states_of(labels) == {"workflow": "successful"}
    with harness.store.read() as repo:
        types = {row.launch_type for row in repo.launches.of([build.graph, test.graph]).values()}
    assert types == {LaunchType.WORKFLOW}


def test_one_workflow_of_a_template_runs_at_a_time_unless_it_allows_more(harness: LaunchHarness) -> None:
    nodes = {"b": {"template": "build"}}
    harness.apply(
        job("build", allow_simultaneous=True),
        workflow(nodes=nodes),
        workflow("many", nodes=nodes, allow_simultaneous=True),
    )
    one, two = harness.launch("release"), harness.launch("release")
    many = [harness.launch("many") for _ in range(2)]
    harness.settle()
    assert harness.state(one["workflow"]) == "running"
    assert harness.state(two["workflow"]) == "pending"
    assert [harness.state(labels["workflow"]) for labels in many] == ["running", "running"]
    harness.run_all()
    assert harness.state(two["workflow"]) == "successful"


def test_the_failure_of_a_job_goes_along_the_edges_of_its_node(harness: LaunchHarness) -> None:
    nodes = {
        "b": {"template": "build"},
        "good": {"template": "note", "requires": ["b"], "on_impossible": "skip"},
        "bad": {"template": "note", "requires": [{"task": "b", "on": "failure"}]},
        "both": {"template": "note", "requires": [{"task": "b", "on": "always"}]},
    }
    harness.apply(job("build"), job("note", allow_simultaneous=True), workflow(nodes=nodes))
    labels, inner = begun(harness)
    harness.run(harness.inside(inner["b"])["job"], Signal.FAIL)
    harness.run_all()
    assert harness.states_of(inner) == {"b": "failed", "good": "skipped", "bad": "successful", "both": "successful"}
    assert harness.states_of(labels) == {"workflow": "successful"}


def test_branches_converge_at_any_or_at_all_and_an_approval_decides_what_follows(harness: LaunchHarness) -> None:
    nodes = {
        "b": {"template": "build"},
        "ask": {"task": {"payload": {"approval": "go?"}}},
        "any": {"template": "note", "requires": ["b", "ask"], "join": "any"},
        "all": {"template": "note", "requires": ["b", "ask"], "on_impossible": "skip"},
        "denied": {"template": "note", "requires": [{"task": "ask", "on": "failure"}]},
    }
    harness.apply(job("build"), job("note", allow_simultaneous=True), workflow(nodes=nodes))
    labels, inner = begun(harness)
    harness.engine.approve(Approve(inner["ask"], approved=False, actor="ann"))
    harness.settle()
    assert harness.states_of(inner)["any"] == "unscheduled", "one of the two may still succeed"
    harness.run_all()
    assert harness.states_of(inner) == {
        "b": "successful", "ask": "failed", "any": "successful", "all": "skipped", "denied": "successful",
    }  # fmt: skip
    assert harness.states_of(labels) == {"workflow": "successful"}


def test_variables_flow_as_the_text_of_awx_says(harness: LaunchHarness) -> None:
    nodes = {
        "a": {"template": "note", "variables": {"who": "node a"}},
        "b": {"template": "note", "requires": ["a"], "variables": {"who": "node b", "own": "b"}},
        "c": {"template": "note", "requires": ["b"], "variables": {"who": "node c", "far": "node c", "top": "node c"}},
    }
    harness.apply(job("note", variables={"base": 1}), workflow(nodes=nodes, variables={"top": "workflow"}))
    _, inner = begun(harness)
    harness.run(harness.inside(inner["a"])["job"], result={"far": "a", "near": "a"})
    harness.run(harness.inside(inner["b"])["job"], result={"near": "b"})
    assert variables_of(harness, inner["a"]) == {"who": "node a", "top": "workflow"}
    assert variables_of(harness, inner["c"]) == {"who": "node c", "far": "a", "near": "b", "top": "workflow"}


def test_the_variables_of_a_nested_workflow_flow_in_and_out(harness: LaunchHarness) -> None:
    inside = {"x": {"template": "note"}, "y": {"template": "note", "requires": ["x"]}}
    nodes = {"n": {"template": "inner", "variables": {"a": 1}}, "z": {"template": "note", "requires": ["n"]}}
    harness.apply(job("note"), workflow("inner", nodes=inside), workflow(nodes=nodes))
    _, outer = begun(harness)
    nested = harness.inside(harness.inside(outer["n"])["workflow"])
    assert variables_of(harness, nested["x"]) == {"a": 1}
    harness.run(harness.inside(nested["x"])["job"], result={"v": "x", "a": 2})
    assert variables_of(harness, nested["y"]) == {"v": "x", "a": 1}  # those of the workflow win
    harness.run(harness.inside(nested["y"])["job"], result={"v": "y"})
    assert variables_of(harness, outer["z"]) == {"v": "y", "a": 2}
    harness.run_all()


def test_a_node_whose_template_is_gone_fails(harness: LaunchHarness) -> None:
    asks = {"task": {"payload": {"approval": "go?"}}}
    harness.apply(job("note"), workflow(nodes={"ask": asks, "n": {"template": "note", "requires": ["ask"]}}))
    labels, inner = begun(harness)
    harness.apply(workflow(nodes={"ask": asks}))
    assert harness.engine.catalogue.delete("job_template", "note") is None
    harness.engine.approve(Approve(inner["ask"], approved=True, actor="ann"))
    harness.settle()
    assert harness.states_of(inner)["n"] == "failed"
    assert harness.result(inner["n"])["refused"] == "there is no template note"
    assert harness.states_of(labels) == {"workflow": "failed"}


def test_canceling_a_workflow_reaches_its_jobs_and_their_updates(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job("build", project="web"), workflow(nodes={"b": {"template": "build"}}))
    labels, inner = begun(harness)
    build = harness.inside(inner["b"])
    update = harness.linked(build)["project:web"]
    harness.cancel(labels)
    assert harness.state(update) == "canceled"
    assert set(harness.states_of(build).values()) == {"canceled"}
    assert harness.states_of(labels) == {"workflow": "canceled"}


def test_a_relaunch_is_planned_anew_with_the_same_variables(harness: LaunchHarness) -> None:
    harness.apply(project(**ON_LAUNCH), job(project="web", variables={"x": 0}))
    failed = harness.launch("deploy", x=5)
    before = harness.linked(failed)["project:web"]
    harness.run(before, Signal.FAIL)
    answer = harness.engine.relaunch(f"{failed.graph:016x}", actor="bob")
    assert isinstance(answer, LaunchStored)
    again = harness.labels(answer.graph)
    assert harness.linked(again)["project:web"] != before
    with harness.store.read() as repo:
        row = repo.launches.of([again.graph])[again.graph]
    assert (row.launch_type, row.variables, row.relaunch_of) == (LaunchType.RELAUNCH, '{"x":5}', failed.graph)
    harness.run_all()
    assert harness.states_of(again)["job"] == "successful"


def test_a_workflow_can_be_relaunched_from_the_node_that_failed(harness: LaunchHarness) -> None:
    nodes = {
        "a": {"template": "note"},
        "b": {"template": "note", "requires": ["a"]},
        "c": {"template": "note", "requires": ["b"]},
    }
    harness.apply(job("note"), workflow(nodes=nodes))
    labels, inner = begun(harness)
    harness.run(harness.inside(inner["a"])["job"], result={"v": "a"})
    harness.run(harness.inside(inner["b"])["job"], Signal.FAIL)
    harness.settle()
    assert harness.states_of(labels) == {"workflow": "failed"}
    answer = harness.engine.relaunch(f"{labels.graph:016x}", from_failed=True, actor="bob")
    assert isinstance(answer, LaunchStored), answer
    harness.settle()
    again = harness.inside(harness.labels(answer.graph)["workflow"])
    assert harness.states_of(again) == {"a": "successful", "b": "running", "c": "unscheduled"}
    assert variables_of(harness, again["b"]) == {"v": "a"}
    assert len(harness.run_all()) == 2
    assert harness.states_of(harness.labels(answer.graph)) == {"workflow": "successful"}


def test_a_relaunch_of_what_was_not_launched_is_refused(harness: LaunchHarness) -> None:
    labels = harness.submit({"tasks": {"a": {"task": {"payload": {"noop": True}}}}})
    assert isinstance(harness.engine.relaunch(f"{labels.graph:016x}", actor="bob"), Refusal)


@pytest.mark.parametrize("kind", ["launch", "link"])
def test_nobody_can_submit_what_only_the_server_makes(harness: LaunchHarness, kind: str) -> None:
    inner = {"tasks": {"a": {"task": {"payload": {kind: {"template": "note"}}}}}}
    for document in (inner, {"tasks": {"g": {"task": {"payload": {"graph": inner}}}}}):
        answer = harness.engine.submit(document)
        assert isinstance(answer, Refusal)
        assert any(fault.path.endswith(f"payload.{kind}") for fault in answer.faults)
