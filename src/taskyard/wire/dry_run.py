"""What would become of a graph if it were submitted now, as JSON. Plain dataclasses, as in `wire/api.py`."""

from dataclasses import dataclass, field
from typing import Final

from taskyard.wire.why import WhyBots, WhyOther

#: What would become of a task: it begins at once, waits for something, comes after others, or no bot can run it.
NOW: Final = "now"
WAITS: Final = "waits"
AFTER: Final = "after"
NEVER: Final = "never"
VERDICTS: Final = (NEVER, WAITS, NOW, AFTER)


@dataclass(frozen=True, slots=True)
class DryTask:
    """One task: what would become of it, and why; what does not belong to its reason is null or empty."""

    label: str
    verdict: str  # now, waits, after, never
    reason: str
    sentence: str
    after: list[str] = field(default_factory=list)  # some of the labels that it requires
    slice: int = 1  # the slice it would begin with
    dimensions: dict[str, list[str]] = field(default_factory=dict)
    bots: WhyBots | None = None
    name: str | None = None  # of the mutex, the limit or the pool
    other: WhyOther | None = None
    used: int | None = None
    total: int | None = None
    need: int | None = None
    place: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would become of a graph; nothing was stored."""

    name: str
    tasks: int
    sentence: str
    counts: dict[str, int]  # how many tasks have each verdict
    items: list[DryTask]  # those that no bot can run first, then in the order of the document
    more: int  # how many are not listed
    whole: bool  # whether every task that is pending now was taken into account
