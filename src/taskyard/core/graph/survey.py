"""A first look over a whole document: is it made of plain values that every store and every wire can carry?

It knows nothing of graphs. What passes is JSON-like, of bounded depth and size, and its texts are free of NUL and
lone surrogates; so the readers that follow may recurse, and need not look for these again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from taskyard.core.graph.faults import Faults, Path, shown
from taskyard.core.graph.limits import DEPTH_MAX, INTEGER_MAX, VALUES_MAX
from taskyard.core.graph.marks import is_mark


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first look found: whether the document can be read at all, its size, and which tasks hold marks."""

    readable: bool
    values: int
    marked: frozenset[str]


def survey(document: object, faults: Faults) -> Survey:
    """Look at every value of `document` once and note the ones that are not plain."""
    look = _Look(faults)
    if isinstance(document, dict | list):
        look.over(document)
    else:
        look.at_scalar(document, ())
    return Survey(look.readable, look.values, frozenset(look.marked))


class _Look:
    """The state of one survey; `path` leads to the container at hand, and its length bounds the recursion.

    Every value of a large document passes here, so no place is written down before something is wrong there.
    """

    __slots__ = ("faults", "marked", "path", "readable", "values")

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.readable = True
        self.values = 0
        self.marked: set[str] = set()
        self.path: list[str | int] = []

    def over(self, container: dict[str, object] | list[object]) -> None:
        """Look at a container and all that is inside it."""
        for step, item in self.entries(container):
            if type(item) is str:
                if "\0" in item or not item.isascii():
                    self.at_text(item, (*self.path, step))
            elif type(item) is dict or type(item) is list:
                self.path.append(step)
                self.over(item)
                self.path.pop()
            elif item is not None and type(item) is not bool:
                self.at_scalar(item, (*self.path, step))

    def entries(self, container: dict[str, object] | list[object]) -> Iterable[tuple[str | int, object]]:
        """Give what is directly inside a container, unless it is too much."""
        self.values += len(container)
        if self.values > VALUES_MAX:
            self.refuse((), f"holds more than {VALUES_MAX} values; split it")
        elif len(self.path) >= DEPTH_MAX:
            self.refuse(tuple(self.path), f"is nested too deep; at most {DEPTH_MAX} levels")
        if not self.readable:
            return ()
        if type(container) is list:
            return () if _is_plain(container) else enumerate(container)
        return self.items(container)  # type: ignore[arg-type]

    def items(self, mapping: dict[str, object]) -> Iterable[tuple[str, object]]:
        """Give the items of a mapping whose keys are texts; note whether it is a mark."""
        if len(mapping) == 1 and is_mark(mapping) and len(self.path) > 1:
            self.marked.add(str(self.path[1]))
        try:
            keys = "".join(mapping)
        except TypeError:
            odd = next(key for key in mapping if type(key) is not str)
            self.refuse(tuple(self.path), f"has the key {shown(odd)}, which is not a string; quote it")
            return ()
        if "\0" in keys or not keys.isascii():
            for key in mapping:
                self.at_text(key, (*self.path, key))
        return mapping.items()

    def at_scalar(self, value: object, at: Path) -> None:
        if type(value) is str:
            self.at_text(value, at)
        elif type(value) is int:
            if abs(value) > INTEGER_MAX:
                self.faults.add(at, "is an integer beyond 2**53; write it as a string")
        elif type(value) is float:
            if not isfinite(value):
                self.faults.add(at, f"is {value}, which JSON cannot carry; write it as a string")
        elif value is not None and type(value) is not bool:
            self.refuse(at, f"is not a plain value ({type(value).__name__}); write it as a string")

    def at_text(self, text: str, at: Path) -> None:
        if "\0" in text:
            self.faults.add(at, "holds a NUL character; remove it")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            self.faults.add(at, "holds a lone surrogate, which is not a character; remove it")

    def refuse(self, at: Path, message: str) -> None:
        """Note a fault that makes reading on pointless."""
        self.faults.add(at, message)
        self.readable = False


def _is_plain(items: list[object]) -> bool:
    """Tell whether a list holds nothing but texts in which nothing can be wrong, as most lists do."""
    try:
        text = "".join(items)  # type: ignore[arg-type]
    except TypeError:
        return False
    return text.isascii() and "\0" not in text
