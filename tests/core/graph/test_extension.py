"""Adding tasks to a graph that exists."""

import pytest

from taskyard.core.graph import Existing, Fault, GraphDefinition, Slice, Task, Validation, digest, validate
from taskyard.core.graph.model import PRIORITY
from taskyard.core.states import Kind, Millis
from taskyard.core.structs import struct_replace
from tests.core.graph.documents import chain, graph, node, read, read_task, task


def existing(document: object) -> Existing:
    found = read(document)
    return Existing({label: digest(each) for label, each in found.tasks.items()}, found.routing)


OLD = existing(chain(2))


def test_a_new_task_may_require_an_old_one() -> None:
    document = graph(new=node(requires=["t1"]))
    validation = validate(document, existing=OLD)
    assert validation.graph is not None
    assert [edge.task for edge in validation.graph.tasks["new"].requires] == ["t1"]


def test_the_same_definition_again_is_an_echo() -> None:
    document = graph(**{**_nodes(chain(2)), "new": node(requires=["t0"])})
    validation = validate(document, existing=OLD)
    assert validation.echoes == ("t0", "t1")
    assert validation.graph is not None
    assert list(validation.graph.tasks) == ["new"]


def test_an_empty_extension_is_one() -> None:
    assert validate({"tasks": {}}, existing=OLD) == Validation(GraphDefinition())


def test_another_definition_of_an_old_label_is_refused() -> None:
    validation = validate(graph(t0=node(reruns=1)), existing=OLD)
    message = '"t0" exists with another definition; use another label'
    assert validation == Validation(None, (Fault("tasks.t0", message),), redefines=True)


def test_an_old_task_cannot_be_made_to_require_a_new_one() -> None:
    document = graph(t0=node(requires=["new"]), new=node(requires=["t0"]))
    faults = validate(document, existing=OLD).faults
    assert [fault.path for fault in faults] == ["tasks.t0"]


def test_a_faulty_old_label_is_not_called_a_redefinition() -> None:
    faults = validate(graph(t0=node(rerun=1)), existing=OLD).faults
    assert [fault.path for fault in faults] == ["tasks.t0.rerun"]


def test_an_unknown_label_is_sought_among_the_old_ones() -> None:
    faults = validate(graph(new=node(requires=["build"])), existing=Existing({"bulid": ""})).faults
    assert faults == (Fault("tasks.new.requires[0]", 'unknown label "build"; did you mean "bulid"?'),)


@pytest.mark.parametrize("field", ["name", "routing", "description"])
def test_an_extension_has_only_tasks(field: str) -> None:
    faults = validate({field: "x", "tasks": {}}, existing=OLD).faults
    assert faults == (Fault(field, "cannot be changed by an extension; leave it out"),)


def test_an_extension_still_needs_tasks() -> None:
    assert validate({}, existing=OLD).faults == (Fault("", 'needs the field "tasks"'),)


def test_old_tasks_count_and_echoes_do_not_count_twice() -> None:
    grown = graph(**_nodes(chain(3)))
    assert validate(grown, existing=OLD, tasks_max=3).graph is not None
    assert validate(grown, existing=OLD, tasks_max=2).faults == (Fault("tasks", "makes more than 2 tasks; split it"),)


def test_the_combinations_of_a_matrix_are_echoes_one_by_one() -> None:
    old = existing(graph(t=node(matrix={"n": [1, 2]})))
    validation = validate(graph(t=node(matrix={"n": [1, 2, 3]})), existing=old)
    assert validation.echoes == ("t[1]", "t[2]")
    assert validation.graph is not None
    assert list(validation.graph.tasks) == ["t[3]"]


def test_an_old_label_cannot_become_a_matrix() -> None:
    faults = validate(graph(t0=node(matrix={"n": [1]})), existing=OLD).faults
    assert faults == (Fault("tasks.t0", "exists already without a matrix; use another label"),)


def test_an_echo_with_a_deadline_that_has_passed_is_still_an_echo() -> None:
    document = task(deadline="2029-01-01T00:00:00Z")
    now = Millis(1_900_000_000_000)
    assert validate(document, existing=existing(document), now=now).echoes == ("a",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (task(tags={"x": "1", "y": "2"}), task(tags={"y": "2", "x": "1"})),
        (task(mutexes=[{"key": "x"}, {"key": "y"}]), task(mutexes=[{"key": "y"}, {"key": "x"}])),
        (task(priority=PRIORITY), task()),
        (task(dimensions={"a": "1", "b": "2|3"}), task(dimensions={"b": "3|2", "a": ["1"]})),
        (
            task(payload={"script": "x", "env": {"A": "", "B": ""}}),
            task(payload={"env": {"B": "", "A": ""}, "script": "x"}),
        ),
        (task(slices=[{}]), task()),
    ],
)
def test_what_means_the_same_has_one_digest(one: object, other: object) -> None:
    assert digest(read_task(one)) == digest(read_task(other))


def test_the_order_of_edges_is_no_part_of_a_digest() -> None:
    one, other = (graph(x=node(), y=node(), a=node(requires=order)) for order in (["x", {"task": "y"}], ["y", "x"]))
    assert digest(read_task(one)) == digest(read_task(other))


def test_the_label_is_no_part_of_a_digest() -> None:
    tasks = read(graph(x=node(), y=node())).tasks
    assert digest(tasks["x"]) == digest(tasks["y"])


TRUE = node({"command": ["true"]})
DIFFERENT = [
    task(),
    task(payload={"command": ["true", "1"]}),
    task(payload={"command": ["true1"]}),
    task(payload={"python": "m:f", "args": [1]}),
    task(payload={"python": "m:f", "args": ["1"]}),
    task(payload={"python": "m:f", "args": [True]}),
    task(priority=1),
    task(retries=1),
    task(weight=2),
    task(routing="x"),
    task(description="x"),
    task(idempotent=True),
    task(disconnect="keep"),
    task(deadline="1h"),
    task(not_before="1h"),
    task(expires="1h"),
    task(wait_for_capacity=False),
    task(dimensions={"os": "x"}),
    task(mutexes=[{"key": "x"}]),
    task(mutexes=[{"key": "x", "party": "y"}]),
    task(limits={"x": 1}),
    task(tags={"x": ""}),
    task(slices=[{}, {}]),
    graph(a={**TRUE, "join": "any"}),
    graph(a={**TRUE, "on_impossible": "skip"}),
    graph(a={**TRUE, "reruns": 1}),
    graph(a={**TRUE, "reruns": {"count": 1, "delay": "1s"}}),
    graph(b=node(), a={**TRUE, "requires": ["b"]}),
    graph(b=node(), a={**TRUE, "requires": [{"task": "b", "on": "always"}]}),
]


def test_what_means_something_else_has_another_digest() -> None:
    digests = [digest(read_task(document)) for document in DIFFERENT]
    assert len(set(digests)) == len(digests)


def test_a_digest_stays_what_it_is() -> None:
    # Stored graphs are compared with it for years: a change here is a migration.
    document = task(priority=50, mutexes=[{"key": "x"}], dimensions={"os": "Linux"}, deadline="1h")
    assert digest(read_task(document)) == "853005d99361f70b3da33a4b21dfc46797a430ad42dc870a79373feca29320e8"


def _nodes(document: dict[str, object]) -> dict[str, object]:
    nodes = document["tasks"]
    assert isinstance(nodes, dict)
    return nodes


def test_a_digest_does_not_depend_on_the_node_of_a_task() -> None:
    made = Task("t[x]", (Slice((), {"noop": True}, Kind.NOOP),))
    assert digest(struct_replace(made, node="t")) == digest(made)
