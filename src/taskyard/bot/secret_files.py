"""The files with secrets of running attempts.

They are in memory where the system has a file system there, so that a bot that is killed leaves nothing on a disk; what
it leaves in memory is removed when it is started again.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskyard.wire.bot_protocol import AttemptSecret
from taskyard.wire.plays import PRIVATE_VARIABLE

#: A file system in memory that every user may write to.
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_NAME_DIGITS: Final = 16
_READ_ONLY: Final = 0o400
_PRIVATE: Final = 0o700


class SecretFiles:
    """The files of all attempts of a bot, in a folder that exists once there was one."""

    def __init__(self, work: Path) -> None:
        self._prefix = f"taskyard-{hashlib.sha256(os.fsencode(work)).hexdigest()[:_NAME_DIGITS]}-"
        self._parent = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else work
        self._folder: Path | None = None

    def write(self, run: int, secrets: Iterable[AttemptSecret], *, private: bool = False) -> dict[str, str]:
        """Write files that only the user of the tasks can read; return the path for each variable.

        With `private`, the folder itself has a variable, too: a program may write there what nobody else may read.
        """
        if self._folder is None:
            # A new name each time, so that no other user can have made the file before.
            self._folder = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._parent))
        place = self._folder / str(run)
        place.mkdir(mode=_PRIVATE)
        found = {one.variable: _write(place / one.variable, one.body) for one in secrets}
        return {**found, PRIVATE_VARIABLE: str(place)} if private else found

    def remove(self, run: int) -> None:
        """Remove the files of an attempt, if it had any."""
        if self._folder is not None:
            shutil.rmtree(self._folder / str(run), ignore_errors=True)

    def clear(self) -> None:
        """Remove everything, also what an earlier life of the bot left."""
        self._folder = None
        with suppress(OSError):
            for folder in self.folders():
                shutil.rmtree(folder, ignore_errors=True)

    def folders(self) -> list[Path]:
        """Return the folders that exist, also those that an earlier life of the bot left."""
        return list(self._parent.glob(f"{self._prefix}*"))


def _write(path: Path, body: bytes) -> str:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _READ_ONLY)
    with open(file, "wb") as opened:
        opened.write(body)
    return str(path)
