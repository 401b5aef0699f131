"""The folder that belongs to one bot: a lock, a mark, and the places of the attempts that run now.

Nothing but the mark outlives the bot's life: the next one begins by clearing the rest.
"""

import fcntl
import hashlib
import os
import secrets
import uuid
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

from taskyard.bot.room import remove_tree

#: How long the name of a folder is: enough to tell apart a handful of bots that were given one name.
NAME_DIGITS: Final = 10
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
        self._mark = folder.resolve() / "mark"

    def name(self, marker: str) -> str:
        """Give what this folder, on this machine since it was started, is called in the names of sessions.

        The same name twice means that the bot before this one had this very folder, and that whatever it left is found
        by `marker`. So a copy of the folder has another name: elsewhere on this machine by its path and its lock, on
        another machine, even one that is a copy itself, by when that was started.
        """
        try:
            word = self._mark.read_text(encoding="utf-8")
        except FileNotFoundError:
            word = secrets.token_hex(8)
            self._mark.write_text(word, encoding="utf-8")
        lock = os.fstat(self._lock.fileno())
        told = "\n".join((word, marker, _boot(), f"{lock.st_dev}:{lock.st_ino}"))
        return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:NAME_DIGITS]

    def sweep(self) -> None:
        """Remove what the last life left, and begin with an empty place of work."""
        remove_tree(str(self.work))
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)

    def close(self) -> None:
        """Let others have the folder."""
        remove_tree(str(self.work))
        self._lock.close()


def _boot() -> str:
    """Name this machine since it was last started; containers on one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return f"{uuid.getnode()} {psutil.boot_time():.0f}"
