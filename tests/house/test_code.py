"""The code keeps the habits it claims to have."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import SOURCES, functions, imports, modules, name, parsed

#: A file fits a sitting.
LINES_MAX = 420
#: A function fits a screen.
FUNCTION_LINES_MAX = 45

#: What the core may use of the standard library: nothing that has a clock, chance, input or output.
PURE = {
    "bisect", "collections", "collections.abc", "dataclasses", "datetime", "difflib", "enum", "functools", "hashlib",
    "fractions", "heapq", "itertools", "json", "math", "operator", "re", "string", "types", "typing", "unicodedata",
}  # fmt: skip
#: The clock has a back door in `datetime`.
CLOCKS = {"now", "utcnow", "today"}

#: Words that say nothing about what a thing is or does.
EMPTY_WORDS = {"util", "utils", "helper", "helpers", "manager", "handler", "data", "info", "misc", "common", "stuff"}
#: Names that are given: by py3-sched, whose API the library has, by the glossary, and by asyncio.
GIVEN = {"get_data", "Handler", "data_received"}


@pytest.mark.parametrize("path", modules(), ids=name)
def test_a_file_opens_with_a_paragraph_and_fits_a_sitting(path: Path) -> None:
    assert ast.get_docstring(parsed(path)), "say what this file is and what it never does"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", modules(), ids=name)
def test_a_function_fits_a_screen(path: Path) -> None:
    sizes = {one.name: (one.end_lineno or one.lineno) - one.lineno + 1 for one in functions(path)}
    assert {one: size for one, size in sizes.items() if size > FUNCTION_LINES_MAX} == {}


def test_the_typical_function_is_short() -> None:
    sizes = sorted((one.end_lineno or 0) - one.lineno + 1 for path in modules() for one in functions(path))
    assert sizes[len(sizes) // 2] <= 10


@pytest.mark.parametrize("path", sorted((SOURCES / "core").rglob("*.py")), ids=name)
def test_the_core_is_pure(path: Path) -> None:
    foreign = {one for one in imports(path) if not one.startswith("taskyard.core")}
    assert foreign <= PURE | ({"msgspec"} if path.name == "values.py" else set())
    calls = (node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
    clocks = {function.attr for function in calls if isinstance(function, ast.Attribute)} & CLOCKS
    assert not clocks, "the core asks nobody for the time: `now` is an argument"


@pytest.mark.parametrize("path", modules(), ids=name)
def test_every_name_says_something(path: Path) -> None:
    named = {node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    empty = {one for one in {*named, path.stem} - GIVEN if set(words_of(one)) & EMPTY_WORDS}
    assert not empty
    assert not {one for one in named if words_of(one)[:1] == ["process"]}, "say what is done"


def words_of(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)]


def test_states_are_compared_in_the_core_only() -> None:
    outside = [path for path in modules() if "core" not in path.relative_to(SOURCES).parts]
    compared = [
        f"{name(path)}:{node.lineno}"
        for path in outside
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Compare) and "State." in ast.unparse(node)
    ]
    assert compared == [], "an `if task.state == ...` outside the core is a rule in the wrong place"
