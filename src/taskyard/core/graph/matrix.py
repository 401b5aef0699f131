"""`matrix:` on a node makes one task of each combination: `{os: [linux, mac], py: ["3.11", "3.12"]}`.

The tasks are labelled `test[linux,3.11]`, axes in the order of the document. `{"$matrix": "os"}` anywhere in the
node's task stands for the value of that axis. Decimal numbers are refused as values: YAML reads 3.10 as 3.1.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod

from taskyard.core.graph.errors import Faults, Path, quoted, shown
from taskyard.core.graph.model import AXES_MAX, AXIS_NAME_MAX, MATRIX_MAX, NAME_MAX
from taskyard.core.graph.scalars import MATRIX, Mark

#: The one key of a matrix that is no axis.
EXCLUDE = "exclude"

#: How many of the known names are listed when none is near.
KNOWN_SHOWN = 8

Scalar = str | int | bool
#: A value for each axis.
Choice = Mapping[str, Scalar]
Axes = Mapping[str, tuple[Scalar, ...]]

_AXIS = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{AXIS_NAME_MAX - 1}}}")


@dataclass(frozen=True, slots=True)
class Matrix:
    """The combinations of one node by label; none when its matrix is faulty."""

    axes: Axes
    combinations: Mapping[str, Choice]
    _indexes: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def select(self, where: Mapping[str, object]) -> list[str]:
        """Return the labels of the combinations that have the values of `where`; none if it is faulty."""
        names = tuple(where)
        values = tuple(text_of(value) for value in where.values() if isinstance(value, str | int))
        if not where.keys() <= self.axes.keys() or len(values) < len(names):
            return []
        # Two large matrices are paired by looking up, not by comparing each with each.
        if names not in self._indexes:
            self._indexes[names] = self._index(names)
        return self._indexes[names].get(values, [])

    def _index(self, names: tuple[str, ...]) -> dict[tuple[str, ...], list[str]]:
        index: dict[tuple[str, ...], list[str]] = {}
        for label, choice in self.combinations.items():
            index.setdefault(tuple(text_of(choice[name]) for name in names), []).append(label)
        return index


#: Stands for a matrix that could not be read.
NO_MATRIX = Matrix({}, {})


def read_matrix(value: object, base: str, at: Path, faults: Faults, taken: frozenset[str] = frozenset()) -> Matrix:
    """Read the matrix of the node `base`; `taken` are the axes of matrices around it."""
    before = faults.noted
    axes = _read_axes(value, at, faults, taken)
    if not isinstance(value, dict) or faults.noted > before:
        return NO_MATRIX
    excluded = _read_exclude(value.get(EXCLUDE, []), axes, (*at, EXCLUDE), faults)
    count = prod(map(len, axes.values()))
    if count > MATRIX_MAX:
        faults.add(at, f"makes {count} combinations; at most {MATRIX_MAX}: split the task")
    if faults.noted > before:
        return NO_MATRIX
    return _without(_combine(base, axes, at, faults), excluded, (*at, EXCLUDE), faults)


#: Fields that hold texts: there a number stands as it is written. In the others it stays a number.
TEXTUAL = frozenset({"command", "cwd", "dimensions", "env", "outputs", "script"})
VALUED = frozenset({"args", "extra_vars"})


def fill(task: object, choice: Choice, textual: bool | None = None) -> object:
    """Return `task` with each `$matrix` of a known axis replaced by its value; parts without one are not copied."""
    if isinstance(task, dict):
        if len(task) == 1 and MATRIX in task:
            return _value_of(task, choice, textual)
        filled = {key: fill(item, choice, _textual(key, textual)) for key, item in task.items()}
        return filled if any(filled[key] is not task[key] for key in task) else task
    if isinstance(task, list):
        entries = [fill(item, choice, textual) for item in task]
        return entries if any(new is not old for new, old in zip(entries, task, strict=True)) else task
    return task


def _textual(key: str, textual: bool | None) -> bool | None:
    if textual is not None or key not in TEXTUAL | VALUED:
        return textual
    return key in TEXTUAL


def _value_of(mark: dict[str, object], choice: Choice, textual: bool | None) -> object:
    axis = mark[MATRIX]
    if not isinstance(axis, str) or axis not in choice:
        return mark
    return text_of(choice[axis]) if textual else choice[axis]


def refuse_inside_texts(task: object, at: Path, faults: Faults) -> None:
    """Note each text that contains a mark instead of being one, because it would not be replaced."""
    if isinstance(task, str) and f"{{{MATRIX}:" in task:
        faults.add(at, f"holds {{{MATRIX}: inside a text, where it means nothing; put the value into env and use $NAME")
    elif isinstance(task, dict | list):
        for step, item in task.items() if isinstance(task, dict) else enumerate(task):
            refuse_inside_texts(item, (*at, step), faults)


def refuse_unfilled(marks: Iterable[Mark], choice: Choice, faults: Faults) -> None:
    """Note each `$matrix` that `fill` has left because the matrix of the task lacks that axis."""
    for place, axis in marks:
        if place[-1] != MATRIX:
            continue
        if not choice:
            faults.add(place, "stands for an axis, but this task has no matrix; add one")
        elif isinstance(axis, str):
            faults.add(place, f"unknown axis {quoted(axis)}{_meant(axis, choice, faults)}")
        else:
            faults.wrong(place, "the name of an axis", axis)


def read_scalar(value: object, at: Path, faults: Faults) -> Scalar | None:
    """Read a value of an axis."""
    if isinstance(value, float):
        faults.add(at, "must be a string; quote it, because 3.10 would be read as 3.1")
        return None
    if not isinstance(value, str | int):
        faults.wrong(at, "a string, an integer, true or false", value)
        return None
    if isinstance(value, str) and len(value) > NAME_MAX:
        faults.add(at, f"has {len(value)} characters; at most {NAME_MAX}")
        return None
    return value


def text_of(value: Scalar) -> str:
    """Write a value as in a label."""
    return value if isinstance(value, str) else shown(value)


def read_where(where: Mapping[str, object], axes: Axes, at: Path, faults: Faults) -> dict[str, Scalar]:
    """Read values for some of the axes."""
    found: dict[str, Scalar] = {}
    for name, entry in where.items():
        if name not in axes:
            faults.add((*at, name), f"unknown axis {quoted(name)}{_meant(name, axes, faults)}")
        elif (value := _read_value(name, entry, axes[name], (*at, name), faults)) is not None:
            found[name] = value
    return found


def _read_value(name: str, entry: object, axis: tuple[Scalar, ...], at: Path, faults: Faults) -> Scalar | None:
    value = read_scalar(entry, at, faults)
    known = [text_of(each) for each in axis]
    if value is None or text_of(value) in known:
        return value
    faults.add(at, f"unknown value {shown(value)} of the axis {quoted(name)}{_meant(text_of(value), known, faults)}")
    return None


def _meant(name: str, known: Collection[str], faults: Faults) -> str:
    return faults.meant(name, known) or f"; known are {', '.join(map(quoted, islice(known, KNOWN_SHOWN)))}"


def _read_axes(value: object, at: Path, faults: Faults, taken: frozenset[str]) -> dict[str, tuple[Scalar, ...]]:
    axes = {name: entries for name, entries in value.items() if name != EXCLUDE} if isinstance(value, dict) else {}
    if not isinstance(value, dict):
        faults.wrong(at, "an object of axes, each with a list of values", value)
    elif not 1 <= len(axes) <= AXES_MAX:
        faults.add(at, f"must hold 1 to {AXES_MAX} axes; got {len(axes)}")
        return {}
    for name in axes:
        if _AXIS.fullmatch(name) is None:
            faults.add((*at, name), f"is no axis name; use a word of at most {AXIS_NAME_MAX} letters, digits, _ and -")
        elif name in taken:
            faults.add((*at, name), f"{quoted(name)} is an axis of the matrix around this graph; use another name")
    return {name: _read_axis(entries, (*at, name), faults) for name, entries in axes.items()}


def _read_axis(entries: object, at: Path, faults: Faults) -> tuple[Scalar, ...]:
    if not isinstance(entries, list):
        faults.wrong(at, "a list of values", entries)
        return ()
    if not 1 <= len(entries) <= MATRIX_MAX:
        faults.add(at, f"must hold 1 to {MATRIX_MAX} values; got {len(entries)}")
        return ()
    read = (read_scalar(entry, (*at, index), faults) for index, entry in enumerate(entries))
    values = tuple(value for value in read if value is not None)
    seen: set[str] = set()
    for index, value in enumerate(values):
        if text_of(value) in seen:
            faults.add((*at, index), f"repeats the value {shown(value)}; name it once")
        seen.add(text_of(value))
    return values


def _read_exclude(entries: object, axes: Axes, at: Path, faults: Faults) -> list[dict[str, Scalar]]:
    if not isinstance(entries, list) or len(entries) > MATRIX_MAX:
        faults.wrong(at, f"a list of at most {MATRIX_MAX} objects", entries)
        return []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not 1 <= len(entry) <= AXES_MAX:
            faults.wrong((*at, index), f"an object with values for 1 to {AXES_MAX} axes", entry)
            return []
    return [read_where(entry, axes, (*at, index), faults) for index, entry in enumerate(entries)]


def _combine(base: str, axes: Axes, at: Path, faults: Faults) -> Matrix:
    combinations: dict[str, Choice] = {}
    for values in product(*axes.values()):
        label = f"{base}[{','.join(map(text_of, values))}]"
        if label in combinations:
            faults.add(at, f"makes the label {quoted(label)} twice; leave commas out of its values")
        combinations[label] = dict(zip(axes, values, strict=True))
    return Matrix(axes, combinations)


def _without(matrix: Matrix, excluded: list[dict[str, Scalar]], at: Path, faults: Faults) -> Matrix:
    distinct = {frozenset((axis, text_of(value)) for axis, value in entry.items()) for entry in excluded}
    gone = {label for entry in distinct for label in matrix.select(dict(entry))}
    left = {label: choice for label, choice in matrix.combinations.items() if label not in gone}
    if not left:
        faults.add(at, "leaves no combination; exclude fewer")
    return Matrix(matrix.axes, left)
