"""The code keeps the habits it claims to have."""

import ast

from tests.project.tree import SOURCES, imports, modules, name, parsed

#: What the core may use of the standard library: nothing with a clock, randomness, input or output.
PURE = {
    "bisect", "collections", "collections.abc", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "string", "types", "typing",
    "unicodedata",
}  # fmt: skip
#: Modules of the core that use more: libraries that compute, and the data of time zones.
PURE_LIBRARIES = {"structs.py": {"msgspec"}, "schedules.py": {"cronsim", "dateutil", "dateutil.rrule", "zoneinfo"}}
#: The clock has a back door in `datetime`.
CLOCKS = {"now", "utcnow", "today"}


def test_every_module_opens_with_a_docstring() -> None:
    assert [name(path) for path in modules() if not ast.get_docstring(parsed(path))] == []


def test_the_core_is_pure() -> None:
    for path in sorted((SOURCES / "core").rglob("*.py")):
        foreign = {one for one in imports(path) if not one.startswith("taskyard.core")}
        allowed = PURE | PURE_LIBRARIES.get(path.name, set())
        assert foreign <= allowed, f"{name(path)} imports {sorted(foreign - allowed)}"
        calls = (node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
        clocks = {function.attr for function in calls if isinstance(function, ast.Attribute)} & CLOCKS
        assert not clocks, f"{name(path)} reads the clock: in the core, `now` is an argument"


def test_states_are_compared_in_the_core_only() -> None:
    outside = [path for path in modules() if "core" not in path.relative_to(SOURCES).parts]
    compared = [
        f"{name(path)}:{node.lineno}"
        for path in outside
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Compare) and "State." in ast.unparse(node)
    ]
    assert compared == [], "an `if task.state == ...` outside the core is a rule in the wrong place"
