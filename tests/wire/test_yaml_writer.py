"""What is written as YAML is read back as the same values, whatever they are."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.wire import yaml_reader, yaml_writer
from tests.effort import tries

#: Text that one or another reader takes for something else.
TRAPS = [
    "", " ", "~", "null", "Null", "true", "True", "yes", "on", "off", "1", "-0", "1e5", "1.5", "010", "0x1f", "0o7",
    "1_000",
    "12:30", "2024-01-01", ".inf", ".nan", "<<", "=", "-", "- a", "? b", ": c", "a: b", "a #b", "#c", "&a", "*a", "!a",
    "|", ">", "%a", "@a", "`a", "'", '"', "''", "a\n", "\na", "a\n\nb\n\n", " a\nb", "a \nb", "\ta", "a\tb\nc",
    "a\r\nb",
    "---", "...", "--- a\nb", "[", "]", "{", "}", ",", "a, b", "é", "\x85", "a\x85b\nc",
    "\u2028", "\ufeffx", "\U0001f600", "\x7f",
    "\x9f", "trailing ", "line\n  indented\nback", "a" * 5_000, "x\n" * 100,
]  # fmt: skip
KEPT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXT = st.one_of(st.sampled_from(TRAPS), st.text(KEPT, max_size=30))
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


def as_text(value: object) -> str:
    return json.dumps(value)


@settings(max_examples=tries(300), deadline=None)
@given(st.lists(st.dictionaries(TEXT, VALUE, min_size=1, max_size=4), min_size=1, max_size=3))
def test_documents_are_read_back_as_they_were(documents: list[dict[str, Any]]) -> None:
    assert as_text(yaml_reader.read_all(yaml_writer.write(documents))) == as_text(documents)


def test_every_trap_is_read_back_as_text_as_a_value_and_as_a_key() -> None:
    for trap in TRAPS:
        document = {trap: trap, "list": [trap, [trap]], "inner": {trap: [trap]}}
        assert yaml_reader.read_all(yaml_writer.write([document])) == [document], trap


def test_the_same_value_twice_is_written_twice() -> None:
    shared = {"a": [1, 2]}
    text = yaml_writer.write([{"x": shared, "y": shared}])
    assert "&" not in text
    assert yaml_reader.read_all(text) == [{"x": shared, "y": shared}]


def test_text_of_several_lines_is_written_as_a_block() -> None:
    assert yaml_writer.write([{"script": "cd /\nls\n"}]) == "script: |\n  cd /\n  ls\n"
