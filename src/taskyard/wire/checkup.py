"""What the doctor of a database tells: all that is stored and does not follow from the rest, and what was mended.

Plain facts, for any view. Names of bots, keys and limits are in here as people gave them; whoever shows them makes
them harmless first.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One column of one subject: what is stored there and what counting gives; `sentence` says all of it."""

    kind: str
    subject: str  # an id, or a name
    column: str
    stored: int | str | None
    counted: int | str | None
    mendable: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Checkup:
    """Everything that was found, how much of it was mended, and how much is left."""

    found: tuple[Finding, ...]
    mended: int
    left: int


class Unchecked(Exception):
    """A database that nobody could look at or mend; the text says why, and what helps."""
