"""What the doctor finds: one thing that is stored and does not follow from the rest. It mends nothing."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from taskyard.core.ids import Key, text_of

Value: TypeAlias = int | str | None

# What a finding can be about.
GRAPH: Final = "graph"
TASK: Final = "task"
ATTEMPT: Final = "attempt"
EVENT: Final = "event"
EDGE: Final = "edge"
HOLD: Final = "hold"
QUEUE: Final = "queue"
SERVICE: Final = "service"
BOT: Final = "bot"
BOT_QUEUE: Final = "bot_queue"
MUTEX: Final = "mutex"
LIMIT: Final = "limit"
POOL: Final = "pool"

#: Whose subject is the key of a task or a graph.
_KEYED: Final = frozenset({GRAPH, TASK, ATTEMPT, EVENT, EDGE, HOLD, "result", "attempt_stats", "output_chunk"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One column of one subject: what is stored there, what counting gives, and whether `repair` can mend it."""

    kind: str
    subject: int | str
    column: str
    stored: Value
    counted: Value
    mendable: bool = True

    def __str__(self) -> str:
        name = text_of(Key(int(self.subject))) if self.kind in _KEYED else self.subject
        end = "repair can mend it" if self.mendable else "a person has to look at it"
        return f"{self.kind} {name}: {self.column} is {_said(self.stored)} and should be {_said(self.counted)}; {end}"


def _said(value: Value) -> str:
    return "empty" if value is None else str(value)
