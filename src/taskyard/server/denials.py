"""Denials leave audit rows: a few each second, and then a count, so that a flood of them cannot fill the disk."""

import time
from contextlib import suppress
from typing import Final

from taskyard.engine.engine import Engine
from taskyard.engine.errors import Trouble
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Passage

#: How many are written one by one: so many at once, and so many more each second.
BURST_MAX: Final = 20
PER_SECOND: Final = 2.0
ACTION: Final = "denied"
_NOTE_MAX: Final = 500


class Denials:
    """Writes denials down. Used by one thread, the one of the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._room = float(BURST_MAX)
        self._at = time.monotonic()
        self._unwritten = 0

    def note(self, actor: str, what: str) -> None:
        """Write a denial down, or only count it; nobody waits for it."""
        now = time.monotonic()
        self._room = min(BURST_MAX, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self._room < 1:
            self._unwritten += 1
            return
        self._room -= 1
        others = f" (and {self._unwritten} more before)" if self._unwritten else ""
        note = f"{_clean(what)[:_NOTE_MAX]}{others}"
        self._unwritten = 0

        def act(passage: Passage) -> None:
            passage.audit(actor, ACTION, NO_SUBJECT, note)

        with suppress(Trouble):  # whoever was denied is denied, also while nothing can be written
            self._engine.loop.begin(act, Boundary.OTHER)


def _clean(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)
