"""Events: one kind for each state of a task and of a graph, and one for an extension."""

from taskyard.core.events import EXTEND, KINDS, Topic, kind_of
from taskyard.core.states import GraphState, State


def test_a_kind_is_named_by_what_moved_and_where_it_is_now() -> None:
    assert kind_of(Topic.TASK, "running") == "task.running"
    assert kind_of(Topic.GRAPH, "running") == "graph.running"
    assert kind_of(Topic.GRAPH, "running", EXTEND) == "graph.extended"


def test_every_state_of_a_task_and_of_a_graph_has_its_kind_once() -> None:
    assert len(KINDS) == len(set(KINDS)) == len(State) + len(GraphState) + 1
    assert {"task.successful", "task.skipped", "graph.blocked", "graph.finished", "graph.extended"} <= set(KINDS)
