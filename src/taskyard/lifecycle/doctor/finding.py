"""What the doctor finds: one thing that is stored and does not follow from the rest. It mends nothing."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from taskyard.core.ids import Key, text_of

Value: TypeAlias = int | str | None

# What a finding can be about.
GRAPH: Final = "graph"
TASK: Final = "task"
DEFINITION: Final = "task_definition"
TASK_MUTEX: Final = "task_mutex"
TASK_LIMIT: Final = "task_limit"
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

#: What is about a task: its row, and what stands beside it.
OF_TASKS: Final = frozenset({TASK, DEFINITION, TASK_MUTEX, TASK_LIMIT, ATTEMPT, EVENT, EDGE})
#: Whose subject is the key of a task or a graph.
_KEYED: Final = OF_TASKS | {GRAPH, HOLD, "result", "attempt_stats", "output_chunk"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One column of one subject: what is stored there, what counting gives, and whether `repair` can mend it."""

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


def _said(value: Value) -> str:
    return "empty" if value is None else str(value)
