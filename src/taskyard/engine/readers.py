"""Readers of single values in what somebody says to the engine: each says what it takes, and what is wrong instead.

A command is made in Python, so types have to be right to the letter: a subclass may do anything, and `True` is no
number. Nothing here knows a command.
"""

from collections.abc import Callable
from typing import Any

from taskyard.core import ids
from taskyard.core.graph.dimensions import KEY
from taskyard.core.graph.faults import Faults, Path, shown
from taskyard.core.graph.fields import Reader
from taskyard.core.graph.limits import DIMENSION_KEY_MAX, DIMENSION_VALUE_MAX, NAME_MAX
from taskyard.core.graph.readers import name_fault
from taskyard.core.matching import OR, canonical
from taskyard.core.words import Word
from taskyard.engine.bounds import BOT_DIMENSION_VALUES_MAX, BOT_DIMENSIONS_MAX


def exactly(kind: type, takes: str, fits: Callable[[Any], bool] = lambda _: True) -> Reader:
    """Take a value of one type, and of no other."""

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not kind or not fits(value):
            faults.add(at, f"must be {takes}; got {named(value)}")

    return Reader(takes, read)


def number(low: int, high: int) -> Reader:
    """Take a whole number."""
    return exactly(int, f"an integer from {low} to {high}", lambda value: low <= value <= high)


def one_of(kind: type[Word], allowed: frozenset[Any]) -> Reader:
    """Take one of some words."""
    listed = ", ".join(f"{kind.__name__}.{one.name}" for one in kind if one in allowed)
    return exactly(kind, f"one of {listed}", lambda value: value in allowed)


def name(longest: int = NAME_MAX, *, empty: bool = False) -> Reader:
    """Take a name, in which nothing is hidden."""
    takes = f"a string of {0 if empty else 1} to {longest} characters, none hidden"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif (value or not empty) and (fault := name_fault(value, longest)):
            faults.add(at, fault)

    return Reader(takes, read)


def several(one: Reader, least: int, most: int) -> Reader:
    """Take a tuple of values that are read alike."""
    takes = f"a tuple of {least} to {most}, each {one.takes}"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple or not least <= len(value) <= most:
            faults.add(at, f"must be {takes}; got {named(value)}")
            return
        for place, each in enumerate(value):
            one.read(each, (*at, place), faults)

    return Reader(takes, read)


def text(longest: int, *, empty: bool = False) -> Reader:
    """Take any text that both databases keep."""
    shortest = 0 if empty else 1
    takes = f"a string of {shortest} to {longest} characters, without NUL"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif not shortest <= len(value) <= longest:
            faults.add(at, f"must be {takes}; got {len(value)}")
        elif "\0" in value:
            faults.add(at, "holds a NUL character; remove it")
        elif not _can_be_written(value):
            faults.add(at, "holds a lone surrogate, which is not a character; remove it")

    return Reader(takes, read)


def or_none(reader: Reader) -> Reader:
    """Take what another reader does, or None."""

    def read(value: object, at: Path, faults: Faults) -> None:
        if value is not None:
            reader.read(value, at, faults)

    return Reader(f"{reader.takes}; or None", read)


def key() -> Reader:
    """Take an id."""
    takes = f"an id, {ids.KEY_DIGITS} hexadecimal digits"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not str:
            faults.add(at, f"must be {takes}; got {named(value)}")
            return
        try:
            ids.key_of(value)
        except ValueError as fault:
            faults.add(at, str(fault))

    return Reader(takes, read)


def some_bytes(most: int) -> Reader:
    """Take bytes."""
    return exactly(bytes, f"at most {most} bytes", lambda value: len(value) <= most)


def dimensions() -> Reader:
    """Take what a bot has."""
    takes = "dimensions in canonical form, with the bot's own id and a pool"

    def read(value: object, at: Path, faults: Faults) -> None:
        if type(value) is not tuple or not all(map(_is_dimension, value)):
            faults.add(at, f"must be {takes}; got {named(value)}")
        elif len(value) > BOT_DIMENSIONS_MAX:
            faults.add(at, f"must hold at most {BOT_DIMENSIONS_MAX} keys; got {len(value)}")
        else:
            before = faults.noted
            for key, values in value:
                _read_dimension(key, values, (*at, key), faults)
            if faults.noted == before and canonical(dict(value)) != value:
                faults.add(at, "must have each key and each value once, in their order: use `matching.canonical`")

    return Reader(takes, read)


def _is_dimension(one: object) -> bool:
    if type(one) is not tuple or len(one) != 2:
        return False
    key, values = one
    return type(key) is str and type(values) is tuple and all(type(value) is str for value in values)


def _read_dimension(key: str, values: tuple[str, ...], at: Path, faults: Faults) -> None:
    if KEY.fullmatch(key) is None:
        faults.add(at, f"is no dimension key; use 1 to {DIMENSION_KEY_MAX} of the characters A-Z a-z 0-9 _ . -")
    if not 1 <= len(values) <= BOT_DIMENSION_VALUES_MAX:
        faults.add(at, f"must hold 1 to {BOT_DIMENSION_VALUES_MAX} values; got {len(values)}")
        return
    for place, value in enumerate(values):
        if fault := name_fault(value, DIMENSION_VALUE_MAX):
            faults.add((*at, place), fault)
        elif OR in value:
            faults.add((*at, place), f"must not hold {OR}: a bot has a value or has it not")


def named(value: object) -> str:
    """Name a value in a message. What is not plain is named by its type only: it may hold or do anything."""
    if isinstance(value, Word):
        return f"{type(value).__name__}.{value.name}"
    plain = value is None or type(value) in (str, int, float, bool)
    return shown(value) if plain else f"a {type(value).__name__}"


def _can_be_written(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
