"""What a document may say of files: trees, outputs of prerequisites, patterns and artifacts."""

import pytest

from taskyard.core.graph.parse import trees_named, validate
from tests.each_row import each_row

TREE = "ab" * 32
OTHER = "cd" * 32


def graph(payload: dict[str, object], **task: object) -> dict[str, object]:
    nodes = {
        "build": {"task": {"payload": {"command": ["make"], "outputs": ["dist/"]}}},
        "test": {"requires": ["build"], "task": {"payload": {"script": "x", **payload}, **task}},
    }
    return {"tasks": nodes}


def faults(payload: dict[str, object]) -> list[tuple[str, str]]:
    return [(one.path.removeprefix("tasks.test.task."), one.message) for one in validate(graph(payload)).faults]


def test_inputs_are_trees_and_outputs_of_prerequisites() -> None:
    given = [TREE, {"tree": OTHER, "path": "a", "to": "b/"}, {"from": "build"}, {"from": "build", "path": "dist/"}]
    found = validate(graph({"inputs": given, "cwd": "sub"}))
    assert found.faults == ()
    assert found.graph is not None
    assert found.graph.tasks["test"].slices[0].payload["inputs"] == given
    assert trees_named(found.graph.tasks.values()) == {("test", "default", TREE), ("test", "default", OTHER)}


def test_every_slice_names_its_trees_for_its_own_pool_and_graphs_inside_name_theirs() -> None:
    inner = {"tasks": {"in": {"task": {"payload": {"command": ["x"], "inputs": [OTHER]}, "dimensions": {"pool": "c"}}}}}
    slices = [{"dimensions": {"pool": pool}} for pool in ("a", "b")]
    document = {
        "tasks": {
            "many": {"task": {"payload": {"command": ["x"], "inputs": [TREE]}, "slices": slices}},
            "outer": {"task": {"payload": {"graph": inner}}},
        }
    }
    found = validate(document).graph
    assert found is not None
    assert trees_named(found.tasks.values()) == {("many", "a", TREE), ("many", "b", TREE), ("outer", "c", OTHER)}


def test_a_label_of_a_matrix_is_named_in_full() -> None:
    document = {
        "tasks": {
            "build": {"matrix": {"os": ["a", "b"]}, "task": {"payload": {"command": ["x"], "outputs": ["o"]}}},
            "test": {
                "requires": ["build"],
                "task": {"payload": {"command": ["x"], "inputs": [{"from": "build[a]", "to": "a/"}]}},
            },
        }
    }
    assert validate(document).faults == ()


@each_row(
    ("payload", "path", "message"),
    [
        ({"inputs": ["nonsense"]}, "payload.inputs[0]", "digest"),
        ({"inputs": [{"tree": TREE.upper()}]}, "payload.inputs[0].tree", "digest"),
        ({"inputs": [{}]}, "payload.inputs[0]", 'needs either "tree" or "from"'),
        ({"inputs": [{"tree": TREE, "from": "build"}]}, "payload.inputs[0]", 'needs either "tree" or "from"'),
        ({"inputs": [{"from": "test"}]}, "payload.inputs[0].from", "is no prerequisite"),
        ({"inputs": [TREE, {"from": "biuld"}]}, "payload.inputs[1].from", "build"),
        ({"inputs": [{"local": "src"}]}, "payload.inputs[0].local", "`taskyard submit` and `taskyard run` upload it"),
        ({"inputs": [{"tree": TREE, "path": "../x"}]}, "payload.inputs[0].path", "without .."),
        ({"inputs": [{"tree": TREE, "to": "/etc"}]}, "payload.inputs[0].to", "relative"),
        ({"inputs": [{"tree": TREE, "size": 1}]}, "payload.inputs[0].size", "unknown field"),
        ({"inputs": [TREE] * 65}, "payload.inputs", "must hold 0 to 64"),
        ({"inputs": [TREE], "cwd": "/srv"}, "payload.cwd", "must be relative beside inputs"),
        ({"outputs": ["/etc/passwd"]}, "payload.outputs[0]", "relative"),
        ({"outputs": ["a/../../b"]}, "payload.outputs[0]", "without .."),
        ({"outputs": ["a\\b"]}, "payload.outputs[0]", "relative"),
        ({"outputs": [{"path": "a"}]}, "payload.outputs[0]", 'needs the field "name"'),
        ({"outputs": [{"path": "*.txt", "name": "a"}]}, "payload.outputs[0].path", "must name one file"),
        ({"outputs": [{"path": "a", "name": "a", "type": "html"}]}, "payload.outputs[0].type", "media type"),
        (
            {"outputs": [{"path": "a", "name": "a", "type": "text/html\r\nX: y"}]},
            "payload.outputs[0].type",
            "media type",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(payload: dict[str, object], path: str, message: str) -> None:
    found = faults(payload)
    assert path in [at for at, _ in found], found
    assert any(message in text for at, text in found if at == path), found


@pytest.mark.parametrize("field", ["inputs", "outputs"])
def test_what_the_server_runs_takes_no_files(field: str) -> None:
    document = {"tasks": {"ask": {"task": {"payload": {"approval": "go?", field: []}}}}}
    assert [one.path for one in validate(document).faults] == [f"tasks.ask.task.payload.{field}"]
