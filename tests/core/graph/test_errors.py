"""Where faults are, how they read, and which name was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.close_match import closest
from taskyard.core.graph.errors import Fault, Faults, Path, path_text, quoted, shown
from tests.each_row import each_row


@each_row(
    ("at", "text"),
    [
        ((), ""),
        (("tasks", "test", "requires", 1), "tasks.test.requires[1]"),
        (("tasks", "a b", "requires", 0), 'tasks["a b"].requires[0]'),
        (("tasks", "a.b"), 'tasks["a.b"]'),
        (("tasks", 'say "x"\\'), 'tasks["say \\"x\\"\\\\"]'),
        (("tasks", "x\u202e\n"), 'tasks["x\\u202e\\u000a"]'),
        (("a", "$subs"), "a.$subs"),
        ((0, "x"), "[0].x"),
        (("", "x"), '[""].x'),
        (("x" * 255,), "x" * 255),
        (("x" * 256,), '["' + "x" * 255 + '..."]'),
    ],
)
def test_a_path_reads_like_code(at: Path, text: str) -> None:
    assert path_text(at) == text


@given(st.text())
def test_nothing_hidden_in_a_name_reaches_a_reader(name: str) -> None:
    assert quoted(name).isprintable()


@each_row(
    ("value", "text"),
    [
        ("a", '"a"'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (1.5, "1.5"),
        (2**53, str(2**53)),
        (2**53 + 1, "a huge integer"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_a_value_is_named_as_it_was_written(value: object, text: str) -> None:
    assert shown(value) == text


def test_the_same_fault_again_is_one_fault() -> None:
    faults = Faults()
    faults.add(("a",), "is bad")
    faults.add(("a",), "is bad")
    assert faults.listed() == (Fault("a", "is bad"),)
    assert faults.noted == 2


def test_a_fault_that_is_only_counted_is_counted_once() -> None:
    faults = Faults()
    for index in [*range(105), *range(105)]:
        faults.add((index,), "is bad")
    assert len(faults.listed()) == 101
    assert faults.listed()[-1] == Fault("", "and 5 more faults")


@each_row(
    ("name", "meant"),
    [
        ("biuld", "build"),
        ("buil", "build"),
        ("buildd", "build"),
        ("BUILD", "build"),
        ("bu1ld", "build"),
        ("buidl", "build"),
        ("bulid", "build"),
        ("bbuild", "build"),
        ("buixld", "build"),
        ("uild", "build"),
        ("zebra", None),
        ("x" * 65, None),
        ("", None),
    ],
)
@each_row("crowd", [0, 1_000])
def test_the_nearest_name_is_found_among_few_and_among_many(name: str, meant: str | None, crowd: int) -> None:
    names = {"build": 1, "test": 2, **{f"other-task-{index:04}": 3 for index in range(crowd)}}
    assert closest(name, names) == meant


@pytest.mark.parametrize(("name", "meant"), [("retry", "retries"), ("cmd", "command"), ("tag", "tags")])
def test_among_few_names_a_likeness_is_enough(name: str, meant: str) -> None:
    assert closest(name, {"retries", "command", "tags", "priority"}) == meant


def test_among_many_names_a_dash_may_be_an_underscore() -> None:
    names = {f"unit_test_{index}" for index in range(1_000)}
    assert closest("unit-test-7", names) == "unit_test_7"


def test_the_length_of_a_name_bounds_the_search() -> None:
    assert closest("x" * 63 + "y", {"x" * 64}) == "x" * 64
    assert closest("x" * 64 + "y", {"x" * 65}) is None


def test_no_suggestion_is_searched_for_a_fault_that_is_only_counted() -> None:
    faults = Faults()
    assert faults.meant("biuld", {"build"}) == '; did you mean "build"?'
    for index in range(100):
        faults.add((index,), "is bad")
    assert faults.meant("biuld", {"build"}) == ""
