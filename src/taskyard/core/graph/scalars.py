"""Readers of single values: texts, names, numbers, words of a list, and lists and mappings of these.

Each reader describes what it takes in the words of its fault, so messages and the reference agree. They run after
`survey`, so texts contain no NUL and numbers are finite.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeGuard, TypeVar

from taskyard.core import comparison
from taskyard.core.durations import moment_ms, span_ms, span_text
from taskyard.core.graph.errors import Faults, Path, quoted, shown
from taskyard.core.graph.model import (
    AHEAD_MAX_MS,
    DIMENSION_KEY_MAX,
    DIMENSION_VALUE_MAX,
    DIMENSION_VALUES_MAX,
    DIMENSIONS_MAX,
    NAME_MAX,
    ROUTING_MAX,
    When,
)
from taskyard.core.matching import COMBINATIONS_MAX, ID, OR, POOL, Dimensions, canonical, combination_count
from taskyard.core.resources import size_mb

# Marks: objects that are replaced, `{"$subs": "taskId:build"}` and `{"$matrix": "os"}`.
#
# An object is a mark only when that is its sole key; beside other keys it is left alone. What a mark means is known
# elsewhere. Values have been surveyed, so their depth is bounded and recursion is safe.


SUBS, MATRIX = "$subs", "$matrix"
#: The place of what a mark names, which ends in the mark's word; and the name itself.
Mark = tuple[Path, object]


def is_mark(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value is a mark."""
    return isinstance(value, dict) and len(value) == 1 and (SUBS in value or MATRIX in value)


def find(value: object, at: Path, leave: Collection[Path] = ()) -> Iterator[Mark]:
    """Yield every mark in `value`, but for what is inside the places to leave."""
    if not isinstance(value, dict | list) or at in leave:
        return
    if is_mark(value):
        yield from (((*at, word), name) for word, name in value.items())
        return
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from find(item, (*at, step), leave)


def replace(value: object, word: str, stand_in: Callable[[dict[str, object]], object]) -> object:
    """Return `value` with each mark of `word` replaced; parts without one are not copied."""
    if isinstance(value, dict):
        if len(value) == 1 and word in value:
            return stand_in(value)
        filled = {key: replace(item, word, stand_in) for key, item in value.items()}
        return filled if any(filled[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        entries = [replace(item, word, stand_in) for item in value]
        return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
    return value


def size(value: object) -> int:
    """Count the values inside a value, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(size, value.values()))
    return 1 + sum(map(size, value)) if isinstance(value, list) else 1


# Tables of fields: what an object of the document may hold, who reads it, and what holds when it is left out.
#
# A level is one kind of object (a graph, a node, a task, a slice ...). The tables are the single list of the
# document's fields: reading walks them, and the reference can be printed from them.


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one value: returns what it means, or None after noting a fault."""

    takes: str
    read: Callable[[object, Path, Faults], object]


class Required:
    """Marks a field without a default: it is required."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, its reader, what is meant when it is left out, and a sentence for the reference."""

    name: str
    reader: Reader
    default: object
    doc: str


class Level:
    """The fields that one kind of object may hold; `name` is what that is called, as in `a task`."""

    __slots__ = ("_inner", "_readers", "_required", "fields", "name")

    def __init__(self, name: str, *fields: Field, inner: "tuple[str, Level] | None" = None) -> None:
        self.name = name
        self.fields = fields
        self._inner = inner  # the field that holds the next level: people forget it
        self._readers = {field.name: field.reader.read for field in fields}
        self._required = tuple(field.name for field in fields if field.default is REQUIRED)

    @property
    def takes(self) -> str:
        return f"an object with the fields of {self.name}"

    def read(self, value: object, at: Path, faults: Faults) -> dict[str, object]:
        """Read the fields that are present and valid; note unknown, invalid and missing ones."""
        if not isinstance(value, dict):
            faults.wrong(at, self.takes, value)
            return {}
        found: dict[str, object] = {}
        for name, item in value.items():
            read = self._readers.get(name)
            if read is None:
                self._refuse(name, at, faults)
            elif (kept := read(item, (*at, name), faults)) is not None:
                found[name] = kept
        for name in self._required:
            if name not in value:
                faults.add(at, f"needs the field {quoted(name)}")
        return found

    def holds(self, name: str) -> bool:
        """Whether it has a field of that name."""
        return name in self._readers

    def reader(self, name: str) -> Reader:
        """Return the reader of a field."""
        return next(field.reader for field in self.fields if field.name == name)

    def _refuse(self, name: str, at: Path, faults: Faults) -> None:
        if self._inner is not None and self._inner[1].holds(name):
            faults.add((*at, name), f"belongs inside {self._inner[0]}; move it there")
            return
        meant = faults.meant(name, self._readers) or f"; its fields are {', '.join(self._readers)}"
        faults.add((*at, name), f"unknown field {quoted(name)} of {self.name}{meant}")


def record(level: Level, make: Callable[..., object]) -> Reader:
    """Read an object of `level` into what `make` makes of its fields."""

    def read(value: object, at: Path, faults: Faults) -> object:
        before = faults.noted
        found = level.read(value, at, faults)
        return make(**found) if faults.noted == before else None

    return Reader(level.takes, read)


#: Unicode's controls, formats (such as marks that turn the direction of text), surrogates and line ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def name_fault(name: str, longest: int = NAME_MAX) -> str | None:
    """Return what is wrong with a name that people read and type; None if it is valid."""
    if not name:
        return "is empty; give it a name"
    if len(name) > longest:
        return f"has {len(name)} characters; at most {longest}"
    if name[0].isspace() or name[-1].isspace():
        return f"has outer blanks; write {quoted(name.strip())}"
    if name.isascii() and name.isprintable():
        return None
    return _hidden_fault(name)


def read_name(longest: int = NAME_MAX) -> Reader:
    """Read a name."""
    takes = f"a string of 1 to {longest} characters, none hidden"

    def read(value: object, at: Path, faults: Faults) -> str | None:
        if not isinstance(value, str):
            faults.wrong(at, takes, value)
            return None
        if fault := name_fault(value, longest):
            faults.add(at, fault)
            return None
        return value

    return Reader(takes, read)


def text(longest: int, *, empty: bool = False) -> Reader:
    """Read a text."""
    takes = f"a string of {0 if empty else 1} to {longest} characters"

    def read(value: object, at: Path, faults: Faults) -> str | None:
        if isinstance(value, str) and len(value) <= longest and (value or empty):
            return value
        _refuse_text(value, takes, at, faults)
        return None

    return Reader(takes, read)


def text_or_subs(longest: int, *, empty: bool = False) -> Reader:
    """Read a text of a payload, for which a `$subs` object may stand."""
    takes = f"a string of {0 if empty else 1} to {longest} characters"

    def read(value: object, at: Path, faults: Faults) -> object:
        if isinstance(value, str) and len(value) <= longest and (value or empty):
            return value
        if isinstance(value, dict) and len(value) == 1 and SUBS in value:
            return value
        _refuse_text(value, takes, at, faults)
        return None

    return Reader(takes, read)


def matching(pattern: str, takes: str) -> Reader:
    """Read a text of a fixed form."""
    form = re.compile(pattern)

    def read(value: object, at: Path, faults: Faults) -> str | None:
        if isinstance(value, str) and form.fullmatch(value):
            return value
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


#: Dots, `*` and `#` mean something in a routing key, so a routing is one plain word. Empty is as good as absent.
ROUTING = matching(rf"[A-Za-z0-9_-]{{0,{ROUTING_MAX}}}", f"at most {ROUTING_MAX} of the characters A-Z a-z 0-9 _ -")


def integer(low: int, high: int) -> Reader:
    """Read an integer between two bounds; `true` and `1.0` are none."""
    takes = f"an integer from {low} to {high}"

    def read(value: object, at: Path, faults: Faults) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


def number(low: float, high: float) -> Reader:
    """Read a number between two bounds."""
    takes = f"a number from {low:g} to {high:g}"

    def read(value: object, at: Path, faults: Faults) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


def processors(high: int) -> Reader:
    """Read a number of processors, in thousandths."""
    takes = f"a number from 0.001 to {high}, with at most 3 decimal places"

    def read(value: object, at: Path, faults: Faults) -> int | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.001 <= value <= high:
            parts = round(value * 1000)
            if parts / 1000 == value:
                return parts
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


def memory_size(high_mb: int) -> Reader:
    """Read a size in whole MiB, rounded up."""
    takes = "a size such as 512MiB, 1.5GiB or 16GB"

    def read(value: object, at: Path, faults: Faults) -> int | None:
        found = size_mb(value) if isinstance(value, str) else None
        if found is None or not 1 <= found <= high_mb:
            faults.wrong(at, takes, value)
            return None
        return found

    return Reader(takes, read)


def boolean() -> Reader:
    """Read true or false."""
    return constant(bool, "true or false")


def constant(kind: type, takes: str, only: object = None) -> Reader:
    """Read a value of one type as it is, or only one such value."""

    def read(value: object, at: Path, faults: Faults) -> object:
        if isinstance(value, kind) and (only is None or value == only):
            return value
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


def choice(words: type[StrEnum]) -> Reader:
    """Read one of a few words."""
    known = {str(word): word for word in words}
    takes = f"one of {', '.join(known)}"

    def read(value: object, at: Path, faults: Faults) -> StrEnum | None:
        if isinstance(value, str) and value in known:
            return known[value]
        meant = faults.meant(value, known) if isinstance(value, str) else ""
        faults.add(at, f"must be {takes}; got {shown(value)}{meant}")
        return None

    return Reader(takes, read)


def list_of(entry: Reader, least: int, most: int) -> Reader:
    """Read a list into a tuple."""
    takes = f"a list of {least} to {most} entries, each {entry.takes}"

    def read(value: object, at: Path, faults: Faults) -> tuple[object, ...] | None:
        if not isinstance(value, list):
            faults.wrong(at, takes, value)
            return None
        if not least <= len(value) <= most:
            faults.add(at, f"must hold {least} to {most} entries; got {len(value)}")
            return None
        kept = [entry.read(item, (*at, index), faults) for index, item in enumerate(value)]
        return tuple([item for item in kept if item is not None])

    return Reader(takes, read)


def distinct(entries: Reader, key: Callable[[object], object], what: str) -> Reader:
    """Read a list in which nothing occurs twice."""

    def read(value: object, at: Path, faults: Faults) -> object:
        kept = entries.read(value, at, faults)
        if not isinstance(kept, tuple) or not isinstance(value, list) or len(kept) < len(value):
            return kept
        seen: set[object] = set()
        for index, item in enumerate(kept):
            if key(item) in seen:
                faults.add((*at, index), f"repeats the {what} {shown(key(item))}; name it once")
            seen.add(key(item))
        return kept

    return Reader(entries.takes, read)


def pairs_of(key: Reader, value: Reader, most: int) -> Reader:
    """Read a mapping into pairs sorted by key."""
    takes = f"an object of at most {most} entries, each {value.takes}"

    def read(found: object, at: Path, faults: Faults) -> tuple[tuple[str, object], ...] | None:
        if not isinstance(found, dict):
            faults.wrong(at, takes, found)
            return None
        if len(found) > most:
            faults.add(at, f"must hold at most {most} entries; got {len(found)}")
            return None
        kept = (
            (label, value.read(item, (*at, label), faults))
            for label, item in found.items()
            if key.read(label, (*at, label), faults) is not None
        )
        return tuple(sorted((label, item) for label, item in kept if item is not None))

    return Reader(takes, read)


def tags(key: Reader, value: Reader, most: int) -> Reader:
    """Read tags, a mapping or a list of `key:value`, into sorted pairs: a key may have several values in a list."""
    mapping = pairs_of(key, value, most)
    takes = f"{mapping.takes}; or a list of key:value, in which a key may stand more than once"

    def read(found: object, at: Path, faults: Faults) -> object:
        if not isinstance(found, list):
            return mapping.read(found, at, faults)
        if len(found) > most:
            faults.add(at, f"must hold at most {most} entries; got {len(found)}")
            return None
        kept = {_tag(one, key, value, (*at, index), faults) for index, one in enumerate(found)}
        return tuple(sorted(pair for pair in kept if pair is not None))

    return Reader(takes, read)


def _tag(found: object, key: Reader, value: Reader, at: Path, faults: Faults) -> tuple[str, str] | None:
    if not isinstance(found, str) or ":" not in found:
        faults.wrong(at, "a text key:value", found)
        return None
    before, (left, _, right) = faults.noted, found.partition(":")
    key.read(left, at, faults)
    value.read(right, at, faults)
    return (left, right) if faults.noted == before else None


def shorthand(short: Reader, kind: type, long: Reader) -> Reader:
    """Read a value of the simple `kind` by `short`, and anything else by `long`."""

    takes = f"{short.takes}, or {long.takes}"

    def read(value: object, at: Path, faults: Faults) -> object:
        if isinstance(value, kind):
            return short.read(value, at, faults)
        if isinstance(value, dict | list):
            return long.read(value, at, faults)
        faults.wrong(at, takes, value)
        return None

    return Reader(takes, read)


def _hidden_fault(name: str) -> str | None:
    hidden = next((letter for letter in name if unicodedata.category(letter) in _HIDDEN), None)
    if hidden is not None:
        return f"holds the hidden character U+{ord(hidden):04X}; remove it"
    normal = unicodedata.normalize("NFC", name)
    return None if normal == name else f"is not in Unicode's composed form (NFC); write {quoted(normal)}"


def _refuse_text(value: object, takes: str, at: Path, faults: Faults) -> None:
    if isinstance(value, str):
        faults.add(at, f"must be {takes}; got {len(value)}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        faults.add(at, f'must be a string; write "{shown(value)}"')
    else:
        faults.wrong(at, takes, value)


# What a bot must have to run a slice: `{pool: lab, os: [Linux, Debian], gpu: "h100|a100", cores: ">=8"}`.
#
# A bot needs every value that is listed for a key; of the alternatives in one value (`a|b`) it needs one; `>=16` is met
# by any number that compares so. But for comparisons the rules are Swarming's. What is read comes out in one canonical
# order, so that equal demands are one queue.


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
    _check_comparisons(key, value, at, faults)
    return _alternatives(key, value, at, faults) if OR in value else value


def _check_comparisons(key: str, value: str, at: Path, faults: Faults) -> None:
    for one in value.split(OR):
        if key in SINGLE and (found := comparison.operator_of(one)):
            faults.add(at, f"must not begin with {found}: {key} is a name, which is not compared")
        elif fault := comparison.fault(one):
            faults.add(at, f"{fault}; got {quoted(one)}")


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


def span(low_ms: int, high_ms: int) -> Reader:
    """Read a span between two bounds into milliseconds."""
    takes = f"a duration from {span_text(low_ms)} to {span_text(high_ms)}, such as 90s or 1h30m"

    def read(value: object, at: Path, faults: Faults) -> int | None:
        ms = span_ms(value) if isinstance(value, str) else None
        if ms is None or not low_ms <= ms <= high_ms:
            faults.add(at, f"must be {takes}; {_instead(value)}")
            return None
        return ms

    return Reader(takes, read)


def when() -> Reader:
    """Read a time ahead: a span from the submission, or a moment."""
    takes = f"a duration up to {span_text(AHEAD_MAX_MS)}, such as 2h, or an RFC 3339 time with its zone"

    def read(value: object, at: Path, faults: Faults) -> When | None:
        if isinstance(value, str):
            if (ms := span_ms(value)) is not None and ms <= AHEAD_MAX_MS:
                return When(ms, fixed=False)
            if (ms := moment_ms(value)) is not None:
                return When(ms, fixed=True)
        faults.add(at, f"must be {takes}; {_instead(value)}")
        return None

    return Reader(takes, read)


def _instead(value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return f"write {shown(value)}s" if is_number else f"got {shown(value)}"
