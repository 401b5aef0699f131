"""The diary of the bots: what happened to each of them, the newest first. Nothing here decides anything."""

from collections.abc import Sequence
from typing import Final

from taskyard.core import ids
from taskyard.lifecycle.moves import Corridor

CONNECTED: Final = "connected"
ENDED: Final = "ended"
MISSING: Final = "missing"
ERROR: Final = "error"
FREED: Final = "freed"


def note(
    corridor: Corridor,
    bots: Sequence[str],
    kind: str,
    text: str = "",
    about: tuple[int | None, int | None] = (None, None),
) -> None:
    """Write an event for each of some bots; about a task and its attempt, if it is."""
    known = corridor.txn.bots.look(bots)
    rows = []
    for id, bot in known.items():
        rows.append((id, ids.bot_event_text(bot.events), corridor.now, kind, *about, text))
    corridor.txn.bots.add_events(rows)
    corridor.txn.bots.count_events([(id, bot.events + 1) for id, bot in known.items()])
