"""Readers of single values: texts, names, numbers, words of a list, and lists and mappings of these.

Each says what it takes in the words that its fault uses, so a message and the reference can never disagree. They
run after the survey, so texts are free of NUL, and numbers are finite.
"""

import re
import unicodedata
from collections.abc import Callable
from enum import StrEnum

from taskyard.core.graph.faults import Faults, Path, quoted, shown
from taskyard.core.graph.fields import Reader
from taskyard.core.graph.limits import NAME_MAX, ROUTING_MAX
from taskyard.core.graph.marks import SUBS

#: Unicode's controls, formats (such as marks that turn the direction of text), surrogates and line ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def name_fault(name: str, longest: int = NAME_MAX) -> str | None:
    """Say what is wrong with a name that people read and type; None when it is fine."""
    if not name:
        return "is empty; give it a name"
    if len(name) > longest:
        return f"has {len(name)} characters; at most {longest}"
    if name[0].isspace() or name[-1].isspace():
        return f"has outer blanks; write {quoted(name.strip())}"
    if name.isascii() and name.isprintable():
        return None
    return _hidden_fault(name)


def name(longest: int = NAME_MAX) -> Reader:
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
