"""What is wrong with a document, and where; every fault at once, never only the first.

A fault is plain text and a place. Nothing here knows a rule of graphs or of YAML.
"""

from collections.abc import Iterable
from dataclasses import dataclass

#: A person mends a page of faults at a time; a hostile document must not buy an answer longer than itself.
FAULTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: in words, at a path in the document, on a line of its text, as far as these are known."""

    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None


class RefusedDocument(ValueError):
    """A document that nothing is done with; `faults` says why, each fault once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.message for fault in self.faults))


class UnreadableDocument(RefusedDocument):
    """A text that is no good document; `value` is what could be read all the same, if reading came to the end."""

    def __init__(self, faults: Iterable[Fault], value: object = None) -> None:
        super().__init__(faults)
        self.value = value


class Findings:
    """Collects faults while reading goes on, and refuses the document at the end, or when there are too many."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """Note a fault that reading can go on after."""
        self._faults.append(Fault(message, line=line, column=column))
        if len(self._faults) >= FAULTS_MAX:
            raise UnreadableDocument([*self._faults, Fault(f"there are more than {FAULTS_MAX} faults")])

    def stop(self, message: str, line: int | None = None, column: int | None = None) -> UnreadableDocument:
        """Give the error for a fault that ends the reading, with those found before it."""
        return UnreadableDocument([*self._faults, Fault(message, line=line, column=column)])

    def refuse(self, value: object = None) -> None:
        """Raise what was found, if anything was, with what was read."""
        if self._faults:
            raise UnreadableDocument(self._faults, value)
