"""The survey of a document: its values, before it is read."""

from datetime import UTC, datetime

from taskyard.core.graph.errors import Fault, Faults
from taskyard.core.graph.model import DEPTH_MAX, VALUES_MAX
from taskyard.core.graph.schema import Survey, survey
from tests.core.graph.documents import faults_of, graph, node
from tests.each_row import each_row


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


@each_row(
    ("document", "faults", "readable"),
    [
        ({"a": "x\0"}, [("a", "holds a NUL character; remove it")], True),
        ({"a\0": 1}, [('["a\\u0000"]', "holds a NUL character; remove it")], True),
        (["\ud800"], [("[0]", "holds a lone surrogate, which is not a character; remove it")], True),
        ("\0", [("", "holds a NUL character; remove it")], True),
        ([2**53, -(2**53)], [], True),
        ([2**53 + 1], [("[0]", "is an integer beyond 2**53; write it as a string")], True),
        ([-(2**53) - 1], [("[0]", "is an integer beyond 2**53; write it as a string")], True),
        ([float("nan")], [("[0]", "is nan, which JSON cannot carry; write it as a string")], True),
        ({"a": [float("-inf")]}, [("a[0]", "is -inf, which JSON cannot carry; write it as a string")], True),
        ([1.5, True, None, "\u00e9"], [], True),
        ({True: 1}, [("", "has the key true, which is not a string; quote it")], False),
        ({"a": {"b": 1, 3: 2}}, [("a", "has the key 3, which is not a string; quote it")], False),
        (
            {"at": datetime(2030, 1, 1, tzinfo=UTC)},
            [("at", "is not a plain value (datetime); write it as a string")],
            False,
        ),
        ([(1, 2)], [("[0]", "is not a plain value (tuple); write it as a string")], False),
        (nested(DEPTH_MAX), [], True),
        (nested(DEPTH_MAX + 1), [("[0]" * DEPTH_MAX, f"is nested too deep; at most {DEPTH_MAX} levels")], False),
    ],
)
def test_only_plain_values_pass(document: object, faults: list[tuple[str, str]], readable: bool) -> None:
    found = Faults()
    assert survey(document, found).readable is readable
    assert found.listed() == tuple(Fault(*fault) for fault in faults)


def test_depth_is_a_fault_and_never_a_crash() -> None:
    assert faults_of(nested(100_000)) == [
        ("[0]" * DEPTH_MAX, f"is nested too deep; at most {DEPTH_MAX} levels"),
    ]


def test_a_value_that_holds_itself_is_nested_too_deep() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert [message for _, message in faults_of(loop)] == [f"is nested too deep; at most {DEPTH_MAX} levels"]


def test_aliases_that_multiply_are_stopped() -> None:
    bomb: list[object] = ["x"] * 1_000
    for _ in range(10):
        bomb = [bomb] * 100
    assert faults_of(bomb) == [("", f"holds more than {VALUES_MAX} values; split it")]


def test_the_survey_counts_values_and_finds_the_tasks_with_marks() -> None:
    document = graph(a=node({"script": {"$subs": "taskId:b"}}), b=node(), c=node({"script": {"$subs": 1, "x": 2}}))
    assert survey(document, Faults()) == Survey(readable=True, values=16, marked=frozenset({"a"}))


def test_faults_of_values_are_listed_beside_the_others() -> None:
    assert faults_of({"nam": "x\0", "tasks": {}}) == [
        ("nam", "holds a NUL character; remove it"),
        ("nam", 'unknown field "nam" of a graph; did you mean "name"?'),
    ]
