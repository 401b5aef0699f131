"""What happened to a bot, for people: what was noted of it, and what it ran, in the order of time. Nothing here writes.

Nothing is noted when a task begins or ends, since that happens thousands of times a second. It is read from attempts:
those that a bot has in hand, and those of the newest tasks, as many as are looked through in a moment.
"""

from collections.abc import Iterator
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.store.connection import Txn
from taskyard.store.queries import Row
from taskyard.wire.api import BotEventView

#: Among how many attempts, those of the newest tasks first, it is looked for what a bot ran.
LOOKED_MAX: Final = 20_000
STARTED: Final = "task_started"
ENDED: Final = "task_ended"
#: Where a list begins: a moment that is never reached.
NEWEST: Final = (2**63 - 1, "")


def events(txn: Txn, id: str, after: tuple[int, str], count: int) -> tuple[list[BotEventView], tuple[int, str] | None]:
    """Show what happened to a bot, the newest first, beyond an event of a moment; say where to go on."""
    found = [_noted(row) for row in txn.reading.bot_events(id, *after, count + 1)]
    for row in txn.reading.bot_attempts(id, LOOKED_MAX):
        found += [one for one in _ran(row) if _place(one) > _place_of(*after)]
    found.sort(key=_place)
    page = found[:count]
    return page, (page[-1].at_ms, page[-1].id) if len(found) > count else None


def _noted(row: Row) -> BotEventView:
    id, at_ms, kind, task, attempt, note = row
    return BotEventView(id, at_ms, kind, None if task is None else text_of(Key(task)), attempt, note)


def _ran(row: Row) -> Iterator[BotEventView]:
    key, number, claimed_ms, ended_ms, signal, reason = row
    task = text_of(Key(key))
    yield BotEventView(f"{task}-{number}-started", claimed_ms, STARTED, task, number, "")
    if ended_ms is not None:
        yield BotEventView(f"{task}-{number}-ended", ended_ms, ENDED, task, number, f"{signal}: {reason}")


def _place(one: BotEventView) -> tuple[int, str]:
    return _place_of(one.at_ms, one.id)


def _place_of(at_ms: int, id: str) -> tuple[int, str]:
    """Where an event stands in a list that has the newest first; of one moment, an end is before its start."""
    return -at_ms, id
