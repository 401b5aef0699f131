"""Faults of a document: every one, with its path and how to fix it.

A path is a tuple of keys and indices and becomes text only when its fault is listed, since most paths never are.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from taskyard.core.close_match import closest
from taskyard.core.graph.model import FAULTS_MAX, INTEGER_MAX, NAME_MAX

#: A place in a document: keys and indices from its top.
Path = tuple[str | int, ...]

_WORD = re.compile(r"[A-Za-z0-9_$-]+")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, what, and what to write instead."""

    path: str
    message: str
    labels: tuple[str, ...] = field(default=(), compare=False)  # of a cycle: all of it, each requiring the next


class Faults:
    """Collects the faults of one document, each once; lists the first of them and counts the rest.

    `noted` only grows, also for repeated faults: compare it to see whether a part was read without faults.
    """

    __slots__ = ("_listed", "_others", "noted", "redefined")

    def __init__(self) -> None:
        self.noted = 0
        self.redefined = 0  # how many of those say that a label exists with another definition
        self._listed: dict[tuple[Path, str], tuple[str, ...]] = {}
        self._others: set[int] = set()

    def add(self, at: Path, message: str, labels: tuple[str, ...] = ()) -> None:
        """Note a fault. The same one again, as from each combination of a matrix, is one fault."""
        self.noted += 1
        fault = (at, message)
        if fault in self._listed or not self.full:
            self._listed[fault] = labels
        else:
            self._others.add(hash(fault))  # only counted, so its text need not be kept

    def take(self, others: "Faults", move: Callable[[Path], Path]) -> None:
        """Note the faults of a part that was read by itself, each at its place in the whole."""
        listed, uncounted = others.parts()
        for at, message, labels in listed:
            self.add(move(at), message, labels)
        self.noted += len(uncounted)
        self._others |= uncounted

    def parts(self) -> tuple[list[tuple[Path, str, tuple[str, ...]]], frozenset[int]]:
        """Return the listed faults as they were noted, and the hashes of those that are only counted."""
        return [(at, message, labels) for (at, message), labels in self._listed.items()], frozenset(self._others)

    @property
    def full(self) -> bool:
        """Whether another fault would only be counted."""
        return len(self._listed) >= FAULTS_MAX

    def wrong(self, at: Path, takes: str, value: object) -> None:
        """Note that `value` is not what its field takes."""
        self.add(at, f"must be {takes}; got {shown(value)}")

    def meant(self, name: str, *among: Collection[str]) -> str:
        """Suggest a known name; empty if none is near, or if the fault will only be counted."""
        searched = () if self.full else among
        found = next((near for near in (closest(name, names) for names in searched) if near is not None), None)
        return "" if found is None else f"; did you mean {quoted(found)}?"

    def listed(self) -> tuple[Fault, ...]:
        """Return the first faults in the order they were found, and one last that counts the others."""
        listed = [Fault(path_text(at), message, labels) for (at, message), labels in self._listed.items()]
        if more := len(self._others):
            listed.append(Fault("", f"and {more} more {'fault' if more == 1 else 'faults'}"))
        return tuple(listed)


def path_text(at: Path) -> str:
    """Write a place as text: `tasks.test.requires[1]`, `tasks["a b"].task`."""
    return "".join(_step_text(step) for step in at).removeprefix(".")


def word(name: str) -> str:
    """Write a plain word as it is, and any other name in quotes."""
    return name if _is_word(name) else quoted(name)


def quoted(name: str) -> str:
    """Quote a name so that hidden or hostile characters in it do no harm where it is shown."""
    inner = "".join(_visible(letter) for letter in name[:NAME_MAX])
    return f'"{inner}..."' if len(name) > NAME_MAX else f'"{inner}"'


def shown(value: object) -> str:
    """Describe a value in a message: scalars as they are, others by kind."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        return "a huge integer"  # Python refuses to write some of these out
    if isinstance(value, int | float):
        return repr(value)
    return "a list" if isinstance(value, list) else "an object"


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _is_word(step) else f"[{quoted(step)}]"


def _is_word(name: str) -> bool:
    return len(name) <= NAME_MAX and _WORD.fullmatch(name) is not None


def _visible(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\u{ord(letter):04x}"
