"""The folder that belongs to one bot: a lock, and the places of the attempts that run now.

Nothing in it outlives the bot's life: the next one begins by clearing it.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

from taskyard.bot.room import NO_INPUTS

#: In front of what a lock says, so that nobody takes the file for something else.
_LOCK_TEXT: Final = "the process of the bot whose folder this is: "


class InUse(Exception):
    """Another bot has this folder."""


class State:
    """A bot's folder, held as long as this object is."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.work = folder.resolve() / "work"
        self._lock = (folder / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read(200).removeprefix(_LOCK_TEXT).strip() or "unknown"
            self._lock.close()
            raise InUse(f"another bot uses the folder {folder} (process {owner}); give this one its own") from error
        self._lock.truncate(0)
        self._lock.write(f"{_LOCK_TEXT}{os.getpid()}\n")
        self._lock.flush()

    def sweep(self) -> None:
        """Remove what the last life left, and begin with an empty place of work."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.work / NO_INPUTS).write_text("{}")

    def close(self) -> None:
        """Let others have the folder."""
        shutil.rmtree(self.work, ignore_errors=True)
        self._lock.close()
