"""A document is read as its author meant it, or refused with every fault and its place; it never harms the reader."""

import json
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taskyard.wire import yaml_reader
from taskyard.wire.documents import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    FAULTS_MAX,
    UnreadableDocument,
    find_lines,
    read_document,
    read_path,
)
from taskyard.wire.yaml_reader import YAML_NODES_MAX, YAML_TASKS_MAX
from tests.each_row import each_row


def faults(text: str | bytes, name: str = "") -> list[tuple[str, int | None, int | None]]:
    """Read a document that has to be refused."""
    with pytest.raises(UnreadableDocument) as refused:
        read_document(text.encode() if isinstance(text, str) else text, name)
    return [(fault.message, fault.line, fault.column) for fault in refused.value.faults]


def messages(text: str | bytes, name: str = "") -> str:
    return "\n".join(message for message, _, _ in faults(text, name))


# What YAML's words mean


@each_row(
    ("spelled", "meant"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-7", -7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-2.5E-1", -0.25),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int 12", 12),
        ('!!int "12"', 12),
        ("!!bool true", True),
        ("!!null ''", None),
        ("!!float 1.5", 1.5),
        ("!!seq [a]", ["a"]),
        ("!!map {a: b}", {"a": "b"}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_yaml_reads_what_json_could_say(spelled: str, meant: object) -> None:
    read = read_document(f"key: {spelled}\n".encode())
    assert read == {"key": meant}
    assert isinstance(read, dict)
    assert type(read["key"]) is type(meant)


@each_row(
    "word",
    ["on", "off", "yes", "no", "y", "n", "On", "OFF", "Yes", "True", "FALSE", "Null", "12:30", "1:02:03", "010", "0o17",
     "0x1F", "0b11", "1_000", "+5", ".5", "1.", ".inf", "-.inf", ".nan", "NaN", "Infinity", "2024-01-01",
     "2024-01-01T10:00:00Z", "=", "3.10.1", "1e"],
)  # fmt: skip
def test_everything_else_is_text_as_key_and_as_value(word: str) -> None:
    assert read_document(f"{word}: {word}\n".encode(), "x.yaml") == {word: word}


def test_the_key_on_stays_what_it_is() -> None:
    assert read_document(b"requires: [{task: build, on: success}]") == {
        "requires": [{"task": "build", "on": "success"}]
    }


def test_an_alias_stands_for_its_value() -> None:
    assert read_document(b"a: &x {k: [1]}\nb: *x\n&k c: d\ne: *k") == {
        "a": {"k": [1]},
        "b": {"k": [1]},
        "c": "d",
        "e": "c",
    }


def test_an_anchor_may_be_given_again() -> None:
    assert read_document(b"[&x 1, *x, &x 2, *x]", "x.yaml") == [1, 1, 2, 2]


def test_an_alias_can_be_a_key_when_it_is_text() -> None:
    assert read_document(b"a: &x k\n*x : v") == {"a": "k", "k": "v"}


def test_an_anchor_given_again_hides_the_one_before_even_inside_itself() -> None:
    assert faults("[&x 1, &x [*x]]", "x.yaml") == [("the alias *x stands for what it is in", 1, 12)]


def test_a_quoted_merge_key_is_text() -> None:
    assert read_document(b"'<<': 1") == {"<<": 1}


# Which form it is


@each_row(
    ("text", "name", "meant"),
    [
        (b'{"a": 1}', "", {"a": 1}),
        (b'  \n{"a": 1}', "<stdin>", {"a": 1}),
        (b"{a: 1}", "graph.yaml", {"a": 1}),
        (b"{a: 1}", "graph.YML", {"a": 1}),
        (b"[1]", "graph.json", [1]),
        (b"a: 1", "graph", {"a": 1}),
        (b"\xef\xbb\xbfa: 1", "", {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', "", {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', "graph.json", {"a": 1}),
        ('{"a": "é\\ud83d\\ude00"}'.encode(), "", {"a": "é\U0001f600"}),
        (b'{"a": "\\\\u0000 \\\\ud800"}', "", {"a": "\\u0000 \\ud800"}),
    ],
)
def test_the_format_is_found_by_the_name_and_then_by_a_brace(text: bytes, name: str, meant: object) -> None:
    assert read_document(text, name) == meant


# Faults, all of them and each at its place


def test_yaml_lists_every_fault_with_its_place() -> None:
    text = """\
a: 1
a: 2
b: {c: 1, c: 2}
1: x
true: x
? [1]
: y
<<: {z: 1}
d: !!python/object/apply:os.system [id]
e: !!binary aGk=
f: !mine {}
g: 9223372036854775808
h: -1e999
i: !!int twelve
j: "\\0"
k: *nothing
l: &l [*l]
"""
    assert faults(text) == [
        ("the key 'a' is there twice, first on line 1", 2, 1),
        ("the key 'c' is there twice, first on line 3", 3, 11),
        ("a key has to be text, not 1; quote it", 4, 1),
        ("a key has to be text, not true; quote it", 5, 1),
        ("a key has to be text, not a list or a mapping", 6, 3),
        ("merge keys (<<) are not read; write the fields out", 8, 1),
        ("the tag !!python/object/apply:os.system is not allowed", 9, 4),
        ("the tag !!binary is not allowed", 10, 4),
        ("the tag !mine is not allowed", 11, 4),
        ("the integer 9223372036854775808 does not fit in 64 bits", 12, 4),
        ("the number -1e999 is too large", 13, 4),
        ("'twelve' is not what its tag !!int says", 14, 4),
        ("text must not have NUL or half of a surrogate pair", 15, 4),
        ("the alias *nothing has no anchor before it", 16, 4),
        ("the alias *l stands for what it is in", 17, 8),
    ]


def test_json_lists_every_fault() -> None:
    numbers = f"[NaN, -Infinity, 1e999, -1e999, 9223372036854775808, {'9' * 5000}]"
    assert faults(f'{{"a": 1, "a": 2,\n "b": {numbers},\n "c": "\\uD800", "d\\u0000": 1}}') == [
        ("\\uD800 is half of a surrogate pair", 3, 8),
        ("\\u0000 is a NUL character", 3, 19),
        ("NaN is not a number in JSON", None, None),
        ("-Infinity is not a number in JSON", None, None),
        ("the number 1e999 is too large", None, None),
        ("the number -1e999 is too large", None, None),
        ("the integer 9223372036854775808 does not fit in 64 bits", None, None),
        (f"the integer {'9' * 40}... does not fit in 64 bits", None, None),
        ("the key 'a' is there twice", None, None),
    ]


@each_row(
    ("text", "name", "message", "line", "column"),
    [
        (b"", "", "the document is empty", None, None),
        (b" \n\t\n", "x.json", "the document is empty", None, None),
        (b"# nothing but a comment\n", "", "the document is empty", None, None),
        (b"a: 1\nb: \xff", "", "the document is not UTF-8", 2, 4),
        ("a: 1".encode("utf-16"), "", "the document is not UTF-8", 1, 1),
        (b'{"a": "\xed\xa0\x80"}', "", "the document is not UTF-8", 1, 8),
        (b"a: 1\nb: \0", "", "the document has a NUL character", 2, 4),
        (b'{"a": 1,}', "", "not JSON: Expecting property name enclosed in double quotes", 1, 9),
        (b'{"a": 1', "", "not JSON: Expecting ',' delimiter", 1, 8),
        (b'{"a": 1} {}', "", "not JSON: Extra data", 1, 10),
        (b'{"a": "\n"}', "", "not JSON: Invalid control character at", 1, 8),
        (b"a: 1\n---\nb: 2", "", "a second document begins here; one file is one graph", 2, 1),
        (b"a: \x07", "", "the character U+0007 is not allowed", 1, 4),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(
    text: bytes, name: str, message: str, line: int | None, column: int | None
) -> None:
    assert faults(text, name) == [(message, line, column)]


def test_a_syntax_error_comes_after_the_faults_before_it() -> None:
    found = faults("a: 1\na: 2\nb: [1,\n")
    assert found[0][:2] == ("the key 'a' is there twice, first on line 1", 2)
    assert found[1][0].startswith("not YAML: ")
    assert found[1][1] == 4


def test_a_lone_surrogate_in_yaml_is_refused() -> None:
    assert len(faults('a: "\\ud800"')) == 1


def test_faults_are_listed_up_to_a_page() -> None:
    found = faults("".join("a: 1\n" for _ in range(10 * FAULTS_MAX)))
    assert len(found) == FAULTS_MAX + 1
    assert found[-1][0] == f"there are more than {FAULTS_MAX} faults"


# Bounds


def test_a_document_of_the_greatest_size_is_read_and_a_bigger_one_is_not() -> None:
    text = b'{"a": "%s"}' % (b"x" * (DOCUMENT_BYTES_MAX - 9))
    assert len(text) == DOCUMENT_BYTES_MAX
    assert read_document(text)
    assert "at most" in messages(text + b" ")


@pytest.mark.parametrize("name", ["deep.yaml", "deep.json"])
def test_depth_has_a_bound(name: str) -> None:
    assert read_document(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, name)
    assert messages("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), name) == f"nested more than {DEPTH_MAX} deep"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[" * 100_000, "x.yaml"),
        ("[" * 100_000, "x.json"),
        ('{"a":' * 100_000, "x.yaml"),
        ('{"a":' * 100_000, "x.json"),
        ("- " * 100_000, "x.yaml"),
        ("? " * 100_000, "x.yaml"),
        ("".join(f"{' ' * depth}k:\n" for depth in range(1_000)), "x.yaml"),
    ],
)
def test_endless_nesting_is_refused_and_never_overflows(text: str, name: str) -> None:
    assert messages(text, name) == f"nested more than {DEPTH_MAX} deep"


def test_depth_counts_through_aliases() -> None:
    links = "".join(f"k{number}: &k{number} [*k{number - 1}]\n" for number in range(1, 5_000))
    assert messages("k0: &k0 []\n" + links) == f"nested more than {DEPTH_MAX} deep"


def test_depth_counts_the_deepest_branch_and_not_the_last() -> None:
    links = "".join(f"k{number}: &k{number} [*k{number - 1}, 1]\n" for number in range(1, DEPTH_MAX + 1))
    assert messages("k0: &k0 []\n" + links) == f"nested more than {DEPTH_MAX} deep"


def test_brackets_in_strings_are_no_depth() -> None:
    text = json.dumps({"a": "[" * 1_000 + '\\"{' * 1_000})
    assert read_document(text.encode()) == json.loads(text)


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    levels = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 50))
    assert messages("l0: &l0 [lol]\n" + levels) == f"more than {YAML_NODES_MAX} values, aliases written out"


def test_aliases_to_a_long_text_count_as_if_written_out() -> None:
    text = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 20)}]"
    assert messages(text) == f"more than {DOCUMENT_BYTES_MAX} bytes, aliases written out"


def test_yaml_has_a_greatest_number_of_tasks_and_points_to_json() -> None:
    tasks = "tasks:\n" + "".join(f"  t{number}: {{}}\n" for number in range(YAML_TASKS_MAX))
    read = read_document(tasks.encode())
    assert isinstance(read, dict)
    assert len(read["tasks"]) == YAML_TASKS_MAX
    assert "use JSON" in messages(tasks + "  one-more: {}\n")
    many: dict[str, dict[str, object]] = {"tasks": {f"t{number}": {} for number in range(YAML_TASKS_MAX + 1)}}
    assert read_document(json.dumps(many).encode()) == many


# Any text at all


def values(characters: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    integers, floats = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
    keys = st.text(characters, max_size=100)  # YAML ends a key of more than 1 024 characters, escapes and all
    return st.recursive(
        st.none() | st.booleans() | integers | floats | st.text(characters),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=20,
    )


@given(values(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_json_is_read_back_as_written(value: object) -> None:
    assert read_document(json.dumps(value).encode(), "x.json") == value


# JSON escapes what is beyond U+FFFF as two, which YAML does not know.
@given(values(st.characters(exclude_categories=["Cs"], exclude_characters="\0", max_codepoint=0xFFFF)))
def test_json_read_as_yaml_is_the_same(value: object) -> None:
    assert read_document(json.dumps({"value": value}).encode(), "x.yaml") == {"value": value}


@given(st.binary(max_size=200), st.sampled_from(["", "x.yaml", "x.json"]))
def test_any_bytes_are_read_or_refused(text: bytes, name: str) -> None:
    with suppress(UnreadableDocument):
        read_document(text, name)


@given(st.text("ab:-?,[]{}&*!|>'\"%@#<=~ \n\t0123.e", max_size=80))
def test_any_yaml_is_read_or_refused_with_either_parser(text: str) -> None:
    answers = []
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_reader, "_LOADER", loader)
            with suppress(UnreadableDocument):
                answers.append(read_document(text.encode(), "x.yaml"))
    if len(answers) == 2:
        assert answers[0] == answers[1]


# Where things are


def test_a_path_is_found_on_its_line_or_at_the_nearest_around_it() -> None:
    text = b'name: x\ntasks:\n  a:\n    requires: [b,\n      c]\n  "a b":\n    - &x {k: v}\n    - *x\n'
    wanted = {
        "": 1,
        "name": 1,
        "tasks.a": 3,
        "tasks.a.requires[1]": 5,
        "tasks.a.requires[7]": 4,
        'tasks["a b"][0].k': 7,
        'tasks["a b"][1].k': 8,
        "tasks.z.task": 2,
        "nowhere": 1,
    }
    assert find_lines(text, wanted) == wanted


def test_lines_are_found_in_json_too() -> None:
    assert find_lines(b'{\n"tasks": {\n\t"a": [1,\n2]}}', ["tasks.a", "tasks.a[1]"]) == {"tasks.a": 3, "tasks.a[1]": 4}


def test_lines_of_a_huge_document_stay_unknown() -> None:
    assert find_lines(b"a: " + b"x" * 2_000_000, ["a"]) == {}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("", ()),
        ("tasks.test.requires[1]", ("tasks", "test", "requires", 1)),
        ('tasks["a \\"b\\" \\\\ .c"].task', ("tasks", 'a "b" \\ .c', "task")),
        ('tasks["7"][7]', ("tasks", "7", 7)),
        ("tasks.x.env.$subs", ("tasks", "x", "env", "$subs")),
    ],
)
def test_a_written_path_is_taken_apart(written: str, path: tuple[str | int, ...]) -> None:
    assert read_path(written) == path
