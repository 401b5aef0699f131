"""What a database has to offer to the verbs: run a named statement. Four ways, and a hint; no more."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

#: A row as the database gives it, or as a statement takes it.
Row: TypeAlias = tuple[Any, ...]


class Session(Protocol):
    """One open transaction of one database."""

    def rows(self, name: str, *values: object) -> list[Row]:
        """Ask: the rows that statement `name` finds."""

    def foresee(self, name: str, *values: object) -> None:
        """Hint: just this will be asked, and nothing that is written until then changes the answer."""

    def run(self, name: str, *values: object) -> int:
        """Carry out statement `name` once; say how many rows it changed."""

    def each(self, name: str, rows: Sequence[Row]) -> None:
        """Carry out statement `name` for each of `rows`."""

    def every(self, name: str, rows: Sequence[Row]) -> None:
        """Carry out statement `name` for each of `rows`; raise `Busy` if one of them changes none."""


class Busy(Exception):
    """The database asks to try the whole transaction again: a deadlock, or a lost race."""


class Taken(Exception):
    """A key is in use already: make another one."""


class Gone(Exception):
    """The database cannot be reached, or cannot write. What was sent may or may not have been done."""
