"""Events: one name for each fact, one event for each change."""

from taskyard.core.events import KINDS, Event, Topic, graph_turned
from taskyard.core.states import GraphId, GraphState, Millis, Signal, State, TaskId

G, NOW = GraphId("g"), Millis(5)


def test_a_kind_is_named_by_what_moved_and_where_it_is_now() -> None:
    moved = Event(Topic.TASK, G, NOW, State.RUNNING, State.WAITING, TaskId("t"), Signal.CLAIM, attempt=1)
    assert moved.kind == "task.running"
    assert moved.kind in KINDS


def test_every_state_of_a_task_and_of_a_graph_has_its_kind_once() -> None:
    assert len(KINDS) == len(set(KINDS)) == len(State) + len(GraphState)
    assert {"task.successful", "task.skipped", "graph.blocked", "graph.finished"} <= set(KINDS)


def test_a_graph_that_turns_says_so_and_one_that_stays_says_nothing() -> None:
    turned = graph_turned(G, GraphState.RUNNING, GraphState.BLOCKED, NOW)
    assert turned == Event(Topic.GRAPH, G, NOW, GraphState.BLOCKED, GraphState.RUNNING)
    assert graph_turned(G, GraphState.BLOCKED, GraphState.BLOCKED, NOW) is None


def test_an_empty_graph_is_born_finished() -> None:
    born = graph_turned(G, None, GraphState.FINISHED, NOW)
    assert born
    assert born.kind == "graph.finished"
