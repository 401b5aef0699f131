"""What a bot must have to run a slice: `{pool: lab, os: [Linux, Debian], gpu: "h100|a100"}`.

A bot needs every value that is listed for a key; of the alternatives in one value (`a|b`) it needs one. The rules are
Swarming's. What is read comes out in one canonical order, so that equal demands are one queue.
"""

import re

from taskyard.core.graph.faults import Faults, Path, quoted, shown
from taskyard.core.graph.fields import Reader
from taskyard.core.graph.limits import (
    DIMENSION_KEY_MAX,
    DIMENSION_VALUE_MAX,
    DIMENSION_VALUES_MAX,
    DIMENSIONS_MAX,
)
from taskyard.core.graph.readers import name_fault
from taskyard.core.matching import COMBINATIONS_MAX, ID, OR, POOL, Dimensions, canonical, combination_count

#: Keys that queues are found by: a task asks for one value of them, without alternatives.
SINGLE = frozenset({ID, POOL})

#: How the key of a dimension is spelled.
KEY = re.compile(rf"[A-Za-z0-9_.-]{{1,{DIMENSION_KEY_MAX}}}")
_TAKES = "an object of dimension keys, each with a string or a list of strings"


def dimensions() -> Reader:
    """Read the dimensions of a slice."""
    return Reader(_TAKES, _read)


def _read(value: object, at: Path, faults: Faults) -> Dimensions | None:
    if not isinstance(value, dict):
        faults.wrong(at, _TAKES, value)
        return None
    if len(value) > DIMENSIONS_MAX:
        faults.add(at, f"must hold at most {DIMENSIONS_MAX} keys; got {len(value)}")
        return None
    before = faults.noted
    found = tuple((key, _values(key, values, (*at, key), faults)) for key, values in value.items())
    if faults.noted > before:
        return None
    _count_combinations(found, at, faults)
    return canonical(dict(found))


def _values(key: str, values: object, at: Path, faults: Faults) -> tuple[str, ...]:
    if KEY.fullmatch(key) is None:
        faults.add(at, f"is no dimension key; use 1 to {DIMENSION_KEY_MAX} of the characters A-Z a-z 0-9 _ . -")
    if isinstance(values, list):
        return _listed(key, values, at, faults)
    return (_value(key, values, at, faults),)


def _listed(key: str, values: list[object], at: Path, faults: Faults) -> tuple[str, ...]:
    most = 1 if key in SINGLE else DIMENSION_VALUES_MAX
    if not 1 <= len(values) <= most:
        faults.add(at, f"must hold 1 to {most} values; got {len(values)}" if most > 1 else "must hold one value")
        return ()
    found = [_value(key, value, (*at, index), faults) for index, value in enumerate(values)]
    for index, value in enumerate(found):
        if value in found[:index]:
            faults.add((*at, index), f"repeats the value {quoted(value)}; name it once")
    return tuple(found)


def _value(key: str, value: object, at: Path, faults: Faults) -> str:
    """Read one value."""
    if not isinstance(value, str):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        faults.add(
            at, f'must be a string; write "{shown(value)}"' if is_number else f"must be a string; got {shown(value)}"
        )
        return ""
    if fault := name_fault(value, DIMENSION_VALUE_MAX):
        faults.add(at, fault)
    return _alternatives(key, value, at, faults) if OR in value else value


def _alternatives(key: str, value: str, at: Path, faults: Faults) -> str:
    parts = value.split(OR)
    if key in SINGLE:
        faults.add(at, f"must not hold {OR}: {key} has no alternatives; use one slice for each")
    elif len(set(parts)) < len(parts):
        faults.add(at, f"repeats an alternative in {quoted(value)}; name it once")
    elif any(name_fault(part) for part in parts):
        faults.add(at, f"has an alternative that is empty or has outer blanks in {quoted(value)}")
    return value


def _count_combinations(found: Dimensions, at: Path, faults: Faults) -> None:
    count = combination_count(found)
    if count > COMBINATIONS_MAX:
        faults.add(at, f"its alternatives make {count} combinations; at most {COMBINATIONS_MAX}: use more slices")
