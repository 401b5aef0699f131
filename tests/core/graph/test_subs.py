"""`$subs`: the ids of other tasks inside a payload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.graph import Existing, substitute, validate
from tests.core.graph.documents import faults_of, graph, node, read

IDS = {"build": "id-1", "a:b": "id-2"}
ARGS = "tasks.a.task.payload.args"


def test_marks_are_replaced_at_any_depth() -> None:
    payload = {
        "command": ["x", {"$subs": "taskId:build"}],
        "env": {"A": {"$subs": "taskId:a:b"}},
        "args": [[{"deep": [{"$subs": "taskId:build"}]}]],
    }
    assert substitute(payload, IDS) == {"command": ["x", "id-1"], "env": {"A": "id-2"}, "args": [[{"deep": ["id-1"]}]]}


def test_a_mark_beside_other_keys_is_left_alone() -> None:
    payload = {"python": "m:f", "args": [{"$subs": "taskId:build", "x": 1}]}
    assert substitute(payload, IDS) == payload


def test_what_holds_no_mark_is_the_same_object() -> None:
    payload = {"command": ["x"], "env": {"A": "b"}}
    assert substitute(payload, IDS) is payload
    half = {"command": ["x"], "env": {"A": {"$subs": "taskId:build"}}}
    assert substitute(half, IDS)["command"] is half["command"]


def test_the_submitters_payload_is_never_changed() -> None:
    payload = {"command": [{"$subs": "taskId:build"}]}
    substitute(payload, IDS)
    assert payload == {"command": [{"$subs": "taskId:build"}]}


def test_the_marks_of_a_graph_inside_are_its_own() -> None:
    inner = graph(x=node(), y=node({"script": {"$subs": "taskId:x"}}))
    assert faults_of(graph(a=node({"graph": inner}))) == []
    assert substitute({"graph": inner}, IDS) == {"graph": inner}


def test_a_graph_inside_cannot_name_the_tasks_around_it() -> None:
    inner = graph(y=node({"script": {"$subs": "taskId:a"}}))
    at = "tasks.a.task.payload.graph.tasks.y.task.payload.script.$subs"
    assert faults_of(graph(a=node({"graph": inner}))) == [(at, 'unknown label "a"; no task of the graph has it')]


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("taskId:biuld", 'unknown label "biuld"; did you mean "build"?'),
        ("taskId:zzz", 'unknown label "zzz"; no task of the graph has it'),
        ("build", 'must be a text "taskId:<label>"; got "build"'),
        ("taskId:", 'must be a text "taskId:<label>"; got "taskId:"'),
        ("taskid:build", 'must be a text "taskId:<label>"; got "taskid:build"'),
        (5, 'must be a text "taskId:<label>"; got 5'),
        ({"$subs": "taskId:build"}, 'must be a text "taskId:<label>"; got an object'),
        ("taskId:many", '"many" has a matrix; name one combination, such as "many[1]"'),
    ],
)
def test_a_mark_that_names_no_task_is_refused(mark: object, message: str) -> None:
    document = graph(
        build=node(), many=node(matrix={"n": [1, 2]}), a=node({"python": "m:f", "args": [{"x": {"$subs": mark}}]})
    )
    assert faults_of(document) == [(f"{ARGS}[0].x.$subs", message)]


@pytest.mark.parametrize("label", ["later", "a", "x:y", "many[2]"])
def test_a_mark_may_name_any_one_task(label: str) -> None:
    mark = {"$subs": f"taskId:{label}"}
    document = {"tasks": {"a": node({"script": mark}), "later": node(), "x:y": node(), "many": node(matrix={"n": [2]})}}
    assert faults_of(document) == []


def test_a_mark_in_an_extension_may_name_a_task_that_exists() -> None:
    document = graph(a=node({"script": {"$subs": "taskId:old"}}))
    assert validate(document, existing=Existing({"old": "digest"})).faults == ()


def test_a_mark_in_a_slice_is_checked() -> None:
    document = {"tasks": {"a": {"task": {"slices": [{"payload": {"script": {"$subs": "taskId:z"}}}]}}}}
    at = "tasks.a.task.slices[0].payload.script.$subs"
    assert faults_of(document) == [(at, 'unknown label "z"; no task of the graph has it')]


VALUES = st.recursive(
    st.sampled_from(["x", 1, None, {"$subs": "taskId:a"}, {"$subs": "taskId:a", "y": 2}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pq"), inner, max_size=3),
)


@given(VALUES)
def test_whatever_passes_validation_can_be_substituted(args: object) -> None:
    document = graph(a=node({"python": "m:f", "args": [args]}))
    payload = read(document).tasks["a"].slices[0].payload
    text = repr(substitute(payload, {"a": "ID"}))
    assert text == repr(payload).replace("{'$subs': 'taskId:a'}", "'ID'")
