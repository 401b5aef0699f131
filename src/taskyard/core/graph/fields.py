"""Tables of fields: what an object of the document may hold, who reads it, and what holds when it is left out.

A level is one kind of object (a graph, a node, a task, a slice ...). The tables are the single list of the
document's fields: reading walks them, and the reference can be printed from them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from taskyard.core.graph.faults import Faults, Path, quoted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one value: gives what it means, or None after noting why it means nothing."""

    takes: str
    read: Callable[[object, Path, Faults], object]


class Required:
    """Stands where a default would: the field has to be given."""

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
        """Tell whether it has a field of that name."""
        return name in self._readers

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
