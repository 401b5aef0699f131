"""Reads the fields of a small object that somebody sent: every fault is noted, and told at the end."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from taskyard.core.graph.faults import Faults
from taskyard.core.graph.limits import DESCRIPTION_MAX, NAME_MAX
from taskyard.core.graph.readers import name_fault
from taskyard.server.problems import invalid
from taskyard.wire import api

T = TypeVar("T")
_UNSAID = object()


class Fields:
    """The fields of one object."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = dict(said)
        self._known: list[str] = []
        self._faults = Faults()

    def has(self, name: str) -> bool:
        """Tell whether something was said."""
        return name in self._said

    def told(self, name: str) -> bool:
        """Tell whether something else than null was said; null is then as good as nothing."""
        if self._said.get(name, _UNSAID) is None:
            del self._said[name]
        self._known.append(name)
        return name in self._said

    def flag(self, name: str, default: bool) -> bool:
        """Read true or false."""
        return self._read(name, default, "true or false", lambda value: isinstance(value, bool))

    def number(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """Read a whole number, or null."""
        takes = f"null or an integer from {least} to {most}"
        return self._read(name, default, takes, lambda value: value is None or _is_within(value, least, most))

    def text(self, name: str, default: str | None, most: int = DESCRIPTION_MAX) -> str | None:
        """Read text, or null."""
        takes = f"null or a string of 1 to {most} characters"
        return self._read(name, default, takes, lambda value: value is None or _is_text(value, most))

    def name(self, name: str, default: str, most: int = NAME_MAX) -> str:
        """Read a name; without a default (empty) it has to be there."""
        value = self._read(name, default, "a string", lambda value: isinstance(value, str))
        if (value or not default) and (fault := name_fault(value, most)):
            self._faults.add((name,), fault)
        return value

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """Read one of some words."""
        return self._read(name, default, f"one of {', '.join(allowed)}", lambda value: value in allowed)

    def names(self, name: str, most: int, fault: Callable[[str], str | None]) -> tuple[str, ...]:
        """Read a list of texts, each of which is looked at."""
        takes = f"a list of at most {most} strings"
        none: list[str] = []
        found = self._read(name, none, takes, lambda value: _are_texts(value, most))
        for place, one in enumerate(found):
            if wrong := fault(one):
                self._faults.add((name, place), wrong)
        return tuple(found)

    def add(self, name: str, message: str) -> None:
        """Note a fault that only somebody else can find."""
        self._faults.add((name,), message)

    def close(self) -> None:
        """Refuse the object, if anything is wrong with it."""
        for name in self._said:
            if name not in self._known:
                self._faults.add((name,), f"is no field{self._faults.meant(name, self._known)}")
        if listed := self._faults.listed():
            faults = [api.Fault(one.message, one.path) for one in listed]
            raise invalid(f"the body has {len(faults)} fault{'s' * (len(faults) > 1)}", faults)

    def _read(self, name: str, default: T, takes: str, fits: Callable[[Any], bool]) -> T:
        self._known.append(name)
        value = self._said.get(name, _UNSAID)
        if value is _UNSAID:
            return default
        if not fits(value):
            self._faults.wrong((name,), takes, value)
            return default
        found: T = value
        return found


def _is_within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= most and "\0" not in value


def _are_texts(value: object, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most and all(isinstance(one, str) for one in value)
