"""What the doctor finds: a stored value that disagrees with the rows that it follows from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from taskyard.core.ids import Key, text_of

Value: TypeAlias = int | str | None

# What a finding can be about.
GRAPH: Final = "graph"
TASK: Final = "task"
ATTEMPT: Final = "attempt"
EVENT: Final = "event"
HOLD: Final = "hold"
QUEUE: Final = "queue"
SERVICE: Final = "service"
BOT: Final = "bot"
BOT_QUEUE: Final = "bot_queue"
MUTEX: Final = "mutex"
LIMIT: Final = "limit"
POOL: Final = "pool"
DOCUMENT: Final = "document"

#: The kinds whose subject is the key of a task or a graph. The last four are tables of what attempts leave behind.
_KEYED: Final = frozenset({GRAPH, TASK, ATTEMPT, EVENT, HOLD, "result", "attempt_stats", "output_chunk", "progress"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One column of one subject: the stored value, the counted one, and whether `repair` can write the counted one."""

    kind: str
    subject: int | str
    column: str
    stored: Value
    counted: Value
    mendable: bool = True

    @property
    def is_keyed(self) -> bool:
        """Whether its subject is the key of a task or a graph."""
        return self.kind in _KEYED

    def __str__(self) -> str:
        name = text_of(Key(int(self.subject))) if self.is_keyed else self.subject
        end = "repair can mend it" if self.mendable else "a person has to look at it"
        return f"{self.kind} {name}: {self.column} is {_said(self.stored)} and should be {_said(self.counted)}; {end}"


def differences(
    kind: str, subject: int | str, columns: Sequence[str], stored: Sequence[Any], counted: Sequence[Any]
) -> Iterator[Finding]:
    """Report the columns of a row that are not as they were counted."""
    for column, before, after in zip(columns, stored, counted, strict=True):
        if before != after:
            yield Finding(kind, subject, column, before, after)


def broken(kind: str, subject: int | str, column: str, stored: Value, expected: Value) -> Finding:
    """Report a broken invariant: the rows do not tell which of the two values is right, so no repair changes it."""
    return Finding(kind, subject, column, stored, expected, mendable=False)


def _said(value: Value) -> str:
    return "empty" if value is None else str(value)
