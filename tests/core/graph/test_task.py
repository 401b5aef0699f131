"""The fields of a task, one by one: what they refuse, and with which message."""

import pytest

from taskyard.core.graph import Reruns
from tests.core.graph.documents import faults_of, graph, node, read_task, task
from tests.each_row import each_row

NAME = "a string of 1 to 255 characters, none hidden"
MUTEXES = "a list of 0 to 16 entries, each an object with the fields of a mutex"


@each_row(
    ("field", "value", "path", "message"),
    [
        ("priority", 256, "", "must be an integer from 0 to 255; got 256"),
        ("priority", -1, "", "must be an integer from 0 to 255; got -1"),
        ("priority", True, "", "must be an integer from 0 to 255; got true"),
        ("priority", 1.0, "", "must be an integer from 0 to 255; got 1.0"),
        ("priority", "1", "", 'must be an integer from 0 to 255; got "1"'),
        ("retries", 101, "", "must be an integer from 0 to 100; got 101"),
        ("weight", -1, "", "must be an integer from 0 to 1000000; got -1"),
        ("idempotent", 1, "", "must be true or false; got 1"),
        ("routing", "elevenchars", "", 'must be at most 10 of the characters A-Z a-z 0-9 _ -; got "elevenchars"'),
        ("routing", "a*", "", 'must be at most 10 of the characters A-Z a-z 0-9 _ -; got "a*"'),
        ("routing", "a\n", "", 'must be at most 10 of the characters A-Z a-z 0-9 _ -; got "a\\u000a"'),
        ("disconnect", "kept", "", 'must be one of strict, keep; got "kept"; did you mean "keep"?'),
        ("mutexes", {}, "", f"must be {MUTEXES}; got an object"),
        ("mutexes", [{"key": "x"}] * 17, "", "must hold 0 to 16 entries; got 17"),
        ("mutexes", ["x"], "[0]", 'must be an object with the fields of a mutex; got "x"'),
        ("mutexes", [{}], "[0]", 'needs the field "key"'),
        ("mutexes", [{"key": ""}], "[0].key", "is empty; give it a name"),
        ("mutexes", [{"key": 7}], "[0].key", f"must be {NAME}; got 7"),
        (
            "mutexes",
            [{"key": "x", "praty": "y"}],
            "[0].praty",
            'unknown field "praty" of a mutex; did you mean "party"?',
        ),
        ("mutexes", [{"key": "x", "zzz": 1}], "[0].zzz", 'unknown field "zzz" of a mutex; its fields are key, party'),
        ("mutexes", [{"key": "x"}, {"key": "x", "party": "y"}], "[1]", 'repeats the key "x"; name it once'),
        ("limits", {"gpu": 0}, ".gpu", "must be an integer from 1 to 1000000; got 0"),
        ("limits", {" gpu": 1}, '[" gpu"]', 'has outer blanks; write "gpu"'),
        ("limits", [], "", "must be an object of at most 16 entries, each an integer from 1 to 1000000; got a list"),
        ("limits", {f"l{index}": 1 for index in range(17)}, "", "must hold at most 16 entries; got 17"),
        ("tags", {"a": 1}, ".a", 'must be a string; write "1"'),
        ("tags", {"a": "x" * 257}, ".a", "must be a string of 0 to 256 characters; got 257"),
        ("tags", {"x" * 65: "v"}, "." + "x" * 65, "has 65 characters; at most 64"),
        ("tags", {"a": {"$subs": "taskId:a"}}, ".a", "must be a string of 0 to 256 characters; got an object"),
        ("description", "x" * 32_769, "", "must be a string of 0 to 32768 characters; got 32769"),
        ("wait_for_capacity", "yes", "", 'must be true or false; got "yes"'),
        ("prio", 1, "", 'unknown field "prio" of a task; did you mean "priority"?'),
    ],
)
def test_a_bad_field_of_a_task_is_refused(field: str, value: object, path: str, message: str) -> None:
    assert faults_of(task(**{field: value})) == [(f"tasks.a.task.{field}{path}", message)]


@pytest.mark.parametrize(
    ("value", "reruns"),
    [
        (0, Reruns()),
        (999, Reruns(999)),
        ({"count": 2}, Reruns(2)),
        ({"count": 2, "delay": "1m", "factor": 1.5, "exit_codes": [1, 255]}, Reruns(2, 60_000, 1.5, (1, 255))),
    ],
)
def test_reruns_are_a_count_or_more(value: object, reruns: Reruns) -> None:
    assert read_task(graph(a=node(reruns=value))).reruns == reruns


@each_row(
    ("value", "path", "message"),
    [
        (1000, "", "must be an integer from 0 to 999; got 1000"),
        (-1, "", "must be an integer from 0 to 999; got -1"),
        (True, "", "must be an integer from 0 to 999; got true"),
        (1.0, "", "must be an integer from 0 to 999, or an object with the fields of a reruns object; got 1.0"),
        ({}, "", 'needs the field "count"'),
        ({"count": 1, "delay": 5}, ".delay", "must be a duration from 0s to 1d, such as 90s or 1h30m; write 5s"),
        ({"count": 1, "factor": 0.5}, ".factor", "must be a number from 1 to 10; got 0.5"),
        ({"count": 1, "factor": True}, ".factor", "must be a number from 1 to 10; got true"),
        ({"count": 1, "exit_codes": []}, ".exit_codes", "must hold 1 to 255 entries; got 0"),
        ({"count": 1, "exit_codes": [0]}, ".exit_codes[0]", "must be an integer from 1 to 255; got 0"),
        ({"count": 1, "exit_codes": [3, 3]}, ".exit_codes[1]", "repeats the exit code 3; name it once"),
    ],
)
def test_bad_reruns_are_refused(value: object, path: str, message: str) -> None:
    assert faults_of(graph(a=node(reruns=value))) == [(f"tasks.a.reruns{path}", message)]


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"payload": {"noop": True}}, ("tasks.a.payload", "belongs inside task; move it there")),
        ({"task": {"noop": True}}, ("tasks.a.task.noop", "belongs inside payload; move it there")),
        ({"requires": "b"}, ("tasks.a.requires", "must be a list; write [b]")),
        (
            {"task": {"payload": {"command": "ls -l"}}},
            ("tasks.a.task.payload.command", "must be a list of arguments; write [ls, -l], or use script"),
        ),
    ],
)
def test_the_commonest_slips_are_named(wrong: dict[str, object], fault: tuple[str, str]) -> None:
    assert fault in faults_of({"tasks": {"a": {"task": {"payload": {"noop": True}}} | wrong}})
