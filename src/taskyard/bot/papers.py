"""What a warm worker leaves, whatever ended it: its output and its journal, which the runner has open, too."""

import os
from typing import Final

from taskyard.bot import outputs
from taskyard.bot.intake import READ_MAX
from taskyard.bot.journal import NOBODY, Journal
from taskyard.bot.worker_frames import Said, packed

#: How much of what was printed at last is told: a frame holds it, though it is written as text twice.
_LAST_MAX: Final = 4_194_304


class Papers:
    """Two files without names."""

    def __init__(self) -> None:
        self.output = outputs.fresh()
        self.journal = outputs.fresh()
        os.ftruncate(self.journal, Journal.size())
        journal = Journal(self.journal)
        journal.take(NOBODY)
        journal.close()

    def read(self) -> tuple[int | None, bytes]:
        """Give the call that was in hand, and the frames that were not sent, with the last of what it printed."""
        journal = Journal(self.journal)
        run, told = journal.in_hand()
        frames = bytes(journal.waiting())
        journal.close()
        return (None, frames) if run == NOBODY else (run, frames + self._last(run, told))

    def close(self) -> None:
        os.close(self.output)
        os.close(self.journal)

    def _last(self, run: int, told: int) -> bytes:
        rest = os.pread(self.output, _LAST_MAX, told)
        pieces = range(0, len(rest), READ_MAX)
        return b"".join(packed(Said(run, told + start, rest[start : start + READ_MAX])) for start in pieces)
