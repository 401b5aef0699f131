"""One task for each combination."""

import pytest

from taskyard.core.graph import Edge, Fault, validate
from taskyard.core.graph.errors import Faults
from taskyard.core.graph.model import Allowance
from taskyard.core.graph.references import read_labels
from taskyard.core.states import On
from tests.core.graph.documents import NOOP, faults_of, graph, node, payload, read, read_task
from tests.each_row import each_row

OS = {"os": ["linux", "mac"]}
BOTH = {"os": ["linux", "mac"], "py": ["3.11", "3.12"]}


def test_each_combination_is_a_task_in_the_order_of_the_axes() -> None:
    assert list(read(graph(test=node(matrix=BOTH))).tasks) == [
        "test[linux,3.11]",
        "test[linux,3.12]",
        "test[mac,3.11]",
        "test[mac,3.12]",
    ]


def test_values_may_be_integers_and_booleans() -> None:
    assert list(read(graph(t=node(matrix={"n": [1, -2], "debug": [True, False]}))).tasks) == [
        "t[1,true]",
        "t[1,false]",
        "t[-2,true]",
        "t[-2,false]",
    ]


def test_a_mark_stands_for_the_value_at_any_depth_of_the_task() -> None:
    template = {
        "task": {
            "priority": {"$matrix": "n"},
            "dimensions": {"os": {"$matrix": "os"}},
            "payload": {"python": "m:f", "args": [[{"x": {"$matrix": "os"}}], {"$matrix": "n", "y": 1}]},
        },
        "matrix": {"os": ["linux"], "n": [7]},
    }
    found = read_task(graph(t=template), "t[linux,7]")
    assert found.priority == 7
    assert found.slices[0].dimensions == (("os", ("linux",)), ("pool", ("default",)))
    assert found.slices[0].payload == {"python": "m:f", "args": [[{"x": "linux"}], {"$matrix": "n", "y": 1}]}


def test_what_holds_no_mark_is_shared_between_the_combinations() -> None:
    big = {"command": ["x"]}
    tasks = read(graph(t={"task": {"payload": big}, "matrix": OS})).tasks
    assert all(task.slices[0].payload is big for task in tasks.values())


def test_excluded_combinations_are_left_out() -> None:
    matrix = {**BOTH, "exclude": [{"os": "mac", "py": "3.11"}]}
    assert list(read(graph(t=node(matrix=matrix))).tasks) == ["t[linux,3.11]", "t[linux,3.12]", "t[mac,3.12]"]
    matrix = {**BOTH, "exclude": [{"os": "mac"}, {"py": "3.11"}]}
    assert list(read(graph(t=node(matrix=matrix))).tasks) == ["t[linux,3.12]"]


def test_true_is_not_one() -> None:
    matrix = {"n": [True, 1], "exclude": [{"n": True}]}
    assert list(read(graph(t=node(matrix=matrix))).tasks) == ["t[1]"]


def test_the_label_of_a_matrix_means_all_its_combinations() -> None:
    document = graph(build=node(matrix=OS), end=node(requires=["build"]))
    assert read_task(document, "end").requires == (Edge("build[linux]"), Edge("build[mac]"))


def test_one_combination_is_required_by_its_label() -> None:
    document = graph(build=node(matrix=OS), end=node(requires=["build[mac]"]))
    assert read_task(document, "end").requires == (Edge("build[mac]"),)


def test_where_picks_combinations() -> None:
    wanted = {"task": "build", "on": "failure", "where": {"py": "3.12"}}
    document = graph(build=node(matrix=BOTH), end=node(requires=[wanted]))
    assert read_task(document, "end").requires == (
        Edge("build[linux,3.12]", On.FAILURE),
        Edge("build[mac,3.12]", On.FAILURE),
    )


def test_inside_a_matrix_equal_is_paired_with_equal() -> None:
    paired = [{"task": "build", "where": {"os": {"$matrix": "os"}}}]
    tasks = read(graph(build=node(matrix=OS), test=node(matrix=BOTH, requires=paired))).tasks
    assert {label: [edge.task for edge in task.requires] for label, task in tasks.items() if task.requires} == {
        "test[linux,3.11]": ["build[linux]"],
        "test[linux,3.12]": ["build[linux]"],
        "test[mac,3.11]": ["build[mac]"],
        "test[mac,3.12]": ["build[mac]"],
    }


@each_row(
    ("matrix", "path", "message"),
    [
        ([], "", "must be an object of axes, each with a list of values; got a list"),
        ({}, "", "must hold 1 to 8 axes; got 0"),
        ({"exclude": []}, "", "must hold 1 to 8 axes; got 0"),
        ({f"a{index}": [1] for index in range(9)}, "", "must hold 1 to 8 axes; got 9"),
        ({"a b": [1]}, '["a b"]', "is no axis name; use a word of at most 64 letters, digits, _ and -"),
        ({"a": 1}, ".a", "must be a list of values; got 1"),
        ({"a": []}, ".a", "must hold 1 to 256 values; got 0"),
        ({"a": [1, 1]}, ".a[1]", "repeats the value 1; name it once"),
        ({"a": [1, "1"]}, ".a[1]", 'repeats the value "1"; name it once'),
        ({"a": [3.1]}, ".a[0]", "must be a string; quote it, because 3.10 would be read as 3.1"),
        ({"a": [None]}, ".a[0]", "must be a string, an integer, true or false; got null"),
        ({"a": ["x" * 256]}, ".a[0]", "has 256 characters; at most 255"),
        ({"a": list(range(17)), "b": list(range(16))}, "", "makes 272 combinations; at most 256: split the task"),
        (
            {"a": ["x,y", "x"], "b": ["z", "y,z"]},
            "",
            'makes the label "t[x,y,z]" twice; leave commas out of its values',
        ),
        ({"a": ["x\n"]}, "", 'makes the label "t[x\\u000a]", which holds the hidden character U+000A; remove it'),
        ({"a": [1], "exclude": {}}, ".exclude", "must be a list of at most 256 objects; got an object"),
        ({"a": [1], "exclude": [{}]}, ".exclude[0]", "must be an object with values for 1 to 8 axes; got an object"),
        ({"a": [1], "exclude": [{"a": 1}]}, ".exclude", "leaves no combination; exclude fewer"),
        ({"os": [1], "exclude": [{"oss": 1}]}, ".exclude[0].oss", 'unknown axis "oss"; did you mean "os"?'),
        ({"aa": [1], "exclude": [{"zz": 1}]}, ".exclude[0].zz", 'unknown axis "zz"; known are "aa"'),
        (
            {"os": ["linux"], "exclude": [{"os": "linx"}]},
            ".exclude[0].os",
            'unknown value "linx" of the axis "os"; did you mean "linux"?',
        ),
    ],
)
def test_a_bad_matrix_is_refused(matrix: object, path: str, message: str) -> None:
    assert faults_of(graph(t=node(matrix=matrix))) == [(f"tasks.t.matrix{path}", message)]


def test_256_combinations_are_enough() -> None:
    assert len(read(graph(t=node(matrix={"a": list(range(16)), "b": list(range(16))}))).tasks) == 256


@pytest.mark.parametrize(
    ("where", "path", "message"),
    [
        ({"oss": "linux"}, ".oss", 'unknown axis "oss"; did you mean "os"?'),
        ({"os": "linx"}, ".os", 'unknown value "linx" of the axis "os"; did you mean "linux"?'),
        ({"os": {"$matrix": "n"}}, ".os.$matrix", 'unknown axis "n"; known are "v"'),
        ({"os": {"$matrix": "v"}}, ".os", 'unknown value "no" of the axis "os"; known are "linux", "mac"'),
        ({}, "", "must be an object of 1 to 8 axes, each with a value or a $matrix object; got an object"),
        ({"os": ["linux"]}, ".os", "must be a string, an integer, true or false; got a list"),
        ({"os": "mac", "py": "3.11"}, "", 'picks no combination of "build"; all that agree are excluded'),
    ],
)
def test_a_where_that_picks_nothing_says_why(where: object, path: str, message: str) -> None:
    build = node(matrix={**BOTH, "exclude": [{"os": "mac", "py": "3.11"}]})
    end = node(matrix={"v": ["no"]}, requires=[{"task": "build", "where": where}])
    assert faults_of(graph(build=build, end=end)) == [(f"tasks.end.requires[0].where{path}", message)]


def test_a_mark_of_an_unknown_axis_is_refused() -> None:
    marked = {"python": "m:f", "args": [{"$matrix": "oss"}, {"$matrix": 5}]}
    assert faults_of(graph(t=node(marked, matrix=OS))) == [
        ("tasks.t.task.payload.args[0].$matrix", 'unknown axis "oss"; did you mean "os"?'),
        ("tasks.t.task.payload.args[1].$matrix", "must be the name of an axis; got 5"),
    ]


def test_a_mark_without_a_matrix_is_refused() -> None:
    marked = {"python": "m:f", "args": [{"$matrix": "os"}]}
    message = "stands for an axis, but this task has no matrix; add one"
    assert faults_of(graph(t=node(marked))) == [("tasks.t.task.payload.args[0].$matrix", message)]


def test_a_fault_of_all_combinations_is_listed_once() -> None:
    template = {"task": {"payload": dict(NOOP), "mutexes": [{}]}, "matrix": BOTH}
    assert faults_of(graph(t=template)) == [("tasks.t.task.mutexes[0]", 'needs the field "key"')]


def test_a_label_that_a_matrix_makes_too_is_refused() -> None:
    document = {"tasks": {"t": node(matrix=OS), "t[mac]": node()}}
    message = 'is a label that the matrix of "t" makes too; rename one'
    assert faults_of(document) == [('tasks["t[mac]"]', message)]


def test_two_matrices_that_make_one_label_are_refused() -> None:
    document = {"tasks": {"t": node(matrix={"a": ["x][y"]}), "t[x]": node(matrix={"b": ["y"]})}}
    message = 'makes the label "t[x][y]", which "t" makes too; rename one'
    assert faults_of(document) == [('tasks["t[x]"].matrix', message)]


def test_a_matrix_that_requires_itself_is_refused() -> None:
    assert faults_of(graph(t=node(matrix={"a": [1, 2]}, requires=["t"]))) == [
        ("tasks.t.requires[0]", '"t[1]" requires itself; remove it'),
        ("tasks.t.requires[0]", '"t[2]" requires itself; remove it'),
        ("tasks.t.requires", 'is a cycle, each requiring the next: "t[1]" -> "t[2]" -> "t[1]"; remove one edge'),
    ]


def test_a_combination_that_is_required_twice_is_refused() -> None:
    document = graph(t=node(matrix=OS), end=node(requires=["t", "t[mac]"]))
    assert faults_of(document) == [("tasks.end.requires[1]", 'repeats "t[mac]" on success; require it once')]


def test_requiring_a_faulty_matrix_is_no_further_fault() -> None:
    document = graph(t=node(matrix={}), end=node(requires=["t", {"task": "t", "where": {"a": 1}}]))
    assert [path for path, _ in faults_of(document)] == ["tasks.t.matrix"]


def test_combinations_count_as_tasks() -> None:
    document = graph(t=node(matrix=BOTH))
    assert validate(document, tasks_max=4).graph is not None
    assert validate(document, tasks_max=3).faults == (Fault("tasks", "makes more than 3 tasks; split it"),)


def test_a_graph_inside_sees_the_axes_around_it() -> None:
    inner = graph(x=node({"script": {"$matrix": "os"}}))
    found = read_task(graph(t=node({"graph": inner}, matrix=OS)), "t[mac]")
    assert found.slices[0].payload == {"graph": graph(x=node({"script": "mac"}))}


def test_a_graph_inside_may_have_a_matrix_of_its_own() -> None:
    inner = graph(x=node({"script": {"$matrix": "py"}}, matrix={"py": ["3.11"]}))
    assert faults_of(payload(graph=inner)) == []
    assert faults_of(graph(t=node({"graph": inner}, matrix=OS))) == []


def test_a_graph_inside_may_not_reuse_an_axis_around_it() -> None:
    inner = graph(x=node(matrix={"os": ["bsd"]}))
    message = '"os" is an axis of the matrix around this graph; use another name'
    at = "tasks.t.task.payload.graph.tasks.x.matrix.os"
    assert faults_of(graph(t=node({"graph": inner}, matrix=OS))) == [(at, message)]


def test_combinations_are_taken_from_the_allowance() -> None:
    left = Allowance(values=6)
    nodes = {label: node(matrix=BOTH) for label in "abc"}
    labels = read_labels(nodes, {}, ("tasks",), Faults(), left, frozenset())
    assert left.values == -2
    assert [len(matrix.combinations) for matrix in labels.matrices.values()] == [4, 4, 0]


def test_a_large_task_is_not_multiplied_without_end() -> None:
    heavy = node({"python": "m:f", "args": list(range(50_000))}, matrix={"n": list(range(256))})
    assert faults_of(graph(t=heavy)) == [("tasks.t", "makes more than 10000000 values; split it")]


def test_a_number_becomes_text_as_written_where_a_text_is_expected() -> None:
    work = {"command": ["x", {"$matrix": "n"}], "env": {"N": {"$matrix": "n"}}}
    task = {"dimensions": {"cores": {"$matrix": "n"}}, "weight": {"$matrix": "n"}, "payload": work}
    (made,) = read({"tasks": {"t": {"matrix": {"n": [4]}, "task": task}}}).tasks.values()
    assert made.weight == 4
    assert made.slices[0].dimensions == (("cores", ("4",)), ("pool", ("default",)))
    assert made.slices[0].payload == {"command": ["x", "4"], "env": {"N": "4"}}


def test_a_number_stays_one_among_the_arguments_of_a_function() -> None:
    task = {"payload": {"python": "m:f", "args": {"env": {"$matrix": "n"}}}}
    (made,) = read({"tasks": {"t": {"matrix": {"n": [4]}, "task": task}}}).tasks.values()
    assert made.slices[0].payload == {"python": "m:f", "args": {"env": 4}}


def test_a_mark_inside_a_text_is_refused_because_it_would_run_as_it_is_written() -> None:
    task = {"payload": {"script": "make MODE={$matrix: mode}"}}
    assert faults_of({"tasks": {"t": {"matrix": {"mode": ["a", "b"]}, "task": task}}}) == [
        (
            "tasks.t.task.payload.script",
            "holds {$matrix: inside a text, where it means nothing; put the value into env and use $NAME",
        )
    ]


def test_a_task_knows_the_node_it_was_made_of() -> None:
    tasks = read({"tasks": {"t": node(matrix={"a": ["x"]}), "u": node()}}).tasks
    assert [task.node for task in tasks.values()] == ["t", ""]
