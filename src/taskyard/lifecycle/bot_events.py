"""Events of bots: what happened to one, beside the attempts that it ran, which are in their own table."""

from collections.abc import Sequence
from typing import Final

from taskyard.core import ids
from taskyard.lifecycle.transaction import Transaction

#: The kinds of bot events.
CONNECTED: Final = "connected"
ENDED: Final = "ended"
MISSING: Final = "missing"
ERROR: Final = "error"
FREED: Final = "freed"
QUARANTINED: Final = "quarantined"


def record_event(
    transaction: Transaction,
    bots: Sequence[str],
    kind: str,
    text: str = "",
    about: tuple[int | None, int | None] = (None, None),
) -> None:
    """Record an event of each of some bots; `about` is the task and the attempt that it concerns, if any."""
    known = transaction.repo.bots.read(bots)
    rows = []
    for id, bot in known.items():
        rows.append((id, ids.bot_event_text(bot.events), transaction.now, kind, *about, text))
    transaction.repo.bots.add_events(rows)
    transaction.repo.bots.count_events([(id, bot.events + 1) for id, bot in known.items()])
